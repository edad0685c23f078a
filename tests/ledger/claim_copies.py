"""Copies of the ledger's claims: each with one thing changed, and the verdict that it must get."""

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import sympy

from attnlib import exact, rows, symbolic
from attnlib.initialisation import RowMoments, standard_errors
from attnlib.sampling import Estimate, mean_and_error
from attnlib.scores import Cosine, Normal
from ledger import gradient, heads, jacobian, output, scales, training, variance

Evidence = Callable[[pytest.MonkeyPatch], None]


def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the evidence as it is computed."""


class Copy(NamedTuple):
    """A statement, or what its check measures, changed in one place; what the check must say."""

    id: str
    verdict: str
    arguments: dict[str, Any]
    evidence: Evidence = as_it_is


but = dict
"""The constants of a copy that are not the source's."""


# --- other evidence: what a simulation, a proof, a run or a record could have said ----------------


def experiment_off(errors: float) -> Evidence:
    """Source 001's experiment, at one d this many standard errors from what is expected."""

    def row_moments(rng: Any, d: int, *, factor: float = 1.0) -> RowMoments:
        error, off = standard_errors(d), errors if d in (100, 512) else 0.0
        return RowMoments(off * error.mean, factor**2 * (d + off * error.variance))

    return lambda patch: [
        patch.setattr(module, "row_moments", row_moments) for module in (variance, jacobian)
    ]


def simulation_off(module: Any, errors: float = 10.0) -> Evidence:
    """A simulation whose first mean is this many standard errors larger."""

    def set_off(patch: pytest.MonkeyPatch) -> None:
        first = iter([errors])

        def estimate(values: Any) -> Estimate:
            mean, error = mean_and_error(values)
            return Estimate(mean + next(first, 0.0) * error, error)

        patch.setattr(module, "mean_and_error", estimate)

    return set_off


def unproved(name: str) -> Evidence:
    """A proof that fails; where there is one for each of several sizes, only for the largest."""

    def attempt(*size: int) -> symbolic.Identity:
        wrong = sympy.Integer(0 if size in ((2,), (3,), (5,)) else 1)
        return symbolic.Identity(wrong, sympy.S.Zero)

    return lambda patch: patch.setattr(symbolic, name, attempt)


def mean_gradients(narrow_or_scaled: float, otherwise: float) -> Evidence:
    """Exact mean gradients: one value at α = √16 and at α = 1, another elsewhere."""

    def mean(law: Any, alpha: Any, n: int) -> Any:
        return np.where(np.isin(alpha, (1.0, 4.0)), narrow_or_scaled, otherwise)

    return lambda patch: patch.setattr(exact, "gradient", mean)


def maximised_off(by: float) -> Evidence:
    """A numerical maximisation that is off by this relative error."""
    found = scales._maximise
    return lambda patch: patch.setattr(
        scales, "_maximise", lambda law, n: (1.0 + by) * found(law, n)
    )


def scale_dependent(patch: pytest.MonkeyPatch) -> None:
    """A power softmax with an epsilon."""
    patch.setattr(rows, "power_softmax", partial(rows.power_softmax, epsilon=1e-6))


def trained(spread: float = 0.0, only: str = "", **loss: float | tuple[float, ...]) -> Evidence:
    """Recorded runs: a loss for each variant, or for each of its rates.

    It varies by `spread` from seed to seed in "note". With `only` it is 0 in all other experiments.
    """

    def recorded(name: str) -> list[Any]:
        exactly = name == "residual"
        return [
            SimpleNamespace(
                setting=SimpleNamespace(
                    variant=variant,
                    config=SimpleNamespace(depth=4, width=128, sequence=128),
                    training=SimpleNamespace(
                        learning_rate=2.0 ** (i - 9), seed=seed, precision=precision, steps=3
                    ),
                ),
                run=SimpleNamespace(
                    final_loss=value + (spread * (seed - 1) if variant == "note" else 0.0),
                    losses=np.full(3, value),
                ),
            )
            for variant, given in loss.items()
            for i, value in enumerate(np.ravel(given if only in ("", name) else 0.0).tolist())
            for seed in ([0] if exactly else [0, 1, 2])
            for precision in (["float32", "float64"] if exactly else ["float32"])
        ]

    return lambda patch: patch.setattr(training, "recorded", recorded)


def worse_but_at_one_rate_of(experiment: str) -> Evidence:
    """Recorded runs in which the variant "note" is worse, but for one rate of an experiment."""

    def evidence(patch: pytest.MonkeyPatch) -> None:
        trained(baseline=(0.0, 0.0), note=(1.0, 0.0))(patch)
        partly = training.recorded
        trained(baseline=0.0, note=1.0)(patch)
        everywhere = training.recorded
        patch.setattr(
            training, "recorded", lambda name: (partly if name == experiment else everywhere)(name)
        )

    return evidence


def harm_at_the_best_rate(harm: float) -> Evidence:
    """Recorded runs in which "note" costs so much at the best rate, and 1 at the other."""
    return trained(baseline=(0.5, 0.0), note=(1.5, harm), eight=(0.5, 0.0))


def apart_in(found: str) -> Evidence:
    """Recorded runs of two variants that differ in one precision alone."""

    def apart(variant: str, precision: str) -> Any:
        return np.full(3, 1.0 if precision == found else 0.0)

    return lambda patch: patch.setattr(training, "apart", apart)


def heads_found(**columns: list[Any]) -> Evidence:
    """Recorded heads, of every model, with other columns.

    A column has a row for each number, or (number, share of the heads, what it is of those).
    """
    tables = heads.recorded()

    def row(size: int, given: Any) -> Any:
        number, share, another = given if isinstance(given, tuple) else (given, 0.0, 0.0)
        others = np.diff(np.floor(share * np.arange(size + 1))) > 0.0
        return np.where(others, another, number)

    found = {
        model: {
            name: np.squeeze([row(values.shape[-1], one) for one in columns[name]])
            if name in columns
            else values
            for name, values in table.items()
        }
        for model, table in tables.items()
    }
    return lambda patch: patch.setattr(heads, "recorded", lambda: found)


def rising(share: float, of_one_source: float = 0.0) -> Evidence:
    """Recorded heads of which these shares have outputs that surely spread more with n."""
    several, one = ([-0.2, (-0.4, part, 0.1), (-0.1, part, 0.3)] for part in (share, of_one_source))
    return heads_found(**{"output": several, "output, brown": one})


def broken(law: str) -> Evidence:
    """Recorded rows of which one breaks the bound of a law."""
    found = {"rows": 9, "weight": 0, "half": 0, law: 1}
    return lambda patch: patch.setattr(heads, "bounds", lambda: found)


def needles_off(octaves: float) -> Evidence:
    """Recorded heads for which gap over variance misses by so many octaves."""
    one = np.ones(5)
    found = {"gap": 2.0**octaves * one, "variance": one, "slope": one, "best": one, "of_all": 1.0}
    return lambda patch: patch.setattr(heads, "needles", lambda: found)


# --- the tables -----------------------------------------------------------------------------------

WIDE = (Cosine(64), Normal())
FIRST_LAYER = but(models=("SmolLM2",), heads=slice(0, 9), texts=", brown")
SLOWER = but(comparison="each at its best rate", slower=True)

# A statement changed in one place, and what its check must then say: a constant moved as little as
# the evidence resolves, a sign flipped, roles swapped, n − 1 for n, a condition dropped or added.
FALSIFIED = [
    ("variance.mean-zero", "wrong", but(mean=0.001), but(mean=-0.2)),
    ("variance.linear", "wrong", but(slope=1.0001), but(exponent=1.05), but(offset=-1.0)),
    ("variance.product-rule", "wrong", but(factor=1.05), but(means=(0.5, 1.0))),
    ("variance.product-rule", "holds", but(means=(0.0,))),
    ("variance.scale", "wrong", but(exponent=-0.5001), but(exponent=0.5)),
    ("variance.softmax-exaggerates", "wrong", but(exponent=-0.5), but(exponent=-1.0)),
    ("variance.softmax-exaggerates", "holds", but(typical_row_only=True)),
    ("variance.one-hot", "wrong", but(exponent=-0.5), but(dimensions=(16, 64))),
    ("variance.one-hot", "holds", but(dimensions=(512, 1000))),
    ("variance.ranges", "wrong", but(exponent=-0.525), but(exponent=-0.49)),
    ("jacobian.scores-grow", "wrong", but(variance=511.0), but(variance=512.1)),
    ("jacobian.product-moments", "wrong", but(mean_factor=1.05), but(last_sign=1)),
    ("jacobian.product-moments", "wrong", but(swapped=True)),
    ("jacobian.multiply", "holds", but(exponent=-0.5)),
    ("jacobian.components", "holds", but(summed=True)),
    ("jacobian.scale-variant", "wrong", but(factor=1.0, shift=10.0)),
    ("jacobian.four", "wrong", but(diagonal=1.05), but(off_diagonal=-0.95)),
    ("jacobian.one-hot", "wrong", but(winners=2)),
    ("jacobian.vanishing-chain", "wrong", but(dimensions=(800, 1024)), but(exponent=-0.5)),
    ("jacobian.vanishing-chain", "holds", but(own_inputs_only=True)),
    ("jacobian.bounded", "wrong", but(total=1.05), but(upper=0.95), but(lower=0.05)),
    ("normal.mgf", "wrong", but(exponent=0.525), but(exponent=-0.5)),
    ("normal.approximation", "wrong", but(factor=1.05), but(exponent=1.05)),
    ("normal.approximation", "holds within", but(up_to_the_best=False)),
    ("normal.approximation", "holds", but(keys=(1, 1))),
    ("normal.fit", "wrong", but(coefficient=0.80), but(coefficient=0.87), but(power=1.0)),
    ("normal.two-to-three", "wrong", but(low=2.4), but(high=2.4), but(low=3.0, high=2.0)),
    ("normal.recommend", "wrong", but(scale=1.0, reference=2.5), but(scale=0.8)),
    ("normal.recommend", "open", but(scale=25.0, reference=2.5)),
    ("normal.figure", "wrong", but(coefficient=1.05 * 0.84), but(coefficient=0.95 * 0.84)),
    ("cosine.density", "wrong", but(offset=3.001), but(offset=2.0)),
    ("cosine.not-elementary", "holds", but(dimensions=(128,))),
    ("cosine.not-elementary", "wrong", but(dimensions=(3, 5, 7))),
    ("cosine.fit", "wrong", but(coefficient=1.05 * 3.5), but(dimension=120), but(power=0.5)),
    ("cosine.range", "wrong", but(low=30.0), but(high=28.0), but(dimension=90)),
    ("cosine.explains", "wrong", but(dimension=64), but(systems=(("bare", 512, 10_575, 1.0),))),
    ("cosine.explains", "holds within", but(systems=(("ArcFace", 512, 85_742, 64.0),))),
    ("cosine.coefficient", "wrong", but(changes=False)),
    ("cosine.figure", "wrong", but(coefficient=1.05 * 3.5), but(dimension=64)),
    ("cosine.inverse-sqrt", "wrong", but(exponent=-0.525), but(factors=("the cosine",))),
    ("cosine.inverse-sqrt", "holds within", but(factors=("q·k",))),
    ("cosine.rmsnorm", "open", but(exponents=(-0.5, -1.05)), but(dimension=256)),
    ("cosine.rmsnorm", "open", but(exponents=(-1.0, -1.0))),
    ("entropy.renyi-slow", "wrong", but(laws=WIDE), but(alpha=1.0)),
    ("entropy.shannon-slow", "holds within", but(laws=(Cosine(3), Cosine(5)))),
    ("entropy.shannon-slow", "wrong", but(laws=WIDE), but(alpha=1.0)),
    ("decoder.half-length", "wrong", but(fraction=0.2), but(fraction=0.8)),
    ("gradient.variance-any-law", "wrong", but(slope=1.0001), but(mean=0.05)),
    ("gradient.jacobian", "wrong", but(diagonal=1.05), but(off_diagonal=1.0), but(power=0.95)),
    ("gradient.zero-at-0", "wrong", but(at=0.05), but(value=0.05)),
    ("gradient.zero-at-infinity", "wrong", but(winners=2), but(averaged=True)),
    ("gradient.both-ends", "holds", but(typical_row_only=True), but(large=0.01)),
    ("gradient.both-ends", "wrong", but(small=0.188), but(large=2.0)),
    ("gradient.l1", "wrong", but(factor=0.525), but(ratio=1.05)),
    ("gradient.renyi", "wrong", but(order=1.9), but(logarithm=False)),
    ("gradient.no-closed-form", "holds", but(says="a formula")),
    ("gradient.no-closed-form", "wrong", but(says="no formula")),
    ("comments.max-quarter", "wrong", but(bound=0.95 * 0.25), but(factor=4.2)),
    ("comments.max-entry", "wrong", but(obvious=True), but(sizes=(256, 1024))),
    ("comments.max-entry", "holds within", but(interval=(0.1, 300.0)), but(sizes=(4, 16))),
    ("comments.power", "wrong", but(backward=0.05), but(rescaled=True)),
    ("comments.power-faster", "holds within", but(comparison="attention at one rate"), SLOWER),
    ("comments.power-faster", "wrong", but(comparison="each at its best rate"), but(n=2)),
    ("comments.not-rnn", "wrong", but(path="scores"), but(gain=1.0)),
    ("comments.not-rnn", "wrong", but(path="no residual", normalised=False)),
    ("comments.epsilon", "wrong", but(constant=0.0)),
    ("comments.bounded", "wrong", but(every_row=True), but(factor=0.95)),
    ("comments.bounded", "holds", but(gaps=(1.0, 0.5))),
    ("comments.not-learning-rate", "wrong", but(alpha=1.0, steps=30), but(cure="scale")),
    ("output.pre-scaled", "wrong", but(exponent=-0.5001), but(exponent=0.5)),
    ("output.under-scaled", "wrong", but(std=1.05 * 0.102), but(n=64, d=256)),
    ("output.flat", "wrong", but(exponent=-0.525), but(fewer=1)),
    ("output.spike", "wrong", but(scale=1.05), but(scale=0.95)),
    ("output.lognormal", "wrong", but(exponent=1.05), but(from_critical=0.8)),
    ("output.lognormal", "wrong", but(from_critical=1.25, logarithmic=False)),
    ("output.lognormal", "holds within", but(sizes=(4096, 65536)), but(from_critical=1.25)),
    ("output.factor", "wrong", but(constant=0.95 * math.e), but(causal=True), but(fewer=1)),
    ("output.figure", "wrong", but(exponent=0.95), but(flat_exponent=-0.525)),
    ("output.figure", "wrong", but(start=0.45 / math.sqrt(2.0))),
    ("training.worse", "wrong", but(changed="baseline", against="note")),
    ("training.bert", "needs a condition", but(changed="baseline", against="note")),
    ("training.residual", "wrong", but(power_of_two="eight_with_bias")),
    ("training.residual", "wrong", but(inexact="eight_with_bias")),
    ("training.residual", "holds", but(whole="eight")),
    ("training.scale-dependent", "wrong", but(undone="eight_with_bias"), but(skip=False)),
    ("training.scale-dependent", "wrong", but(changed="baseline")),
    ("training.cause", "answered", but(suspect="note", other="baseline")),
    ("heads.dispersion", "wrong", but(power=1.0001), but(growth=0.05)),
    ("heads.variance", "wrong", but(sign=1.0), {**FIRST_LAYER, "sign": 1.0}),
    ("heads.variance", "holds within", FIRST_LAYER),
    ("heads.gaps", "wrong", but(factor=10.0), but(factor=0.1), but(exponent=1.0)),
    ("heads.moments", "wrong", but(power=1.05)),
    ("heads.moments", "holds within", but(by="slope")),
]

# What the box says that the evidence does not resolve: these keep the source's verdict.
UNRESOLVED = [
    ("jacobian.multiply", but(exponent=-0.475)),
    ("normal.approximation", but(fewer=1)),
    ("normal.recommend", but(scale=1.05 * 2.5)),
    ("cosine.explains", but(dimension=134)),
    ("decoder.half-length", but(fraction=0.7)),
    ("comments.max-entry", but(interval=(1.05, 5.0)), but(interval=(1.0, 4.75))),
    ("comments.power", but(exponent=5.7)),
    ("output.under-scaled", but(n=255)),
    ("output.lognormal", but(fewer=1)),
    ("output.figure", but(fewer=1)),
    ("heads.gaps", but(exponent=0.0)),
]

NOTE = but(baseline=0.0, note=1.0)

# Evidence that could have been otherwise: each half of a check is made to fail alone.
OTHER_EVIDENCE = [
    ("variance.mean-zero", "wrong", experiment_off(-6.2)),
    ("variance.linear", "wrong", experiment_off(6.2)),
    ("variance.scale", "wrong", experiment_off(-6.2)),
    ("jacobian.scores-grow", "wrong", experiment_off(6.2)),
    ("gradient.variance-any-law", "wrong", simulation_off(gradient)),
    ("gradient.variance-any-law", "wrong", unproved("product_variance_of_any_law")),
    ("gradient.jacobian", "wrong", unproved("jacobian")),
    ("gradient.l1", "wrong", unproved("l1_identity")),
    ("comments.power", "wrong", scale_dependent),
    ("comments.bounded", "wrong", mean_gradients(2.5, 1.0)),
    ("variance.product-rule", "wrong", unproved("product_variance_of_any_law")),
    ("variance.product-rule", "wrong", unproved("product_variance")),
    ("cosine.not-elementary", "open", unproved("cosine_mgf")),
    ("output.under-scaled", "wrong", simulation_off(output)),
    ("output.figure", "wrong", simulation_off(output)),
    ("variance.softmax-exaggerates", "holds", mean_gradients(1.0, 0.48)),
    ("jacobian.vanishing-chain", "holds", mean_gradients(1.0, 0.48)),
    ("jacobian.vanishing-chain", "wrong", mean_gradients(1.0, 4.2)),
    ("training.worse", "holds within", trained(0.39, **NOTE)),
    ("training.worse", "wrong", trained(baseline=(0.0, 0.0), note=(-1.0, 1.0))),
    ("training.worse", "wrong", trained(0.39, "learning_rate", baseline=0.0, note=-1.0)),
    ("training.bert", "holds within", trained(0.39, **NOTE)),
    ("training.bert", "needs a condition", trained(0.39, "encoder", **NOTE)),
    ("training.bert", "needs a condition", worse_but_at_one_rate_of("encoder_longer")),
    ("training.scale-dependent", "wrong", harm_at_the_best_rate(0.0)),
    ("training.scale-dependent", "wrong", apart_in("float32")),
    ("training.scale-dependent", "wrong", apart_in("float64")),
    ("training.scale-dependent", "wrong", trained(0.41, **NOTE, eight=0.0)),
    ("training.cause", "answered", trained(baseline=0.0, note=1.0, larger=0.5, smaller=0.4)),
    ("heads.dispersion", "wrong", broken("weight")),
    ("heads.gaps", "wrong", broken("half")),
]

FOUR = but(dimensions=(64,))  # unscaled rows of one dimension
TYPICAL = but(typical_row_only=True)
OWN = but(own_inputs_only=True)
HEAT = but(from_critical=1.25)
CURED = "comments.not-learning-rate"

HOLDS = "holds", "wrong"
WITHIN = "holds within", "wrong"
NEEDS = "needs a condition", "wrong"
NEEDED = "holds within", "needs a condition"

EDGES: dict[str, list[tuple[Copy, Copy]]] = {}
"""Each threshold, and pairs of copies that are measured close to it, one on either side."""


def edge(
    threshold: str,
    identifier: str,
    verdicts: tuple[str, str],
    varied: str | Callable[[Any], Evidence],
    *values: Any,
    **others: Any,
) -> None:
    """Add a pair of copies: constants of the check, or the evidence, are one thing or another."""
    pair = [
        Copy(identifier, verdict, others, varied(value))
        if callable(varied)
        else Copy(identifier, verdict, {**others, **constants(varied, value)})
        for verdict, value in zip(verdicts, values, strict=True)
    ]
    EDGES.setdefault(threshold, []).append((pair[0], pair[1]))


def constants(names: str, values: Any) -> dict[str, Any]:
    """Return constants by name: one, or several."""
    several = names.split(", ")
    return {names: values} if len(several) == 1 else dict(zip(several, values, strict=True))


def one_system(scale: float) -> tuple[tuple[str, int, int, float]]:
    """Return the name, d and n of a system, and a scale."""
    return (("AM-Softmax", 512, 10_575, scale),)


def column(name: str, *rows: Any) -> Callable[[float], Evidence]:
    """Return what makes evidence of a number: heads with these rows, in which it stands for ...."""

    def filled(row: Any, number: float) -> Any:
        if isinstance(row, tuple):
            return tuple(number if one is ... else one for one in row)
        return number if row is ... else row

    return lambda number: heads_found(**{name: [filled(row, number) for row in rows]})


def residual_at(loss: float) -> Evidence:
    """Runs that are the baseline, but for this loss where the factor rounds."""
    return trained(baseline=0.0, eight=0.0, eight_with_bias=1.0, undone=loss)


def harm_and(loss: float) -> Evidence:
    """Runs in which "note" costs 1, and a factor that is undone this loss."""
    return trained(**NOTE, eight=loss)


edge("LIMIT", "variance.scale", HOLDS, experiment_off, 5.8, -6.2)
edge("ROUNDING", "gradient.renyi", HOLDS, "order", 2.0 + 1.7e-12, 2.0 + 1.9e-12)
edge("IN_THE_LIMIT", "normal.approximation", NEEDS, "factor", 1.00095, 1.00105)
edge("IN_THE_LIMIT", "output.factor", WITHIN, "constant", 2.7234, 2.7240)
edge("ONE_HOT", "variance.one-hot", HOLDS, "exponent", 0.15, 0.07, **FOUR)
edge("MOST", "variance.one-hot", HOLDS, "exponent", 0.119, 0.091, **FOUR)
edge("FADED", "variance.softmax-exaggerates", HOLDS, "exponent", -0.060, -0.065, **TYPICAL)
edge("TENTH", "jacobian.vanishing-chain", HOLDS, "dimensions", (16, 180), (16, 166), **OWN)
edge("TENTH", "gradient.both-ends", HOLDS, "small", 0.170, 0.188, **TYPICAL)
edge("TENTH", "normal.approximation", NEEDS, "keys", (60, 4096), (40, 4096))
edge("TENTH", "entropy.shannon-slow", WITHIN, "laws", (Cosine(8),), (Cosine(9),))
edge("TENTH", "entropy.renyi-slow", WITHIN, "laws", (Cosine(13),), (Cosine(14),))
edge(
    "TENTH", "heads.dispersion", ("holds", "extended"), column("weight_exponent", ...), -0.91, -0.89
)
edge("TENTH", "heads.variance", NEEDED, rising, 0.09, 0.11)
edge("TENTH", "heads.variance", NEEDS, partial(rising, 0.11), 0.11, 0.12)
edge("TENTH", "heads.gaps", WITHIN, column("half", (1.0, ..., 5.0)), 0.08, 0.12)
edge("STEADY", "variance.ranges", WITHIN, "exponent", -0.49863, -0.49850)
edge("DENSITY", "jacobian.scores-grow", WITHIN, "d, variance", (390, 390.0), (353, 353.0))
edge("CLOSE", "output.lognormal", NEEDED, "sizes", (3480, 65536), (2920, 65536))
edge("ABOUT", "output.factor", WITHIN, "sizes", (56,), (50, 4096))
edge("RIGHT", "output.lognormal", WITHIN, "sizes", (30_300,), (26_400,))
edge("IN_PLACE", "output.figure", WITHIN, "exponent", 0.979, 0.977)
edge("IN_PLACE", "output.figure", WITHIN, "flat_exponent", -0.50091, -0.50104)
edge("THREE_DECIMALS", "output.under-scaled", HOLDS, "std", 0.10272, 0.10277)
edge("UNDER", "output.under-scaled", HOLDS, "n, std", (8, 0.482), (7, 0.507))
edge("FLAT", "output.flat", HOLDS, "exponent", -0.5 - 5.4e-8, -0.5 - 6.6e-8)
edge("FIRST_ORDER", "output.spike", HOLDS, "scale", 1.0 + 1.04e-5, 1.0 + 1.16e-5)
edge("DISTANCE", "output.lognormal", NEEDED, "sizes", (9, 64, 10**9), (8, 64, 10**9), **HEAT)
edge("NINE_TENTHS", "normal.two-to-three", WITHIN, "low", 2.27, 2.29)
edge("TWO_THIRDS", "decoder.half-length", WITHIN, "fraction", 0.70, 0.72)
edge("LOST", "decoder.half-length", WITHIN, "fraction", 0.70, 0.72)
edge("FIFTH", "cosine.explains", WITHIN, "systems", one_system(74.0), one_system(47.5))
edge("ERROR", "normal.fit", WITHIN, "power, coefficient", (1.22, 0.173), (1.28, 0.151))
edge("HALF_A_DIGIT", "normal.fit", WITHIN, "coefficient", 0.846, 0.8466)
edge("BESIDE", "normal.figure", WITHIN, "coefficient", 0.871, 0.876)
edge("SEARCH", "normal.figure", WITHIN, maximised_off, -0.95e-6, 1.05e-6)
edge("CHANGED", "cosine.coefficient", HOLDS, "dimensions", (128, 165), (128, 155))
edge("POWER", "cosine.inverse-sqrt", NEEDS, "exponent", -0.4905, -0.4895)
edge("KOLMOGOROV", "cosine.density", HOLDS, "dimensions", (12, 32), (9, 32), normal=True)
edge("ROOT", "gradient.no-closed-form", ("extended", "open"), "shift", 0.5 + 3.9e-9, 0.5 + 4.3e-9)
edge("SHARE", "comments.max-entry", WITHIN, "interval", (0.1, 3.2), (0.1, 2.6), sizes=(4, 5))
edge("OBVIOUS", "comments.max-entry", NEEDS, "sizes", (3, 512), (2, 256))
edge("SIGMAS", "comments.power-faster", WITHIN, "pairs", 8, 7, **SLOWER)
edge("LEVEL", "comments.not-rnn", WITHIN, "gain", 0.425, 0.44, normalised=False)
edge("STEEP", "comments.not-rnn", WITHIN, "gain", 0.58, 0.64)
edge("FOLLOWED", "comments.bounded", ("holds", "extended"), "gaps", (1.0, 0.0061), (1.0, 0.0056))
edge("LEARNED", CURED, ("wrong", "open"), "alpha", 4.0, 5.0, steps=30)
edge("STUCK", CURED, ("holds within", "open"), "alpha", 15.0, 12.0, steps=30)
edge("ORDER", "heads.gaps", WITHIN, column("half", (1.0, 0.3, ...)), 1 / 3.8, 1 / 4.2)
edge(
    "BY_CHANCE",
    "heads.gaps",
    ("holds within", "open"),
    column("law", 0.5, (0.5, ..., 1.1), 2.0),
    0.27,
    0.23,
)
edge("HALF_AN_OCTAVE", "heads.moments", ("holds within", "extended"), needles_off, 0.47, 0.53)
edge("ROUNDED", "training.residual", NEEDS, residual_at, 0.95e-9, 1.05e-9)
edge("ROUNDED", "training.scale-dependent", HOLDS, harm_and, 0.95e-9, 1.05e-9)


def copies(table: list[tuple[Any, ...]]) -> list[Copy]:
    """Return the copies of a table whose rows are an id, a verdict, and what is other."""
    return [
        Copy(identifier, verdict, {}, other)
        if callable(other)
        else Copy(identifier, verdict, other)
        for identifier, verdict, *several in table
        for other in several
    ]

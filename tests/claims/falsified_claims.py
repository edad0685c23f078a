"""Copies of the ledger's claims: each with one thing changed, and the verdict that it must get."""

import math
from typing import Any, NamedTuple

from attnlib.scores import Cosine, Normal


class Copy(NamedTuple):
    """A statement changed in one place, and what its check must say of it."""

    id: str
    verdict: str
    arguments: dict[str, Any]


but = dict
"""The constants of a copy that are not the source's."""


FIRST_LAYER = but(models=("SmolLM2",), heads=slice(0, 9), texts=", brown")
SLOWER = but(comparison="each at its best rate", slower=True)

# A statement changed in one place, and what its check must then say: a constant moved as little as
# the evidence resolves, a sign flipped, roles swapped, n − 1 for n, a condition dropped or added.
FALSIFIED = [
    ("variance.unit-variance", "wrong", but(kept=1.05), but(others=(1.0,)), but(layers=2)),
    ("variance.unit-variance", "holds", but(input_variances=(1.0,))),
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
    ("jacobian.multiply", "holds", but(words=-0.5)),
    ("jacobian.multiply", "wrong", but(formula=0.5)),
    ("jacobian.components", "holds", but(readings=("scores",))),
    ("jacobian.components", "wrong", but(readings=("terms",))),
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
    ("entropy.renyi-slow", "holds within", but(laws=(Cosine(3), Cosine(5)))),
    ("entropy.renyi-slow", "wrong", but(power=4.0)),
    ("entropy.shannon-slow", "holds within", but(laws=(Cosine(3), Cosine(5)))),
    ("entropy.shannon-slow", "wrong", but(power=4.0)),
    ("decoder.half-length", "wrong", but(fraction=0.2), but(fraction=0.8)),
    ("gradient.variance-any-law", "wrong", but(slope=1.0001), but(mean=0.05)),
    ("gradient.largest-trains", "wrong", but(scale="inverse_d")),
    ("gradient.largest-trains", "holds within", but(scale="baseline", against="inverse_d")),
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
    ("comments.max-entry", "wrong", but(interval=(30.0, 300.0)), but(interval=(5.0, 1.0))),
    ("comments.max-entry", "holds within", but(interval=(0.1, 300.0)), but(interval=(1.0, 20.0))),
    ("comments.power", "wrong", but(backward=0.05), but(rescaled=True)),
    ("comments.power", "holds", but(keys=(16, 16))),
    ("comments.power-faster", "holds within", but(comparison="attention at one rate"), SLOWER),
    ("comments.power-faster", "wrong", but(comparison="each at its best rate"), but(n=2)),
    ("comments.not-rnn", "wrong", but(gains=(2.0,)), but(path="no residual")),
    ("comments.not-rnn", "holds within", but(gains=(0.5,), norms=(True,))),
    ("comments.epsilon", "wrong", but(constant=0.0)),
    ("comments.sparsity", "wrong", but(exponent=0.5, others=0.5), but(others=0.9)),
    ("comments.sparsity", "needs a condition", but(others=0.4)),
    ("comments.lipschitz", "open", but(shrunk=1.0), but(shrunk=0.5)),
    ("comments.bounded", "wrong", but(every_row=True), but(factor=0.95)),
    ("comments.bounded", "holds", but(gaps=(1.0, 0.5))),
    ("comments.not-learning-rate", "wrong", but(alpha=1.0, steps=30), but(cure="scale")),
    ("output.pre-scaled", "wrong", but(exponent=-0.5001), but(exponent=0.5)),
    ("output.under-scaled", "wrong", but(std=1.05 * 0.102), but(n=64, d=256)),
    ("output.flat", "wrong", but(exponent=-0.525), but(fewer=1)),
    ("output.spike", "wrong", but(scale=1.05), but(scale=0.95)),
    ("output.lognormal", "wrong", but(exponent=1.05), but(from_critical=0.8)),
    ("output.lognormal", "holds within", but(sizes=(4096, 65536)), but(from_critical=1.25)),
    ("output.factor", "wrong", but(constant=0.95 * math.e), but(causal=True), but(fewer=1)),
    ("output.figure", "wrong", but(exponent=0.95), but(flat_exponent=-0.525)),
    ("training.worse", "open", but(changed="baseline", against="note")),
    (
        "training.worse",
        "open",
        but(experiments=("encoder", "encoder_longer")),
        but(experiments=("source_start", "cause"), changed="larger", against="smaller"),
    ),
    ("training.bert", "holds within", but(experiments=("learning_rate", "cause"))),
    ("training.residual", "wrong", but(power_of_two="eight_with_bias")),
    ("training.residual", "holds", but(whole="eight")),
    ("training.scale-dependent", "wrong", but(undone="eight_with_bias"), but(skip=False)),
    ("training.cause", "answered", but(suspect="note", other="baseline")),
    ("heads.dispersion", "wrong", but(power=1.0001), but(growth=0.05)),
    ("heads.variance", "wrong", but(sign=1.0), {**FIRST_LAYER, "sign": 1.0}),
    ("heads.variance", "holds within", FIRST_LAYER),
    ("heads.gaps", "wrong", but(factor=10.0), but(factor=0.1), but(exponent=1.0)),
    ("heads.moments", "wrong", but(power=1.05)),
    ("heads.moments", "holds within", but(by="slope")),
    ("su.entropy-linear", "holds within", but(multipliers=(1.0,))),
    ("su.kappa", "wrong", but(scales=(1.0,), power=0.2), but(power=-1.0)),
    ("su.natural-log", "holds", but(power=3.0)),
    ("su.natural-log", "wrong", but(power=0.5)),
    ("su.fast-entropy", "holds", but(readings=("lower bound",))),
    ("su.fast-entropy", "wrong", but(readings=("approximation",)), but(share=0.5)),
    ("su.fast-law", "holds within", but(laws=(Cosine(3),)), but(laws=(Normal(),), growth=0.5)),
    ("su.base-512", "wrong", but(absorbed=False)),
    ("su.eight-log", "wrong", but(coefficient=9.0), but(multiplier=0.125)),
    ("su.lower-bound", "wrong", but(constant=0.4744), but(temperature=0.99)),
    ("su.four-log", "wrong", but(coefficient=3.5, other=4.0), but(n=4096)),
    ("su.square", "wrong", but(coefficient=0.3), but(ratios=(1e4,))),
    ("su.half", "wrong", but(share=0.25), but(share=0.3)),
    ("su.noise", "holds within", but(alphas=(1.0,))),
    ("su.noise", "wrong", but(alphas=(4.0,))),
    ("su.same-effect", "wrong", but(d=8)),
    ("su.softcap", "wrong", but(decay=0.01)),
    ("su.clip", "holds", but(growths=(1.0, 0.99))),
    ("su.clip", "wrong", but(growths=(1.01,))),
    ("yarn.closer", "holds within", but(alignments=(1.0,))),
    ("yarn.trick", "wrong", but(power="1")),
    ("chen.yarn", "wrong", but(power=1.0), but(power=3.0)),
    ("chen.critical", "wrong", but(own="2/5")),
    ("chen.phases", "wrong", but(factors=(0.9, 1.5)), but(factors=(0.5, 1.1))),
    ("ssmax.close-to-one", "needs a condition", but(s=0.3)),
    ("ssmax.close-to-one", "wrong", but(s=0.1)),
    ("ssmax.margin", "wrong", but(multiple=0.75), but(multiple=0.5)),
    ("ssmax.indefinitely", "wrong", but(grows=True)),
    ("giorlandino.participation", "wrong", but(power=2.0), but(power=0.9)),
    ("giorlandino.critical", "wrong", but(value=1.0)),
    ("giorlandino.gradient", "holds", but(rho=0.9)),
    ("anson.moments", "wrong", but(factor="19/10")),
    ("anson.root-log", "wrong", but(power=2.0)),
    ("anson.ranges", "wrong", but(tau=1000.0), but(most=1.3)),
    ("anson.recent", "wrong", but(invariance=False)),
    ("vaswani.small-gradients", "wrong", but(d=16), but(scaled=True)),
    ("vaswani.counteract", "wrong", but(exponent=-0.48)),
    ("kimi.unshared", "wrong", but(own=1.0), but(rotary_query=0.5), but(rotary_key=0.1)),
    ("kimi.thirty", "wrong", but(share=0.25), but(at=50_000)),
    ("wortsman.quadratic", "wrong", but(degree=1.0), but(normed=True)),
    ("wortsman.one-hot", "holds within", but(shared=(0.0,))),
    ("wortsman.one-hot", "wrong", but(shared=(1.0,)), but(size=1.0)),
    ("wortsman.decay", "holds", but(sign=1.0)),
    ("chiang.log-length", "holds", but(biases=(0.0,))),
    ("henry.concentrated", "wrong", but(learned=False), but(logarithm=10.0)),
    ("henry.demonstration", "wrong", but(bleu=0.2), but(loss=0.25)),
]


def copies() -> list[Copy]:
    """Return the copies of the table, whose rows are an id, a verdict, and what is other."""
    return [
        Copy(identifier, verdict, other)
        for identifier, verdict, *several in FALSIFIED
        for other in several
    ]

"""Fit factors for the logits of a trained model on some texts, and judge them on others."""

import functools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from scipy import optimize
from scipy.special import stdtrit
from torch import nn

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.attention.options import named_policy
from attnlib.calibration.fold_factors import Applied, check_sizes, fold, register_factors
from attnlib.calibration.gradient import check_heads, sum_by_head
from attnlib.calibration.logit_factors import Place
from attnlib.calibration.pass_cache import Cache, Objective
from attnlib.calibration.passes import Loss, loss_and_gradients, own_loss
from attnlib.policies import Policy
from attnlib.sampling import Estimate, mean_and_error

Per = Literal["model", "layer", "head"]

OnPass = Callable[[str, float], None]
"""A function of the name of a finished pass, such as "fit" or "held out", and its loss."""

LARGEST_LOG_FACTOR = math.log(8.0)
"""The largest |log t| that is tried, at n₀."""

STEP = 0.1
"""The first step in log t; the curvature is measured over twice this distance."""

SMALLEST_RATIO = 1e-6
"""The least ratio of a rule to its value at n₀: log n gives 0 for one key, whose weight is 1
anyway."""

TOLERANCE = 1e-4
"""A fit ends where the gradient is this share of the first one, or the loss hardly falls."""

INTERVAL_SLACK = 1e-3
"""Relative distance by which t may lie outside its interval without a remark."""

PATIENCE = 2
"""A fit stops after so many steps in a row without a lower loss on the texts held out."""

HELD_OUT = 4
"""Where several numbers are fitted, one text in so many is held out to say when to stop."""


@dataclass(frozen=True)
class ScaleFit:
    """Hold factors t for the logits of every head, as `fit_scales` fits them.

    log t = a + b·r(n). For the law "log" r = log(n/n₀); for a policy r is the logarithm of its rule
    over the rule's value at n₀; for "constant" r = 0. Chapter: calibration.
    """

    layers: list[str]
    dimensions: list[int]
    """d of the heads of each layer."""
    per: Per
    """What has a factor of its own: "model", "layer" or "head"."""
    law: str
    """"constant", "log" or the name of a policy."""
    train_length: float
    """n₀, at which a law changes nothing."""
    a: FloatArray
    """log t at n₀, (layers, heads)."""
    b: FloatArray
    """The slope of log t in r(n), (layers, heads)."""
    before: FloatArray
    """Losses of the test texts before the fit, (texts,)."""
    after: FloatArray
    """Losses of the test texts under the fit, (texts,)."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of t between texts, where one factor is fitted for the model."""
    rule: Policy | None = field(default=None, repr=False)
    text: Any = field(default=None, repr=False)
    """One of the texts, on which `apply` compares queries."""
    loss: Loss = field(default=own_loss, repr=False)

    def factor(self, n: float) -> FloatArray:
        """Return t of each head for a query that sees n keys, an array (layers, heads).

        - `n`: a number, 1 or more.

        Places of heads that a layer lacks are NaN.
        """
        log_rules = [self._log_rule(np.array(float(n)), d) for d in self.dimensions]
        factors: FloatArray = np.exp(self.a + self.b * np.array(log_rules)[:, None])
        return factors

    @property
    def gain(self) -> Estimate:
        """Return by how much the test texts' mean loss falls, and its standard error over texts."""
        return mean_and_error(self.before - self.after)

    @property
    def gain_interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the gain, by Student's t over texts: (low, high)."""
        return _interval(self.before - self.after)

    @property
    def recommended(self) -> bool:
        """Return whether the gain is significant: its 95 % interval lies above 0."""
        return self.gain_interval[0] > 0.0

    @property
    def doubt(self) -> str:
        """Return a remark with the reason if t lies outside its interval, else ""."""
        low, high = self.interval or (0.0, math.inf)
        t = math.exp(np.nanmax(self.a))
        if low * (1.0 - INTERVAL_SLACK) <= t <= high * (1.0 + INTERVAL_SLACK):
            return ""
        return (
            f"; t = {t:.3g} lies outside its interval, {low:.3g} to {high:.3g}: it was stopped by "
            f"`steps`, or at a factor of {math.exp(LARGEST_LOG_FACTOR):.0f}"
        )

    def __str__(self) -> str:
        low, high = self.gain_interval
        label = f"a fit per {self.per}, {self.law}"
        gain = f"gains {self.gain.value:+.3g} nats ({low:+.3g} to {high:+.3g}, 95 %)"
        advice = "worth a change" if self.recommended else "leave the model as it is"
        texts = f"on {self.before.size} texts that it has not seen"
        return f"{label}: {gain} {texts}: {advice}{self.doubt}"

    def apply(self, model: nn.Module, name: str = "attnlib-fitted") -> Applied:
        """Put the factors into the model, for good.

        - `model`: the model that was fitted. It is changed.
        - `name`: the name in transformers' registry of attention, where that is used.

        Factors that do not depend on n are multiplied into the weights and biases that make the
        queries, or into the gains of a norm after them. Their projections are found by names in
        use, or by a module's `query_projection` or, packed with keys and values in either order,
        `packed_projection`. The queries and the loss are then compared with the intended ones.
        Where this cannot be done, a model of transformers gets `name` as its function of attention,
        which a saved model does not keep.

        Returns an `Applied`, whose `undo()` takes the factors back. Raises ValueError for a model
        with other layers or heads, and where neither way is possible.
        """
        heads = np.isfinite(self.a).sum(axis=1).tolist()
        fitted = dict(zip(self.layers, zip(heads, self.dimensions, strict=True), strict=True))
        check_sizes(model, fitted, self.text, self.loss)
        obstacle = "factors that depend on n do not fit into its weights"
        if not np.nan_to_num(self.b).any():
            factors = {layer: self._layer_factors(layer, np.ones(1))[:, 0] for layer in self.layers}
            applied = fold(model, factors, self.text, self.loss)
            if applied is not None:
                return applied
            obstacle = (
                f"what makes the queries of {self.layers[0]} or another layer has no name that is "
                "known, or does not scale them: name it in the module's query_projection, or "
                "packed_projection where keys and values are in it"
            )
        if not hasattr(model, "set_attn_implementation"):
            raise ValueError(f"{type(model).__name__} is not of transformers, and {obstacle}")
        return register_factors(model, self._layer_factors, name)

    def to_json(self) -> str:
        """Return the fit and its gain as JSON text; null for heads that a layer lacks."""
        names = ("layers", "per", "law", "train_length", "a", "b", "gain", "gain_interval")
        fields = {name: getattr(self, name) for name in (*names, "recommended", "interval")}
        lists = {"a": _lists(self.a), "b": _lists(self.b)}
        return json.dumps({**fields, **lists, "gain": self.gain.value})

    def _log_rule(self, n: FloatArray, d: int) -> FloatArray:
        """Return r(n) of this fit, for heads of d dimensions."""
        return log_rule(self.law, self.rule, self.train_length, n, d)

    def _layer_factors(self, layer: str, n: FloatArray) -> FloatArray:
        """Return t of a layer's heads for queries that see n keys, (…, heads, queries)."""
        row = self.layers.index(layer)
        heads = np.isfinite(self.a[row])
        a, b = self.a[row, heads, None], self.b[row, heads, None]
        factors: FloatArray = np.exp(a + b * self._log_rule(n, self.dimensions[row]))
        return factors


def fit_scales(
    model: nn.Module,
    train: Iterable[Any],
    test: Iterable[Any],
    *,
    loss: Loss | None = None,
    per: Per = "model",
    law: str | Policy = "constant",
    train_length: float | None = None,
    steps: int = 12,
    report: OnPass | None = None,
    memory: Cache | None = None,
    partial: bool = False,
) -> ScaleFit:
    """Fit factors t on the logits that make a model's own loss on some texts least.

    - `model`, `loss`, `partial`: as for `scale_gradient`.
    - `train`: the texts for the fit, one or more. Where several numbers are fitted to four or more
      texts, every fourth text is held out and decides when to stop.
    - `test`: two or more other texts, to judge the fit. The gain is the decrease of their mean
      loss.
    - `per`: what has a factor of its own: "model" (the default), "layer" or "head".
    - `law`: how the factor depends on the keys n that a query sees: "constant" (the default);
      "log", t = e^{a + b log(n/n₀)}, where b is fitted: 1 for a log-linear law and 0 for none; or a
      policy or its name, whose rule over its value at n₀ is multiplied by e^a. `policies.own`
      makes a policy of a function.
    - `train_length`: n₀ > 0, by default the most keys that a query of the first text sees.
    - `steps`: the largest number of steps of L-BFGS (scipy), from t = 1, by default 12.
    - `report`: a function called with what was computed, "fit" or "held out", and its loss.
    - `memory`: an `attnlib.calibration.pass_cache.Cache`, which keeps each pass in a file. A second
      call with the same model and the same token ids goes on where the first was stopped.

    Returns a `ScaleFit`; its `recommended` is whether the 95 % interval of the gain over texts is
    above 0. |log t| is at most log 8 at n₀; the unit of the loss does not matter. The model is not
    changed.

    Raises ValueError for no text in `train` or fewer than two in `test`, ValueError or TypeError
    for arguments that are not as above, and the errors of `scale_gradient`. Chapter: calibration.
    """
    steps = _checking.integer("steps", steps, minimum=1)
    texts, test_texts = _checking.batches("train", train), _checking.batches("test", test)
    if not texts or len(test_texts) < 2:
        raise ValueError(
            f"train must hold a text or more and test two or more, got {len(texts)} and "
            f"{len(test_texts)}"
        )
    loss = loss or own_loss
    fitting = Fitting(model, texts, loss, per, law, train_length, memory or Cache(), partial)
    period = HELD_OUT if fitting.parameter_count > 1 else len(texts) + 1
    held_out = texts[period - 1 :: period]
    fitted = [text for i, text in enumerate(texts) if i % period != period - 1]
    best = fitting.fit(fitted, held_out, steps, report or (lambda what, value: None))
    before = np.array([fitting.loss_of(text, None) for text in test_texts])
    after = np.array([fitting.loss_of(text, best) for text in test_texts])
    return ScaleFit(
        fitting.layers,
        fitting.dimensions,
        per,
        fitting.law,
        fitting.n0,
        *fitting.expand(best),
        before,
        after,
        fitting.interval(fitted, best) if per == "model" and law != "log" else None,
        fitting.rule,
        texts[0],
        loss,
    )


class Fitting:
    """Hold the parameters of a fit, and compute losses of texts and their gradients in these.

    Arguments and errors are those of `fit_scales`.
    """

    def __init__(
        self,
        model: nn.Module,
        texts: list[Any],
        loss: Loss,
        per: Per,
        law: str | Policy,
        train_length: float | None,
        memory: Cache,
        partial: bool = False,
    ) -> None:
        _checking.choice("per", per, ("model", "layer", "head"))
        self.rule: Policy | None = None
        _checking.instance("law", law, str | Policy)
        if isinstance(law, Policy) or law not in ("constant", "log"):
            self.rule = named_policy("law", law)
            law = cast(Policy, self.rule).name
        self.law, self.memory = law, memory
        self.run_pass = functools.partial(loss_and_gradients, model, loss=loss, partial=partial)
        first_pass = self.run_pass(texts[0])
        sizes = {part.place.layer: part.place.d for part in first_pass.parts}
        self.layers, self.dimensions = list(sizes), list(sizes.values())
        self.heads: dict[tuple[str, int], int] = {}
        self.head_exists = np.isfinite(sum_by_head(first_pass, self.layers))
        most_keys = max(float(part.keys.max()) for part in first_pass.parts)
        given = train_length is not None
        self.n0 = _checking.positive("train_length", train_length) if given else most_keys
        layers, heads = self.head_exists.shape
        self.shape = {"model": (1, 1), "layer": (layers, 1), "head": (layers, heads)}[per]
        self.parameter_count = math.prod(self.shape) * (2 if law == "log" else 1)

    def expand(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a and b, (layers, heads), of parameters x; NaN for heads that a layer lacks."""
        coefficients = x.reshape(-1, *self.shape)
        a = np.where(self.head_exists, coefficients[0], np.nan)
        b = float(self.rule is not None) if len(coefficients) == 1 else coefficients[1]
        return a, np.where(self.head_exists, b, np.nan)

    def loss_of(self, text: Any, x: FloatArray | None) -> float:
        """Return the loss of a text at parameters x, or at t = 1 for None; it is cached."""
        return self._cached_pass("loss", text, x)[0]

    def objective(self, text: Any, x: FloatArray) -> Objective:
        """Return the loss of a text at parameters x and its gradient in them; both are cached."""
        return self._cached_pass("slope", text, x)

    def _cached_pass(self, what: str, text: Any, x: FloatArray | None) -> Objective:
        """Return the loss of a text, for `what` = "loss", or for "slope" its gradient too."""
        a, b = self.expand(np.zeros(self.parameter_count) if x is None else x)

        def log_factor(place: Place, keys: FloatArray) -> FloatArray:
            check_heads(self.heads, place)
            if x is None:
                return np.zeros(())
            row, heads = self.layers.index(place.layer), slice(place.heads)
            r = log_rule(self.law, self.rule, self.n0, keys, place.d)
            log_t: FloatArray = a[row, heads, None] + b[row, heads, None] * r
            return log_t

        def compute() -> Objective:
            results = self.run_pass(text, log_factor=log_factor, gradient=what == "slope")
            if what == "loss":
                return results.loss, np.empty(0)
            gradients = [sum_by_head(results, self.layers)]
            if self.law == "log":
                gradients += [
                    sum_by_head(results, self.layers, power=1) - math.log(self.n0) * gradients[0]
                ]
            shared = tuple(axis for axis, size in enumerate(self.shape, 1) if size == 1)
            return results.loss, np.nan_to_num(gradients).sum(axis=shared).ravel()

        return self.memory.get_or_compute(compute, what, self.law, self.n0, self.shape, text, x)

    def fit(self, train: list[Any], held_out: list[Any], steps: int, report: OnPass) -> FloatArray:
        """Return the parameters after the last step, or those of the least loss on `held_out`."""
        best, unit = np.zeros(self.parameter_count), (0.0, 0.0)
        least = np.mean([self.loss_of(text, None) for text in held_out]) if held_out else math.inf
        waited = 0

        def mean_objective(u: FloatArray) -> tuple[float, FloatArray]:
            nonlocal unit
            objectives = [self.objective(text, STEP * u) for text in train]
            loss = float(np.mean([pair[0] for pair in objectives]))
            gradient: FloatArray = np.mean([gradient for _, gradient in objectives], axis=0)
            report("fit", loss)
            if not unit[1]:  # whatever the loss's unit, the first step moves a parameter by STEP
                unit = loss, float(np.abs(gradient).max()) or 1.0
            return (loss - unit[0]) / unit[1] / STEP, gradient / unit[1]

        def after_step(intermediate_result: Any) -> None:
            nonlocal best, least, waited
            x = STEP * intermediate_result.x
            if not held_out:
                best = x
                return
            loss = float(np.mean([self.loss_of(text, x) for text in held_out]))
            report("held out", loss)
            if loss < least:
                best, least, waited = x, loss, 0
                return
            waited += 1
            if waited >= PATIENCE:
                raise StopIteration

        optimize.minimize(
            mean_objective,
            best,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-LARGEST_LOG_FACTOR / STEP, LARGEST_LOG_FACTOR / STEP)] * best.size,
            callback=after_step,
            options={"maxiter": steps, "ftol": TOLERANCE**2, "gtol": TOLERANCE},
        )
        return best

    def interval(self, texts: list[Any], x: FloatArray) -> tuple[float, float] | None:
        """Return the 95 % interval over texts of t near e^x; None for one text or curvature ≤ 0."""
        if len(texts) < 2:
            return None
        below, centre, above = (
            np.array([self.objective(text, x + h)[1][0] for text in texts])
            for h in (-STEP, 0.0, STEP)
        )
        curvature = (above - below).mean() / (2.0 * STEP)
        if curvature <= 0.0:
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that is flat
            low, high = _interval(float(x[0]) - centre / curvature)
            return float(np.exp(low)), float(np.exp(high))


def log_rule(law: str, rule: Policy | None, n0: float, n: FloatArray, d: int) -> FloatArray:
    """Return r(n) in log t = a + b·r(n), for heads of d dimensions; r(n₀) = 0."""
    if rule is not None:
        ratio = rule.scale(n, d) / rule.scale(n0, d)
        log_ratio: FloatArray = np.log(np.maximum(ratio, SMALLEST_RATIO))
        return log_ratio
    return np.log(n / n0) if law == "log" else np.zeros(n.shape)


def _interval(values: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the mean of two or more values, by Student's t."""
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = float(stdtrit(values.size - 1, 0.975)) * error
    return float(values.mean()) - half, float(values.mean()) + half


def _lists(numbers: FloatArray) -> list[list[float | None]]:
    """Return a matrix as lists for JSON, None for NaN."""
    return [[None if math.isnan(x) else x for x in row] for row in numbers.tolist()]

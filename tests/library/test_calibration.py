"""Scale gradients, fits and needles: against differences, closed forms and models that we know."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from attnlib.calibration import fit_scales, needles, scale_gradient
from attnlib.calibration.fit import Fitting, ScaleFit
from attnlib.calibration.passes import loss_and_gradients, own_loss
from attnlib.policies import POLICIES
from experiments.compatibility import tiny
from tests.library.foreign import XCA, Packed, Performer


def of_family(family: str, implementation: str = "eager") -> Any:
    return tiny(family, implementation, head=True).double()


class InDouble(TorchFunctionMode):
    """Models of transformers compute some steps in single precision: here in double."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        if func is torch.Tensor.to:
            args = tuple(torch.float64 if arg is torch.float32 else arg for arg in args)
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*args, **kwargs)


def texts(number: int, length: int = 12, start: int = 0) -> list[torch.Tensor]:
    return [
        torch.randint(1, 60, (1, length), generator=torch.Generator().manual_seed(start + i))
        for i in range(number)
    ]


def loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean loss in double precision: transformers' own is rounded to float32."""
    with InDouble():
        logits = model(ids, use_cache=False).logits.double()
    return functional.cross_entropy(logits[0, :-1], ids[0, 1:])


def value_of(model: nn.Module, text: Any, of: Any = loss) -> float:
    with torch.no_grad():
        return float(of(model, text))


class OneHead(nn.Module):
    """A head whose scores are what it is given, (rows, keys); it returns the first key's weight."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        key = scores[:, None, :, None]
        query, value = torch.ones_like(key[:, :, :1]), torch.zeros_like(key)
        value[:, :, 0] = 1.0
        return functional.scaled_dot_product_attention(query, key, value, scale=1.0)[:, 0, 0, 0]


def found_loss(model: nn.Module, scores: torch.Tensor) -> torch.Tensor:
    return -model(scores).log().mean()


def needle_rows(rng, alpha: float, theta: float, shape=(200, 64)) -> torch.Tensor:
    """Return logits α s with a needle of strength θ first: the best factor is θ/α."""
    scores = rng.normal(size=shape)
    scores[:, 0] += theta
    return torch.from_numpy(alpha * scores)


def packed():
    torch.manual_seed(0)
    xs = torch.randn(8, 2, 9, 32).double().unbind()
    return nn.Sequential(XCA("fused"), XCA("fused")).double(), list(xs)


def squared(model, x):
    return model(x).square().mean()


# --- gradients -----------------------------------------------------------------------------------


def test_a_gradient_is_the_covariance_of_logits_and_values():
    rng = np.random.default_rng(0)
    q, k, v, upstream = (torch.from_numpy(rng.normal(size=(1, 2, 6, 4))) for _ in range(4))

    class Plain(nn.Module):
        def forward(self, scale):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)

    estimate = scale_gradient(Plain(), [0.7], lambda model, scale: (model(scale) * upstream).sum())
    logits = 0.7 * q @ k.mT
    p = logits.masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -math.inf).softmax(-1)
    mean = (p * logits).sum(-1, keepdim=True)
    covariance = (p * (logits - mean)) @ v
    expected = (upstream * covariance).sum((0, 2, 3))
    np.testing.assert_allclose(estimate.value[0], expected, rtol=1e-12)


def test_the_model_computes_the_same_bits_and_its_weights_get_no_gradient():
    model, [ids] = of_family("Llama", "sdpa"), texts(1)
    outputs = []

    def noted(model, ids):
        logits = model(ids, use_cache=False).logits
        outputs.append(logits.detach())
        return logits.square().sum()

    scale_gradient(model, [ids], noted)
    assert torch.equal(outputs[0], model(ids, use_cache=False).logits)
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())


ONES = torch.ones(2, 3)


def unfollowed(model, rows):
    return found_loss(model, rows).detach()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: scale_gradient(OneHead(), [], found_loss), "batches"),
        (lambda: scale_gradient(OneHead(), [ONES]), "loss"),
        (lambda: scale_gradient(OneHead(), [ONES], lambda *_: 1.0), "one number as a tensor"),
        (lambda: scale_gradient(OneHead(), [ONES], lambda *_: ONES), "one number as a tensor"),
        (lambda: scale_gradient(OneHead(), [ONES], unfollowed), "depend on the model's attention"),
        (lambda: scale_gradient(OneHead(), [math.nan * ONES], found_loss), "finite"),
        (lambda: fit_scales(OneHead(), [], [], loss=found_loss), "train"),
        (lambda: needles(OneHead(), [ONES[:1]], "next"), "targets"),
    ],
)
def test_bad_input_is_refused_by_name(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_what_is_no_module_or_no_law_is_refused_by_name():
    with pytest.raises(TypeError, match=r"law must be of str \| .*Policy, got law=<function"):
        fit_scales(OneHead(), [ONES], 2 * [ONES], loss=found_loss, law=unfollowed)
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got a function"):
        scale_gradient(squared, [ONES])


HIDDEN = torch.full((9, 9), -1e9).triu(1)


def hiding(way="matmul"):
    """Return a causal layer, written out or fused."""
    return XCA(way, mask=HIDDEN).double()


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def of_two_calls(model, x):
    return (model(x[:1]) * model(x[1:])).sum()


@pytest.mark.parametrize("of", [squared, of_two_calls])
def test_written_out_attention_has_the_gradient_of_a_call(of):
    model = nn.Sequential(hiding(), hiding("fused"))
    texts = [drawn(2, 9, 32, seed=i) for i in range(2)]
    estimate = scale_gradient(model, texts, of)
    assert estimate.layers == ["0", "1"]
    fused = scale_gradient(nn.Sequential(hiding("fused"), hiding("fused")), texts, of)
    np.testing.assert_allclose(estimate.samples, fused.samples, rtol=1e-9)
    losses = []
    for h in (1e-4, -1e-4):
        times = torch.tensor([1.0, 1.0 + h, 1.0, 1.0], dtype=torch.float64)
        model[0].scale = 8**-0.5 * times[:, None, None]
        losses.append([of(model, x).item() for x in texts])
    differences = np.subtract(*losses) / 2e-4
    np.testing.assert_allclose(estimate.samples[:, 0, 1], differences, rtol=1e-6)
    model[0].scale = 8**-0.5
    fits = [
        fit_scales(m, texts, texts, loss=of, law=law, per="layer").a
        for m in (model, nn.Sequential(hiding("fused"), hiding("fused")))
        for law in ("constant", "log")
    ]
    np.testing.assert_allclose(fits[:2], fits[2:], rtol=1e-5)


def test_a_fit_is_put_into_a_model_that_writes_its_softmax_out():
    model, texts = hiding(), [drawn(2, 9, 32, seed=i) for i in range(4)]
    fit = fit_scales(model, texts, texts, loss=squared, per="head")
    done = fit.apply(model)
    losses = [squared(model, x).item() for x in texts]
    np.testing.assert_allclose(losses, fit.after, rtol=1e-9)
    done.undo()
    np.testing.assert_array_equal([squared(model, x).item() for x in texts], fit.before)


def test_attention_that_cannot_be_reached_is_named():
    model, x = nn.Sequential(hiding(), Performer()), drawn(2, 9, 32)
    for call in (
        lambda **more: scale_gradient(model, [x], squared, **more),
        lambda **more: fit_scales(model, [x], [x, x], loss=squared, steps=1, **more),
    ):
        with pytest.raises(RuntimeError, match=r"1 \(Performer\): .* exp .*; partial=True"):
            call()
        assert call(partial=True).layers == ["0"]
    with pytest.raises(RuntimeError, match="Linear has run no attention that can"):
        scale_gradient(nn.Linear(32, 2).double(), [x], squared)
    with pytest.raises(RuntimeError, match="softmax over one key alone"):
        scale_gradient(nn.Softmax(-1), [x[..., :1]], squared)


# --- fits ----------------------------------------------------------------------------------------


def test_the_best_factor_of_a_needle_is_found_within_its_interval():
    inside, ends = 0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = [needle_rows(rng, 2.0, 3.0) for _ in range(14)]
        fit = fit_scales(OneHead(), rows[:8], rows[8:], loss=found_loss)
        inside += fit.interval[0] <= 1.5 <= fit.interval[1]
        ends.append(np.log(fit.interval))
        assert fit.recommended
    assert inside >= 17  # 19 are expected; fewer than 17 of 20 happen once in sixty
    low, high = np.transpose(ends)
    error = (high - low).mean() / 2.0 / stats.t.ppf(0.975, 7)
    assert 0.5 < ((low + high) / 2.0).std(ddof=1) / error < 2.0


class ByHand(Fitting):
    """A fit without a model: losses ½(x − m)² of a text m; losses of what is held out as given."""

    def __init__(self, held=(), size=1):
        self.held, self.parameter_count = list(held), size

    def objective(self, text, x):
        return (float(x[0]) - text) ** 2 / 2.0, x - text

    def loss_of(self, text, x):
        return self.held.pop(0)


def test_intervals_are_students():
    minima = [0.1, 0.5, 0.2, 0.4, 0.3]
    interval = ByHand().interval(minima, np.array([0.7]))
    expected = stats.ttest_1samp(minima, 0.0).confidence_interval()
    np.testing.assert_allclose(np.log(interval), expected, rtol=1e-9)
    fit = ScaleFit.__new__(ScaleFit)
    vars(fit).update(before=np.array(minima), after=np.zeros(5))
    np.testing.assert_allclose(fit.gain_interval, expected, rtol=1e-9)


def test_a_fit_stops_at_the_second_step_in_a_row_without_a_lower_loss():
    fitting = ByHand([1.0, 2.0, 0.5, 2.0, 0.4, 2.0, 2.0, 0.1], size=2)  # at t = 1, then each step
    fitting.objective = lambda text, x: (optimize.rosen(x), optimize.rosen_der(x))  # many steps
    fitting.fit([0.0], [0.0], 50, lambda stage, loss: None)
    assert fitting.held == [0.1]


def test_a_calibrated_head_is_left_alone():
    rng = np.random.default_rng(3)
    rows = [needle_rows(rng, 3.0, 3.0) for _ in range(24)]
    fit = fit_scales(OneHead(), rows[:16], rows[16:], loss=found_loss)
    assert not fit.recommended
    assert "leave" in str(fit)
    assert fit.factor(64)[0, 0] == pytest.approx(1.0, abs=0.1)


def test_a_law_in_n_is_measured():
    """Needles of strength 3 + log₄(n/16) under α = 3 want log t = log(θ/3), which grows with n."""
    rng = np.random.default_rng(4)

    def rows(n):
        return needle_rows(rng, 3.0, 3.0 * (n / 16.0) ** 0.3, (400, n))

    lengths = (16, 64, 256)
    train = [rows(n) for n in lengths for _ in range(4)]
    test = [rows(n) for n in lengths for _ in range(2)]
    fit = fit_scales(OneHead(), train, test, loss=found_loss, law="log", train_length=16, steps=20)
    assert fit.b[0, 0] == pytest.approx(0.3, abs=0.08)
    assert fit.factor(16)[0, 0] == pytest.approx(1.0, abs=0.15)
    rule = fit_scales(
        OneHead(), train, test, loss=found_loss, law=POLICIES["ssmax"], train_length=16
    )
    assert rule.factor(256)[0, 0] / rule.factor(16)[0, 0] == pytest.approx(2.0)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "GPT2", "Phi3"])
def test_factors_are_put_into_a_model_and_taken_out_again(family):
    model, ids = of_family(family, "sdpa"), texts(6, 24)
    fit = fit_scales(model, ids[:4], ids[4:], loss=loss, per="model", steps=3)

    def log_factor(place, n):
        return np.log(fit._layer_factors(place.layer, n))

    runs = [loss_and_gradients(model, text, loss, log_factor, gradient=False) for text in ids]
    wanted = [run.loss for run in runs]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    done = fit.apply(model)
    assert done.folded
    assert done.registered is None
    assert [value_of(model, text) for text in ids] == pytest.approx(wanted, rel=1e-9)
    done.undo()
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("per", ["model", "head"])
@pytest.mark.parametrize("order", ["apart", "queries first", "by key"])
def test_factors_fit_into_a_model_that_is_not_of_transformers(order, per):
    _, xs = packed()
    model = nn.Sequential(Packed(order), Packed(order)).double()
    fit = fit_scales(model, xs[:4], xs[4:], loss=squared, per=per, steps=3)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    done = fit.apply(model)
    assert done.folded == ["0.core", "1.core"]
    assert [value_of(model, x, squared) for x in xs[4:]] == pytest.approx(fit.after, rel=1e-9)
    done.undo()
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_factors_that_do_not_fit_say_why():
    _, xs = packed()
    model = nn.Sequential(Packed("by key", "my_own"), Packed("by key", "my_own")).double()
    options = {"loss": squared, "steps": 2}
    fit = fit_scales(model, xs[:4], xs[4:], **options)
    with pytest.raises(ValueError, match=r"not of transformers, and what makes the queries of 0\."):
        fit.apply(model)
    more = Packed("by key", "my_own").double()
    for other in (model[0], nn.Sequential(*model, more)):  # fewer layers, and more
        with pytest.raises(ValueError, match="model must be the one that was fitted"):
            fit.apply(other)
    for part in model:
        part.packed_projection = "my_own"
    assert fit.apply(model).folded
    law = fit_scales(model, xs[:4], xs[4:], law="ssmax", train_length=4, **options)
    with pytest.raises(ValueError, match="factors that depend on n do not fit into its weights"):
        law.apply(model)


def test_a_rule_is_registered_with_the_model():
    """InfoScale's growth in n depends on d, which is 8 here."""
    model, ids, rule = of_family("Llama", "sdpa"), texts(4, 24), POLICIES["infoscale"]
    fit = fit_scales(model, ids[:2], ids[2:], loss=loss, law=rule, train_length=8, steps=2)
    ratio = rule.scale(24, 8) / rule.scale(8, 8)
    np.testing.assert_allclose(fit.factor(24) / fit.factor(8), ratio, rtol=1e-12)
    done = fit.apply(model)
    assert done.registered == "attnlib-fitted"
    assert [value_of(model, text) for text in ids[2:]] == pytest.approx(fit.after, rel=1e-9)
    done.undo()
    assert [value_of(model, text) for text in ids[2:]] == pytest.approx(fit.before, rel=1e-9)


class Checkpointed(nn.Module):
    """One layer three times, or only what it does in itself, whose activations are not kept."""

    def __init__(self, layer, kind):
        super().__init__()
        self.layer, self.kind = layer, kind

    def forward(self, x):
        for _ in range(3):
            run = self.layer if self.kind == "module" else self.layer.forward
            if self.kind == "none":
                x = run(x)
            else:
                x = checkpoint(run, x, use_reentrant=self.kind == "reentrant")
        return x


@pytest.mark.parametrize("kind", ["module", "function", "reentrant"])
def test_a_checkpoint_outside_transformers_has_the_same_gradient(kind):
    [layer, _], xs = packed()
    layer = nn.Sequential(layer, hiding())
    again, expected = (
        scale_gradient(Checkpointed(layer, way), xs[:2], squared) for way in (kind, "none")
    )
    np.testing.assert_allclose(again.samples.sum(axis=1), expected.samples.sum(axis=1), rtol=1e-12)
    fits = [
        fit_scales(Checkpointed(layer, way), xs[:2], xs[2:4], loss=squared, steps=3, per="head")
        for way in (kind, "none")
    ]
    np.testing.assert_allclose(fits[0].after, fits[1].after, rtol=1e-9)


def test_a_model_of_transformers_has_its_own_loss():
    model, [ids] = of_family("Llama", "sdpa"), texts(1)
    assert value_of(model, ids, own_loss) == pytest.approx(value_of(model, ids), rel=1e-5)
    labels = torch.where(torch.arange(ids.shape[1]) < 6, -100, ids)
    given = {"input_ids": ids, "labels": labels}
    assert value_of(model, given, own_loss) == pytest.approx(model(**given).loss.item(), rel=1e-9)


# --- needles -------------------------------------------------------------------------------------


class Square(nn.Module):
    """A head with these logits, (n, n)."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.from_numpy(logits)[None, None]

    def forward(self, ids):
        key = torch.eye(ids.shape[1], dtype=torch.float64)[None, None]
        return functional.scaled_dot_product_attention(self.logits, key, key, scale=1.0)


def test_statistics_are_those_of_the_rows_written_out():
    logits = needle_rows(np.random.default_rng(0), 1.5, 3.0, (30, 30)).numpy()
    ids = torch.zeros(1, 30, dtype=torch.long)
    statistics = needles(Square(logits), [ids], np.zeros((1, 30), dtype=int))
    others = logits[:, 1:]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    lost = 1.0 - p[:, 0]
    mean = (p[:, 1:] * others).sum(axis=1) / lost
    gap = (lost * (logits[:, 0] - others.mean(axis=1))).sum()
    slope = (lost * (mean - others.mean(axis=1))).sum()
    [row] = statistics.table()
    assert row["ratio"] == pytest.approx(gap / slope, rel=1e-5)
    assert row["weight"] == pytest.approx(p[:, 0].mean(), rel=1e-5)
    reach = np.exp((logits[:, 0] - np.log(np.exp(others).mean(axis=1))).mean())
    assert row["reach"] == pytest.approx(reach, rel=1e-5)

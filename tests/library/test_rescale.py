"""Other people's models at another scale: what they would do if their own were changed."""

import copy
import math
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from attnlib.policies import POLICIES
from attnlib.probing import probe
from tests.library import foreign
from tests.library.foreign import XCA, Performer
from tests.library.test_bad_input import assert_refused

WIDTH, HEADS, LENGTH = 16, 2, 7


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the models --------------------------------------------------------------------------------


class Plain(nn.Module):
    """Two layers of attention by a name imported from PyTorch, at a scale of their own."""

    def __init__(self, scale=None):
        super().__init__()
        self.scale = scale
        self.first, self.second = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        for layer in (self.first, self.second):
            q, k, v = layer(x).chunk(3, -1)
            x = x + scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=self.scale)
        return x


def sharper(model, factor):
    """Multiply the scale of a model by changing the model itself."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.in_proj_weight[: module.embed_dim] *= factor
                module.in_proj_bias[: module.embed_dim] *= factor
            elif isinstance(module, Plain):
                module.scale = factor * (module.scale or WIDTH**-0.5)


X, Y = numbers(2, LENGTH, WIDTH), numbers(2, LENGTH + 2, WIDTH, seed=1)


def plain():
    model = Plain()
    return model, lambda: model(X)


def across():
    model = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    return model, lambda: model(X, Y, Y, need_weights=False)[0]


MODELS = {"plain": plain, "MultiheadAttention": across, **foreign.MODELS}


def built(name, training=False):
    torch.manual_seed(0)
    model, call = MODELS[name]()
    model.train(training)
    return model, call


def shown(name, output):
    """Return the output where it is not that of padding, of which PyTorch says nothing."""
    return output[~foreign.PADDING] if name == "torch encoder, padding" else output


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("name", MODELS)
def test_alpha_one_changes_nothing_and_another_is_the_models_own_scale_changed(name):
    model, call = built(name)
    with torch.no_grad():
        before = call()
        for options in ({"policy": "transformer"}, {"alpha": 1.0}):
            with rescale(**options):
                same = call()
            close = {"rtol": 1e-4, "atol": 1e-4}
            torch.testing.assert_close(shown(name, same), shown(name, before), **close)
        with rescale(alpha=2.0):
            result = call()
        torch.testing.assert_close(call(), before, rtol=0.0, atol=0.0, equal_nan=True)
        sharper(model, 2.0)
        torch.testing.assert_close(shown(name, result), shown(name, call()), **close)
    assert shown(name, result - before).abs().max() > 0.01


# --- contexts ----------------------------------------------------------------------------------


def scales_seen(*contexts):
    """Return α of a bare call inside the contexts."""
    q, k = torch.eye(4), torch.eye(4)
    for context in contexts:
        context.__enter__()
    weights = scaled_dot_product_attention(q, k, torch.eye(4))
    for context in reversed(contexts):
        context.__exit__(None, None, None)
    return (2.0 * torch.log(weights[0, 0] / weights[0, 1])).item()


def test_the_innermost_context_counts_and_it_decorates_functions():
    lower, higher, law = rescale(alpha=1.5), rescale(alpha=3.0), rescale("chiang_cholak")

    @lower
    def function(depth):
        return scales_seen() if depth == 0 else function(depth - 1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the outer contexts see no call
        for contexts, alpha in (
            ((lower,), 1.5),
            ((lower, higher), 3.0),
            ((lower, higher, lower), 1.5),
            ((law, law), math.log(4)),
        ):
            assert scales_seen(*contexts) == pytest.approx(alpha)
        assert function(2) == pytest.approx(1.5)
    with higher:
        assert scales_seen(lower) == pytest.approx(1.5)
        assert scales_seen() == pytest.approx(3.0)
    assert scales_seen() == pytest.approx(1.0)


def test_what_it_cannot_reach_is_said(monkeypatch):
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    with pytest.warns(UserWarning, match="has changed nothing$"), rescale(alpha=2.0):
        X @ X.mT
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.warns(UserWarning, match=r"no call of .*='sdpa', .*register\("), rescale(alpha=2.0):
        X @ X.mT
    model, _ = built("MultiheadAttention")
    with pytest.raises(RuntimeError, match="need_weights=False"), rescale(alpha=2.0):
        model(X, X, X)


# --- attention that writes its softmax out -------------------------------------------------------


def stack(*scales, ways=("matmul", "fused")):
    return nn.Sequential(*(XCA(w, s * 8**-0.5) for w, s in zip(ways, scales, strict=True)))


Y32 = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2))


class Again(nn.Sequential):
    """Layers whose activations are computed again in the backward pass."""

    def __init__(self, layers):
        super().__init__(*layers)

    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def first_gradient(model):
    return torch.autograd.grad(model(Y32).square().sum(), model[0].wqkv.weight)


def test_written_out_attention_is_rescaled_as_a_call_is():
    model = stack(1.0, 1.0)
    for layers, scales in ((None, (3.0, 3.0)), ([0], (3.0, 1.0)), ([1], (1.0, 3.0))):
        with rescale(factor=2.0), rescale(factor=3.0, layers=layers):  # the innermost counts
            output = model(Y32)
        torch.testing.assert_close(output, stack(*scales)(Y32))
    expected = first_gradient(stack(3.0, 1.0))
    for layers in ([0], ["0"]):  # a layer that is computed again runs without the model around it
        with rescale(factor=3.0, layers=layers):
            torch.testing.assert_close(first_gradient(Again(model)), expected)
    compiled = torch.compile(model, backend="eager")  # its graph runs as PyTorch's functions
    with torch.no_grad(), rescale(factor=3.0):
        output = compiled(Y32)
    torch.testing.assert_close(output, stack(3.0, 3.0)(Y32))
    fused = stack(1.0, 1.0, ways=("fused", "fused"))
    for factor in ("ssmax", torch.tensor([[1.0], [2.0], [3.0], [0.5]])):
        length = {"train_length": 4} if isinstance(factor, str) else {}
        with rescale(factor=factor, **length):
            torch.testing.assert_close(model(Y32), fused(Y32))
    for absolute in ({"alpha": 2.0}, {"policy": "mup"}):
        with pytest.raises(RuntimeError, match="XCA writes its softmax out"), rescale(**absolute):
            model(Y32)


def test_a_model_without_numbers_is_rescaled_too():
    x = torch.empty(2, HEADS, LENGTH, WIDTH, device="meta")  # as graphs are compiled
    with rescale(factor=2.0):
        assert (torch.softmax(x @ x.mT, -1) @ x).shape == x.shape


def test_a_rule_counts_the_keys_that_a_mask_leaves():
    q, k, v = numbers(3, HEADS, LENGTH, WIDTH)
    hidden = ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    times = torch.arange(1, LENGTH + 1).log()[:, None] / math.log(4)
    expected = (q @ k.mT * 0.3 * times).masked_fill(hidden, -math.inf).softmax(-1) @ v
    for rule, length, lowest in (
        ("ssmax", 4, -math.inf),
        (POLICIES["ssmax"], 4, -1e4),
        (lambda n, d, position: np.log(n) / math.log(4), None, torch.finfo(torch.float32).min),
    ):
        with rescale(factor=rule, train_length=length):
            output = (q @ k.mT * 0.3).masked_fill(hidden, lowest).softmax(-1) @ v
            fused = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(fused, expected)
    sink = torch.full((HEADS, LENGTH, 1), 0.3)
    for join in (
        lambda x: torch.cat([sink, x], -1),
        lambda x: functional.pad(x, (1, 0), value=0.3),
    ):
        with rescale(factor="ssmax", train_length=4):
            output = join((q @ k.mT * 0.3).masked_fill(hidden, -math.inf)).softmax(-1)
        expected = join((q @ k.mT * 0.3 * times).masked_fill(hidden, -math.inf)).softmax(-1)
        torch.testing.assert_close(output, expected)


def test_weights_of_multi_head_attention_are_rescaled():
    model, _ = built("MultiheadAttention")
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    for rule in ({"factor": 2.0}, {"factor": "ssmax", "train_length": 4}):
        with rescale(**rule):
            outputs = [
                model(X, X, X, attn_mask=hidden, need_weights=need)[0] for need in (True, False)
            ]
        torch.testing.assert_close(*outputs)


def test_what_was_seen_and_not_changed_is_named():
    model = nn.Sequential(XCA(), Performer())
    with (
        pytest.warns(UserWarning, match=r"not changed: 1 \(Performer\): .* exp"),
        rescale(factor=2.0),
    ):
        model(Y32)
    never = r"got layers with 7, 'x'; those that came are 0, 1, '0', '1'"
    with pytest.raises(ValueError, match=never), rescale(factor=9.0, layers=[0, 7, "x"]):
        stack(1.0, 1.0)(Y32)


# --- compiled models ---------------------------------------------------------------------------

IN_TURN = [None, {"policy": "chiang_cholak"}, {"alpha": 2.0}, {"policy": "chiang_cholak"}, None]


def in_turn(call):
    """Return the outputs under no context, a policy, an α, the policy, no context."""
    outputs = []
    for options in IN_TURN:
        with torch.no_grad():
            if options is None:
                outputs.append(call())
            else:
                with rescale(**options):
                    outputs.append(call())
    return outputs


# "eager" runs the graph as PyTorch functions, which the context sees once more.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize(
    ("name", "backend"), [("plain", "eager"), ("torch encoder, padding", "aot_eager")]
)
def test_a_compiled_model_is_rescaled_as_it_was_before(name, backend):
    torch._dynamo.reset()
    model, call = built(name)
    expected = in_turn(call)
    model.compile(backend=backend, fullgraph=name == "plain")
    for ours, theirs in zip(in_turn(call), expected, strict=True):
        torch.testing.assert_close(shown(name, ours), shown(name, theirs), rtol=1e-5, atol=1e-5)


# --- relative to the model's own scale, and for some layers --------------------------------------


@pytest.mark.parametrize("own", [None, 0.7])
def test_a_factor_multiplies_the_models_own_scale(own):
    model = Plain(own)
    expected = model(X)
    with rescale(factor=1.0):
        assert torch.equal(model(X), expected)
    if own is not None:
        message = r"own scale is 0.7, not 1/√d = 0.25, .* rescale\(factor=…\) multiplies it"
        with rescale(alpha=1.0), pytest.warns(UserWarning, match=message):
            assert not torch.allclose(model(X), expected)
    with rescale(factor=3.0):
        output = model(X)
    sharper(model, 3.0)
    torch.testing.assert_close(output, model(X))


def gradients(model):
    model.train()
    model.activation_checkpointing_enable()
    model(foreign.tokens())[0].square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("layers", [[1], [0, 1]])
def test_some_layers_change_and_the_others_do_not(layers):
    model, ids = foreign.llama(), foreign.tokens()
    expected = copy.deepcopy(model)
    for place in layers:
        expected.layers[place].self_attn.scaling *= 3.0
    output, unchanged = expected(ids)[0], model(ids)[0]
    with rescale(factor=3.0, layers=layers):
        for _ in range(2):  # the second run counts as the first does
            torch.testing.assert_close(model(ids)[0], output)
    with rescale(factor=3.0, layers=[f"layers.{place}.self_attn" for place in layers]):
        torch.testing.assert_close(model(ids)[0], output)
    with pytest.raises(ValueError, match="with 7; those"), rescale(factor=3.0, layers=[7]):
        torch.testing.assert_close(model(ids)[0], unchanged)
    with rescale(factor=3.0, layers=layers):  # computed again in the backward pass
        rescaled = gradients(model)
    torch.testing.assert_close(rescaled, gradients(expected))


@pytest.mark.parametrize("key_heads", [2, 4])
def test_a_factor_of_each_head_changes_that_head_alone(key_heads):
    q, k, v = (numbers(2, 4, LENGTH, WIDTH, seed=i) for i in range(3))
    k, v = k[:, :key_heads], v[:, :key_heads]

    def attended():
        return scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True)

    own = attended()
    with rescale(factor=2.0):
        every = attended()
    with rescale(factor=torch.tensor([[2.0], [1.0], [2.0], [1.0]])):
        by_head = attended()
    torch.testing.assert_close(by_head[:, 1::2], own[:, 1::2])
    torch.testing.assert_close(by_head[:, ::2], every[:, ::2])


# --- bad input ---------------------------------------------------------------------------------


def test_a_scale_that_does_not_fit_the_model_is_refused_by_its_call():
    _, call = built("plain")
    with rescale(alpha=torch.ones(LENGTH + 1)):
        assert_refused("alpha", "(8,)", call)
    with rescale(factor=1e30):
        assert_refused("factor", "at most 1.84e", call)


# --- what has no single product to change --------------------------------------------------------


class Relative(nn.Module):
    """Its queries also meet learned positions, in a mask."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(numbers(LENGTH, LENGTH, WIDTH, seed=2))

    def forward(self, x):
        mask = torch.einsum("bqd,qkd->bqk", x, self.positions)
        return scaled_dot_product_attention(x, x, x, mask)


class Nested(nn.Module):
    """Attention of a nested tensor, with sequences of two lengths."""

    def forward(self, x):
        parts = torch.cat([x[0], x[1, :3]])
        x = torch.nested.nested_tensor_from_jagged(parts, torch.tensor([0, LENGTH, LENGTH + 3]))
        x = x.unflatten(-1, (2, 8)).transpose(1, 2)
        return scaled_dot_product_attention(x, x, x).transpose(1, 2).values()


@pytest.mark.parametrize(
    ("kind", "why"), [(Relative, "made of two products"), (Nested, "a nested tensor")]
)
def test_calls_that_cannot_get_a_factor_are_named_and_left_as_they_are(kind, why):
    model = kind()
    with pytest.warns(UserWarning, match=rf"not changed: the model .*{why}"):  # noqa: SIM117
        with rescale(factor=2.0):
            output = model(X)
    torch.testing.assert_close(output, model(X))
    with pytest.raises(RuntimeError, match=why):
        scale_gradient(model, [X], lambda model, x: model(x).square().sum())


def test_modules_in_other_threads_are_named():
    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([Plain(), Plain()])

        def forward(self, x):
            with ThreadPoolExecutor() as others:
                return sum(others.map(self.parts[0], [x])) + self.parts[1](x)

    says = r"parts\.0 \(Plain\): it ran in another thread"
    with pytest.warns(UserWarning, match=says):
        scale_gradient(model := Threaded(), [X], lambda model, x: model(x).square().sum())
    with pytest.warns(UserWarning, match=says), probe(model, theory=False) as report:
        model(X)
    assert set(report.table()["layer"]) == {"parts.1"}

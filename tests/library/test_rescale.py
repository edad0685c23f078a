"""Other people's models at another scale: what they would do if their own were changed."""

import copy
import math
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from attnlib.attention import Attention, attend, rescale
from attnlib.policies import POLICIES
from attnlib.probing import probe
from tests.library.test_bad_input import assert_refused

WIDTH, HEADS, LENGTH = 16, 2, 7
IDS = torch.arange(2 * LENGTH).reshape(2, LENGTH) * 5 % 17
PADDED = torch.ones(2, LENGTH, dtype=torch.long)
PADDED[1, :3] = 0


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


def sharper_queries(attention, factor):
    """Multiply the queries of an nn.MultiheadAttention."""
    attention.in_proj_weight[:WIDTH] *= factor
    attention.in_proj_bias[:WIDTH] *= factor


def sharper(model, factor):
    """Multiply the scale of a model by changing the model itself."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                sharper_queries(module, factor)
            elif isinstance(getattr(module, "scaling", None), float):
                module.scaling *= factor
            elif isinstance(module, Plain):
                module.scale = factor * (module.scale or WIDTH**-0.5)


def encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def decoder():
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    return nn.TransformerDecoder(layer, 2)


def gpt2():
    config = GPT2Config(
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        vocab_size=17,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        initializer_range=0.4,
        scale_attn_by_inverse_layer_idx=False,
        attn_implementation="sdpa",
    )
    return GPT2LMHeadModel(config)


def llama():
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=17,
        max_position_embeddings=32,
        initializer_range=0.4,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def bert(attention="sdpa"):
    config = BertConfig(
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        vocab_size=17,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.4,
        attn_implementation=attention,
    )
    return BertModel(config)


X, Y = numbers(2, LENGTH, WIDTH), numbers(2, LENGTH + 2, WIDTH, seed=1)
FUTURE = nn.Transformer.generate_square_subsequent_mask(LENGTH)
PADDING = PADDED == 0
MODELS = {
    "plain": (Plain, lambda model: model(X)),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        lambda model: model(X, Y, Y, need_weights=False)[0],
    ),
    "MultiheadAttention, padded": (
        lambda: nn.MultiheadAttention(WIDTH, HEADS),
        lambda model: model(*[X.transpose(0, 1)] * 3, key_padding_mask=PADDING, need_weights=False)[
            0
        ],
    ),
    "TransformerEncoder": (encoder, lambda model: model(X)),
    "TransformerEncoder, padded": (
        encoder,
        lambda model: model(X, src_key_padding_mask=PADDING)[~PADDING],
    ),
    "TransformerEncoder, causal": (
        encoder,
        lambda model: model(X, mask=FUTURE, is_causal=True),
    ),
    "TransformerDecoder": (decoder, lambda model: model(X, Y, tgt_mask=FUTURE)),
    "GPT-2": (gpt2, lambda model: model(IDS).logits),
    "GPT-2, padded": (gpt2, lambda model: model(IDS, attention_mask=PADDED).logits[PADDED == 1]),
    "Llama": (llama, lambda model: model(IDS).logits),
    "Llama, padded": (llama, lambda model: model(IDS, attention_mask=PADDED).logits[PADDED == 1]),
    "BERT": (bert, lambda model: model(IDS).last_hidden_state),
    "BERT, padded": (bert, lambda model: model(IDS, attention_mask=PADDED).last_hidden_state),
}


def built(name, training=False):
    make, call = MODELS[name]
    torch.manual_seed(0)
    model = make().train(training)
    return model, partial(call, model)


CASES = [(name, training) for name in MODELS for training in (False, True)]


@pytest.mark.parametrize(("name", "training"), CASES)
def test_the_usual_scale_changes_nothing(name, training):
    _, call = built(name, training)
    with torch.set_grad_enabled(training):
        expected = call()
        for told in ({"policy": "transformer"}, {"alpha": 1.0}, {"post_scale": 1.0}):
            with rescale(**told):
                result = call()
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "training"), CASES)
def test_another_alpha_is_the_models_own_scale_changed(name, training):
    model, call = built(name, training)
    with torch.set_grad_enabled(training):
        before = call()
        with rescale(alpha=2.0):
            result = call()
        after = call()
        sharper(model, 2.0)
        expected = call()
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert (result - before).abs().max() > 0.01
    assert torch.equal(before, after)


@pytest.mark.parametrize("name", ["plain", "GPT-2", "Llama", "BERT, padded"])
def test_gradients_are_those_of_the_model_with_its_own_scale_changed(name):
    model, call = built(name, training=True)
    with rescale(alpha=2.0):
        call().square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    sharper(model, 2.0)
    call().square().mean().backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)


# --- policies ----------------------------------------------------------------------------------


def causal_by_hand(x, model, scale, factor=lambda n: 1.0):
    """Return what `Plain` computes with `scale(n)` on q·k and `factor(n)` on the output."""
    for layer in (model.first, model.second):
        q, k, v = layer(x).chunk(3, -1)
        rows = []
        for i in range(LENGTH):
            logits = scale(i + 1) * (k[:, : i + 1] @ q[:, i, :, None])
            rows.append(factor(i + 1) * (logits.softmax(1) * v[:, : i + 1]).sum(1))
        x = x + torch.stack(rows, 1)
    return x


def test_a_policy_gives_each_query_its_scale():
    model, call = built("plain")
    with rescale("chiang_cholak"):
        result = call()
    expected = causal_by_hand(X, model, lambda n: math.log(n) / 4)
    torch.testing.assert_close(result, expected)


def test_a_post_scale_alone_leaves_the_models_own_scale():
    model, call = built("plain")
    model.scale = 0.6
    with rescale(post_scale=torch.arange(1.0, LENGTH + 1)):
        result = call()
    expected = causal_by_hand(X, model, lambda n: 0.6, factor=lambda n: n)
    torch.testing.assert_close(result, expected)


def test_the_models_queries_and_keys_may_be_normalised():
    class Unit(Plain):
        def forward(self, x):
            q, k, v = self.first(x).chunk(3, -1)
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
            return scaled_dot_product_attention(q, k, v, scale=10.0)

    torch.manual_seed(0)
    model = Unit()
    expected = model(X)
    with rescale("x_transformers", normalize_qk=True):
        torch.testing.assert_close(model(X), expected)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_a_cache_gives_what_the_whole_text_gives(name):
    model, _ = built(name)
    with torch.no_grad(), rescale("chiang_cholak", post_scale="exact"):
        whole = model(IDS).logits
        start = model(IDS[:, :4], use_cache=True)
        cache, logits = start.past_key_values, [start.logits]
        for i in range(4, LENGTH):
            step = model(IDS[:, i : i + 1], past_key_values=cache)
            logits.append(step.logits)
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=1e-4, atol=1e-4)


def test_padding_is_not_counted():
    model, _ = built("BERT")
    with torch.no_grad(), rescale("chiang_cholak"):
        padded = model(IDS, attention_mask=PADDED).last_hidden_state
        alone = model(IDS[1:, 3:], position_ids=torch.arange(3, LENGTH)[None]).last_hidden_state
    torch.testing.assert_close(padded[1:, 3:], alone, rtol=1e-4, atol=1e-4)


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


def test_the_innermost_context_counts():
    one, two = rescale(alpha=1.5), rescale(alpha=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the outer contexts see no call
        assert scales_seen(one) == pytest.approx(1.5)
        assert scales_seen(one, two) == pytest.approx(3.0)
        assert scales_seen(two, one) == pytest.approx(1.5)
        assert scales_seen(one, one) == pytest.approx(1.5)
        assert scales_seen(one, two, one) == pytest.approx(1.5)
        assert scales_seen(rescale("chiang_cholak"), rescale("mup")) == pytest.approx(4.0)
        length = rescale("chiang_cholak")
        assert scales_seen(length, length) == pytest.approx(math.log(4))
    assert scales_seen() == pytest.approx(1.0)


def test_after_an_inner_context_the_outer_one_counts_again():
    with rescale(alpha=3.0):
        assert scales_seen(rescale(alpha=2.0)) == pytest.approx(2.0)
        assert scales_seen() == pytest.approx(3.0)


def test_an_error_passes_and_ends_the_context():
    with pytest.raises(KeyError), rescale(alpha=2.0):
        raise KeyError
    assert scales_seen() == pytest.approx(1.0)
    assert torch.backends.mha.get_fastpath_enabled()


def test_it_decorates_functions():
    @rescale(alpha=2.0)
    def function(depth):
        """Say something."""
        return scales_seen() if depth == 0 else function(depth - 1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert function(2) == pytest.approx(2.0)
    assert function.__doc__ == "Say something."
    assert scales_seen() == pytest.approx(1.0)


def test_threads_have_contexts_of_their_own():
    context, meet, seen = rescale(alpha=2.0), threading.Barrier(3, timeout=60), {}

    def work(name, *contexts):
        meet.wait()
        for _ in range(20):
            seen.setdefault(name, set()).add(round(scales_seen(*contexts), 4))

    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in (["one", context], ["two", context], ["none"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"one": {2.0}, "two": {2.0}, "none": {1.0}}
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("before", [True, False])
def test_pytorchs_shortcut_is_left_as_it_was(before):
    try:
        torch.backends.mha.set_fastpath_enabled(before)
        with rescale(alpha=2.0):
            assert not torch.backends.mha.get_fastpath_enabled()
            scales_seen(rescale(alpha=3.0))
            assert not torch.backends.mha.get_fastpath_enabled()
            scales_seen()
        assert torch.backends.mha.get_fastpath_enabled() is before
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_a_context_without_a_call_warns():
    with pytest.warns(UserWarning, match="no call of scaled"), rescale(alpha=2.0):
        pass
    model = bert("eager").eval()
    with pytest.warns(UserWarning, match=r"='sdpa', one .*register\("), rescale(alpha=2.0):
        model(IDS)


def test_attention_written_out_by_pytorch_is_refused():
    model, _ = built("MultiheadAttention")
    with pytest.raises(RuntimeError, match="need_weights=False"), rescale(alpha=2.0):
        model(X, X, X)


def test_it_reaches_attend_and_the_module():
    module, x = Attention(WIDTH, HEADS, policy="chiang_cholak", post_scale=2.0), X
    with rescale("mup"):
        result = module(x)
    module.policy = "mup"
    torch.testing.assert_close(result, module(x))
    with rescale(post_scale=3.0):
        result = module(x)
    torch.testing.assert_close(result, 1.5 * module(x) - 0.5 * module.output.bias)
    with rescale(alpha=2.0):
        result = attend(X, X, X, policy="ngpt", normalize_qk=True)
    torch.testing.assert_close(result, attend(X, X, X, alpha=2.0))


def test_it_works_with_other_modes():
    _, call = built("MultiheadAttention")
    with rescale(alpha=2.0):
        expected = call()
        with torch.device("cpu"):
            assert torch.equal(call(), expected)
    with torch.device("cpu"), rescale(alpha=2.0):
        assert torch.equal(call(), expected)


BACKWARD = {
    "Tensor.backward": lambda loss, x: loss.backward(),
    "autograd.backward": lambda loss, x: torch.autograd.backward([loss]),
    "autograd.grad": lambda loss, x: setattr(x, "grad", torch.autograd.grad(loss, x)[0]),
}


@pytest.mark.parametrize(
    ("name", "reentrant"),
    [(name, False) for name in BACKWARD] + [("Tensor.backward", True)],
)
def test_recomputed_activations_are_rescaled_too(name, reentrant):
    model, _ = built("plain", training=True)

    def gradient(function):
        x = X.clone().requires_grad_()
        with rescale("chiang_cholak"):
            BACKWARD[name](function(x).square().sum(), x)
        return x.grad

    again = partial(checkpoint, model, use_reentrant=reentrant)
    torch.testing.assert_close(gradient(again), gradient(model))


# --- compiled models ---------------------------------------------------------------------------

IN_TURN = [None, {"policy": "chiang_cholak"}, {"alpha": 2.0}, {"policy": "chiang_cholak"}, None]


def in_turn(call):
    """Return the outputs under no context, a policy, an α, the policy, no context."""
    outputs = []
    for told in IN_TURN:
        with torch.no_grad():
            if told is None:
                outputs.append(call())
            else:
                with rescale(**told):
                    outputs.append(call())
    return outputs


# "eager" runs the graph as PyTorch functions, which the context sees once more.
@pytest.mark.parametrize(
    ("name", "backend"),
    [("plain", "eager"), ("TransformerEncoder", "aot_eager"), ("Llama", "aot_eager")],
)
def test_a_compiled_model_is_rescaled_as_it_was_before(name, backend):
    torch._dynamo.reset()
    model, call = built(name)
    expected = in_turn(call)
    model.compile(backend=backend, fullgraph=name == "plain")
    torch.testing.assert_close(in_turn(call), expected, rtol=1e-5, atol=1e-5)


def test_an_exported_model_is_rescaled():
    model, call = built("plain")
    expected = in_turn(call)
    exported = torch.export.export(model, (X,)).module()
    torch.testing.assert_close(in_turn(lambda: exported(X)), expected)


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown", "told"),
    [
        ("rescale", "nothing", {}),
        ("policy and alpha", "give one", {"policy": "mup", "alpha": 1.0}),
        ("policy", "'mupp'", {"policy": "mupp"}),
        ("alpha", "nan", {"alpha": math.nan}),
        ("post_scale", "'no'", {"post_scale": "no"}),
        ("normalize_qk", "a scale", {"normalize_qk": True}),
        ("normalize_qk", "ngpt", {"policy": POLICIES["ngpt"]}),
    ],
)
def test_a_context_without_a_meaning_is_refused_at_once(name, shown, told):
    assert_refused(name, shown, rescale, **told)


def test_a_scale_that_does_not_fit_the_model_is_refused_by_its_call():
    _, call = built("plain")
    with rescale(alpha=torch.ones(LENGTH + 1)):
        assert_refused("alpha", "(8,)", call)


def test_a_context_is_entered_as_what_it_was_made():
    context, x = rescale("transformer"), torch.ones(1, 2, 3, 4)
    with context as entered:
        scaled_dot_product_attention(x, x, x)
    assert entered is context


# --- relative to the model's own scale, and for some layers and heads ----------------------------


def test_a_factor_multiplies_the_model_s_own_scale():
    for own in (None, 0.5):
        model = Plain(own)
        expected = copy.deepcopy(model)
        expected.scale = 3.0 * (WIDTH**-0.5 if own is None else own)
        x = numbers(2, LENGTH, WIDTH)
        with rescale(factor=3.0):
            found = model(x)
        torch.testing.assert_close(found, expected(x))


def test_a_factor_of_one_changes_nothing_in_a_model_with_a_scale_of_its_own():
    model = Plain(0.7)
    expected = model(numbers(2, LENGTH, WIDTH))
    with rescale(factor=1.0):
        assert torch.equal(model(numbers(2, LENGTH, WIDTH)), expected)
    said = r"own scale is 0.7, not 1/√d = 0.25, .* rescale\(factor=…\) multiplies it"
    with rescale(alpha=1.0), pytest.warns(UserWarning, match=said):
        assert not torch.allclose(model(numbers(2, LENGTH, WIDTH)), expected)


def test_a_rule_is_one_at_the_length_of_training():
    q, k, v = (numbers(1, HEADS, LENGTH, WIDTH, seed=i) for i in range(3))
    n = torch.arange(1, LENGTH + 1)
    factors = (n.double().log() / math.log(4)).float()
    factors[0] = 0.0
    logits = (q @ k.mT) * 0.3 * factors[:, None]
    hidden = ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    expected = logits.masked_fill(hidden, -math.inf).softmax(-1) @ v
    by_function = lambda n, d, position: np.log(position + 1.0)  # noqa: E731
    for rule in ("ssmax", POLICIES["ssmax"], by_function):
        with rescale(factor=rule, train_length=4):
            found = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        torch.testing.assert_close(found, expected)
    with rescale(factor=lambda n, d, position: np.log(n) / math.log(4)):
        found = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    torch.testing.assert_close(found, expected)


def test_a_function_is_a_policy():
    q, k, v = (numbers(1, HEADS, LENGTH, WIDTH, seed=i) for i in range(3))
    rule = POLICIES["ssmax"]
    expected = attend(q, k, v, policy="ssmax", is_causal=True)
    found = attend(q, k, v, policy=lambda n, d, position: rule.scale(n, d), is_causal=True)
    torch.testing.assert_close(found, expected)
    cosine = attend(q, k, v, policy=lambda n, d, position: 10.0, normalize_qk=True)
    torch.testing.assert_close(cosine, attend(q, k, v, scale=10.0, normalize_qk=True))
    with pytest.raises(ValueError, match="the policy's scale"):
        attend(q, k, v, policy=lambda n, d, position: -n)


@pytest.mark.parametrize("layers", [[0], [1], [0, 1]])
def test_some_layers_change_and_the_others_do_not(layers):
    model = llama()
    expected = copy.deepcopy(model)
    for place in layers:
        expected.model.layers[place].self_attn.scaling *= 3.0
    logits, unchanged = expected(IDS).logits, model(IDS).logits
    with rescale(factor=3.0, layers=layers):
        for _ in range(2):  # the second run counts as the first does
            torch.testing.assert_close(model(IDS).logits, logits)
    with rescale(factor=3.0, layers=[7]):
        torch.testing.assert_close(model(IDS).logits, unchanged)


def test_some_layers_change_where_they_are_computed_twice():
    def gradient(model):
        model.train()
        model.activation_checkpointing_enable()
        model(IDS).logits.square().mean().backward()
        return [p.grad for p in model.parameters()]

    model = llama()
    expected = copy.deepcopy(model)
    expected.model.layers[1].self_attn.scaling *= 3.0
    with rescale(factor=3.0, layers=[1]):
        found = gradient(model)
    for ours, theirs in zip(found, gradient(expected), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "changed",
    [
        {"factor": 2.0},
        {"alpha": 2.0},
        {"scale": 3.0, "normalize_qk": True},
        {"policy": "ssmax", "post_scale": 1.5},
        {"alpha": 2.0, "post_scale": "exact"},
    ],
)
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_some_heads_change_and_the_others_do_not(changed, key_heads):
    q, k, v = (numbers(2, 4, LENGTH, WIDTH, seed=i) for i in range(3))
    k, v = k[:, :key_heads], v[:, :key_heads]
    own = attend(q, k, v, enable_gqa=True, is_causal=True)
    for function in (scaled_dot_product_attention, attend):
        with rescale(**changed):
            every = function(q, k, v, enable_gqa=True, is_causal=True)
        with rescale(**changed, heads=[0, 2]):
            found = function(q, k, v, enable_gqa=True, is_causal=True)
        torch.testing.assert_close(found[:, 1::2], own[:, 1::2])
        torch.testing.assert_close(found[:, ::2], every[:, ::2])
    with rescale(factor=2.0, heads=[4]), pytest.raises(ValueError, match="heads must be below 4"):
        attend(q, q, q)


def test_a_probe_sees_one_call_in_which_some_heads_have_changed():
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = numbers(3, LENGTH, 16)
    tables = []
    for changed in (None, {"factor": 3.0}, {"factor": 3.0, "heads": [1]}):
        with probe(layer) as report:
            if changed is None:
                layer(x, x, x, need_weights=False)
            else:
                with rescale(**changed):
                    layer(x, x, x, need_weights=False)
        tables.append(report.table())
    own, every, some = (table.alpha.to_numpy() for table in tables)
    assert tables[2].call.tolist() == [0] * 4
    np.testing.assert_allclose(some[[0, 2, 3]], own[[0, 2, 3]], rtol=1e-5)
    np.testing.assert_allclose(some[1], every[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 2.0, "alpha": 1.0}, "factor multiplies the model's own scale"),
        ({"factor": 2.0, "post_scale": "exact"}, "factor is relative"),
        ({"factor": "ssmax"}, "needs train_length"),
        ({"factor": "ssmaxx", "train_length": 4}, "similar names: ssmax"),
        ({"factor": 2.0, "train_length": 4}, "train_length is for a factor that is a rule"),
        ({"alpha": 2.0, "train_length": 4}, "train_length is for a factor"),
        ({"factor": -1.0}, "factor"),
        ({"factor": "ssmax", "train_length": 0}, "train_length must be"),
        ({"factor": 2.0, "layers": []}, "layers must name one or more"),
        ({"factor": 2.0, "heads": [-1]}, "heads must be from 0"),
    ],
)
def test_what_a_relative_change_does_not_take(arguments, message):
    with pytest.raises(ValueError, match=message):
        rescale(**arguments)


def test_a_factor_beyond_the_range_of_the_numbers_is_named():
    q = k = v = numbers(1, HEADS, LENGTH, WIDTH)
    with rescale(factor=1e30), pytest.raises(ValueError, match=r"factor must be at most 1\.84e"):
        scaled_dot_product_attention(q, k, v)

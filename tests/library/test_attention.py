"""Attention at any scale, against PyTorch's.

`test_any_input` draws calls of `attend` at random, and has attention written out in float64.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from attnlib import exact
from attnlib.attention import attend
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, DotProduct
from tests.library import test_probing
from tests.library.test_bad_input import assert_refused
from tests.library.test_probing import some_keys

LENGTH, KEYS, D = 6, 8, 16


draw = partial(test_probing.draw, dtype=torch.float64)


def qkv(dtype=torch.float64, queries=LENGTH, keys=KEYS, heads=4, key_heads=4):
    return (
        draw(2, heads, queries, D, dtype=dtype),
        draw(2, key_heads, keys, D, dtype=dtype, seed=1),
        draw(2, key_heads, keys, 5, dtype=dtype, seed=2),
    )


MASK = some_keys(LENGTH, KEYS)
BATCH_MASK = some_keys(2, 1, LENGTH, KEYS)


def assert_close(result, expected, tolerance=1e-12):
    np.testing.assert_allclose(result.double().numpy(), expected, rtol=tolerance, atol=tolerance)


VISIBLE = [
    ({}, torch.ones(LENGTH, KEYS)),
    ({"is_causal": True}, torch.ones(LENGTH, KEYS).tril()),
    ({"attn_mask": BATCH_MASK}, BATCH_MASK),
]


@pytest.mark.parametrize(
    ("options", "alpha"),
    [
        ({}, lambda n: np.ones(n.shape)),
        ({"alpha": 0}, lambda n: np.zeros(n.shape)),
        ({"policy": "ssmax"}, lambda n: 0.168 * np.log(n)),
        (
            {"policy": "adacos", "normalize_qk": True},
            lambda n: math.sqrt(2) * np.log(np.maximum(n, 2) - 1),
        ),
    ],
)
def test_the_exact_post_scale_is_that_of_each_row(options, alpha):
    law = Cosine(D) if "normalize_qk" in options else DotProduct(D)
    for keys, seen in VISIBLE:
        n = np.maximum(seen.double().sum(-1).numpy(), 1.0)
        factor = torch.from_numpy(exact.post_scale(law, alpha(n), n))[..., None]
        expected = factor * attend(*qkv(), **options, **keys)
        result = attend(*qkv(), post_scale="exact", **options, **keys)
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


# --- against PyTorch's own ---------------------------------------------------------------------

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
def test_at_the_usual_scale_it_is_pytorch_bit_by_bit(dtype):
    d = 7  # √d and 1/√d are not exact
    q, k, v = (draw(2, 4, 9, d, dtype=dtype, seed=seed) for seed in range(3))
    for keys in ({}, {"is_causal": True}, {"attn_mask": some_keys(9, 9)}):
        expected = scaled_dot_product_attention(q, k, v, **keys)
        for options in ({}, {"policy": "transformer"}, {"alpha": 1, "post_scale": 1.0}):
            assert torch.equal(attend(q, k, v, **options, **keys), expected)
        shared = {**keys, "enable_gqa": True}
        expected = scaled_dot_product_attention(q, k[:, :2], v[:, :2], **shared)
        assert torch.equal(attend(q, k[:, :2], v[:, :2], **shared), expected)
        expected = scaled_dot_product_attention(q, k, v, scale=0.3, **keys)
        assert torch.equal(attend(q, k, v, scale=0.3, **keys), expected)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else [result]
        sizes = [x.numel() for x in results if isinstance(x, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "ssmax", "post_scale": "exact"},
        {"scale": torch.linspace(0.5, 3.0, 1024), "normalize_qk": True, "is_causal": True},
    ],
)
def test_no_matrix_of_scores_is_kept(options):
    n, d = 1024, 8
    inputs = [draw(1, 1, n, d, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    with Largest() as largest:
        attend(*inputs, **options).sum().backward()
    assert largest.numbers == n * d


def test_dropout_is_pytorchs():
    inputs = [x.float() for x in qkv()]
    results = []
    for attention in (scaled_dot_product_attention, attend):
        torch.manual_seed(0)
        results.append(attention(*inputs, dropout_p=0.3, is_causal=True))
    assert torch.equal(*results)


# --- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize_qk", [False, True])
@pytest.mark.parametrize("keys", [{"is_causal": True}, {"attn_mask": some_keys(4, 5)}])
@pytest.mark.parametrize(
    ("alpha", "post_scale"), [(2.0, "exact"), ("policy", "exact"), ("learned", "learned")]
)
def test_gradients(alpha, post_scale, keys, normalize_qk):
    tensors = [draw(2, 4, 4), draw(2, 5, 4, seed=1), draw(2, 5, 3, seed=2)]
    factors = [draw(4).abs() + 0.5, draw(2, 1).abs() + 0.5]
    name = "adacos" if normalize_qk else "chiang_cholak"

    def function(q, k, v, by_query, by_head):
        word = "scale" if normalize_qk else "alpha"
        options = {word: by_query if alpha == "learned" else alpha}
        options = {"policy": name} if alpha == "policy" else options
        c = by_head if post_scale == "learned" else "exact"
        return attend(q, k, v, post_scale=c, normalize_qk=normalize_qk, **options, **keys)

    learned = [alpha == "learned", post_scale == "learned"]
    inputs = [x.requires_grad_() for x in tensors]
    inputs += [x.requires_grad_(used) for x, used in zip(factors, learned, strict=True)]
    assert torch.autograd.gradcheck(function, inputs)


# --- compilers and transforms ------------------------------------------------------------------


class Graphs:
    """A backend of torch.compile that counts the graphs."""

    def __init__(self, backend="aot_eager"):
        torch._dynamo.reset()
        self.backend = torch._dynamo.lookup_backend(backend)
        self.count = 0

    def __call__(self, graph, inputs):
        self.count += 1
        return self.backend(graph, inputs)


class Layer(nn.Module):
    """Attention of one head, as anybody would write it."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x, is_causal):
        options = {"policy": "ssmax", "post_scale": "exact", "is_causal": is_causal}
        return attend(self.query(x), self.key(x), x, **options)


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [True, False])
def test_a_module_compiles_once_for_all_lengths_and_exports(is_causal):
    graphs = Graphs()
    module = Layer().eval()
    compiled = torch.compile(module, fullgraph=True, backend=graphs)
    for length in (6, 9, 7):
        x = draw(2, length, 16, dtype=torch.float32).requires_grad_()
        result, expected = (f(x, is_causal=is_causal) for f in (compiled, module))
        torch.testing.assert_close(result, expected)
        gradient, wanted = (torch.autograd.grad(y.sum(), x)[0] for y in (result, expected))
        torch.testing.assert_close(gradient, wanted)
    assert graphs.count == 2  # for one length, then for any
    length = torch.export.Dim("length", min=2, max=100)
    shapes = {"x": {1: length}, "is_causal": None}
    exported = torch.export.export(module, (x,), {"is_causal": is_causal}, dynamic_shapes=shapes)
    longer = draw(2, 11, 16, dtype=torch.float32)
    expected = module(longer, is_causal=is_causal)
    torch.testing.assert_close(exported.module()(longer, is_causal=is_causal), expected)


# --- bad input ---------------------------------------------------------------------------------

Q, K, V = qkv()
HUGE = POLICIES["ssmax"].with_constants(s=1e308)
REFUSED = [
    ("policy and alpha", "give one", {"policy": "mup", "alpha": 1.0}),
    ("alpha and scale", "give one", {"alpha": 1.0, "scale": 1.0}),
    ("policy", "'ssmaxx'; similar names: ssmax", {"policy": "ssmaxx"}),
    ("normalize_qk", "ngpt", {"policy": "ngpt"}),
    ("normalize_qk", "a scale", {"normalize_qk": True}),
    ("scale", "alpha", {"alpha": 7.0, "normalize_qk": True}),
    ("attn_mask", "CausalBias", {"attn_mask": causal_lower_right(LENGTH, KEYS)}),
    ("attn_mask", "got shape (6, 7)", {"attn_mask": MASK[:, :7]}),
    ("attn_mask", "got shape (2, 2, 1, 6, 8)", {"attn_mask": MASK.expand(2, 2, 1, 6, 8)}),
    ("k", "heads that share keys", {"k": K[:, :2], "v": V[:, :2]}),
    ("alpha", "-1", {"alpha": -1.0}),
    ("scale", "nan", {"scale": [1.0, math.nan]}),
    ("alpha", "(3, 2, 4, 6)", {"alpha": np.ones((3, 2, 4, 6))}),
    ("alpha", "torch.complex64", {"alpha": torch.ones(6, dtype=torch.complex64)}),
    ("alpha", "meta", {"alpha": torch.ones(6, device="meta")}),
    ("alpha", "1e+06", {"post_scale": "exact", "alpha": 1e6}),
    ("post_scale", "'exactly'", {"post_scale": "exactly"}),
    ("post_scale", "single number", {"post_scale": "exact", "alpha": torch.ones(6)}),
    ("alpha", "1e+20", {"alpha": 1e20, "q": Q.float(), "k": K.float(), "v": V.float()}),
    ("scale", "1.84e+19", {"scale": [1.9e19] * 6, "q": Q.half(), "k": K.half(), "v": V.half()}),
    ("post_scale", "1e+155", {"post_scale": [1e155] * 6}),
    ("policy", "1.79e+308", {"policy": HUGE, "is_causal": True}),
]


@pytest.mark.parametrize(("name", "shown", "options"), REFUSED)
def test_what_has_no_meaning_is_refused(name, shown, options):
    assert_refused(name, shown, attend, **{"q": Q, "k": K, "v": V, **options})

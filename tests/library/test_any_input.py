"""Generated calls of attention: the result is right, or an error names an argument; never NaN.

What is right is computed here in float64, with the error that rounding may make of it.
"""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib.attention import attend
from attnlib.policies import POLICIES

NUMBERS = [0.0, 1e-30, 1e4, math.inf, math.nan, -1.0]
MASKS = "none", "numbers", "causal", "truth", "infinite", "lowest"


@st.composite
def calls(draw):
    """Return q, k, v, what a call is told, and which of its arguments are out of range."""
    seed = draw(st.integers(0, 2**32))  # hypothesis itself would draw some kinds of calls hardly
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)

    def one_of(*values):
        return values[rng.integers(len(values))]

    dtype = one_of(torch.float32, torch.float64, torch.float16, torch.bfloat16)
    queries, keys, size, values = (int(rng.integers(least, 6)) for least in (0, 0, 1, 1))
    heads = one_of((), (2,), (3, 2))
    options, refused = {}, []
    if heads and one_of(True, False):
        options["enable_gqa"] = True
    shared = (*heads[:-1], 1) if options else heads

    def tensor(*shape):
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        numbers *= torch.rand((*shape[:-1], 1), generator=generator) < 0.8  # some are zeros
        return (numbers * 10.0 ** rng.integers(-4, 4)).to(dtype)

    q, k = tensor(*heads, queries, size), tensor(*shared, keys, size)
    v = tensor(*shared, keys, values)
    cosine = one_of(True, False)
    if cosine:
        options["normalize_qk"] = True
    kind = one_of("scale", "policy", "none" if not cosine else "scale")
    if kind == "policy":
        names = ["swin_v2", "adacos"] if cosine else ["ssmax", "qwen", "yarn"]
        options["policy"] = one_of(*names)
    names = [] if kind != "scale" else ["scale"] if cosine else [one_of("scale", "alpha")]
    for name in (*names, "post_scale"):
        if name != "post_scale" or one_of(True, False):
            options[name] = number = one_of(*NUMBERS, *(4.0 * rng.random(18)))
            refused += [] if 0.0 <= number < math.inf else [name]
            shape = one_of(None, (queries,), (*heads[-1:], 1), (*heads, queries))
            if shape is not None and not refused:  # one for each query, head or both
                options[name] = number * torch.rand(shape, generator=generator).double()
    mask = one_of(*MASKS)
    full = (*heads, queries, keys)
    shape = one_of(full, full[-2:], (queries, 1)) if keys else full
    if mask == "causal":
        options["is_causal"] = True
    elif mask != "none":
        seen = torch.rand(shape, generator=generator) < 0.7
        bias = torch.randn(shape, generator=generator).to(dtype)
        hidden = torch.finfo(dtype).min if mask == "lowest" else -math.inf
        options["attn_mask"] = seen if mask == "truth" else bias
        if mask in ("infinite", "lowest"):
            options["attn_mask"] = bias.masked_fill(~seen, hidden)
    return (q, k, v), options, refused


def by_row(number):
    """Return what multiplies each row, with an axis for what is in the row."""
    return number[..., None] if isinstance(number, torch.Tensor) else number


def logits_and_seen(q, k, options):
    """Return the logits in float64, how large what is added up in them is, and the keys seen."""
    q, k = q.double(), k.double()
    if options.get("enable_gqa"):
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    if options.get("normalize_qk"):
        q, k = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12) for x in (q, k))
    mask = options.get("attn_mask")
    full = (*q.shape[:-1], k.shape[-2])
    seen, bias = torch.ones(full, dtype=torch.bool), torch.zeros(full).double()
    if options.get("is_causal"):
        seen = seen.tril()
    elif mask is not None and mask.dtype == torch.bool:
        seen = mask.expand(full)
    elif mask is not None:
        seen = (mask > torch.finfo(mask.dtype).min).expand(full)
        bias = mask.double().masked_fill(~seen, 0.0).expand(full)
    if "policy" in options:
        n = np.maximum(seen.sum(-1).numpy(), 1)
        times = torch.as_tensor(POLICIES[options["policy"]].scale(n, q.shape[-1])).double()
        times = times.expand(full[:-1]).unsqueeze(-1)
    else:
        times = by_row(options.get("scale", q.shape[-1] ** -0.5 * options.get("alpha", 1.0)))
    return times * (q @ k.mT) + bias, times * (q.abs() @ k.abs().mT) + bias.abs(), seen


def assert_right(result, q, k, v, options):
    """Assert that it is the softmax in float64 but for what rounding does."""
    logits, sizes, seen = logits_and_seen(q, k, options)
    v = v.double()
    if options.get("enable_gqa"):
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], dim=-3)
    assert result.dtype == q.dtype
    assert result.shape == (*q.shape[:-1], v.shape[-1])
    assert not result.isnan().any()
    if not result.numel() or not v.numel():
        assert (result == 0).all()
        return
    some = seen.any(-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(~seen, -math.inf), dim=-1).masked_fill(~seen, 0.0)
    post, span = by_row(options.get("post_scale", 1.0)), v.abs().amax(-2, keepdim=True)
    epsilon = torch.finfo(q.dtype).eps
    slips = 8.0 * epsilon * (q.shape[-1] + 4) * sizes.amax(-1, keepdim=True)
    allowed = torch.expm1(2.0 * slips.clamp(max=1.0)) + 8.0 * epsilon * (v.shape[-2] + 2)
    allowed = post * allowed * span + torch.finfo(q.dtype).smallest_normal
    expected, largest = post * (weights @ v), torch.finfo(q.dtype).max
    output = result.double().clamp(-largest, largest)  # beyond its type a number is infinite
    off = (output - expected.clamp(-largest, largest)).abs()
    if options.get("attn_mask", seen).dtype == torch.bool:  # numbers may hide all keys alike
        assert (output == 0.0)[~some.expand(off.shape)].all()
    known = some & (slips < 0.5)
    assert (off <= allowed)[known.expand(off.shape)].all()
    assert (output.abs() <= (post * span * (1.0 + 16.0 * epsilon) + allowed)).all()


@settings(max_examples=400, report_multiple_bugs=False)
@given(calls())
def test_a_call_is_right_or_refused_in_one_line_by_the_name_of_what_is_wrong(call):
    tensors, options, refused = call
    if refused:
        with pytest.raises((ValueError, TypeError)) as caught:
            attend(*tensors, **options)
        assert any(re.search(rf"\b{name}\b", str(caught.value)) for name in refused)
        assert "\n" not in str(caught.value)
    else:
        assert_right(attend(*tensors, **options), *tensors, options)

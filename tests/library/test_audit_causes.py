"""Causes: what is no softmax over all keys is named for what it is, and what is right passes."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnlib.auditing import assert_scale, audit

kernel = functional.scaled_dot_product_attention


def scored(q, k):
    return q @ k.mT * q.shape[-1] ** -0.5


def other_layout(q, k, v):
    return kernel(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def along(axis):
    return lambda q, k, v: scored(q, k).softmax(axis) @ v


def sigmoid(q, k, v):
    return scored(q, k).sigmoid() @ v / k.shape[2]


def linear(q, k, v):
    q, k = (functional.elu(x) + 1.0 for x in (q, k))
    weights = q @ k.mT
    return weights / weights.sum(-1, keepdim=True) @ v


def linear_without_a_map(q, k, v):
    return q @ (k.mT @ v)


def differential(q, k, v):
    (q, q2), (k, k2) = (x.chunk(2, -1) for x in (q, k))
    return (scored(q, k).softmax(-1) - 0.3 * scored(q2, k2).softmax(-1)) @ v


def top(count):
    def attention(q, k, v):
        scores = scored(q, k)
        if count < k.shape[2]:
            least = scores.topk(count, -1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -math.inf)
        return scores.softmax(-1) @ v

    return attention


def in_blocks(block):
    def attention(q, k, v):
        return kernel(q, *(functional.pad(x, (0, 0, 0, -k.shape[2] % block)) for x in (k, v)))

    return attention


def biased(*slopes):
    def attention(q, k, v):
        place = torch.arange(k.shape[2])
        distance = (place[-q.shape[2] :, None] - place).abs()
        bias = -torch.tensor(slopes)[:, None, None] * distance
        return kernel(q, k, v, attn_mask=bias.to(q.dtype))

    return attention


def sees_the_future(q, k, v):
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return scored(q, k).masked_fill(hidden, -1e9).softmax(-1) @ v


def hides_all(q, k, v):
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu()
    return scored(q, k).masked_fill(hidden, -math.inf).softmax(-1) @ v


def nan_rows(q, k, v, attn_mask=None):
    scores = scored(q, k)
    if attn_mask is not None:
        hides = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if hides else scores + attn_mask
    return scores.softmax(-1) @ v


def inverted(q, k, v, attn_mask=None):
    if attn_mask is not None:
        attn_mask = attn_mask.float() * (-1e9 if attn_mask.dtype == torch.bool else -1.0)
    return kernel(q, k, v, attn_mask=attn_mask)


def after_the_softmax(q, k, v):
    return (scored(q, k).softmax(-1).tril(k.shape[2] - q.shape[2])) @ v


def is_causal_after(q, k, v, is_causal=False):
    return after_the_softmax(q, k, v) if is_causal else kernel(q, k, v)


def masked_after(q, k, v, attn_mask=None):
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        return (scored(q, k).softmax(-1) * attn_mask) @ v
    return kernel(q, k, v, attn_mask=attn_mask)


def true_hides(q, k, v, attn_mask=None):
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    return kernel(q, k, v, attn_mask=attn_mask)


def normed_over_heads(q, k, v):
    q, k = (x / x.pow(2).mean((1, 3), keepdim=True).sqrt() for x in (q, k))
    return kernel(q, k, v)


def without_the_last(q, k, v):
    return kernel(q, k[:, :, :-1], v[:, :, :-1]) if k.shape[2] > 1 else v


def mean_of_parts(q, k, v):
    parts = [kernel(q, *part) for part in zip(k.chunk(2, 2), v.chunk(2, 2), strict=True)]
    return sum(parts) / len(parts)


def other_in_a_cache(attention):
    return lambda q, k, v: (attention if q.shape[2] == 1 else causal)(q, k, v)


def causal(q, k, v):
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    return kernel(q, k, v, attn_mask=seen)


def merged(block, power, times=1.0, head=slice(None)):
    """Return attention in blocks, merged by a power of sums; the third has other scores."""

    def attention(q, k, v):
        blocks = zip(k.split(block, 2), v.split(block, 2), strict=True)
        parts = [(scored(q, k) * (times if i == 2 else 1.0), v) for i, (k, v) in enumerate(blocks)]
        sums = torch.stack([power * scores.logsumexp(-1, keepdim=True) for scores, _ in parts])
        sums = sums[:, :, head]
        outputs = torch.stack([scores.softmax(-1) @ v for scores, v in parts])
        return (sums.softmax(0) * outputs).sum(0)

    return attention


@pytest.mark.parametrize(
    ("attention", "code"),
    [
        (merged(128, 1.0), None),
        (merged(128, math.log(2.0)), "softmax"),
        (merged(256, 0.0), "softmax"),
        (merged(128, 1.0, 1.3), "law"),
        (merged(128, 1.0, head=[0]), "softmax"),
        (other_in_a_cache(merged(256, 0.0)), "softmax"),
        (other_in_a_cache(merged(128, 1.0, 1.3)), "law"),
    ],
)
def test_parts_of_a_long_row_have_one_scale_and_are_merged_by_their_sums(attention, code):
    report = audit(attention, d=64, expected="transformer")
    assert [finding.code for finding in report.findings] == [code] * (code is not None), report


@pytest.mark.parametrize("seen", [300, 299])
def test_a_window_beyond_the_length_is_asked_by_one_query_or_named_as_not_asked(seen):
    def attention(q, k, v):
        place = torch.arange(k.shape[2])
        behind = place[-q.shape[2] :, None] - place
        return kernel(q, k, v, attn_mask=(behind >= 0) & (behind < seen))

    def of_many(q, k, v):
        assert q.shape == k.shape
        return attention(q, k, v)

    declared = {"d": 64, "expected": 0.125, "causal": True, "window": 300, "length": 128}
    findings = audit(attention, **declared).findings
    assert [finding.found for finding in findings] == ["299 keys"] * (seen == 299)
    assert "the window of 300, at most 128 keys were asked" in str(audit(of_many, **declared))


def of_pattern(pattern, times=1.0):
    def attention(q, k, v):
        n = k.shape[2]
        hidden = ~torch.from_numpy(pattern(n)[n - q.shape[2] :])
        return scored(times * q, k).masked_fill(hidden, -math.inf).softmax(-1) @ v

    return attention


def blocks_of(size):
    return lambda n: np.equal.outer(np.arange(n) // size, np.arange(n) // size)


def prefix(n):
    return np.tri(n, dtype=bool) | (np.arange(n) < 8)


def every_fourth(n):
    return np.tri(n, dtype=bool) & (np.subtract.outer(np.arange(n), np.arange(n)) % 4 == 0)


@pytest.mark.parametrize("pattern", [prefix, blocks_of(5), blocks_of(100), every_fourth])
def test_a_pattern_passes_where_it_is_declared_and_the_scale_is_asked_in_it(pattern):
    declared = {"d": 64, "expected": 0.125, "length": 256, "pattern": pattern}
    report = audit(of_pattern(pattern), **declared)
    assert report.passed, report
    assert [finding.code for finding in audit(of_pattern(pattern, 1.1), **declared).findings] == [
        "scale"
    ]


def test_another_pattern_is_found_and_one_that_is_not_declared_is_named():
    declared = {"d": 64, "expected": 0.125, "length": 256}
    of_many, of_one = audit(of_pattern(blocks_of(100)), **declared, pattern=blocks_of(128)).findings
    assert (of_many.code, of_many.expected, of_many.found) == ("hidden", "128 keys", "100 keys")
    assert (of_one.code, of_one.expected, of_one.found) == ("cache", "127 keys", "55 keys")
    (finding,) = audit(of_pattern(prefix), **declared, causal=True).findings
    assert finding.found == "a prefix of 8 and the keys up to its own"
    with pytest.raises(ValueError, match=r"pattern\(16\) must be booleans of shape \(16, 16\)"):
        audit(kernel, **declared, pattern=lambda n: np.ones(n))


def page_read_twice(q, k, v):
    keys = torch.arange(k.shape[2])
    keys = torch.where((keys >= 32) & (keys < 48), keys - 32, keys)
    return kernel(q, k[:, :, keys], v[:, :, keys], is_causal=q.shape[2] > 1)


def clamped(q, k, v):
    return scored(q, k).clamp(-10.0, 10.0).softmax(-1) @ v


def one_maximum(q, k, v):
    powers = (scored(q, k) - scored(q, k).amax()).exp()
    return powers @ v / (powers.sum(-1, keepdim=True) + 1e-30)


def sum_of_the_first_head(q, k, v):
    return (scored(q, k) - scored(q, k)[:, :1].logsumexp(-1, keepdim=True)).exp() @ v


def causal_in_place_of_a_mask(q, k, v, attn_mask=None, is_causal=False):
    return kernel(q, k, v, attn_mask=None if is_causal else attn_mask, is_causal=is_causal)


def relu(q, k, v):
    weights = scored(q, k).relu()
    return weights / (weights.sum(-1, keepdim=True) + 1e-9) @ v


def whole_blocks(q, k, v):
    n = k.shape[2] // 16 * 16 or k.shape[2]
    return kernel(q, k[:, :, :n], v[:, :, :n])


def of_a_quarter(q, k, v):
    n = max(1, k.shape[2] // 4)
    return kernel(q, k[:, :, :n], v[:, :, :n])


def without_row_40(q, k, v):
    return kernel(q, k, v) * (torch.arange(q.shape[2]) != 40)[:, None]


def causal_in_early_rows(q, k, v, is_causal=True):
    row, key = torch.arange(k.shape[2])[-q.shape[2] :, None], torch.arange(k.shape[2])
    return kernel(q, k, v, attn_mask=(key <= row) | (row >= 32) | (not is_causal))


def chunk_that_sees_all(q, k, v):
    return kernel(q, k, v, is_causal=q.shape[2] == k.shape[2])


HIDDEN = 16.0 / (8.0 + 8.0 * math.exp(4.0))
"""What is left of row 7 of 16 where the 8 keys that are hidden have the logit 4."""


@pytest.mark.parametrize(
    ("attention", "code", "measured"),
    [
        (after_the_softmax, "softmax", f"one over hidden keys too: {HIDDEN:.4g} of"),
        (is_causal_after, "softmax", f"one over hidden keys too: {HIDDEN:.4g} of"),
        (masked_after, "softmax", f"one over hidden keys too: {16 / (15 + math.exp(4)):.4g} of"),
        (true_hides, "hidden", "True hides it, inverted"),
        (normed_over_heads, "norm", "weights depend on another head's queries"),
        (without_the_last, "window", "all but the last"),
        (mean_of_parts, "softmax", "one of several parts"),
        (page_read_twice, "window", "all keys but 32 to 47"),
        (clamped, "cap", "a clamp at 10 ± "),
        (other_layout, "layout", "it attends over heads: its axes are (b, n, h, d)"),
        (along(-2), "softmax", "a softmax over queries"),
        (along(1), "softmax", "a softmax over heads"),
        (sigmoid, "softmax", "no softmax: each key is weighed by itself"),
        (linear, "softmax", "no softmax of q·k: perhaps linear attention"),
        (linear_without_a_map, "softmax", "no softmax: some weights are below 0"),
        (differential, "softmax", "no softmax"),
        (relu, "softmax", "as with ReLU"),
        (one_maximum, "softmax", "0"),
        (of_a_quarter, "window", "keys 0 to 3"),
        (causal_in_early_rows, "causal", "64 keys"),
        (without_row_40, "softmax", "0 in row 40"),
        (sum_of_the_first_head, "softmax", ""),
        (causal_in_place_of_a_mask, "hidden", "2 keys"),
        (lambda q, k, v: scored(q, k).exp() @ v, "softmax", "not divided by their sum"),
        (lambda q, k, v: kernel(q, k, v).flip(1), "layout", "outputs stand in other heads"),
        (whole_blocks, "window", "not the last 15"),
        (other_in_a_cache(whole_blocks), "cache", " of its spread apart"),
        (chunk_that_sees_all, "cache", "16 keys"),
        (top(32), "few keys", "32 keys by their contents"),
        (top(4), "few keys", "4 keys by their contents"),
        *((in_blocks(block), "padding", f"blocks of {block}") for block in (8, 16, 64, 256)),
        (biased(0.5), "bias", "0.5, 0.5"),
        (biased(0.01), "bias", "0.01, 0.01"),
        (biased(0.5, 0.25), "bias", "0.5, 0.25"),
        (sees_the_future, "causal", "those after: inverted"),
        (hides_all, "hidden", "NaN"),
        (nan_rows, "hidden", "NaN"),
        (inverted, "mask", "-1 ± "),
    ],
)
def test_a_cause_is_named(attention, code, measured):
    report = audit(attention, d=64, expected="transformer", length=64)
    by_code = {finding.code: finding.found for finding in reversed(report.findings)}
    assert measured in by_code[code], report
    assert "scale" not in by_code, report


def added(q, k, v, attn_bias=None):
    scores = scored(q, k)
    return (scores if attn_bias is None else scores + attn_bias).softmax(-1) @ v


def of_zeros_and_ones(q, k, v, mask=None):
    scores = scored(q, k)
    return (scores if mask is None else scores.masked_fill(mask == 0, -1e9)).softmax(-1) @ v


def less_one(q, k, v, mask=None):  # a bool mask raises
    return kernel(q, k, v, attn_mask=None if mask is None else (1.0 - mask) * -1e4)


def biased_by_place(q, k, v):
    place = torch.arange(k.shape[2])
    bias = ((place[-q.shape[2] :, None] - place).clamp(-8, 8) * 7.0).sin()
    return (scored(q, k) + bias).softmax(-1) @ v


def per_d(q, k, v):
    return kernel(q, k, v, scale=1.0 / q.shape[-1])


@pytest.mark.parametrize(
    ("attention", "declared"),
    [
        (added, {}),
        (of_zeros_and_ones, {}),
        (less_one, {}),
        (biased_by_place, {"bias": True}),
        (per_d, {"expected": 1 / 64}),
        (true_hides, {"true_hides": True}),
        (biased(0.5), {"slopes": 0.5}),
        (biased(0.5, 0.01), {"slopes": (0.5, 0.01)}),
        (top(8), {"top_k": 8}),
        (nan_rows, {"nan_rows": True}),
    ],
)
def test_what_is_right_and_declared_passes(attention, declared):
    options = {"expected": 0.125} | declared
    report = audit(attention, d=64, length=64, **options)
    assert report.passed, report
    _, low, high = report.scale.interval
    assert low - 1e-6 <= options["expected"] <= high + 1e-6


def in_whole_blocks(q, k, v):
    block = torch.arange(k.shape[2]) // 16
    return kernel(q, k, v, attn_mask=block <= block[-q.shape[2] :, None])


def other_scale_if_causal(q, k, v, is_causal=False):
    return kernel(q, k, v, is_causal=is_causal, scale=0.25 if is_causal else None)


def other_scale_if_masked(q, k, v, attn_mask=None):
    return kernel(q, k, v, attn_mask=attn_mask, scale=None if attn_mask is None else 0.25)


def dropped_alike(q, k, v):
    weights = scored(q, k).softmax(-1)
    kept = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0)) > 0.25
    return (weights * kept / 0.75) @ v


def normed(norm):
    return lambda q, k, v: kernel(norm(q), norm(k), v)


def with_epsilon(x):
    return x / (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt()


def first_aligned(q, k, v):
    return kernel(q, k, v, is_causal=True)


@pytest.mark.parametrize(
    ("attention", "declared", "code"),
    [
        (other_scale_if_causal, {}, "scale"),
        (other_scale_if_masked, {}, "scale"),
        (first_aligned, {"causal": True}, "cache"),
        (of_zeros_and_ones, {"true_hides": True}, "hidden"),
        (other_in_a_cache(causal), {"sink": 1.5}, "sink"),
        (biased(-0.5), {"slopes": 0.5}, "bias"),
        (biased(0.25), {"slopes": 0.5}, "bias"),
        (kernel, {"slopes": 0.5}, "bias"),
        (top(8), {"top_k": 4}, "few keys"),
        (kernel, {"top_k": 4}, "few keys"),
        (in_whole_blocks, {"causal": False}, "window"),
        (of_pattern(prefix), {}, "hidden"),
        (dropped_alike, {}, "dropout"),
        (normed(with_epsilon), {"expected": 8.0, "cosine": True}, "norm"),
        (normed(lambda x: functional.layer_norm(x, (64,))), {"expected": 8.0}, "norm"),
    ],
)
def test_what_is_declared_and_otherwise_is_a_finding(attention, declared, code):
    report = audit(attention, d=64, length=64, **{"expected": "transformer"} | declared)
    assert code in {finding.code for finding in report.findings}, report


# --- sinks and caps ------------------------------------------------------------------------------


def sunk(*sinks, cap=None, factor=1.0):
    """Return attention with keys that have no value, of these logits, one a head."""

    def attention(q, k, v):
        logits = scored(q, k)
        logits = logits if cap is None else cap * (logits / cap).tanh()
        last = torch.tensor(sinks)[:, None, None].to(q.dtype).expand(*logits.shape[:3], 1)
        return factor * torch.cat([logits, last], -1).softmax(-1)[..., :-1] @ v

    return attention


@pytest.mark.parametrize("cap", [None, 50.0])
@pytest.mark.parametrize("sinks", [(10.0,), (-2.0,), (1.5, 0.3), (25.0, -1.0)])
def test_a_sink_that_was_meant_passes_and_another_is_found_with_both_numbers(sinks, cap):
    declared = {"d": 64, "expected": 0.125, "length": 64, "cap": math.inf if cap is None else cap}
    report = audit(sunk(*sinks, cap=cap), sink=sinks, **declared)
    assert report.passed, report
    other = tuple(sink + 0.5 for sink in sinks)
    (finding,) = audit(sunk(*other, cap=cap), sink=sinks, **declared).findings
    assert finding.code == "sink"
    assert finding.expected == f"a logit of {', '.join(f'{logit:g}' for logit in sinks)}"
    assert f"{other[0]:g}" in finding.found


# --- code for training ---------------------------------------------------------------------------


def test_a_sink_of_each_part_of_many_keys_is_found():
    def attention(q, k, v):
        parts = max(1, k.shape[2] // 256)
        return sunk(1.5 + math.log(parts))(q, k, v)

    declared = {"d": 64, "expected": 0.125, "sink": 1.5}
    assert audit(attention, length=128, **declared).passed
    (finding,) = audit(attention, length=512, **declared).findings
    assert (finding.code, finding.found) == ("sink", "2 times")


def test_a_local_window_that_is_declared_passes():
    def local(q, k, v):
        place = torch.arange(k.shape[2])
        distance = place[: q.shape[2], None] - place
        return kernel(q, k, v, attn_mask=(distance >= 0) & (distance < 24))

    assert_scale(local, d=64, expected=0.125, window=24, length=64)


def test_a_function_may_mean_a_cosine():
    def attention(q, k, v):
        q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
        return (10.0 * q @ k.mT).softmax(-1) @ v

    declared = {"d": 64, "expected": lambda n, d, position: 10.0, "length": 64}
    assert audit(attention, cosine=True, **declared).passed
    assert [finding.code for finding in audit(attention, **declared).findings] == ["cosine"]
    with pytest.raises(ValueError, match="sink must be a number or 2, one a head, got 3"):
        audit(attention, d=64, sink=[1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="must be a number, not its text"):
        audit(attention, d=64, expected="0.125")

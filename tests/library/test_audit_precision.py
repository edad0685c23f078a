"""Keys and values that are stored in 8 bits: the scale within 2 %, apart from rounding."""

import pytest
import torch
from torch.nn import functional

from attnlib.auditing import audit

kernel = functional.scaled_dot_product_attention
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def largest(dtype):
    return (torch.iinfo if dtype == torch.int8 else torch.finfo)(dtype).max


def cached(dtype, axes, times=1.0):
    """Return attention whose keys and values are stored with a scale for some axes."""

    def store(x):
        scale = x.abs().amax(axes, keepdim=True).clamp(min=1e-12) / largest(dtype)
        x = x / scale
        kept = (x.round() if dtype == torch.int8 else x).to(dtype)
        return kept.float() * scale

    return lambda q, k, v: kernel(q * times, store(k), store(v))


AXES = {"tensor": (-3, -2, -1), "head": (-2, -1), "token": (-1,)}


@pytest.mark.parametrize("dtype", [E4M3, E5M2, torch.int8], ids=str)
@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_a_cache_of_8_bits_passes_and_a_wrong_scale_is_found(dtype, axes):
    declared = {"d": 128, "expected": 128**-0.5, "length": 64, "kv_dtype": dtype}
    report = audit(cached(dtype, axes), **declared)
    assert report.passed, report
    value, low, high = report.scale.interval
    assert high - low < 0.025 * value
    wrong = audit(cached(dtype, axes, 1.1), **declared)
    assert [finding.code for finding in wrong.findings] == ["scale"]


def test_a_kernel_that_computes_in_float8_passes():
    def attention(q, k, v):
        q, k, v = (t.to(E4M3).float() for t in (q, k, v))
        scores = q @ k.mT * 128**-0.5
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        return powers.to(E4M3).float() @ v / powers.sum(-1, keepdim=True)

    report = audit(attention, d=128, expected=128**-0.5, length=64, kv_dtype=E4M3)
    assert report.passed, report


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_tensors_of_float8_are_taken(dtype):
    def attention(q, k, v):
        assert q.dtype == k.dtype == v.dtype == dtype
        return kernel(q.float(), k.float(), v.float())

    report = audit(attention, d=64, expected=0.125, length=64, dtype=dtype)
    assert report.passed, report
    assert report.scale.interval.value == pytest.approx(0.125, rel=1e-3)
    findings = audit(attention, d=64, expected=1.0, length=64, dtype=dtype).findings
    assert [finding.code for finding in findings] == ["scale"]


def test_scales_of_keys_that_are_ignored_or_applied_twice_are_found():
    def attention(power):
        return lambda q, k, v: kernel(q, 0.25**power * (k / 0.25).to(E4M3).float(), v)

    declared = {"d": 64, "expected": 0.125, "length": 64, "kv_dtype": E4M3}
    assert audit(attention(1), **declared).passed
    for power, times in ((0, 4.0), (2, 0.25)):
        (finding,) = audit(attention(power), **declared).findings
        assert finding.code == "scale"
        assert finding.evidence.startswith(f"{times:g} times what was meant")


def test_attention_in_bfloat16_between_float32_is_named():
    def attention(q, k, v, times=1.0):
        q, k, v = ((t * by).bfloat16() for t, by in ((q, times), (k, 1.0), (v, 1.0)))
        return kernel(q, k, v).float()

    (finding,) = audit(attention, d=64, expected=0.125, length=64).findings
    assert (finding.code, "bfloat16" in finding.found) == ("precision", True)
    declared = {"d": 64, "expected": 0.125, "length": 64, "kv_dtype": torch.bfloat16}
    assert audit(attention, **declared).passed
    (finding,) = audit(lambda q, k, v: attention(q, k, v, 1.1), **declared).findings
    assert finding.code == "scale"


def on_a_grid(x, levels, shared=False):
    """Return numbers on a grid by a scale of each token, read by the mean of them if `shared`."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / levels
    return (x / scale).round() * (scale.mean() if shared else scale)


def size(x):
    return x.abs().amax((-2, -1), keepdim=True)


def summed_in_float16(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    total = torch.zeros_like(powers[..., 0], dtype=torch.float16)
    for power in powers.half().unbind(-1):
        total = total + power
    return powers @ v / total[..., None].float()


INT8 = {"kv_dtype": torch.int8}


@pytest.mark.parametrize(
    ("attention", "declared", "code", "measured"),
    [
        (lambda q, k, v: kernel(q, on_a_grid(k, 7), v), INT8, "precision", "about 3.6"),
        (lambda q, k, v: kernel(q, k, on_a_grid(v, 7)), INT8, "precision", "about 3"),
        (lambda q, k, v: kernel(q, on_a_grid(k, 127, shared=True), v), INT8, "law", "0.2"),
        (
            lambda q, k, v: ((q @ k.mT / 8.0).softmax(-1).half() @ v.half()).float(),
            {},
            "precision",
            "0: weights are kept in float16",
        ),
        (summed_in_float16, {"length": 1024}, "softmax", "0.9"),
        (lambda q, k, v: kernel(q, k, on_a_grid(v, 127) * size(k) / size(v)), INT8, "values", "4"),
    ],
    ids=["k int4", "v int4", "k's scales", "weights", "sum", "v by k's scale"],
)
def test_too_few_digits_or_a_scale_left_out_is_named(attention, declared, code, measured):
    (finding,) = audit(attention, d=64, expected=0.125, **{"length": 64, **declared}).findings
    assert finding.code == code
    assert finding.found.startswith(measured)


def test_a_product_above_65504_is_a_finding_unless_float16_is_declared():
    def attention(q, k, v):
        scores = q.half() @ k.half().mT / 8.0
        return (scores.softmax(-1) @ v.half()).to(q.dtype)

    declared = {"d": 64, "expected": 0.125, "length": 64}
    report = audit(attention, **declared, dtype=torch.float16)
    assert report.passed, report
    assert report.facts["q·k of 1e5"].startswith("q·k above 65504 overflows")
    findings = audit(attention, **declared).findings
    assert ("precision", "NaN or infinity") in [(f.code, f.found) for f in findings]


def zero_point(x, left_out, levels=255.0):
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (most - least).clamp(min=1e-9) / levels
    return ((x - least) / step).round() * step + (0.0 if left_out else least)


@pytest.mark.parametrize(
    ("levels", "times", "codes"), [(15, 1, []), (15, 1.1, ["scale"]), (3, 1, ["precision"])]
)
def test_groups_of_int4_pass_and_coarser_ones_do_not(levels, times, codes):
    def store(x):
        return zero_point(x.unflatten(-1, (-1, 32)), False, levels).flatten(-2)

    declared = {"d": 128, "expected": 128**-0.5, "length": 64, "kv_dtype": torch.int4}
    findings = audit(lambda q, k, v: kernel(times * q, store(k), store(v)), **declared).findings
    assert [finding.code for finding in findings[:1]] == codes


def test_a_zero_point_that_is_left_out_is_named():
    declared = {"d": 128, "expected": 128**-0.5, "length": 64, **INT8}
    right, wrong = (
        audit(lambda q, k, v, out=out: kernel(q, zero_point(k, out), v), **declared)
        for out in (False, True)
    )
    assert right.passed, right
    assert any("a zero point is left out" in finding.evidence for finding in wrong.findings), wrong


@pytest.mark.parametrize("times", [1.0, 1.25])
def test_slopes_in_bfloat16_are_right_up_to_its_rounding(times):
    slopes = torch.tensor([0.5, 0.0625])

    def attention(q, k, v):
        place = torch.arange(k.shape[2])
        distance = (place[-q.shape[2] :, None] - place).abs()
        bias = -times * slopes[:, None, None] * distance
        return kernel(q.float(), k.float(), v.float(), attn_mask=bias).bfloat16()

    declared = {"d": 64, "expected": 0.125, "slopes": slopes.tolist(), "dtype": torch.bfloat16}
    report = audit(attention, length=128, **declared)
    assert [finding.code for finding in report.findings] == ["bias"] * (times != 1.0), report

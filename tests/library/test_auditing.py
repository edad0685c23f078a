"""The audit: known bugs by name and number, and no alarm where there is no fault."""

import gc
import math
import weakref
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from attnlib.attention import attend, register
from attnlib.auditing import assert_scale, audit
from attnlib.policies import POLICIES
from experiments.compatibility import given, tiny
from experiments.known_bugs import attention as written_out
from experiments.known_bugs import faults
from tests.library.test_audit_causes import sunk
from tests.library.test_bad_input import assert_refused


def plain(q, k, v, attn_mask=None):
    """Attention with the matrix of scores, in the type of q."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if attn_mask is not None:
        hides = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if hides else scores + attn_mask
    return scores.softmax(-1).nan_to_num() @ v  # 0 where a mask hides a whole row


SITUATIONS = {
    "causal": {"heads": 1},
    "padded": {},  # takes a mask
    "grouped": {"heads": 4, "key_heads": 2},
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *product(("transformer", "llama_4"), (torch.float32,)),
        *(("ssmax", torch.bfloat16), ("adacos", torch.float16)),
    ],
)
def test_there_is_no_alarm_for_a_policy(name, dtype, situation):
    policy, causal = POLICIES[name], situation == "causal"

    def attention(q, k, v, mask=None):
        queries, keys = q.shape[2], k.shape[2]
        seen = torch.ones(queries, keys, dtype=torch.bool)
        seen = seen.tril(keys - queries) if causal else seen
        seen = seen if mask is None else seen & mask[0, 0]
        n = seen.sum(-1).double().clamp(min=1)
        if policy.applied_to == "cosine":
            q, k = (functional.normalize(x.float(), dim=-1).to(x.dtype) for x in (q, k))
        scale = torch.from_numpy(policy.scale(n=n, d=q.shape[-1], position=n - 1)).float()
        q = (q.float() * scale[:, None]).to(q.dtype)
        declared = {"attn_mask": seen, "scale": 1.0, "enable_gqa": True}
        return functional.scaled_dot_product_attention(q, k, v, **declared)

    takes = attention if situation == "padded" else lambda q, k, v: attention(q, k, v)
    declared = {"expected": policy, "dtype": dtype, **SITUATIONS[situation]}
    report = audit(takes, d=64, length=64, **declared)
    assert report.passed, report
    assert report.scale.applied_to == policy.applied_to


@pytest.mark.parametrize("kernel", [plain, functional.scaled_dot_product_attention])
@pytest.mark.parametrize(
    ("dtype", "key_heads"), [(torch.float32, 6), (torch.bfloat16, 1), (torch.float16, 2)]
)
def test_plain_attention_passes_in_every_type_and_grouping(kernel, key_heads, dtype):
    declared = {"heads": 6, "key_heads": key_heads, "cap": math.inf, "sink": False, "dtype": dtype}
    report = audit(kernel, d=64, expected=0.125, length=128, **declared)
    assert report.passed, report
    assert report.scale.low[-1] <= 0.125 <= report.scale.high[-1]
    width = report.scale.high[-1] - report.scale.low[-1]
    assert width < 8 * torch.finfo(dtype).eps * 0.125 + 1e-5


def attended(policy, causal):
    cosine = policy.applied_to == "cosine"

    def attention(q, k, v, attn_mask=None):
        past = causal and attn_mask is None and 1 < q.shape[2] == k.shape[2]
        return attend(
            q, k, v, policy=policy, normalize_qk=cosine, is_causal=past, attn_mask=attn_mask
        )

    return attention


def test_a_law_in_n_is_named_and_asked_row_by_row():
    scale = audit(attended(POLICIES["ssmax"], True), d=64, length=256).scale
    assert scale.law == "ssmax"
    assert scale.interval == (scale.value[-1], scale.low[-1], scale.high[-1])
    assert scale.keys.tolist() == [2, 4, 8, 16, 32, 64, 128, 256]
    assert scale.interval.value == pytest.approx(0.168 * math.log(256) / 8.0, rel=1e-5)
    own = audit(lambda q, k, v: attend(q, k, v, policy=lambda n, d, i: 0.1 + n / 500.0), d=64)
    assert own.scale.law.startswith("changes with n: 0.104 at n = 2")
    assert audit(plain, d=32, length=64).scale.law == "the same for every n"
    later, asked = POLICIES["yarn"].with_constants(train_length=2.0**16), set()
    audit(lambda q, k, v: asked.add(len(k[0, 0])) or plain(q, k, v), d=8, expected=later, length=32)
    assert max(asked) == 2**17  # and no more than memory holds


def test_a_sink_and_a_factor_are_told_apart():
    report = audit(sunk(1.5, factor=0.7), d=64, length=64, factor=0.7)
    sink, factor = report.facts["sink"].split()[3], report.facts["factor on the output"].split()[0]
    assert float(sink) == pytest.approx(1.5, abs=1e-5)
    assert float(factor) == pytest.approx(0.7, rel=1e-5)
    assert report.passed  # nothing was said of the sink
    wrong = audit(sunk(1.5, factor=0.7), d=64, length=64, sink=False)
    assert [finding.code for finding in wrong.findings] == ["sink", "values"]


def rotated(x):
    """Turn x by its position, as rotary positions do."""
    d, place = x.shape[-1], torch.arange(x.shape[-2], dtype=x.dtype)[:, None]
    angle = place * 100.0 ** -torch.linspace(0, 1, d // 2)
    first, second = x.chunk(2, -1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


def test_attention_that_rotates_by_itself_is_audited_at_its_own_key():
    def attention(q, k, v):
        return plain(rotated(q), rotated(k), v)

    report = audit(attention, d=64, expected=0.125, rotates=True, length=64)
    assert [finding.code for finding in report.findings if finding.code in ("scale", "law")] == []
    wrong = audit(lambda q, k, v: attention(1.2 * q, k, v), d=64, expected=0.125, rotates=True)
    assert wrong.findings[0].code == "scale"


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (1 / 64, "the scale is applied twice, or 1/d"),
        (8.0, "√d"),
        (math.log(2) / 8, "log 2 of what was meant: base 2 for e"),
        (1 / 8 / math.log(2), "log₂ e times what was meant: e for base 2"),
        (56**-0.5, "1/√56, where d is 64"),
    ],
)
def test_what_explains_a_number_is_said(scale, reason):
    def attention(q, k, v):
        return (scale * q @ k.mT).softmax(-1) @ v

    (finding,) = audit(attention, d=64, expected=1 / 8, length=32).findings
    ratio, _, cause = finding.evidence.partition(" times what was meant: ")
    assert float(ratio) == pytest.approx(8 * scale, rel=1e-3)
    assert cause == reason


kernel = functional.scaled_dot_product_attention


class Sunk(torch.nn.Module):
    """A learned gain, and a sink in each of two heads, which is learned or not."""

    def __init__(self, learned=True):
        super().__init__()
        self.sink = torch.nn.Parameter(torch.tensor([0.3, -1.0]))
        self.gain = torch.nn.Parameter(torch.tensor(1.0))
        self.learned = learned

    def forward(self, q, k, v):
        logits = self.gain * written_out.scaled_products(q, k)
        sink = self.sink if self.learned else self.sink.detach()
        sink = sink[:, None, None].to(q.dtype).expand(*logits.shape[:-1], 1)
        return torch.cat([logits, sink], -1).softmax(-1)[..., :-1] @ v


def halved(q, k, v):
    fourth = q.shape[-1] ** -0.25
    return ((q * fourth) @ (k * fourth).mT).softmax(-1) @ v


class Unsigned:
    """Attention of three arguments that does not say so, as that of TorchScript and C++."""

    __signature__ = "unknown"

    def __call__(self, q, k, v):
        return kernel(q, k, v)


def padded(q, k, v):
    scale, missing = q.shape[-1] ** -0.5, -q.shape[-1] % 64
    q, k = (functional.pad(x, (0, missing)) for x in (q, k))
    return kernel(q, k, v, scale=scale)


def of_one_size(q, k, v):
    if not q.shape[-1] == v.shape[-1] == 64:
        raise ValueError("made for heads of 64")
    return kernel(q, k, v)


def far_is_less(q, k, v):
    distance = torch.arange(k.shape[2]) - torch.arange(k.shape[2])[-q.shape[2] :, None]
    return kernel(q, k, v, attn_mask=(0.1 * distance).to(q.dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("attention", "declared"),
    [
        (halved, {}),
        (Unsigned(), {}),
        (padded, {}),
        (of_one_size, {}),
        (far_is_less, {"rotates": True}),
        (Sunk(), {"sink": True}),
        (partial(checkpoint, kernel, use_reentrant=False), {}),  # computes all again, backwards
        (torch.no_grad()(kernel), {}),
    ],
)
def test_what_is_odd_and_right_passes(attention, declared, dtype):
    report = audit(attention, d=64, expected="transformer", length=64, dtype=dtype, **declared)
    assert report.passed, report


def squared_for_one_query(q, k, v):
    return plain(q / 8.0 if q.shape[2] == 1 else q, k, v)


def another_in_a_chunk(q, k, v):
    return plain(2.0 * q if 1 < q.shape[2] < k.shape[2] else q, k, v)


def by_the_values(q, k, v):
    return plain(q * (q.shape[-1] / v.shape[-1]) ** 0.5, k, v)


def coarse(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).bfloat16().float().softmax(-1) @ v


@pytest.mark.parametrize(
    ("attention", "declared", "code", "measured"),
    [
        (Sunk(learned=False), {"sink": True}, "backward", "0"),
        (squared_for_one_query, {}, "cache", "0.015625"),
        (another_in_a_chunk, {}, "cache", "0.25"),
        (by_the_values, {}, "scale", "0.17678"),
        (coarse, {}, "precision", "about 8, as of bfloat16"),
        (partial(written_out.attend, cap=50.0), {"nan_rows": True}, "cap", "one of 50"),
        (partial(faults.windowed, seen=8), {}, "window", "8 keys"),
        (sunk(0.0), {}, "sink", "a logit of"),
    ],
)
def test_what_expected_does_not_say_is_a_finding(attention, declared, code, measured):
    report = audit(attention, d=64, expected="transformer", length=64, **declared)
    assert {finding.code for finding in report.findings} == {code}, report
    assert report.findings[0].found.startswith(measured)
    assert report.scale.law == "transformer"
    if code in ("cap", "window", "sink"):  # without a scale that is meant it may be as it is
        assert audit(attention, d=64, length=64).passed


def test_a_finding_fails_a_test():
    assert_scale(plain, d=64, expected=0.125, length=64)
    with pytest.raises(AssertionError, match=r"scale: expected 0\.25, found 0\.125 ± 1e-05"):
        assert_scale(plain, d=64, expected=0.25, length=64)
    with pytest.raises(TypeError, match="expected"):
        assert_scale(plain, d=64)


# --- models --------------------------------------------------------------------------------------


IDS = torch.randint(3, 60, (2, 12), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "family", ["Gemma2", "GptOss", "Granite", "OPT", "GPT2", "GPTNeoX", "Phi3", "T5"]
)
def test_a_model_of_transformers_has_the_scale_of_its_configuration(family):
    report = audit(tiny(family), given(family, False), length=64)
    assert report.passed, report
    assert len(report.parts) == (6 if family == "T5" else 2)
    assert not any("unknown" in fact for name, fact in report.facts.items() if "." in name)
    assert family in ("Gemma2", "GptOss", "T5") or "eager beside sdpa" in report.facts


def test_a_sink_without_weight_in_one_layer_is_found():
    model = tiny("GptOss")
    model.layers[1].self_attn.sinks.data.fill_(-1e4)
    (finding,) = audit(model, given("GptOss", False), length=64).findings
    assert (finding.code, finding.where) == ("sink", "layers.1.self_attn")


def test_the_factor_of_a_rotation_is_expected_and_missed_where_it_is_missing():
    rotation = {"rope_theta": 1e4, "rope_type": "longrope", "factor": 4.0}
    rotation |= dict.fromkeys(("short_factor", "long_factor"), [1.0] * 4)
    rotation["original_max_position_embeddings"] = 16
    model = tiny("Llama", rope_parameters=rotation)
    report = audit(model, IDS, length=64)
    assert report.passed, report
    model.rotary_emb.attention_scaling = 1.0
    findings = audit(model, IDS, length=64).findings
    assert {finding.code for finding in findings} == {"scale"}
    measured, expected = float(findings[0].found), float(findings[0].expected.split()[0])
    factor = math.sqrt(1.0 + math.log(4.0) / math.log(16.0))
    assert expected / measured == pytest.approx(factor**2, rel=1e-3)


def test_the_implementation_in_use_is_audited_and_compared_with_the_others():
    model = tiny("Llama")
    model.set_attn_implementation(register("ssmax"))
    scales = audit(model, IDS, length=64).findings  # implementations differ by them
    assert [finding.where for finding in scales] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert [finding.found for finding in scales] == ["0.247"] * 2
    assert "ssmax at n = 64" in scales[0].evidence
    assert audit(model, IDS, expected="ssmax", length=64).passed


def test_an_audit_leaves_a_model_as_it_was_and_keeps_none_alive():
    model = tiny("Llama")
    before, kept = model.config._attn_implementation, weakref.ref(model.layers[0].self_attn)
    audit(model, IDS, length=64)
    assert model.config._attn_implementation == before
    del model
    gc.collect()
    assert kept() is None


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (lambda q, k, v: None, r"must return a tensor of shape \(1, 2, 16, 32\), got NoneType"),
        (lambda q, k, v: (), r"must return a tensor of shape \(1, 2, 16, 32\), got an empty tuple"),
        (lambda q, k, v: q / 0 @ 1, r"the callable raises TypeError for q, k and v of the shapes"),
        (lambda q, k, v: v + torch.rand(()), r"must give the same output twice"),
    ],
)
def test_a_callable_that_cannot_be_audited_is_named_in_a_line(attention, message):
    with pytest.raises(ValueError, match=message) as raised:
        audit(attention, d=32, length=64)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ({"sink": [0.0, math.nan]}, "got sink=[0.0, nan]"),
        ({"window": (8,)}, "got window=(8,)"),
        ({"kv_dtype": torch.int32}, "got kv_dtype=torch.int32"),
        ({"pattern": lambda n: np.zeros((n, n), dtype=bool)}, "it hides all keys but one"),
    ],
)
def test_an_argument_that_cannot_be_is_named_in_a_line(named, shown):
    attention = torch.nn.functional.scaled_dot_product_attention
    assert_refused(*named, shown, audit, attention, d=32, length=64, **named)


# --- one question at a time ----------------------------------------------------------------------


def test_heads_with_scales_of_their_own_are_told_and_found_where_one_is_meant():
    def attention(q, k, v):
        return (q @ k.mT * torch.tensor([0.1, 0.2])[:, None, None]).softmax(-1) @ v

    report = audit(attention, d=32, length=32)
    assert report.facts["scale by head"] == "0.1, 0.2"
    assert "heads" not in {finding.code for finding in report.findings}
    assert report.scale.low == pytest.approx(0.1, rel=1e-4)
    assert report.scale.high == pytest.approx(0.2, rel=1e-4)
    report = audit(attention, d=32, expected=0.1, length=32)
    evidence = {finding.code: finding.evidence for finding in report.findings}
    assert evidence["heads"] == "0.1, 0.2"

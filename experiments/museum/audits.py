"""What the audit says of the exhibits, and of attention without a fault."""

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from attnlib.auditing import Report, audit
from attnlib.policies import POLICIES
from experiments.compatibility import given, tiny
from experiments.museum.attention import Attend, attend
from experiments.museum.exhibits import EXHIBITS, Exhibit
from experiments.records import Fields

KINDS = {
    "scale": ("multiplier", "scale twice", "dimension"),
    "law": ("law in n", "law in key", "chunks", "part of the dimension", "cosine"),
    "mask": ("mask scaled",),
    "hidden": ("mask capped",),
    "window": ("window",),
    "causal": ("future seen", "mask missing"),
    "cache": ("cache missed", "mask off by one"),
    "padding": ("padding counted",),
    "groups": ("grouping",),
    "cap": ("cap",),
    "sink": ("sink dropped",),
    "values": ("value factor",),
    "dropout": ("dropout",),
    "precision": ("precision",),
}
CODE = {kind: code for code, kinds in KINDS.items() for kind in kinds}
"""The code of the finding that each kind of exhibit is."""


def audited(exhibit: Exhibit, function: Attend) -> Report:
    """Audit an exhibit, broken or mended, against what was meant."""
    meant = exhibit.meant
    return audit(
        function,
        d=exhibit.d,
        expected=exhibit.expected,
        heads=exhibit.heads,
        key_heads=exhibit.key_heads,
        cap=meant.get("cap", math.inf),
        window=meant.get("window"),
        sink="sink" in meant,
        factor=meant.get("values", 1.0),
        causal_from="last",
        length=64,
    )


def described(exhibit: Exhibit) -> Fields:
    """Return the label of an exhibit, and what the audit says of the broken attention."""
    torch.manual_seed(0)
    findings = {one.code: one for one in reversed(audited(exhibit, exhibit.broken).findings)}
    said = findings[CODE[exhibit.kind]]
    wrong = exhibit.label["quantity"] == "multiplier"
    return {
        **exhibit.label,
        "intended": f"{exhibit.right:.4g}",
        "found": f"{exhibit.found:.4g}",
        "times": exhibit.found / exhibit.right if wrong else None,
        "audit": {**said._asdict(), "also": sorted(set(findings) - {said.code})},
    }


# --- where nothing is wrong -----------------------------------------------------------------------

KERNELS = ("written out", "fused")
FEW = ("transformer", "ssmax", "llama_4", "adacos")
"""A constant, a law in n, one in the position, one of cosines: flex attention, which is not
compiled here and takes some six seconds an audit, is asked about these in half precision."""
SITUATIONS: dict[str, dict[str, Any]] = {
    "alone": {"heads": 1},
    "causal": {},
    "padded": {},
    "grouped": {"heads": 4, "key_heads": 2},
    "cached": {},
}
"""What is audited beside plain attention. Causal is by itself; padded takes a mask; cached is of
fewer queries than keys, which every audit asks of what takes them."""
UNREACHED = ("Falcon", "Bloom", "GPTJ", "DebertaV2")
"""Families that write attention out in their own modules."""


def _eager(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, seen: Tensor) -> Tensor:
    return attend(q.float(), k.float(), v.float(), seen, scale=scale).to(q.dtype)


def _fused(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, seen: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(
        (q.float() * scale).to(q.dtype), k, v, attn_mask=seen, scale=1.0, enable_gqa=True
    )


def _flex(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, seen: Tensor) -> Tensor:
    def score(logit: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return torch.where(seen[row, key], logit * scale[row, 0], -math.inf)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not compiled
        return flex_attention(q, k, v, score_mod=score, scale=1.0, enable_gqa=True)


RULED: dict[str, Callable[..., Tensor]] = {"eager": _eager, "sdpa": _fused, "flex": _flex}
"""Attention at a scale for each query, of the keys that it sees."""


def under_policy(name: str, kernel: str, situation: str, dtype: torch.dtype) -> Report:
    """Audit attention under a policy, whose n is the number of keys that a query sees."""
    policy = POLICIES[name]
    causal = situation in ("causal", "cached")

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        queries, keys = q.shape[2], k.shape[2]
        seen = torch.ones(queries, keys, dtype=torch.bool)
        seen = seen.tril(keys - queries) if causal else seen
        if mask is not None:
            seen = seen & mask[0, 0]
        n = seen.sum(-1).double().clamp(min=1)
        if policy.applied_to == "cosine":
            q, k = (functional.normalize(x.float(), dim=-1).to(x.dtype) for x in (q, k))
        scale = torch.from_numpy(policy.scale(n=n, d=q.shape[-1], position=n - 1))
        return RULED[kernel](q, k, v, scale.float()[:, None], seen)

    takes = attention if situation == "padded" else lambda q, k, v: attention(q, k, v)
    return audit(takes, d=64, expected=policy, dtype=dtype, length=64, **SITUATIONS[situation])


def alarms_of_policies(kernel: str, situation: str, dtype: torch.dtype) -> Fields:
    """Audit attention under each policy, which is what is meant."""
    names = FEW if kernel == "flex" and dtype != torch.float32 else POLICIES
    return counted(under_policy(name, kernel, situation, dtype).passed for name in names)


def alarms_of_family(family: str) -> Fields:
    """Audit every call of attention of a small model of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of its own
        report = audit(tiny(family), given(family, False), length=64)
    wrong = {finding.where.split(",")[0] for finding in report.findings}
    return counted(name not in wrong for name in report.parts)


def plain(kernel: str, key_heads: int, dtype: torch.dtype) -> Report:
    """Audit plain attention with six heads."""
    written_out = kernel == "written out"
    return audit(
        attend if written_out else functional.scaled_dot_product_attention,
        d=64,
        expected=0.125,
        heads=6,
        key_heads=key_heads,
        cap=math.inf,
        sink=False,
        causal_from="last" if written_out else "first",
        length=128,
        dtype=dtype,
    )


def alarms_of_kernel(kernel: str, dtype: torch.dtype) -> Fields:
    """Audit plain attention with six heads and one, two and six heads of keys."""
    return counted(plain(kernel, key_heads, dtype).passed for key_heads in (1, 2, 6))


def alarms_of_mended() -> Fields:
    """Audit the exhibits as they were mended."""
    return counted(audited(exhibit, exhibit.mended).passed for exhibit in EXHIBITS)


def counted(passed: Iterable[bool]) -> Fields:
    """Return how many audits there were, and in how many there was an alarm."""
    outcomes = list(passed)
    return {"audits": len(outcomes), "alarms": outcomes.count(False)}

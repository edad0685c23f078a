"""Audit attention of reports of 2026, for which the audit was not extended.

    python -m experiments.known_bugs.unseen

`unseen.toml` lists them, and says which code would name the cause; it was written first. Five that
were known before follow there. Each is rebuilt here from its description, as it was and as it is
right. The record `known_bugs.unseen_first.json` is of the audit before anything was fixed for these
reports, and `known_bugs.unseen.json` of the audit since.
"""

import math
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnlib.auditing import audit
from experiments.known_bugs.attention import (
    Attend,
    attend,
    mask_bias,
    mix_values,
    places,
    repeat_heads,
    scaled_products,
)
from experiments.known_bugs.bugs import inv_sqrt
from experiments.known_bugs.faults import SINK, windowed, yarn
from experiments.records import Fields, Work, compute_missing

LABELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
KNOWN: dict[str, Fields] = LABELS.pop("known")
"""Faults that were known before the trial."""


class Report(NamedTuple):
    """Attention as it was reported and as it is right, and the arguments of its audit."""

    broken: Attend
    right: Attend
    options: Fields


def alibi(q: Tensor, k: Tensor, v: Tensor, *, first: int) -> Tensor:
    """Lower each logit by the distance times 2^(−8(h + first)/heads)."""
    scores = scaled_products(q, k)
    place, keys = places(scores)
    heads = torch.arange(q.shape[1]).to(q.dtype)[:, None, None]
    slopes = 2.0 ** (-8.0 * (heads + first) / q.shape[1])
    return mix_values(scores - slopes * (place - keys) + mask_bias(scores, is_causal=True), v)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, *, inverted: bool) -> Tensor:
    """Hand a causal mask to PyTorch's attention."""
    later = torch.ones(q.shape[-2], k.shape[-2]).triu(1 + k.shape[-2] - q.shape[-2]).bool()
    return functional.scaled_dot_product_attention(q, k, v, later if inverted else ~later)


def unwindowed_cache(q: Tensor, k: Tensor, v: Tensor, *, seen: int) -> Tensor:
    """Leave out the window for one query of many keys."""
    alone = q.shape[-2] == 1 < k.shape[-2]
    return attend(q, k, v) if alone else windowed(q, k, v, seen=seen)


def looking_ahead(q: Tensor, k: Tensor, v: Tensor, *, ahead: int) -> Tensor:
    """Attend to 16 keys up to the query's own, and to the next `ahead` keys."""

    def hidden(place: Tensor, keys: Tensor) -> Tensor:
        return (keys <= place - 16) | (keys > place + ahead)

    return attend(q, k, v, is_causal=True, hidden=hidden)


def first_512_keys(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attend to the first 512 keys only, if there is a mask."""
    if attn_mask is not None:
        k, v, attn_mask = k[..., :512, :], v[..., :512, :], attn_mask[..., :512]
    return attend(q, k, v, attn_mask)


def read_heads(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *, head: Callable[[int], int]
) -> Tensor:
    """Attend with the key head that `head` chooses for each query head."""
    key_heads = [head(i) for i in range(q.shape[1])]
    return attend(q, k[:, key_heads], v[:, key_heads], attn_mask)


def unscaled_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take each weight relative to the largest logit so far, without rescaling the earlier ones."""
    logits = scaled_products(q, k)
    weights = torch.exp(logits - logits.cummax(-1).values)
    return weights / weights.sum(-1, keepdim=True) @ repeat_heads(v, q.shape[1])


SINKS = (1.0, 0.0, 2.0, -1.0)


def with_sinks(q: Tensor, k: Tensor, v: Tensor, *, by_row: bool) -> Tensor:
    """Attend with a sink for each head, or with the sinks given by row."""
    logits, sinks = scaled_products(q, k), torch.tensor(SINKS, dtype=q.dtype)
    heads, n = logits.shape[1:3]
    index = torch.arange(heads * n) % heads if by_row else torch.arange(heads * n) // n
    added = sinks[index].reshape(heads, n, 1).expand(*logits.shape[:-1], 1)
    return torch.softmax(torch.cat([logits, added], -1), -1)[..., :-1] @ v


def softmax_in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take the softmax in float32."""
    return torch.softmax(scaled_products(q, k), -1, dtype=torch.float32).to(v.dtype) @ v


def narrow_backward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take the gradient of q from as many components of the values as q has."""
    p = torch.softmax(scaled_products(q, k), -1).detach()
    output = (p @ v).detach()

    def by_logits(logits: Tensor, v: Tensor) -> Tensor:
        """Return a number whose gradient by the logits is that of the output, with these values."""
        return (p * logits) @ v - (p * logits).sum(-1, keepdim=True) * output

    read = torch.arange(v.shape[-1]) < q.shape[-1]
    by_q = by_logits(scaled_products(q, k.detach()), v.detach() * read)
    by_k = by_logits(scaled_products(q.detach(), k), v.detach())
    through = p @ v + (by_q + by_k)
    return output + through - through.detach()


def int8_cache(q: Tensor, k: Tensor, v: Tensor, *, least: float) -> Tensor:
    """Keep keys and values in int8, with a scale for each token that is not below `least`."""

    def round_to_int8(x: Tensor) -> Tensor:
        """Return x as it is read from int8."""
        scale = (x.abs().amax(-1, keepdim=True) / 127.0).clamp(min=least)
        return (x / scale).round() * scale

    return attend(q, round_to_int8(k), round_to_int8(v))


def joined_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Join the heads without exchanging their axis with that of tokens."""
    output = attend(q, k, v)
    batch, heads, n, size = output.shape
    return output.reshape(batch, n, heads, size).transpose(1, 2)


def make_report(broken: Attend, right: Attend = attend, **options: Any) -> Report:
    """Return a report; the right attention is by default at 1/√d."""
    return Report(broken, right, options)


def wrong_scale(d: int, wrong: float, expected: float) -> Report:
    """Return a report of a wrong factor on q·k."""
    right = partial(attend, scale=expected)
    return make_report(partial(attend, scale=wrong), right, d=d, expected=expected)


SLOPES = [2.0**-h for h in range(1, 9)]

REPORTS = {
    "attorch-14": make_report(partial(attend, scale=0.5), d=64),
    "hip-ep-621": make_report(partial(attend, scale=inv_sqrt(192)), d=128),
    "aprender-2143": make_report(
        partial(alibi, first=0), partial(alibi, first=1), d=64, heads=8, slopes=SLOPES
    ),
    "llms-from-scratch-1062": make_report(
        partial(masked_attention, inverted=True), partial(masked_attention, inverted=False), d=64
    ),
    "mistral-rs-2094": make_report(
        partial(unwindowed_cache, seen=512),
        partial(windowed, seen=512),
        d=256,
        window=512,
        length=1024,
    ),
    "transformers-47010": make_report(
        partial(looking_ahead, ahead=3), partial(looking_ahead, ahead=4), d=64, window=(16, 4)
    ),
    "vllm-ascend-15503": make_report(first_512_keys, d=64, length=1024),
    "onnxim-33": make_report(
        partial(read_heads, head=lambda i: i // 4 * 4 // 8), d=128, heads=32, key_heads=8
    ),
    "freetoken-177": make_report(
        partial(read_heads, head=lambda i: i // 16 * 16 // 24), d=128, heads=48, key_heads=2
    ),
    "aprender-2753": make_report(unscaled_sums, d=128),
    "modular-6591": make_report(
        partial(with_sinks, by_row=True),
        partial(with_sinks, by_row=False),
        d=64,
        heads=len(SINKS),
        sink=SINKS,
    ),
    "transformers-48459": make_report(softmax_in_float32, d=64, dtype=torch.float64),
    "native-sparse-attention-triton-27": make_report(narrow_backward, d=64),
    "mlxcel-717": make_report(
        partial(int8_cache, least=1.0), partial(int8_cache, least=1e-30), d=128, kv_dtype=torch.int8
    ),
    "transformer-from-scratch-6": make_report(joined_heads, d=64, heads=4),
    "gemma-triton-flash-attn-6": wrong_scale(256, 1.0 / 16.0, 1.0),
    "sglang-33558": wrong_scale(
        128, yarn(128) ** 4 * inv_sqrt(128), yarn(128) ** 2 * inv_sqrt(128)
    ),
    "megatron-1501": wrong_scale(192, inv_sqrt(40), inv_sqrt(192)),
    "flashinfer-4979": make_report(partial(attend, scale=4.0 * inv_sqrt(128), values=2.0), d=128),
    "rocm-libraries-12229": make_report(
        partial(attend, sink=SINK + math.log(2.0)), partial(attend, sink=SINK), d=64, sink=SINK
    ),
}
"""By the names in `unseen.toml`."""


def audit_report(name: str) -> Fields:
    """Audit a report; return its label, the findings, and the alarms on the right attention.

    It is found if there is a finding, and named if a finding has the expected code.
    """
    (broken, right, given), label = REPORTS[name], {**LABELS, **KNOWN}[name]
    options = {"expected": inv_sqrt(given["d"]), "nan_rows": True, "length": 64, **given}
    findings, alarms = (audit(f, **options).findings for f in (broken, right))
    return {
        **label,
        "found": bool(findings),
        "named": label["expected"] in {finding.code for finding in findings},
        "said": [str(finding) for finding in findings],
        "alarms": [str(finding) for finding in alarms],
    }


def entries_to_compute() -> Work:
    """Yield the key of each recorded entry, and the function that computes it."""
    for kind, names in (("report", LABELS), ("known", KNOWN)):
        for name in names:
            yield {kind: name}, partial(audit_report, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute_missing("known_bugs.unseen", entries_to_compute(), {"reports": LABELS}, "torch")

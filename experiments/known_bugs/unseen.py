"""Try the audit on reports of 2026 that it was not extended for.

    python -m experiments.known_bugs.unseen

`unseen.toml` lists them, and says which code would name the cause; it was written first. Five that
were known before follow there. Each is
rebuilt here from its description, as it was and as it is right. The record
`known_bugs.unseen_first.json` is of the audit before anything was fixed for these reports, and
`known_bugs.unseen.json` of the audit since.
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
from experiments.known_bugs.attention import Attend, attend, bias, grouped, mix, places, scaled
from experiments.known_bugs.bugs import root
from experiments.known_bugs.faults import SINK, windowed, yarn
from experiments.records import Fields, Work, compute_missing

LABELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
KNOWN: dict[str, Fields] = LABELS.pop("known")
"""Faults that were known before the trial."""


class Report(NamedTuple):
    """Attention as it was reported and as it is right, and what the audit is told."""

    broken: Attend
    right: Attend
    told: Fields


def alibi(q: Tensor, k: Tensor, v: Tensor, *, first: int) -> Tensor:
    """Lower a logit by the distance times 2^(−8(h + first)/heads)."""
    scores = scaled(q, k)
    place, keys = places(scores)
    heads = torch.arange(q.shape[1]).to(q.dtype)[:, None, None]
    slopes = 2.0 ** (-8.0 * (heads + first) / q.shape[1])
    return mix(scores - slopes * (place - keys) + bias(scores, is_causal=True), v)


def masked(q: Tensor, k: Tensor, v: Tensor, *, inverted: bool) -> Tensor:
    """Hand a causal mask to PyTorch's attention."""
    later = torch.ones(q.shape[-2], k.shape[-2]).triu(1 + k.shape[-2] - q.shape[-2]).bool()
    return functional.scaled_dot_product_attention(q, k, v, later if inverted else ~later)


def unwindowed_cache(q: Tensor, k: Tensor, v: Tensor, *, seen: int) -> Tensor:
    """Leave the window out where there is one query of many keys."""
    alone = q.shape[-2] == 1 < k.shape[-2]
    return attend(q, k, v) if alone else windowed(q, k, v, seen=seen)


def looking_ahead(q: Tensor, k: Tensor, v: Tensor, *, ahead: int) -> Tensor:
    """Attend to 16 keys up to the query's own, and to some after it."""

    def hidden(place: Tensor, keys: Tensor) -> Tensor:
        return (keys <= place - 16) | (keys > place + ahead)

    return attend(q, k, v, is_causal=True, hidden=hidden)


def up_to_512(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """See no key past the 512th where there is a mask."""
    if attn_mask is not None:
        k, v, attn_mask = k[..., :512, :], v[..., :512, :], attn_mask[..., :512]
    return attend(q, k, v, attn_mask)


def read_by(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *, head: Callable[[int], int]
) -> Tensor:
    """Read the key head that is chosen for each query head."""
    read = [head(i) for i in range(q.shape[1])]
    return attend(q, k[:, read], v[:, read], attn_mask)


def unscaled_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take each weight relative to the largest logit up to it."""
    logits = scaled(q, k)
    weights = torch.exp(logits - logits.cummax(-1).values)
    return weights / weights.sum(-1, keepdim=True) @ grouped(v, q.shape[1])


SINKS = (1.0, 0.0, 2.0, -1.0)


def sunk(q: Tensor, k: Tensor, v: Tensor, *, by_row: bool) -> Tensor:
    """Give the sinks by head, or by row."""
    logits, sinks = scaled(q, k), torch.tensor(SINKS, dtype=q.dtype)
    heads, n = logits.shape[1:3]
    index = torch.arange(heads * n) % heads if by_row else torch.arange(heads * n) // n
    added = sinks[index].reshape(heads, n, 1).expand(*logits.shape[:-1], 1)
    return torch.softmax(torch.cat([logits, added], -1), -1)[..., :-1] @ v


def in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take the softmax in float32."""
    return torch.softmax(scaled(q, k), -1, dtype=torch.float32).to(v.dtype) @ v


def narrow_backward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take the gradient of q from as many components of the values as q has."""
    p = torch.softmax(scaled(q, k), -1).detach()
    output = (p @ v).detach()

    def of(logits: Tensor, v: Tensor) -> Tensor:
        return (p * logits) @ v - (p * logits).sum(-1, keepdim=True) * output

    read = torch.arange(v.shape[-1]) < q.shape[-1]
    gradients = of(scaled(q, k.detach()), v.detach() * read) + of(scaled(q.detach(), k), v.detach())
    through = p @ v + gradients
    return output + through - through.detach()


def in_int8(q: Tensor, k: Tensor, v: Tensor, *, least: float) -> Tensor:
    """Keep keys and values in int8, with a scale for each token that is not below `least`."""

    def kept(x: Tensor) -> Tensor:
        scale = (x.abs().amax(-1, keepdim=True) / 127.0).clamp(min=least)
        return (x / scale).round() * scale

    return attend(q, kept(k), kept(v))


def joined(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Join the heads without exchanging their axis with that of tokens."""
    output = attend(q, k, v)
    batch, heads, n, size = output.shape
    return output.reshape(batch, n, heads, size).transpose(1, 2)


def report(broken: Attend, right: Attend = attend, **told: Any) -> Report:
    """Return a report; right is attention at 1/√d where it does not say otherwise."""
    return Report(broken, right, told)


def scaled_by(d: int, wrong: float, expected: float) -> Report:
    """Return a report of another number that multiplies q·k."""
    right = partial(attend, scale=expected)
    return report(partial(attend, scale=wrong), right, d=d, expected=expected)


SLOPES = [2.0**-h for h in range(1, 9)]

REPORTS = {
    "attorch-14": report(partial(attend, scale=0.5), d=64),
    "hip-ep-621": report(partial(attend, scale=root(192)), d=128),
    "aprender-2143": report(
        partial(alibi, first=0), partial(alibi, first=1), d=64, heads=8, slopes=SLOPES
    ),
    "llms-from-scratch-1062": report(
        partial(masked, inverted=True), partial(masked, inverted=False), d=64
    ),
    "mistral-rs-2094": report(
        partial(unwindowed_cache, seen=512),
        partial(windowed, seen=512),
        d=256,
        window=512,
        length=1024,
    ),
    "transformers-47010": report(
        partial(looking_ahead, ahead=3), partial(looking_ahead, ahead=4), d=64, window=(16, 4)
    ),
    "vllm-ascend-15503": report(up_to_512, d=64, length=1024),
    "onnxim-33": report(
        partial(read_by, head=lambda i: i // 4 * 4 // 8), d=128, heads=32, key_heads=8
    ),
    "freetoken-177": report(
        partial(read_by, head=lambda i: i // 16 * 16 // 24), d=128, heads=48, key_heads=2
    ),
    "aprender-2753": report(unscaled_sums, d=128),
    "modular-6591": report(
        partial(sunk, by_row=True), partial(sunk, by_row=False), d=64, heads=len(SINKS), sink=SINKS
    ),
    "transformers-48459": report(in_float32, d=64, dtype=torch.float64),
    "native-sparse-attention-triton-27": report(narrow_backward, d=64),
    "mlxcel-717": report(
        partial(in_int8, least=1.0), partial(in_int8, least=1e-30), d=128, kv_dtype=torch.int8
    ),
    "transformer-from-scratch-6": report(joined, d=64, heads=4),
    "gemma-triton-flash-attn-6": scaled_by(256, 1.0 / 16.0, 1.0),
    "sglang-33558": scaled_by(128, yarn(128) ** 4 * root(128), yarn(128) ** 2 * root(128)),
    "megatron-1501": scaled_by(192, root(40), root(192)),
    "flashinfer-4979": report(partial(attend, scale=4.0 * root(128), values=2.0), d=128),
    "rocm-libraries-12229": report(
        partial(attend, sink=SINK + math.log(2.0)), partial(attend, sink=SINK), d=64, sink=SINK
    ),
}
"""By the names in `unseen.toml`."""


def audit_report(name: str) -> Fields:
    """Return what the audit says of a report: its codes, its findings, and those of what is right.

    It is found if there is a finding, and named if a finding has the code that was expected.
    """
    (broken, right, told), label = REPORTS[name], {**LABELS, **KNOWN}[name]
    options = {"expected": root(told["d"]), "nan_rows": True, "length": 64, **told}
    findings, alarms = (audit(f, **options).findings for f in (broken, right))
    return {
        **label,
        "found": bool(findings),
        "named": label["expected"] in {finding.code for finding in findings},
        "said": [str(finding) for finding in findings],
        "alarms": [str(finding) for finding in alarms],
    }


def entries_to_compute() -> Work:
    """Yield all that is recorded, and how it is found."""
    for kind, names in (("report", LABELS), ("known", KNOWN)):
        for name in names:
            yield {kind: name}, partial(audit_report, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute_missing("known_bugs.unseen", entries_to_compute(), {"reports": LABELS}, "torch")

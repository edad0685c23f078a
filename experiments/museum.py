"""Record what each fault of the museum costs a trained model, and what the audit says of it.

    python -m experiments.museum --text PATH

trains the lab's small decoder once, some three minutes of one core, and measures its loss on
unseen text, the spread α of its logits and its effective keys, at a dozen wrong multipliers and
with the fault of each exhibit in its attention. A wrong multiplier is applied as the exhibit has
it relative to what was meant, at each position where it is a law. Of the others the exhibit's own
attention is called with the model's q, k and v, if the mended one does there what the model's own
does, and the broken one does not; else this model does not meet the fault. Then the audit looks at
each exhibit, and at attention without a fault, where it should find nothing.

Predicted before the first run; of the multipliers from a quarter to four `probe_training` had
shown nine costs:

- many-cost-little: a fifth to a third of the faults that the model meets cost less than 0.01 nats
  a byte, both of Gemma 2's dimension and both of precision among them;
- too-small-is-worse: for each r of the curve the multiplier 1/r costs more than r;
- sharp-is-cheap: no multiplier that is too large, up to 192 times, costs more than 0.15 nats;
- blind-is-dear: every multiplier of an eighth and less costs more than 1 nat;
- future-confuses: seeing keys of the future raises the loss, though they tell the answer.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

from attnlib.attention import rescale
from attnlib.auditing import Report, audit
from attnlib.policies import POLICIES
from attnlib.probing import probe
from attnlib.provenance import made
from experiments.compatibility import FAMILIES, given, tiny
from experiments.lab import data
from experiments.lab.model import Config
from experiments.lab.train import Training, train_model
from experiments.records import Fields, complete, path_of
from tests.library.museum import EXHIBITS
from tests.library.museum.audited import CODE, audited, with_signature
from tests.library.museum.exhibit import Exhibit
from tests.library.museum.exhibit import attend as written_out

COMMAND = "python -m experiments.museum"
RECORD = path_of("museum")

CONFIG = Config(width=128, depth=4, head_size=64, sequence=128)
TRAINING = Training(learning_rate=2.0**-9, steps=1500, batch=8)
WINDOWS = 256

RATIOS = tuple(
    float(2.0**k) for k in (-6, -5, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8)
)
"""Multipliers of the curve, in units of the right one."""
MULTIPLIERS = ("multiplier", "scale twice", "dimension", "law in n")
"""Kinds of faults that are a wrong multiplier of all scores of a query."""
SAME = 1e-5
"""Outputs of attention that differ by less are of the same attention."""
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

Attend = Callable[..., Tensor]


def main(
    text: Annotated[Path | None, typer.Option(help="A copy of tiny-shakespeare.")] = None,
    out: Annotated[Path, typer.Option(help="The record.")] = RECORD,
) -> None:
    """Train, measure, audit, and write the record."""
    torch.set_num_threads(1)
    settings = {
        "config": asdict(CONFIG),
        "training": asdict(TRAINING),
        "windows": WINDOWS,
        "ratios": RATIOS,
        "exhibits": [exhibit.name for exhibit in EXHIBITS],
    }
    complete(
        out,
        work(cache(partial(Trained, text))),
        command=COMMAND,
        settings=settings,
        made=made("numpy", "scipy", "torch", threads=1),
    )


def work(trained: Callable[[], "Trained"]) -> Iterator[tuple[Fields, Callable[[], Any]]]:
    """Yield all that is recorded, and how it is found."""
    yield {"model": "trained"}, partial(_rescaled, trained, 1.0)
    for ratio in RATIOS:
        yield {"ratio": ratio}, partial(_rescaled, trained, ratio)
    for exhibit in EXHIBITS:
        yield {"exhibit": exhibit.name}, partial(_exhibited, trained, exhibit)
    for name in TYPES:
        for kernel, situation in product(RULED, SITUATIONS):
            at = {"alarms": "policies", "dtype": name, "kernel": kernel, "situation": situation}
            yield at, partial(alarms_of_policies, kernel, situation, TYPES[name])
        for kernel in KERNELS:
            at = {"alarms": "kernels", "dtype": name, "kernel": kernel}
            yield at, partial(alarms_of_kernel, KERNELS[kernel], TYPES[name])
    yield {"alarms": "mended"}, alarms_of_mended
    for family in FAMILIES:
        if family not in UNREACHED:
            yield {"alarms": "families", "family": family}, partial(alarms_of_family, family)


def _rescaled(trained: Callable[[], "Trained"], ratio: float) -> Fields:
    return trained().rescaled(ratio)


def _exhibited(trained: Callable[[], "Trained"], exhibit: Exhibit) -> Fields:
    return {**shown(exhibit), **trained().met(exhibit)}


class Trained:
    """The model, and the loss of each window of unseen text as it should be."""

    def __init__(self, text: Path | None) -> None:
        corpus = data.load(data.SHAKESPEARE, text)
        windows = data.validation_batch(
            data.split(corpus).validation, sequence=CONFIG.sequence, windows=WINDOWS
        )
        self.inputs, self.targets = map(torch.from_numpy, windows)
        self.model, _ = train_model(CONFIG, TRAINING, corpus)
        self.right = self.losses()

    @torch.no_grad()
    def losses(self) -> Tensor:
        """Return the loss of each window, in nats a byte."""
        logits = self.model(self.inputs).transpose(1, 2)
        return functional.cross_entropy(logits, self.targets, reduction="none").double().mean(1)

    def cost(self) -> Fields:
        """Return the loss now, by how much it is too high, and the standard error of that."""
        found = self.losses()
        more = found - self.right
        return {
            "loss": float(found.mean()),
            "cost": float(more.mean()),
            "error": float(more.std() / math.sqrt(len(more))),
        }

    def rescaled(self, ratio: Any) -> Fields:
        """Return what the model does at another scale: a number, or one for each query."""
        with probe(self.model) as report, rescale(factor=ratio):
            found = self.cost()
        table = report.table()
        keys = float(table["effective_keys"].mean())
        return {**found, "alpha": float(table["alpha"].mean()), "keys": keys}

    def met(self, exhibit: Exhibit) -> Fields:
        """Return what a fault does to the model, or that the model does not meet it."""
        if exhibit.kind in MULTIPLIERS:
            return {"met": "as a multiplier", **self.rescaled(ratio_of(exhibit))}
        how = "as it is"
        broken, mended = called(exhibit.broken, exhibit), called(exhibit.mended, exhibit)
        if exhibit.kind == "value factor":
            times = exhibit.found / exhibit.intended()
            how, broken, mended = "as a multiplier", partial(multiplied, by=times), own
        drawn = torch.Generator().manual_seed(0)
        q, k, v = (
            torch.randn(1, CONFIG.heads, CONFIG.sequence, CONFIG.head_size, generator=drawn)
            for _ in range(3)
        )
        right = own(q, k, v)
        if not torch.allclose(mended(q, k, v), right, atol=SAME):
            return {"met": "no: the model does not have what is meant"}
        if torch.allclose(broken(q, k, v), mended(q, k, v), atol=SAME):
            return {"met": "no: at the model's calls nothing differs"}
        torch.manual_seed(0)
        with Replaced(broken) as seen:
            found = self.cost()
        return {"met": how, **found, **seen.rows()}


def ratio_of(exhibit: Exhibit) -> Any:
    """Return what multiplies the scores over what should, a number or one for each query."""
    if not callable(exhibit.expected):
        return exhibit.found / exhibit.intended()
    position = np.arange(CONFIG.sequence)
    return torch.from_numpy(exhibit.found / exhibit.expected(position + 1, exhibit.d, position))


def own(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend as the model does."""
    return cast(Tensor, written_out(q, k, v, is_causal=True))


def multiplied(q: Tensor, k: Tensor, v: Tensor, by: float) -> Tensor:
    """Attend as the model does, with the values multiplied."""
    return own(q, k, v * by)


def called(function: Attend, exhibit: Exhibit) -> Attend:
    """Return the function as the model calls it: causal, if it can be told so."""
    return partial(function, is_causal=True) if "is_causal" in exhibit.takes else function


class Replaced(TorchFunctionMode):
    """Runs another attention in place of PyTorch's, and keeps what its rows are like."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.alpha: list[float] = []
        self.keys: list[float] = []

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        q, k, v = args
        self.keep(q, k)
        return self.attend(q, k, v)

    def keep(self, q: Tensor, k: Tensor) -> None:
        """Keep α and effective keys of each head: values that are unit vectors give the weights."""
        unit = torch.eye(k.shape[-2], dtype=torch.float64).expand(*k.shape[:2], -1, -1)
        weights = self.attend(q.double(), k.double(), unit)
        seen = weights > 0.0
        rows = seen.sum(-1) > 1
        logits = torch.where(seen, weights, 1.0).log()
        centred = torch.where(seen, logits - (logits.sum(-1) / seen.sum(-1))[..., None], 0.0)
        variance = centred.square().sum(-1) / (seen.sum(-1) - 1).clamp(min=1)
        collisions = weights.square().sum(-1) / weights.sum(-1).square()
        for head in range(q.shape[1]):
            of = rows[:, head]
            self.alpha.append(float(variance[:, head][of].mean().sqrt()))
            self.keys.append(float(1.0 / collisions[:, head][of].mean()))

    def rows(self) -> Fields:
        """Return the means over all heads."""
        return {"alpha": float(np.mean(self.alpha)), "keys": float(np.mean(self.keys))}


def shown(exhibit: Exhibit) -> Fields:
    """Return the label of an exhibit, and what the audit says of the broken attention."""
    torch.manual_seed(0)
    findings = {one.code: one for one in reversed(audited(exhibit, exhibit.broken).findings)}
    said = findings[CODE[exhibit.kind]]
    wrong = exhibit.quantity == "multiplier"
    return {
        **{name: getattr(exhibit, name) for name in ("link", "kind", "what", "quantity")},
        "intended": f"{exhibit.intended():.4g}",
        "found": f"{exhibit.found:.4g}",
        "times": exhibit.found / exhibit.intended() if wrong else None,
        "audit": {**said._asdict(), "also": sorted(set(findings) - {said.code})},
    }


KERNELS: dict[str, Attend] = {
    "written out": with_signature(written_out, ("attn_mask", "is_causal")),
    "fused": functional.scaled_dot_product_attention,
}


def alarms_of_policies(kernel: str, situation: str, dtype: torch.dtype) -> Fields:
    """Audit attention under each policy, which is what is meant."""
    names = FEW if kernel == "flex" and dtype != torch.float32 else POLICIES
    reports = (under_policy(name, kernel, situation, dtype) for name in names)
    return counted(report.passed for report in reports)


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


def _eager(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, seen: Tensor) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = (q.float() @ k.float().mT * scale).masked_fill(~seen, -math.inf)
    return (logits.softmax(-1) @ v.float()).to(q.dtype)


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


def alarms_of_family(family: str) -> Fields:
    """Audit every call of attention of a small model of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of its own
        report = audit(tiny(family), given(family, False), length=64)
    wrong = {finding.where.split(",")[0] for finding in report.findings}
    return counted(name not in wrong for name in report.parts)


def alarms_of_kernel(kernel: Attend, dtype: torch.dtype) -> Fields:
    """Audit plain attention with six heads and one, two and six heads of keys."""
    fused = kernel is functional.scaled_dot_product_attention  # counts from the first key
    return counted(
        audit(
            kernel, d=64, expected=0.125, heads=6, key_heads=key_heads, cap=math.inf, sink=False,
            causal_from="first" if fused else "last", length=128, dtype=dtype,
        ).passed
        for key_heads in (1, 2, 6)
    )  # fmt: skip


def alarms_of_mended() -> Fields:
    """Audit the exhibits as they were mended."""
    return counted(audited(exhibit, exhibit.mended).passed for exhibit in EXHIBITS)


def counted(passed: Iterator[bool]) -> Fields:
    """Return how many audits there were, and in how many there was an alarm."""
    found = list(passed)
    return {"audits": len(found), "alarms": found.count(False)}


if __name__ == "__main__":
    typer.run(main)

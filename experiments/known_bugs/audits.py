"""The cost of each fault for a trained model, and audits with and without a fault."""

import inspect
import math
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from attnlib.attention import rescale
from attnlib.auditing import Report, audit
from attnlib.probing import probe
from experiments.compatibility import given, tiny
from experiments.known_bugs.attention import Attend, attend
from experiments.known_bugs.bugs import BUGS, KINDS, MULTIPLIERS, Bug
from experiments.lab import texts
from experiments.lab.batches import validation_batch
from experiments.lab.train import train_model
from experiments.probe_training import CONFIG, TRAINING, WINDOWS
from experiments.records import Fields

CODE = {kind: code for code, kinds in KINDS.items() for kind in kinds}
"""The code of the finding for each kind of bug."""


def audit_bug(bug: Bug, function: Attend) -> Report:
    """Audit the broken or fixed attention of a bug, by what was intended."""
    options = bug.meant
    return audit(
        function,
        d=bug.d,
        expected=bug.expected,
        heads=bug.heads,
        key_heads=bug.key_heads,
        cap=options.get("cap", math.inf),
        window=options.get("window"),
        sink="sink" in options,
        factor=options.get("values", 1.0),
        causal_from="last",
        nan_rows=True,
        length=64,
    )


def describe_bug(bug: Bug) -> Fields:
    """Return the label of a bug, and the finding of the audit on the broken attention."""
    torch.manual_seed(0)
    findings = {f.code: f for f in reversed(audit_bug(bug, bug.broken).findings)}
    finding = findings[CODE[bug.kind]]
    wrong = bug.label["quantity"] == "multiplier"
    return {
        **bug.label,
        "intended": f"{bug.right:.4g}",
        "found": f"{bug.found:.4g}",
        "times": bug.found / bug.right if wrong else None,
        "audit": {**finding._asdict(), "also": sorted(set(findings) - {finding.code})},
    }


# --- where nothing is wrong -----------------------------------------------------------------------

UNREACHED = ("Bloom", "GPTJ", "DebertaV2")
"""Families that write attention out in their own modules."""


def alarms_of_family(family: str) -> Fields:
    """Audit every call of attention of a small model of transformers; return the counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of its own
        report = audit(tiny(family), given(family, False), length=64)
    wrong = {finding.where.split(",")[0] for finding in report.findings}
    return count_alarms(name not in wrong for name in report.parts)


def alarms_of_fixed() -> Fields:
    """Audit the bugs as they were fixed; return the counts."""
    return count_alarms(not audit_bug(bug, bug.fixed).findings for bug in BUGS)


def count_alarms(passed: Iterable[bool]) -> Fields:
    """Return the number of audits, and of those with an alarm."""
    outcomes = list(passed)
    return {"audits": len(outcomes), "alarms": outcomes.count(False)}


# --- what they cost -------------------------------------------------------------------------------

SAME = 1e-5
"""Outputs of attention that differ by less are of the same attention."""


class Trained:
    """The trained model, and its loss on each window of unseen text."""

    def __init__(self) -> None:
        corpus = texts.load(texts.SHAKESPEARE)
        windows = validation_batch(
            texts.split(corpus).validation, sequence=CONFIG.sequence, windows=WINDOWS
        )
        self.inputs, self.targets = map(torch.from_numpy, windows)
        self.model, _ = train_model(CONFIG, TRAINING, corpus)
        self.right = self.losses()

    @torch.no_grad()
    def losses(self) -> Tensor:
        """Return the loss of each window, in nats a byte, (windows,)."""
        logits = self.model(self.inputs).transpose(1, 2)
        return functional.cross_entropy(logits, self.targets, reduction="none").double().mean(1)

    def cost(self) -> Fields:
        """Return the loss now, its excess over the model's own, and the standard error of that."""
        losses = self.losses()
        excess = losses - self.right
        return {
            "loss": float(losses.mean()),
            "cost": float(excess.mean()),
            "error": float(excess.std() / math.sqrt(len(excess))),
        }

    def rescaled(self, ratio: Any) -> Fields:
        """Return loss, α and effective keys at another scale: a number, or one for each query."""
        with probe(self.model) as report, rescale(factor=ratio):
            cost = self.cost()
        table = report.table()
        keys = float(table["effective_keys"].mean())
        return {**cost, "alpha": float(table["alpha"].mean()), "keys": keys}

    def fault_cost(self, bug: Bug) -> Fields:
        """Return the cost of a fault, or that the model does not meet it."""
        if bug.kind in MULTIPLIERS:
            return {"met": "as a multiplier", **self.rescaled(bug.ratio(CONFIG.sequence))}
        how, broken, fixed = "as it is", make_causal(bug.broken), make_causal(bug.fixed)
        if bug.kind == "value factor":
            times = bug.found / bug.right
            how, broken, fixed = "as a multiplier", partial(attend_own, values=times), attend_own
        drawn = torch.Generator().manual_seed(0)
        shape = 1, CONFIG.heads, CONFIG.sequence, CONFIG.head_size
        q, k, v = (torch.randn(shape, generator=drawn) for _ in range(3))
        if not torch.allclose(fixed(q, k, v), attend_own(q, k, v), atol=SAME):
            return {"met": "no: the model does not have what is meant"}
        if torch.allclose(broken(q, k, v), fixed(q, k, v), atol=SAME):
            return {"met": "no: at the model's calls nothing differs"}
        torch.manual_seed(0)
        kernel = "scaled_dot_product_attention"
        with mock.patch.object(functional, kernel, lambda q, k, v, **_: broken(q, k, v)):
            return {"met": how, **self.cost()}


def attend_own(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Attend as the model does."""
    return attend(q, k, v, is_causal=True, **options)


def make_causal(function: Attend) -> Attend:
    """Return the function as the model calls it: causal, if it has that argument."""
    takes = "is_causal" in inspect.signature(function).parameters
    return partial(function, is_causal=True) if takes else function

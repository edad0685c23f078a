"""Record the cost of each known bug for a trained model, and its audit.

    python -m experiments.known_bugs

trains the lab's small decoder once, some three minutes of one core, and measures its loss on unseen
text, the spread α of its logits and its effective keys, at a dozen wrong multipliers and with the
fault of each bug in its attention. A wrong multiplier is applied as the bug has it relative to what
was meant, at each position where it is a law. Of the others the bug's own attention is called with
the model's q, k and v, if the fixed one does there what the model's own does, and the broken one
does not; else this model does not meet the fault. Then the audit looks at each bug, and at
attention without a fault, where it should find nothing: the fixed bugs, and models of transformers.

Predicted before the first run; of the multipliers from a quarter to four `probe_training` had shown
nine costs:

- many-cost-little: a fifth to a third of the faults that the model meets cost less than 0.01 nats
  a byte, both of Gemma 2's dimension and both of precision among them;
- too-small-is-worse: for each r of the curve the multiplier 1/r costs more than r;
- sharp-is-cheap: no multiplier that is too large, up to 192 times, costs more than 0.15 nats;
- blind-is-dear: every multiplier of an eighth and less costs more than 1 nat;
- future-confuses: seeing keys of the future raises the loss, though they tell the answer.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial

import torch

from experiments.compatibility import FAMILIES
from experiments.known_bugs import BUGS, Bug, audits
from experiments.probe_training import CONFIG, TRAINING, WINDOWS
from experiments.records import Fields, Work, compute_missing

RATIOS = tuple(
    float(2.0**k) for k in (-6, -5, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8)
)
"""Multipliers of the curve, in units of the right one."""


def main() -> None:
    """Train, measure, audit, and write the record."""
    torch.set_num_threads(1)
    settings = {
        "config": asdict(CONFIG),
        "training": asdict(TRAINING),
        "windows": WINDOWS,
        "ratios": RATIOS,
        "bugs": [bug.name for bug in BUGS],
    }
    compute_missing("known_bugs", entries_to_compute(cache(audits.Trained)), settings, "torch")


def entries_to_compute(trained: Callable[[], audits.Trained]) -> Work:
    """Yield the key of each recorded entry, and the function that computes it."""

    def rescaled(ratio: float) -> Fields:
        return trained().rescaled(ratio)

    def measured(bug: Bug) -> Fields:
        return {**audits.describe_bug(bug), **trained().fault_cost(bug)}

    yield {"model": "trained"}, partial(rescaled, 1.0)
    for ratio in RATIOS:
        yield {"ratio": ratio}, partial(rescaled, ratio)
    for bug in BUGS:
        yield {"bug": bug.name}, partial(measured, bug)
    yield {"alarms": "fixed"}, audits.alarms_of_fixed
    for family in FAMILIES:
        if family not in audits.UNREACHED:
            at = {"alarms": "families", "family": family}
            yield at, partial(audits.alarms_of_family, family)


if __name__ == "__main__":
    main()

"""Claims on training with a scaled output (source 002), decided by the recorded runs.

The runs are those of experiments/*.toml, recorded in results/training. Chapter: training.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlib.checking import FloatArray
from attnlib.claims.registry import Finding, NotRecorded, Verdict, claim

if TYPE_CHECKING:  # the laboratory loads torch, which takes seconds
    from attnlib.lab.comparison import Interval
    from attnlib.lab.sweep import Outcome

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@cache
def recorded(experiment: str) -> "tuple[Outcome, ...]":
    """Return the runs of experiments/`experiment`.toml, in the order of the sweep.

    Raises NotRecorded where they are not all there, as in an installation without the repository.
    """
    from attnlib.lab import sweep

    file = EXPERIMENTS / f"{experiment}.toml"
    if not file.exists():
        raise NotRecorded(f"The recorded runs are in the book's repository; here are 0, {file}.")
    described = sweep.read(file)
    found = sweep.outcomes(described)
    if len(found) < len(described.settings):
        raise NotRecorded(
            f"Of the {len(described.settings)} runs of {file.name}, {len(found)} are recorded."
        )
    return tuple(found)


def harm(
    experiment: str, changed: str, against: str = "baseline", measure: str = "final_loss"
) -> FloatArray:
    """Return the loss of the variant `changed` less that of `against`, shape (rates, seeds).

    In nats a byte, and above 0 where the change is for the worse. Both variants of a seed start
    from the same parameters and see the same batches. Chapter: training.
    """
    from attnlib.lab import comparison

    found = recorded(experiment)
    return comparison.losses(found, changed, measure) - comparison.losses(found, against, measure)


@claim(
    "training.worse",
    source="002",
    chapter="training",
    statement="With the factor (n/e)^(1/2) on attention's output, a small character model trains "
    "worse at every one of six learning rates.",
)
def worse(changed: str = "note", against: str = "baseline") -> Finding:
    """The variant `changed` is worse than `against`."""
    above, below, evidence = _compared("learning_rate", changed, against)
    if above.all():
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.WRONG if below.any() else Verdict.NEEDS_A_CONDITION
    return Finding(verdict, evidence)


@claim(
    "training.bert",
    source="002",
    chapter="training",
    statement="The same is seen when BERT, a masked encoder, is trained.",
)
def bert(changed: str = "note", against: str = "baseline") -> Finding:
    """In small masked encoders the variant `changed` is worse than `against`."""
    above, below, evidence = _compared("encoder", changed, against)
    longer_above, longer_below, longer = _compared("encoder_longer", changed, against)
    if above.all() and longer_above.all():
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.OPEN if (below | longer_below).any() else Verdict.NEEDS_A_CONDITION
    return Finding(verdict, f"Not BERT, but small masked encoders. {evidence} {longer}")


def _compared(
    experiment: str, changed: str, against: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str]:
    """Return at which rates `changed` is surely worse, at which surely better, and the numbers."""
    from attnlib.lab import comparison

    runs = recorded(experiment)
    seeds = {one.setting.training.seed for one in runs}
    gaps = comparison.interval(harm(experiment, changed, against))
    config, training = runs[0].setting.config, runs[0].setting.training
    evidence = (
        f"{config.depth} layers, width {config.width}, n = {config.sequence}, {training.steps} "
        f"steps: the factor changes the final loss by {_listed(gaps)} nats a byte at learning "
        f"rates {_rates(runs)} (95 % intervals over {len(seeds)} seeds)."
    )
    return gaps.mean > gaps.half_width, gaps.mean < -gaps.half_width, evidence


def _listed(gaps: "Interval") -> str:
    pairs = zip(gaps.mean, gaps.half_width, strict=True)
    return ", ".join(f"{mean:+.3f} ± {half:.3f}" for mean, half in pairs)


def _rates(runs: "tuple[Outcome, ...]") -> str:
    from attnlib.lab import comparison

    powers = np.log2(comparison.learning_rates(runs))
    return ", ".join(f"2^({power:g})" for power in powers)


def apart(variant: str, precision: str) -> FloatArray:
    """Return |loss − loss of the baseline| at each step of the experiment "residual".

    `precision` is "float32" or "float64". Chapter: training.
    """
    losses = {
        one.setting.variant: one.run.losses
        for one in recorded("residual")
        if one.setting.training.precision == precision
    }
    return np.abs(losses[variant] - losses["baseline"])


@claim(
    "training.residual",
    source="002",
    chapter="training",
    statement="A relative weight of the attention branch against the skip connection reproduces "
    "the training of the original model.",
)
def residual(power_of_two: str = "eight", inexact: str = "undone") -> Finding:
    """The runs of both variants are those of the baseline."""
    exactly = [apart(power_of_two, precision) for precision in ("float32", "float64")]
    rounded = apart(inexact, "float64")
    biased = apart("eight_with_bias", "float64")
    largest = max(gaps.max() for gaps in exactly)
    same = "are the same to the last bit" if largest == 0.0 else f"differ by up to {largest:.2g}"
    holds = largest == 0.0 and rounded[:100].max() < 1e-9
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"With r·c = 1 and c = 8, all {exactly[0].size} losses {same}, in float32 and in float64. "
        f"With c = (n/e)^½, which rounds, the first 100 differ by at most "
        f"{rounded[:100].max():.1g} (float64). r multiplies the projection and not its bias: if it "
        f"multiplies the bias too, the losses part at step {np.flatnonzero(biased)[0] + 1}.",
    )


@claim(
    "training.scale-dependent",
    source="002",
    chapter="training",
    statement="The harm comes from operations that depend on scale, in particular from the "
    "addition of the branch to the skip connection.",
)
def scale_dependent(experiment: str = "residual", undone: str = "eight") -> Finding:
    """In `experiment`, the variant `undone` has a factor, but not where the branch is added."""
    full = _excess("cause", "note")
    left = _excess(experiment, undone)
    return Finding(
        Verdict.HOLDS if abs(left) < 0.1 * full else Verdict.WRONG,
        f"A factor on z that is undone just before the addition changes the loss after "
        f"{EARLY.stop} steps by {left:.3f} nats a byte; one that reaches it by {full:.3f} (one "
        "seed). All between the two is linear, and Adam does not see the size of a gradient.",
    )


EARLY = slice(480, 500)
"""The last steps of the experiment "residual"."""


def _excess(experiment: str, variant: str) -> float:
    """Return how much larger the loss of a variant is at those steps; seed 0, rate 2⁻⁹, float32."""
    losses = {
        one.setting.variant: one.run.losses[EARLY].mean()
        for one in recorded(experiment)
        if one.setting.training.seed == 0
        and one.setting.training.learning_rate == 2.0**-9
        and one.setting.training.precision == "float32"
    }
    return float(losses[variant] - losses["baseline"])


@claim(
    "training.cause",
    source="002",
    chapter="training",
    statement="Why the factor makes training worse is an open question.",
)
def cause(suspect: str = "baseline_larger", other: str = "note_smaller") -> Finding:
    """The variant `suspect` alone costs what the factor costs.

    A factor c on z is a start of W that is c times larger and a learning rate of W that is c times
    larger. "baseline_larger" has the first alone, "note_smaller" the second alone.
    """
    from attnlib.lab import comparison

    both, alone, rest = (harm("cause", variant) for variant in ("note", suspect, other))
    shares, others = (part.mean(axis=-1) / both.mean(axis=-1) for part in (alone, rest))
    answered = np.abs(shares - 1.0).max() < 0.25
    listed, listed_others = (
        ", ".join(f"{100 * share:.0f}" for share in part) for part in (shares, others)
    )
    return Finding(
        Verdict.NEEDS_A_CONDITION if answered else Verdict.OPEN,
        "Not in this small model; of large ones nothing is known here. The factor is a start of "
        "the projection W that is c times larger and a learning rate of W that is c times larger, "
        f"nothing else. At learning rates {_rates(recorded('cause'))} it costs "
        f"{_listed(comparison.interval(both))} nats a byte. The larger start alone costs {listed} "
        f"% of that, the larger rate alone {listed_others} %.",
    )

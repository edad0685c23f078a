"""Transformers that learn to find: the runs of length_recall.toml and length_induction.toml.

predictions/length.md has what was predicted of them. Chapter: length_extrapolation.
"""

from experiments import records
from experiments.lab.sweep import Outcome

LENGTHS = (64, 256, 1024, 4096)
FARTHEST = LENGTHS[-1]
BRIEF, LONG = 400, 2000


def outcomes() -> list[Outcome]:
    """Return the recorded runs of both tasks."""
    return [*records.runs("length_recall"), *records.runs("length_induction")]

"""Faults of attention found in public trackers, each rebuilt from its description, and mended.

All of it is written here, from what the threads say; nothing of theirs is copied. What was not in
a thread, such as a length or a configured number, is chosen small and said in `what`.
`python -m experiments.museum` records what each costs a trained model and what the audit says.
"""

from experiments.museum.exhibits import EXHIBITS, MULTIPLIERS, Exhibit

__all__ = ["EXHIBITS", "MULTIPLIERS", "Exhibit"]

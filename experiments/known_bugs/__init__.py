"""Faults of attention found in public trackers, each rebuilt from its description, and fixed.

All of it is written here, from what the threads say; nothing of theirs is copied. What was not in
a thread, such as a length or a configured number, is chosen small and said in `what`.
`python -m experiments.known_bugs` records what each costs a trained model and what the audit says.
"""

from experiments.known_bugs.bugs import BUGS, MULTIPLIERS, Bug

__all__ = ["BUGS", "MULTIPLIERS", "Bug"]

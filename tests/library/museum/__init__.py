"""Faults of attention found in public trackers, each rebuilt from its description, and mended.

All of it is written here, from what the threads say; nothing of theirs is copied. What was not in
a thread, such as a length or a configured number, is chosen small and said in `what`.
"""

from tests.library.museum import laws, masks, multipliers, softmaxes
from tests.library.museum.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *multipliers.EXHIBITS,
    *laws.EXHIBITS,
    *masks.EXHIBITS,
    *softmaxes.EXHIBITS,
)

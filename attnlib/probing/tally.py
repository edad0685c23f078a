"""What a report keeps of the rows of one module: sums of all, and all rows or a random sample.

Sums are in double precision. Memory is bounded by the rows that are kept, not by those measured. A
sample rather than a sketch of quantiles: it is short, merges, and has every column of a row.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnlib import freezing
from attnlib.checking import FloatArray
from attnlib.probing.measure import Measured, Rows, TargetRows

FIELDS = (*Rows._fields, *TargetRows._fields)
"""What is kept of a row, in single precision: 56 bytes."""

SUMMED = (
    *FIELDS,
    *("rows", "targets", "complement", "alpha_to_critical", "wide", "value_variance"),
)
"""What is summed over the rows, `target…` over those with a target."""


PARTS = 256
"""So many calls are kept apart before they are put together."""

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass
class Tally:
    """The rows of the heads of a module; those that see fewer than two keys are in no sum."""

    scale: float
    sums: FloatArray  # (SUMMED, heads)
    largest_logit: FloatArray  # (heads,)
    lengths: NDArray[np.int64]  # how many rows see so many keys: (heads, n), (1, n) if all alike
    sequences: int = 0  # how many there were, before the last call, and with it
    before: int = 0
    padding: int = 0
    parts: list[Part] = field(default_factory=list)
    """Values, (FIELDS, heads, rows), and sequence and position, (2, rows)."""

    @classmethod
    def empty(cls, heads: int) -> "Tally":
        """Return a tally of no rows."""
        sums, largest = np.zeros((len(SUMMED), heads)), np.full(heads, -np.inf)
        return cls(np.nan, sums, largest, np.zeros((1, 2), np.int64))

    @np.errstate(invalid="ignore", over="ignore")  # of a model that computes infinity
    def add(self, measured: Measured) -> None:
        """Add the rows of a call; all of them are kept."""
        values = np.full((len(FIELDS), *measured.rows.keys.shape), np.nan, np.float32)
        values[: len(Rows._fields)] = measured.rows
        if measured.targets is not None:
            values[len(Rows._fields) :] = measured.targets
        keys, variance = values[0], measured.value_variance[..., None]
        counted = keys >= 2.0
        known = counted & ~np.isnan(values[FIELDS.index("target_weight")])
        for i, name in enumerate(SUMMED):
            among = known if name.startswith("target") else counted
            column = _column(name, values, variance)
            self.sums[i] += np.where(among, column, 0.0).sum(axis=(0, 2))
        logits = np.where(counted, values[FIELDS.index("largest_logit")], -np.inf)
        self.largest_logit = np.maximum(self.largest_logit, logits.max(axis=(0, 2)))

        numbers = np.where(counted, keys, 0.0).astype(np.int64).swapaxes(0, 1)
        if (numbers == numbers[:1]).all():
            numbers = numbers[:1]
        longest = int(numbers.max()) + 1
        counts = [np.bincount(head.ravel(), minlength=longest) for head in numbers]
        self.lengths = _added(self.lengths, np.array(counts))

        # The steps of one generation are of the same sequences.
        if not measured.past or self.sequences - self.before != measured.batch:
            self.before, self.sequences = self.sequences, self.sequences + measured.batch
        sequence = (measured.sequence + self.before)[:, None]
        place = np.stack(np.broadcast_arrays(sequence, measured.position), axis=-1)
        some = counted.any(axis=1)
        if len(self.parts) >= PARTS:
            self.kept()
        self.parts.append((values.swapaxes(1, 2)[:, :, some], place[some].T))
        self.padding += measured.padding
        self.scale = measured.scale

    def thin(self, share: float, rng: np.random.Generator, parts: slice = slice(None)) -> None:
        """Keep this share of the rows, drawn at random, those of all heads together."""
        for i, (values, place) in list(enumerate(self.parts))[parts]:
            drawn = rng.random(place.shape[1]) < share
            self.parts[i] = values[:, :, drawn], place[:, drawn]

    def merge(self, other: "Tally") -> None:
        """Add what another has kept; its sequences come after those here."""
        shift = np.array([[self.sequences], [0]])
        self.parts += [(values, place + shift) for values, place in other.parts]
        self.before = self.sequences + other.before
        self.sequences += other.sequences
        self.sums = self.sums + other.sums
        self.largest_logit = np.maximum(self.largest_logit, other.largest_logit)
        self.lengths = _added(self.lengths, other.lengths)
        self.padding += other.padding
        self.scale = other.scale

    def kept(self) -> Part:
        """Return the rows that are kept, all in one."""
        if len(self.parts) != 1:
            values = [part[0] for part in self.parts]
            places = [part[1] for part in self.parts]
            self.parts = [(np.concatenate(values, axis=2), np.concatenate(places, axis=1))]
        return self.parts[0]

    def __len__(self) -> int:
        """Return how many rows are kept, of all heads."""
        return len(self.largest_logit) * sum(len(place[0]) for _, place in self.parts)


def _column(name: str, values: NDArray[np.float32], variance: FloatArray) -> FloatArray:
    """Return what is summed over the rows."""

    def of(field: str) -> FloatArray:
        column: FloatArray = values[FIELDS.index(field)].astype(np.float64)
        return column

    if name in FIELDS:
        return of(name)
    if name in ("rows", "targets"):
        return np.ones(values.shape[1:])
    if name == "complement":
        return np.exp(of("log_complement"))
    if name == "value_variance":
        return variance
    relative = np.sqrt(of("variance")) / freezing.critical_alpha(of("keys").clip(min=2.0))
    return relative if name == "alpha_to_critical" else (relative >= 1.0).astype(np.float64)


def _added(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of two counts by length."""
    longest = max(ours.shape[1], theirs.shape[1])
    ours, theirs = (np.pad(one, ((0, 0), (0, longest - one.shape[1]))) for one in (ours, theirs))
    return ours + theirs

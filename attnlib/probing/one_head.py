"""One head of a report, in words and as a figure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnlib.checking import FloatArray
from attnlib.probing import figures, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OneHead:
    """One head: all that is measured of it when printed, its rows when drawn.

    Chapter: probe.
    """

    def __init__(self, line: summary.Line, rows: Mapping[str, FloatArray]) -> None:
        self.line = line
        """Its line of `Report.table`."""
        self._rows = rows

    def plot(self) -> "Figure":
        """Return a figure: spread and entropy of its rows, by the number of keys that they see.

        Where all rows see as many keys, by position. Beside them where rows freeze, and the entropy
        of random scores at the head's α. ValueError if no row sees two keys, or one is not finite.
        """
        if not all(values.size and np.isfinite(values).all() for values in self._rows.values()):
            raise ValueError(
                f"head {self.line['head']} of {self.line['layer']} must have finite rows of two "
                "keys or more to be drawn"
            )
        return figures.head(self.line, self._rows)

    def __repr__(self) -> str:
        return summary.one_head(self.line)

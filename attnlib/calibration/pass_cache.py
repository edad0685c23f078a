"""Keep finished passes in a file, so that a run that was killed goes on where it stopped."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from attnlib import _files
from attnlib._checking import FloatArray

Objective = tuple[float, FloatArray]
"""A loss, and its gradient in the parameters of a fit."""


@dataclass
class Cache:
    """Keep losses and gradients in a file, a line for each, under a digest of their arguments.

    - `path`: the file. Without a path nothing is kept.

    A line that was cut off is ignored, and its pass is computed again.
    """

    path: Path | None = None
    _known: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._known = dict(_files.lines(self.path)) if self.path else {}

    def get_or_compute(self, compute: Callable[[], Objective], *about: Any) -> Objective:
        """Return the loss and gradient kept under `about`, or compute and keep them."""
        if self.path is None:
            return compute()
        key = digest(*about)
        if key not in self._known:
            loss, gradient = compute()
            self._known[key] = [loss, gradient.tolist()]
            _files.append(self.path, [key, self._known[key]])
        loss, gradient = self._known[key]
        return loss, np.array(gradient, dtype=float)


def digest(*parts: Any) -> str:
    """Return a hash, 24 hexadecimal digits, of tensors, arrays and the repr of the rest."""
    hasher = hashlib.sha256()
    for part in parts:
        array = part.cpu().numpy() if isinstance(part, Tensor) else part
        hasher.update(array.tobytes() if isinstance(array, np.ndarray) else repr(array).encode())
    return hasher.hexdigest()[:24]

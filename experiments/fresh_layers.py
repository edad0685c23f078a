"""What tokens of a fresh layer have in common: `experiments.starts` measured them.

Chapter: almost_scaled.
"""

from typing import Any

TOKENS = 512
"""Of the fresh GPT-2 that is measured by depth."""


def common(layer: dict[str, Any]) -> float:
    """Return ϱ: the share of the values' mean square that all tokens of a layer have in common."""
    return max(TOKENS * float(layer["mean"]["value"]) ** 2 - 1.0, 0.0) / (TOKENS - 1)

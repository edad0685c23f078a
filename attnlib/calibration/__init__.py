"""Measure whether a trained model's own loss falls with another scale, and fit that scale.

- `scale_gradient` measures ∂L/∂log t of every head, for logits times t; `from_gradients` computes
  it from the gradients of a model's weights.
- `fit_scales` fits factors t, `ScaleFit.apply` puts them into the model.
- `needles` measures heads at the key that each query is intended to find.

Chapter: calibration.
"""

from attnlib.calibration.fit import ScaleFit, fit_scales
from attnlib.calibration.from_gradients import from_gradients
from attnlib.calibration.gradient import ScaleGradient, scale_gradient
from attnlib.calibration.needles import Needles, needles, repeated_tokens

__all__ = [
    "Needles",
    "ScaleFit",
    "ScaleGradient",
    "fit_scales",
    "from_gradients",
    "needles",
    "repeated_tokens",
    "scale_gradient",
]

"""Which scale does a trained model want? Its own loss says: for every head, at every length.

Chapter: calibration.
"""

from attnlib.calibration.fit import ScaleFit, fit_scales
from attnlib.calibration.gradient import ScaleGradient, scale_gradient
from attnlib.calibration.needles import Needles, needles, repeated_tokens
from attnlib.calibration.weights import from_gradients

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

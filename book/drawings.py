"""Draw the figures that no chapter draws: for the README and the cover, and for the front page.

They are committed: `python -m book.drawings` draws them again, and a test compares.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from attnlib import annealed, exact, freezing, retrieval, typical
from attnlib._files import replace
from attnlib.scores import Normal
from book import style

STATIC = Path(__file__).parent / "static"


def three_answers() -> Figure:
    """Return the figure of the README and the cover: "maximise the gradient", n = 512.

    The gradient α(1 − Σp²) of a row of normal scores, against α: the approximation
    α(1 − e^{α²}/n), the exact mean, and the geometric mean over 8000 simulated rows.
    """
    drawing, axes = style.figure("α (the Transformer's 1/√d is α = 1)", "gradient α(1 − Σp²)")
    law, alpha, n = Normal(), np.linspace(0.02, 9.0, 100), 512
    approximation = annealed.gradient(law, alpha, n)
    near = approximation > -0.3
    axes.plot(alpha[near], approximation[near], "--", color=style.VERMILLION)
    axes.plot(alpha, exact.gradient(law, alpha, n), "-", color=style.BLUE)
    axes.plot(alpha, typical.gradient(law, alpha, n, rows=8000).value, "-.", color=style.GREEN)
    axes.axvline(1.0, color=style.GREY, linewidth=1.0, linestyle=":")
    axes.set(xlim=(0, 9), ylim=(0, 3.4))
    axes.text(2.6, 0.3, "approximation:\nbest α near 2", color=style.VERMILLION)
    axes.text(8.9, 3.12, "mean of all rows: no best α", color=style.BLUE, ha="right")
    axes.text(4.4, 1.45, "typical row:\nanother best α", color=style.GREEN)
    return drawing


LONG_GAP, LONG_STRENGTH = 12.0, 4.0
"""Of the key far above the noise, and of the one whose scale is learned."""


def door_long() -> Figure:
    """Return a figure of the best scales of three keys against n: log n, √log n, and constant."""
    drawing, axes = style.figure("number of keys n", "α")
    drawing.set_size_inches(4.2, 2.7)  # it stands beside text
    n = np.geomspace(10.0, 1e7, 61)
    reach = n[n <= np.exp(LONG_STRENGTH**2 / 2.0)]
    axes.plot(n, freezing.critical_alpha(n), "--", color=style.VERMILLION)
    axes.plot(reach, np.full(reach.size, LONG_STRENGTH), "-", color=style.BLUE)
    axes.plot(reach[-1], LONG_STRENGTH, "|", color=style.BLUE, markersize=10)
    axes.plot(n, retrieval.least_alpha(LONG_GAP, n), "-.", color=style.GREEN)
    axes.set_xscale("log")
    axes.set(xlim=(10, 1e7), ylim=(0, 6.2))
    axes.text(12.0, 4.2, "strength 4", color=style.BLUE)
    axes.text(8e6, 3.9, "√log n:\njust above noise", color=style.VERMILLION, ha="right")
    axes.text(8e6, 1.7, "log n: far above noise", color=style.GREEN, ha="right")
    return drawing


def drawings() -> dict[str, str]:
    """Return the drawings by file names; the first is shown where pages are white."""
    style.set_style()
    return {
        "three-answers-on-white.svg": style.svg(three_answers(), "white"),
        "door-long.svg": style.svg(door_long()),
    }


if __name__ == "__main__":
    for name, text in drawings().items():
        replace(STATIC / name, text.encode("utf-8"))

"""Draw what no chapter draws: the front page's figures, and the stills of live ones.

Each build writes them to static/, but for the README's, which is shown without one: it is
committed, `make figures` draws it again, and a test compares.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from attnlib import freezing, retrieval
from attnlib.files import replace
from book import stills, style

STATIC = Path(__file__).parent.parent / "static"


def three_answers() -> Figure:
    """Return the figure of the README and the cover: "maximise the gradient", n = 512.

    The gradient α(1 − Σp²) of a row of normal scores, against α: the approximation
    α(1 − e^{α²}/n), the exact mean, and the geometric mean over 8000 simulated rows.
    """
    style.set_style()
    drawing, axes = style.figure("α (the Transformer's 1/√d is α = 1)", "gradient α(1 − Σp²)")
    stills.averages(axes, np.linspace(0.02, 9.0, 100), 512, simulated=8000)
    axes.axvline(1.0, color=style.GREY, linewidth=1.0, linestyle=":")
    axes.set(xlim=(0, 9), ylim=(0, 3.4))
    axes.text(2.6, 0.3, "approximation:\nbest α near 2", color=style.VERMILLION)
    axes.text(8.9, 3.12, "mean of all rows: no best α", color=style.BLUE, ha="right")
    axes.text(4.4, 1.45, "typical row:\nanother best α", color=style.GREEN)
    return drawing


LONG_GAP, LONG_STRENGTH = 12.0, 4.0
"""Of the key far above the noise, and of the one whose scale is learned."""


def door_long() -> Figure:
    """Return the scale of three keys against n: log n, √log n, and none of both."""
    style.set_style()
    drawing, axes = style.figure("number of keys n", "α")
    drawing.set_size_inches(4.2, 2.7)  # it stands beside text
    n = np.geomspace(10.0, 1e7, 61)
    found = n[n <= np.exp(LONG_STRENGTH**2 / 2.0)]
    axes.plot(n, freezing.critical_alpha(n), "--", color=style.VERMILLION)
    axes.plot(found, np.full(found.size, LONG_STRENGTH), "-", color=style.BLUE)
    axes.plot(found[-1], LONG_STRENGTH, "|", color=style.BLUE, markersize=10)
    axes.plot(n, retrieval.least_alpha(LONG_GAP, n), "-.", color=style.GREEN)
    axes.set_xscale("log")
    axes.set(xlim=(10, 1e7), ylim=(0, 6.2))
    axes.text(12.0, 4.2, "none: strength 4", color=style.BLUE)
    axes.text(8e6, 3.9, "√log n:\njust above noise", color=style.VERMILLION, ha="right")
    axes.text(8e6, 1.7, "log n: far above noise", color=style.GREEN, ha="right")
    return drawing


def committed() -> dict[str, str]:
    """Return what the README shows, by its file name."""
    return {"three-answers-on-white.svg": style.svg(three_answers(), "white")}


def built() -> dict[str, str]:
    """Return the other drawings, which each build makes, by file names."""
    return {
        "three-answers.svg": style.svg(three_answers()),
        "door-long.svg": style.svg(door_long()),
        **{name: style.svg(drawing) for name, drawing in stills.figures().items()},
    }


def write(drawings: dict[str, str]) -> None:
    """Write the drawings that are not there as they are given."""
    for name, text in drawings.items():
        path, drawn = STATIC / name, text.encode("utf-8")
        if not path.exists() or path.read_bytes() != drawn:
            replace(path, drawn)


if __name__ == "__main__":
    write({**committed(), **built()})

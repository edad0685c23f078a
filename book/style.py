"""One style for every figure of the book, and its colours."""

import io
import re
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from IPython import get_ipython
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE = "#152c88"
VERMILLION = "#a03d10"
GREEN = "#28826c"
PURPLE = "#914dd2"
INK = "#222222"
GREY = "#6e6e6e"

LONG_DASHES = (0, (9, 2))
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, INK)
"""Any two are 20 or more apart in CAM02-UCS, also without one of the three kinds of cones, and each
has a contrast of 4.5:1 on white; in grey, lines also differ in dashes. Dark pages invert the
lightness of a figure and keep its hues (book/static/book.css)."""

STYLE: Any = {
    "axes.prop_cycle": cycler(color=PALETTE)
    + cycler(linestyle=["-", "--", "-.", ":", LONG_DASHES]),
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "figure.figsize": (5.4, 3.6),
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 11.0,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "the scale of attention",
}
"""5.4 inches at 11 points: a phone, 360 pixels wide, still shows letters of 10 pixels."""

SVG_METADATA = {"Date": None, "Creator": None}
"""What a saved figure must not carry: it would differ with every run and version."""


def set_style() -> None:
    """Set the style of every figure that follows; in a notebook, draw figures as SVG."""
    mpl.rcdefaults()
    mpl.rcParams.update(STYLE)
    if get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")
        formatters = get_ipython().display_formatter.formatters
        formatters["image/svg+xml"].for_type(Figure, svg)


def svg(drawing: Figure, background: str = "none") -> str:
    """Return `drawing` as SVG, the same bytes every time."""
    text = io.StringIO()
    drawing.savefig(text, format="svg", metadata=SVG_METADATA, facecolor=background)
    return compact(text.getvalue())


def compact(svg: str) -> str:
    """Return a drawing without what nobody sees: metadata, line breaks, thousandths of a point."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", re.sub(r">\s+<", "><", svg)).strip() + "\n"
    return PLACES.sub(lambda match: DECIMALS.sub(_rounded, match[0]), svg)


PLACES = re.compile(r' (?:d|points|[xy][12]?|cx|cy|width|height)="[^"]*"|translate\([^)]*\)')
DECIMALS = re.compile(r"-?\d+\.\d{3,}(?!\d*e)")


def _rounded(number: re.Match[str]) -> str:
    """Return a number with two decimals at most, as text."""
    return f"{round(float(number[0]), 2) + 0.0:.7g}"  # − 0 is 0


def figure(xlabel: str, ylabel: str, *, height: float = 3.6, panels: int = 1) -> tuple[Figure, Any]:
    """Return a figure and its Axes, or with several `panels` the list of their Axes.

    The panels stand one below the other and share their x axis. The labels go on every y axis and
    on the lowest x axis. `height` is in inches, for the whole.
    """
    drawing, axes = plt.subplots(panels, 1, figsize=(5.4, height), sharex=True, squeeze=False)
    column: list[Axes] = list(axes[:, 0])
    for panel in column:
        panel.set_ylabel(ylabel)
    column[-1].set_xlabel(xlabel)
    return drawing, column[0] if panels == 1 else column


MANY_CURVES = 12


def readings(*panels: Axes, at: Iterable[float] = ()) -> None:
    """Print the points at which each curve begins, ends, is highest and is lowest.

    The text that stands in place of the picture is compared with them. `at` lists further
    abscissae. Of more than MANY_CURVES curves, only those with a label are read.
    """
    for panel in panels:
        curves = panel.get_lines()
        for index, curve in enumerate(curves):
            x, y = (np.asarray(values, float) for values in curve.get_data())
            label = str(curve.get_label())
            if label.startswith("_"):
                label = f"curve {index}"
                if len(curves) > MANY_CURVES:
                    continue
            order = np.argsort(x)
            ends = {"begins": order[0], "ends": order[-1]}
            # Of values that are equal but for rounding the first is the highest.
            rounded = np.array([float(f"{number:.6g}") for number in y])
            ends |= {"highest": np.nanargmax(rounded), "lowest": np.nanargmin(rounded)}
            places = [f"{name} ({x[i]:.4g}, {y[i]:.3g})" for name, i in ends.items()]
            places += [f"({x0:g}, {np.interp(x0, x[order], y[order]):.3g})" for x0 in at]
            print(f"{label}: {', '.join(places)}")

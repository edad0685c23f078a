"""What only the book needs: one figure style, values glued into the text, and the claim box.

Every chapter starts with `book.set_style()`. Needs the `book` and `claims` extras.
"""

from contextlib import suppress
from html import escape
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler
from IPython import get_ipython
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlib import claims

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
lightness of a figure and keep its hues (static/book.css)."""

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

        set_matplotlib_formats("svg", metadata=SVG_METADATA, bbox_inches=None)


def figure(xlabel: str, ylabel: str, *, height: float = 3.6, panels: int = 1) -> tuple[Figure, Any]:
    """Return a figure and its axes: `panels` of them, one below the other, sharing their x axis.

    The labels go on every y axis and on the lowest x axis. `height` is in inches, for the whole.
    """
    drawing, axes = plt.subplots(panels, 1, figsize=(5.4, height), sharex=True, squeeze=False)
    column: list[Axes] = list(axes[:, 0])
    for panel in column:
        panel.set_ylabel(ylabel)
    column[-1].set_xlabel(xlabel)
    return drawing, column[0] if panels == 1 else column


def glue(name: str, value: float | str, spec: str = "") -> None:
    """Print `name = value` and make the value available to the text as {glue:text}`name`.

    `value` is formatted with `spec`, as by format(). Outside the book, without myst_nb, it is only
    printed.

    >>> glue("half", 0.5, ".2f")
    half = 0.50
    """
    text = format(value, spec)
    print(f"{name} = {text}")
    if get_ipython() is None:
        return
    with suppress(ImportError):
        from myst_nb import glue as paste

        paste(name, text, display=False)


def claim_box(*identifiers: str) -> None:
    """Check the claims with these ids and show each: statement, verdict, evidence.

    A verdict is what the check returns when the cell runs. Raises KeyError for an unknown id.
    """
    for identifier in identifiers:
        display(ClaimBox(claims.check(identifier)))  # type: ignore[no-untyped-call]


def ledger(outcomes: list[claims.Outcome], source: str) -> None:
    """Show the checked claims of one source as boxes, each with a link to its chapter.

    Raises ValueError for a source that has no claim among them.
    """
    chosen = [outcome for outcome in outcomes if outcome.source == source]
    if not chosen:
        raise ValueError(f"source must be one that has claims, got source={source!r}")
    for outcome in chosen:
        display(ClaimBox(outcome, linked=True))  # type: ignore[no-untyped-call]


class ClaimBox:
    """A checked claim, shown as a box in a notebook and as text elsewhere."""

    def __init__(self, outcome: claims.Outcome, *, linked: bool = False) -> None:
        self.outcome = outcome
        self.linked = linked

    def __repr__(self) -> str:
        o = self.outcome
        return f"{o.id} — {o.verdict}\n  Claim: {o.statement}\n  Check: {o.evidence}"

    def _repr_html_(self) -> str:
        o = self.outcome
        kind = o.verdict.replace(" ", "-")
        page = f"{o.chapter}.html#claim-{escape(o.id)}"
        link = f' <a href="{page}">In chapter {escape(o.chapter)}.</a>' if self.linked else ""
        return (
            f'<div class="claim claim-{kind}" id="claim-{escape(o.id)}">'
            f'<p class="claim-title"><strong>{escape(o.verdict)}</strong> '
            f"<code>{escape(o.id)}</code></p>"
            f"<p>{escape(o.statement)}</p>"
            f'<p class="claim-evidence">{escape(o.evidence)}{link}</p></div>'
        )

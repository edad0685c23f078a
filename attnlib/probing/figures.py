"""The figure of a report: a picture of its heads against random scores."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlib.extras import brought_by
from attnlib.probing.summary import (
    SINK,
    WIDE,
    WIDTH,
    Line,
    has_sink,
    is_wide,
    layer_name,
    log_ratio,
    number,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERED = 16
"""In a picture of at most so many heads a layer there is room for numbers."""

NAMED = 40
"""Of more layers than these not every one is named."""

COLOURS = 21
"""In a picture, fewer than what Matplotlib would make a bitmap of; the middle one is neutral."""

LUMINANCE = (0.2126, 0.7152, 0.0722)
"""Of red, green and blue light."""

MARKS = {
    "o": (-0.34, has_sink, f"sink: the first key has {SINK:.0%} of the weight or more"),
    "^": (0.34, is_wide, f"wide: {WIDE:.0%} of the rows or more spread beyond √(2 log n)"),
}
"""Where a mark stands in its square, which heads have it, and what it means."""


def heads(lines: Sequence[Line]) -> "Figure":
    """Return a picture of all heads, layers down: 1/Y, and in colour how far it is from random.

    Colours are centred on random scores of the head's spread: orange has fewer keys, violet more;
    without theory, on even weights. Marks are sinks and wide heads. Of layers with few heads the
    rest stays empty.
    """
    with brought_by("book"):
        import matplotlib.pyplot as plt
        from matplotlib.lines import Line2D
        from matplotlib.ticker import FuncFormatter, MaxNLocator

    layers: list[list[Line]] = []
    for line in lines:  # one place may have been called with several numbers of heads
        if not layers or line["head"] == 0:
            layers.append([])
        layers[-1].append(line)
    columns = max(map(len, layers))
    ratios = np.full((len(layers), columns), np.nan)
    for ratio, layer in zip(ratios, layers, strict=True):
        ratio[: len(layer)] = [log_ratio(line) / np.log(2.0) for line in layer]
    limit = max(1.0, np.abs(ratios[np.isfinite(ratios)]).max(initial=0.0))

    size = max(5.4, 0.4 * min(columns, 30) + 2.0), min(1.9 + 0.34 * len(layers), 16.0)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    edges = np.arange(columns + 1) - 0.5, np.arange(len(layers) + 1) - 0.5
    colours = plt.get_cmap("PuOr", COLOURS)
    image = axes.pcolormesh(
        *edges, ratios, cmap=colours, vmin=-limit, vmax=limit, edgecolors="face"
    )
    _fill(axes, layers, image.to_rgba(ratios)[..., :3], columns)
    names, pattern = _names([layer_name(layer[0]) for layer in layers])
    step = -(-len(names) // NAMED)
    axes.set_yticks(range(0, len(names), step), names[::step])
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.tick_params(length=0)
    axes.set(xlabel="head", ylabel=pattern)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(layers) - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    axes.set_title("Keys 1/Y that share a head's weight", size="medium")
    known = any(np.isfinite(line["random_effective_keys"]) for line in lines)
    bar = figure.colorbar(image, label=f"measured / {'random scores' if known else 'all keys'}")
    bar.locator = MaxNLocator(5, integer=True)
    bar.formatter = FuncFormatter(lambda power, _: f"{2.0**power:.3g}")
    bar.update_ticks()
    bar.outline.set_visible(False)
    marks = [
        Line2D([], [], marker=mark, linestyle="", color="black", markersize=3.5, label=label)
        for mark, (*_, label) in MARKS.items()
    ]
    figure.legend(handles=marks, loc="outside lower center", fontsize="medium", frameon=False)
    return figure


def _fill(axes: Any, layers: list[list[Line]], colours: NDArray[Any], columns: int) -> None:
    """Write the number of keys into each square, where there is room, and its marks."""
    letters = "medium" if columns <= NUMBERED // 2 else "x-small"
    dark = colours**2.2 @ LUMINANCE < 0.18
    for i, layer in enumerate(layers):
        for j, line in enumerate(layer):
            known = np.isfinite(log_ratio(line))
            ink = "white" if dark[i, j] and known else "black"
            if columns <= NUMBERED or not known:
                keys = number(line["effective_keys"])
                axes.text(j, i, keys, color=ink, size=letters, ha="center", va="center")
            for mark, (side, has_it, _) in MARKS.items():
                if has_it(line):
                    axes.plot(j + side, i, mark, color=ink, markersize=3.5)


def _names(names: list[str]) -> tuple[list[str], str]:
    """Return what tells the layers apart, and the pattern of their names, such as h.*.attn."""
    parts = [name.split(".") for name in names]
    first, last = _alike(parts), _alike([part[::-1] for part in parts])
    apart = [".".join(part[first : len(part) - last]) for part in parts]
    if not all(apart):  # one layer, or one within another
        return [short(name, WIDTH) for name in names], "layer"
    end = len(parts[0]) - last
    pattern = ".".join([*parts[0][:first], "*", *parts[0][end:]])
    return [short(name, WIDTH) for name in apart], "layer" if pattern == "*" else f"layer {pattern}"


def _alike(parts: list[list[str]]) -> int:
    """Return how many parts of the names are the same in all, from the first on."""
    return len(list(takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))))

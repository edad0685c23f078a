"""The figure of a report: what stands where, in which colour, under which name."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from attnlib.probing import DEFINITIONS, figures

HEAD = {
    **dict.fromkeys(DEFINITIONS, 0.0),
    **{"layer": "h.0.attn", "rows": 50, "keys": 64.0, "alpha": 1.0, "critical_alpha": 3.0},
    **{"effective_keys": 8.0, "random_effective_keys": 8.0, "head": 0, "call": 0},
}


def grid(*layers):
    """Return the lines of heads with so many keys, layer by layer."""
    return [
        {**HEAD, "layer": f"h.{i}.attn", "head": j, "effective_keys": keys}
        for i, layer in enumerate(layers)
        for j, keys in enumerate(layer)
    ]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(figure):
    """Return the axes of a picture, its colours as powers of two, and what is written in it."""
    axes = figure.axes[0]
    return (
        axes,
        np.ma.filled(axes.collections[0].get_array(), math.nan),
        {text.get_position(): text.get_text() for text in axes.texts},
    )


def test_a_picture_has_layers_down_and_heads_across():
    figure = figures.heads(grid([8.0, 16.0, 4.0], [2.0, 8.0]))
    axes, colours, written = drawn(figure)
    np.testing.assert_allclose(colours, [[0, 1, -1], [-2, 0, np.nan]], atol=1e-12)
    assert written == {
        **{(0, 0): "8.0", (1, 0): "16.0", (2, 0): "4.0"},
        **{(0, 1): "2.0", (1, 1): "8.0"},
    }
    assert axes.get_ylim() == (1.5, -0.5)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    assert axes.get_ylabel() == "layer h.*.attn"
    assert axes.get_xlabel() == "head"
    assert "1/Y" in axes.get_title()


def test_what_is_written_stands_out_from_its_square():
    figure = figures.heads(grid([8.0, 512.0, math.nan]))
    assert [text.get_color() for text in figure.axes[0].texts] == ["black", "white", "black"]


def test_sinks_and_wide_heads_are_marked_and_explained():
    lines = grid([8.0, 8.0], [8.0, 8.0])
    lines[1] |= {"first_weight": 0.3}
    lines[2] |= {"wide": 0.5}
    figure = figures.heads(lines)
    marks = {line.get_marker(): line.get_xydata().tolist() for line in figure.axes[0].lines}
    assert {mark: np.round(place).tolist() for mark, place in marks.items()} == {
        "o": [[1, 0]],
        "^": [[0, 1]],
    }
    (legend,) = figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()] == ["sink", "wide"]
    assert [line.get_marker() for line in legend.get_lines()] == ["o", "^"]

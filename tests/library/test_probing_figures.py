"""The figures of a report: what stands where, in which colour, under which name."""

import io
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from attnlib import exact, freezing
from attnlib.probing import DEFINITIONS, figures, probe
from attnlib.probing.one_head import OneHead
from attnlib.scores import DotProduct
from tests.library import foreign
from tests.library.test_probing import Caller, draw

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
    axes, colours, written = drawn(figures.heads(grid([8.0, 16.0, 4.0], [2.0, 8.0])))
    np.testing.assert_allclose(colours, [[0, 1, -1], [-2, 0, np.nan]], atol=1e-12)
    assert written == {
        **{(0, 0): "8.0", (1, 0): "16.0", (2, 0): "4.0"},
        **{(0, 1): "2.0", (1, 1): "8.0"},
    }
    assert axes.get_xlim() == (-0.5, 2.5)
    assert axes.get_ylim() == (1.5, -0.5)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    assert axes.get_ylabel() == "layer h.*.attn"
    assert axes.get_xlabel() == "head"
    assert "1/Y" in axes.get_title()


def test_colours_are_centred_on_random_scores():
    image = figures.heads(grid([8.0, 2.0])).axes[0].collections[0]
    assert (image.norm.vmin, image.norm.vmax) == (-2.0, 2.0)
    assert min(to_rgb(image.cmap(image.norm(0.0))[:3])) > 0.95  # white, or black in the dark
    fewer, more = (image.cmap(image.norm(power)) for power in (-1.5, 1.5))
    assert fewer[0] > fewer[2]  # orange
    assert more[2] > more[0]  # violet
    usual = figures.heads(grid([8.0, 8.1])).axes[0].collections[0]
    assert (usual.norm.vmin, usual.norm.vmax) == (-1.0, 1.0)  # a trifle is not shown as much


def test_the_bar_says_how_many_times_random_scores():
    figure = figures.heads(grid([8.0, 2.0]))
    figure.draw_without_rendering()
    bar = figure.axes[1]
    assert bar.get_ylabel() == "measured / random scores"
    labels = {
        tick: text.get_text()
        for tick, text in zip(bar.get_yticks(), bar.get_yticklabels(), strict=True)
    }
    assert labels[-2.0] == "0.25"
    assert labels[0.0] == "1"


def test_without_theory_colours_are_relative_to_all_keys():
    lines = [{**line, "random_effective_keys": math.nan} for line in grid([64.0, 16.0])]
    figure = figures.heads(lines)
    np.testing.assert_allclose(drawn(figure)[1], [[0, -2]])
    assert figure.axes[1].get_ylabel() == "measured / all keys"


def test_sinks_and_wide_heads_are_marked_and_explained():
    lines = grid([8.0, 8.0], [8.0, 8.0])
    lines[1] |= {"first_weight": 0.3}
    lines[2] |= {"wide": 0.5}
    figure = figures.heads(lines)
    marks = {line.get_marker(): line.get_xydata().tolist() for line in figure.axes[0].lines}
    assert marks.keys() == {"o", "^"}
    (sink,), (wide,) = marks["o"], marks["^"]
    assert np.round(sink).tolist() == [1, 0]
    assert np.round(wide).tolist() == [0, 1]
    (legend,) = figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()] == ["sink", "wide"]
    assert [line.get_marker() for line in legend.get_lines()] == ["o", "^"]


def test_what_is_written_can_be_read_on_its_colour():
    axes, colours, _ = drawn(figures.heads(grid(np.geomspace(1.0, 64.0, 13))))
    image = axes.collections[0]

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for text in axes.texts:
        column, row = text.get_position()
        inks = sorted(
            map(luminance, (to_rgb(text.get_color()), image.to_rgba(colours[row, column])[:3]))
        )
        assert (inks[1] + 0.05) / (inks[0] + 0.05) >= 4.5, text.get_text()


def test_heads_without_numbers_are_a_dash():
    _, colours, written = drawn(figures.heads(grid([math.nan, 8.0], [math.inf, 200.4])))
    assert np.isnan(colours).tolist() == [[True, False], [True, False]]
    assert written == {(0, 0): "–", (1, 0): "8.0", (0, 1): "–", (1, 1): "200"}
    figures.heads([{**line, "rows": 0} for line in grid([math.nan])])


def test_a_picture_is_drawn_without_bitmaps():
    content = io.StringIO()
    figures.heads(grid([8.0, 2.0], [16.0])).savefig(content, format="svg")
    assert "<path" in content.getvalue()
    assert "<image" not in content.getvalue()


def test_a_large_model_fits_a_page():
    figure = figures.heads(grid(*[[8.0] * 64] * 100))
    width, height = figure.get_size_inches()
    assert max(width, height) <= 16.0
    axes = figure.axes[0]
    assert not axes.texts
    assert len(axes.get_yticks()) <= figures.NAMED
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["0", "3"]


@pytest.mark.parametrize(
    ("names", "shown", "pattern"),
    [
        (["h.0.attn", "h.1.attn"], ["0", "1"], "layer h.*.attn"),
        (["attn"], ["attn"], "layer"),
        (["a", "b"], ["a", "b"], "layer"),
        (["a.attn", "a.attn.b"], ["a.attn", "a.attn.b"], "layer"),
        (["e.0.self", "d.0.self", "d.0.cross"], ["e.0.self", "d.0.self", "d.0.cross"], "layer"),
        (["x.attn", "x.attn 1"], ["attn", "attn 1"], "layer x.*"),
    ],
)
def test_a_name_is_what_tells_layers_apart(names, shown, pattern):
    assert figures._names(names) == (shown, pattern)


def test_a_report_draws_the_heads_of_a_model():
    model, run = foreign.MODELS["Llama, grouped queries"]()
    with probe(model) as report:
        run()
    table = report.table()
    expected = np.log2(table["effective_keys"] / table["random_effective_keys"])
    colours = drawn(report.plot("heads"))[1]
    np.testing.assert_allclose(colours.ravel(), expected)
    assert report.plot().axes[0].get_ylabel() == "keys 1/Y"
    with pytest.raises(ValueError, match="kind must be one of 'spread', 'heads', got kind='head'"):
        report.plot("head")


# --- one head -----------------------------------------------------------------------------------


def curves(figure):
    return [
        {line.get_label().split(",")[0]: line.get_xydata() for line in panel.lines}
        for panel in figure.axes
    ]


def test_a_heads_rows_are_drawn_by_the_keys_that_they_see():
    model = Caller()
    q, k, v = (draw(3, 2, 9, 16, seed=i) for i in range(3))
    with probe(model) as report:
        model(q, k, v, is_causal=True)
    figure = report.head(0, 1).plot()
    assert figure.axes[0].get_title(loc="center") + figure.axes[0].get_title(loc="left") == (
        "Caller, head 1"
    )
    above, below = curves(figure)
    rows = report.rows()
    by_keys = rows[rows["head"] == 1].groupby("keys").mean(numeric_only=True)
    n = np.arange(2, 10)
    mean = "mean of the rows; 10 % to 90 %"
    np.testing.assert_allclose(above[mean], np.c_[n, by_keys["alpha"]], rtol=1e-6)
    np.testing.assert_allclose(below[mean], np.c_[n, by_keys["entropy"]], rtol=1e-6)
    np.testing.assert_allclose(above["α_c = √(2 log n)"][:, 1], freezing.critical_alpha(n))
    alpha = report.table()["alpha"][1]
    (random,) = (points for name, points in below.items() if name.startswith("random scores"))
    np.testing.assert_allclose(random[:, 1], exact.entropy(DotProduct(16), alpha, n))
    assert figure.axes[1].get_xlabel() == "keys that a row sees"


def test_in_a_group_of_rows_random_scores_have_their_mean():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 150, 8, seed=i) for i in range(3)), is_causal=True)
    alpha = report.table()["alpha"][0]
    (random,) = (
        points
        for name, points in curves(report.head(0, 0).plot())[1].items()
        if name.startswith("random scores")
    )
    last = np.arange(2 * random[-1, 0] - 150, 151)  # its mean is where it is drawn
    assert last.size > 10
    expected = exact.entropy(DotProduct(8), alpha, last).mean()
    assert random[-1, 1] == pytest.approx(expected, rel=1e-6)


def test_rows_that_see_as_many_keys_are_drawn_by_position():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 100, 8, seed=i) for i in range(3)))
    figure = report.head(0, 0).plot()
    assert figure.axes[1].get_xlabel() == "position"
    (points, *_) = curves(figure)[0].values()
    assert 20 < len(points) <= figures.BINS
    assert 0.0 <= points[0, 0] < 5.0
    assert 95.0 < points[-1, 0] <= 99.0
    assert np.mean(points[:, 1]) == pytest.approx(report.rows()["alpha"].mean(), rel=0.05)


def test_rows_that_cannot_be_drawn_are_refused():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 1, 4, seed=i) for i in range(3)))
    with pytest.raises(ValueError, match="head 0 of Caller must have finite rows"):
        report.head(0, 0).plot()
    k = draw(1, 1, 4, 4, seed=1)
    with pytest.warns(UserWarning, match="NaN"), probe(model := Caller()) as report:
        model(torch.full_like(k, math.nan), k, k)
    with pytest.raises(ValueError, match="must have finite rows"):
        report.head(0, 0).plot()


def test_beyond_the_theory_a_head_has_no_curve_of_random_scores():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 6, 4, seed=i) for i in range(3)), scale=1e6)
    assert len(curves(report.head(0, 0).plot())[1]) == 1


def test_the_squares_are_centred_and_one_head_without_theory_changes_no_label():
    lines = grid([8.0, 2.0], [4.0, 4.0])
    lines[0]["random_effective_keys"] = math.nan
    figure = figures.heads(lines)
    corners = figure.axes[0].collections[0].get_coordinates()
    np.testing.assert_array_equal(corners[0, :, 0], [-0.5, 0.5, 1.5])
    np.testing.assert_array_equal(corners[:, 0, 1], [-0.5, 0.5, 1.5])
    assert figure.axes[1].get_ylabel() == "measured / random scores"


def test_most_rows_of_a_head_are_in_the_band():
    with probe(model := Caller()) as report:
        model(*(draw(40, 1, 9, 8, seed=i) for i in range(3)), is_causal=True)
    figure = report.head(0, 0).plot()
    rows = report.rows().groupby("keys")
    for panel, name, label in zip(
        figure.axes, ("alpha", "entropy"), ("spread α of a row", "entropy, nats"), strict=True
    ):
        assert panel.get_ylabel() == label
        assert panel.get_xscale() == "log"
        (band,) = panel.collections
        (path,) = band.get_paths()
        for keys, values in rows[name]:
            ends = path.vertices[path.vertices[:, 0] == keys, 1]
            assert ends.min() == pytest.approx(values.quantile(0.1), rel=1e-5)
            assert ends.max() == pytest.approx(values.quantile(0.9), rel=1e-5)


def test_one_row_that_is_not_finite_is_enough_to_refuse():
    rows = {"keys": np.array([2.0, 3.0]), "alpha": np.array([1.0, np.nan])}
    with pytest.raises(ValueError, match="must have finite rows"):
        OneHead({**HEAD}, rows).plot()

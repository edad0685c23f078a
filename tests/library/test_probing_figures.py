"""The figures of a report: what stands where, in which colour, under which name."""

import io
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from attnlib import exact, freezing
from attnlib.probing import DEFINITIONS, figures, probe
from attnlib.scores import DotProduct
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
    figure = figures.heads(grid([8.0, 16.0, 4.0], [2.0, 8.0]))
    axes, colours, written = drawn(figure)
    np.testing.assert_allclose(colours, [[0, 1, -1], [-2, 0, np.nan]], atol=1e-12)
    assert written == {
        **{(0, 0): "8.0", (1, 0): "16.0", (2, 0): "4.0"},
        **{(0, 1): "2.0", (1, 1): "8.0"},
    }
    corners = axes.collections[0].get_coordinates()
    np.testing.assert_array_equal(corners[0, :, 0], [-0.5, 0.5, 1.5, 2.5])
    np.testing.assert_array_equal(corners[:, 0, 1], [-0.5, 0.5, 1.5])
    assert axes.get_xlim() == (-0.5, 2.5)
    assert axes.get_ylim() == (1.5, -0.5)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    assert axes.get_ylabel() == "layer h.*.attn"
    assert axes.get_xlabel() == "head"
    assert "1/Y" in axes.get_title()
    content = io.StringIO()
    figure.savefig(content, format="svg")
    assert "<image" not in content.getvalue()  # no bitmap


def test_colours_are_centred_on_random_scores_and_the_bar_says_how_many_times():
    figure = figures.heads(grid([8.0, 2.0]))
    figure.draw_without_rendering()
    image, bar = figure.axes[0].collections[0], figure.axes[1]
    assert (image.norm.vmin, image.norm.vmax) == (-2.0, 2.0)
    assert min(to_rgb(image.cmap(image.norm(0.0))[:3])) > 0.95  # white, or black in the dark
    fewer, more = (image.cmap(image.norm(power)) for power in (-1.5, 1.5))
    assert fewer[0] > fewer[2]  # orange
    assert more[2] > more[0]  # violet
    assert bar.get_ylabel() == "measured / random scores"
    labels = dict(zip(bar.get_yticks(), bar.get_yticklabels(), strict=True))
    assert labels[-2.0].get_text() == "0.25"
    usual = figures.heads(grid([8.0, 8.1])).axes[0].collections[0]
    assert (usual.norm.vmin, usual.norm.vmax) == (-1.0, 1.0)  # a trifle is not shown as much


def test_without_theory_colours_are_relative_to_all_keys():
    lines = grid([64.0, 16.0])
    lines[0]["random_effective_keys"] = math.nan
    assert figures.heads(lines).axes[1].get_ylabel() == "measured / random scores"
    lines[1]["random_effective_keys"] = math.nan
    figure = figures.heads(lines)
    np.testing.assert_allclose(drawn(figure)[1], [[0, -2]])
    assert figure.axes[1].get_ylabel() == "measured / all keys"


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


def test_a_large_model_fits_a_page():
    figure = figures.heads(grid(*[[8.0] * 20] * 100))
    assert max(figure.get_size_inches()) <= 16.0
    axes = figure.axes[0]
    assert not axes.texts
    assert len(axes.get_yticks()) <= figures.NAMED
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["0", "3"]


@pytest.mark.parametrize(
    ("names", "shown", "pattern"),
    [
        (["attn"], ["attn"], "layer"),
        (["a.attn", "a.attn.b"], ["a.attn", "a.attn.b"], "layer"),
        (["e.0.self", "d.0.self", "d.0.cross"], ["e.0.self", "d.0.self", "d.0.cross"], "layer"),
        (["x.attn", "x.attn 1"], ["attn", "attn 1"], "layer x.*"),
    ],
)
def test_a_name_is_what_tells_layers_apart(names, shown, pattern):
    assert figures._names(names) == (shown, pattern)


# --- one head -----------------------------------------------------------------------------------


def probed(*shape, **options):
    """Return the report of one call of random queries, keys and values."""
    with probe(model := Caller()) as report:
        model(*(draw(*shape, seed=i) for i in range(3)), **options)
    return report


def curves(figure):
    return [
        {line.get_label().split(",")[0].split(" ")[0]: line.get_xydata() for line in panel.lines}
        for panel in figure.axes
    ]


def test_a_heads_rows_are_drawn_by_the_keys_that_they_see():
    report = probed(40, 2, 9, 16, is_causal=True)
    figure = report.head(0, 1).plot()
    assert figure.axes[0].get_title() == "Caller, head 1"
    assert figure.axes[1].get_xlabel() == "keys that a row sees"
    rows = report.rows()
    by_keys = rows[rows["head"] == 1].groupby("keys")
    n = np.arange(2, 10)
    above, below = curves(figure)
    np.testing.assert_allclose(above["α_c"], np.c_[n, freezing.critical_alpha(n)])
    expected = exact.entropy(DotProduct(16), report.table()["alpha"][1], n)
    np.testing.assert_allclose(below["random"][:, 1], expected)
    for panel, lines, name, label in zip(
        figure.axes,
        (above, below),
        ("alpha", "entropy"),
        ("spread α of a row", "entropy, nats"),
        strict=True,
    ):
        np.testing.assert_allclose(lines["mean"], np.c_[n, by_keys[name].mean()], rtol=1e-6)
        assert panel.get_ylabel() == label
        assert panel.get_xscale() == "log"
        (band,) = panel.collections
        (path,) = band.get_paths()
        for keys, values in by_keys[name]:  # most rows are in the band
            ends = path.vertices[path.vertices[:, 0] == keys, 1]
            quantiles = values.quantile([0.1, 0.9])
            np.testing.assert_allclose([ends.min(), ends.max()], quantiles, rtol=1e-5)


def test_in_a_group_of_rows_random_scores_have_their_mean():
    report = probed(1, 1, 150, 8, is_causal=True)
    random = curves(report.head(0, 0).plot())[1]["random"]
    last = np.arange(2 * random[-1, 0] - 150, 151)  # its mean is where it is drawn
    assert last.size > 10
    expected = exact.entropy(DotProduct(8), report.table()["alpha"][0], last).mean()
    assert random[-1, 1] == pytest.approx(expected, rel=1e-6)


def test_rows_that_see_as_many_keys_are_drawn_by_position():
    report = probed(1, 1, 100, 8)
    figure = report.head(0, 0).plot()
    assert figure.axes[1].get_xlabel() == "position"
    points = curves(figure)[0]["mean"]
    assert 20 < len(points) <= figures.BINS
    assert 0.0 <= points[0, 0] < 5.0
    assert 95.0 < points[-1, 0] <= 99.0
    assert np.mean(points[:, 1]) == pytest.approx(report.rows()["alpha"].mean(), rel=0.05)


def test_rows_that_cannot_be_drawn_are_refused_and_theory_ends_where_it_ends():
    with pytest.raises(ValueError, match="head 0 of Caller must have finite rows"):
        probed(1, 1, 1, 4).head(0, 0).plot()
    k = draw(1, 1, 4, 4, seed=1)
    with pytest.warns(UserWarning, match="NaN"), probe(model := Caller()) as report:
        model(k.where(k < k.max(), math.nan), k, k)  # one query
    with pytest.raises(ValueError, match="must have finite rows"):
        report.head(0, 0).plot()
    beyond = probed(1, 1, 6, 4, scale=1e6)
    assert len(curves(beyond.head(0, 0).plot())[1]) == 1


def test_a_report_draws_the_heads_of_a_model():
    report = probed(1, 2, 6, 4)
    table = report.table()
    expected = np.log2(table["effective_keys"] / table["random_effective_keys"])
    np.testing.assert_allclose(drawn(report.plot("heads"))[1].ravel(), expected)
    with pytest.raises(ValueError, match="kind must be one of 'heads', got kind='head'"):
        report.plot("head")

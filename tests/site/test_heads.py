"""The figures of trained heads and the table of all of them, in a browser, against the library."""

import numpy as np
import pytest

from attnlib import rows
from attnlib.sampling import sample
from attnlib.scores import Normal
from book import models
from experiments.real_heads import shown
from experiments.records import load
from tests.site.live import readings, settle


@pytest.fixture
def page(opened):
    page = opened("models", reduced_motion="reduce")
    page.locator("#fig-models-attend .live").wait_for()
    return page


@pytest.fixture(scope="module")
def recorded():
    return load("real_heads_shown")


def logits_of(found, query):
    """The logits that a query sees, from the record."""
    q, k = shown.unpacked(found["queries"]), shown.unpacked(found["keys"])
    end = query + 1 if found["causal"] else len(k)
    return found["scale"] * k[:end] @ q[query]


# --- the numbers ----------------------------------------------------------------------------------


def test_every_row_is_the_library_s(call, recorded):
    found = call(
        """m.RECORDED.heads.map((head) => head.meant.map((_, query) => {
          const logits = m.logitsOf(head, query);
          return [0.5, 1, 3].map((times) => {
            const { weights, ...row } = m.rowOf(logits, times);
            return { ...row, largest: Math.max(...weights) };
          });
        }))"""
    )
    for one, of_head in zip(shown.SHOWN, found, strict=True):
        table = recorded.find(**one.at)
        for query in range(1, len(of_head), 7):
            logits = logits_of(table, query)
            for times, row in zip((0.5, 1, 3), of_head[query], strict=True):
                p = rows.softmax(logits, times)
                assert row["n"] == logits.size
                assert row["largest"] == pytest.approx(p.max(), rel=1e-6)
                assert row["keys"] == pytest.approx(1 / rows.collision_probability(p), rel=1e-6)
                assert row["entropy"] == pytest.approx(rows.shannon_entropy(p), abs=1e-9)
                assert row["alpha"] == pytest.approx(times * logits.std(ddof=1), rel=1e-9)


def test_random_rows_are_near_the_library_s_between_the_nodes(call):
    cases = [[7, 0.8], [19, 2.3], [40, 5.5], [53, 1.4], [50, 14.0]]
    found = call("cases.map(([n, alpha]) => m.randomKeys(n, alpha))", cases)
    for (n, alpha), quantiles in zip(cases, found, strict=True):

        def keys(scores, alpha=alpha):
            return 1 / rows.collision_probability(rows.softmax(scores, alpha))

        expected = sample(Normal(), n, keys, rows=10_000, seed=1).quantile([0.05, 0.5, 0.95])
        np.testing.assert_allclose(quantiles, expected.value, rtol=0.05)
    assert call("[m.randomKeys(1, 3), m.randomKeys(30, 0)[1]]") == [
        [1, 1, 1],
        pytest.approx(30, rel=0.01),
    ]


def test_a_search_is_words_and_conditions(call):
    cells = dict.fromkeys(models.COLUMNS, "") | {
        "model": "SmolLM2", "layer": "18", "first": "0.937", "s": "−0.05", "needle": "repeat",
    }  # fmt: skip
    asked = {
        **{"": True, "smol rep": True, "smollm2 layer = 18": True, "first>=0.937 s<0": True},
        **{"layer=1": False, "s > 0": False, "weight>0": False, "minilm": False},
    }
    match = "m.matcher(cases[0], cases[1])"
    names, values = list(cells), list(cells.values())
    assert {one: call(f"{match}.fits(cases[2])", [one, names, values]) for one in asked} == asked
    assert "no column “size”" in call(f"{match}.problem", ["size>3", names])
    assert "“big” is not a number" in call(f"{match}.problem", ["first>big", names])


# --- the page -------------------------------------------------------------------------------------


def test_a_head_is_named_where_one_points(page):
    atlas = page.locator("#fig-models .live-atlas")
    line = page.locator("#fig-models .live-head")
    atlas.scroll_into_view_if_needed()
    assert line.inner_text().startswith("SmolLM2, layer 18, head 6: finds what followed")
    ring = atlas.locator(".ring").bounding_box()
    middle = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
    box = atlas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    settle(page)
    assert not line.inner_text().startswith("SmolLM2, layer 18, head 6:")
    page.mouse.move(*middle)
    settle(page)
    assert line.inner_text().startswith("SmolLM2, layer 18, head 6:")
    atlas.focus()
    page.keyboard.press("ArrowRight")
    assert line.inner_text().startswith("SmolLM2, layer 18, head 7:")
    assert atlas.get_attribute("aria-valuetext").startswith("SmolLM2, layer 18, head 7:")
    page.keyboard.press("ArrowLeft")
    page.locator("#fig-models label", has_text="looked for").last.click()
    assert atlas.locator(".ring").get_attribute("visibility") == "visible"
    page.locator("#fig-models label", has_text="MiniLM").click()
    assert atlas.locator(".point.model-1").count() == 0
    assert atlas.locator(".point.model-0").count() == 1


def test_a_recorded_head_in_the_page(page, recorded):
    figure = page.locator("#fig-models-attend")
    one = shown.SHOWN[0]
    found = recorded.find(**one.at)
    times = figure.get_by_label("Multiplier of all logits", exact=True)
    times.fill("0.5")
    p = rows.softmax(logits_of(found, 36), 0.5)

    keys = float(readings(figure)["effective keys, 1/Σp²"].split(" of ")[0])
    assert keys == pytest.approx(1 / rows.collision_probability(p), rel=6e-3)
    assert readings(figure)["weight of “fox”, outlined"] == f"{100 * p[17]:.2g}\u00a0%"
    bars = figure.locator(".live-token.meant .live-percent")
    assert bars.inner_text() == f"{100 * p[17]:.0f}"
    times.fill("1")
    # Another query, by the keyboard, and without the first key.
    figure.locator("input[name=live-query][value='36']").focus()
    page.keyboard.press("ArrowLeft")
    figure.get_by_label("without the first key").check()
    rest = rows.softmax(logits_of(found, 35)[1:])
    keys = float(readings(figure)["effective keys, 1/Σp²"].split(" of ")[0])
    assert keys == pytest.approx(1 / rows.collision_probability(rest), rel=6e-3)
    assert readings(figure)["weight of the first key"] == "left out"
    figure.get_by_label("Head", exact=True).select_option("10")
    assert figure.locator(".live-token").count() == 53
    assert figure.locator(".live-token.unseen").count() == 1
    figure.get_by_label("without the first key").uncheck()

"""Each live figure on its page, once: it is drawn, and what one asks for is what attnlib says."""

import numpy as np
import pytest

from attnlib import exact, retrieval, rows
from attnlib.policies import POLICIES
from attnlib.scores import Normal
from book.live import tables
from experiments.real_heads import parts, shown, verdicts
from experiments.records import load
from tests.site.live import addressed, logits_of, number, readings, settle

LAW = Normal()


@pytest.fixture
def shows(window, address):
    """Return a function that opens a page in the window; nothing may be wrong in it at the end."""
    page, noted = window
    noted.clear()

    def shows(name):
        page.goto(f"{address}/{name}.html")
        return page

    yield shows
    assert noted == []


def test_the_front_page(shows):
    page = shows("intro")
    the_face(page)
    a_number_in_place(page)


def the_face(page):
    """A head reads while its logits are multiplied."""
    words, logits, needle = tables.row_of_head()
    times, losses = verdicts.curve()
    mean = losses.mean(axis=1)
    rise = (mean - mean[times == 1.0])[:, [parts.PRICE_LENGTHS.index(n) for n in (128, 512, 2048)]]
    for factor in (0.5, 2.0):
        page.get_by_label("Multiply its logits", exact=True).fill(f"{factor:g}")
        weight, most = page.locator("#fig-face .live-count strong").all_inner_texts()
        expected = rows.softmax(logits, factor)[needle]
        assert number(weight) == pytest.approx(100 * expected, abs=0.5)
        assert number(most.split("up to ")[1]) == pytest.approx(
            rise[times == factor].max(), abs=0.06
        )
        height = page.locator("#fig-face .meant .live-weight").evaluate("bar => bar.style.height")
        assert float(height.removesuffix("%")) == pytest.approx(100 * expected, abs=0.1)
    assert page.locator("#fig-face .meant .live-word").inner_text() == words[needle] == "fox"
    page.get_by_label("Multiply its logits", exact=True).fill("3")
    assert not page.locator("#fig-face .live-count").is_visible()


def a_number_in_place(page):
    """A number for the reader's model, with which the calculator goes on."""
    answer = page.locator("#fig-number .live-answer")
    assert "multiply q·k by 0.08839." in answer.inner_text()  # 1/√128: nothing is known
    page.get_by_text("how far the key to find stands out").click()
    page.get_by_label("Number of keys n", exact=True).fill("1000")
    answer.get_by_text("multiply q·k by 0.3536.").wait_for()
    page.get_by_text("a trained head, measured by the probe").click()
    answer.get_by_text("multiply q·k by 0.08839.").wait_for()  # as it is
    page.get_by_role("link", name="The calculator", exact=True).click()
    status = page.locator("#fig-calculator [role=status]")
    status.get_by_text("For n = 1000, d = 128, Transformer: multiply q·k by 0.08839.").wait_for()


def test_the_calculator_opens_on_what_the_book_recommends(shows):
    page = shows("chapters/calculator")
    page.get_by_text("The book recommends it.").wait_for()
    answer = page.locator(".live-answer").inner_text()
    assert answer.endswith(
        "multiply q·k by 0.08839. Then the logits have standard deviation α = 1.00."
    )
    assert page.locator(".live-chosen input").input_value() == "variance"
    assert "scale=0.08839" in page.locator(".live-code").first.inner_text()
    page.locator("label", has_text="annealed").click()
    page.get_by_text("The book recommends variance, α = 1.00").wait_for()
    page.get_by_role("button", name="Take variance").click()
    addressed(page, "scale=recommended")


def test_curve_row_formula_and_code_change_together(shows):
    page = shows("chapters/scaling_rules")
    figure = page.locator("#fig-policies-plane")
    for name, length, n, d in (("yarn", 8192, 65536, 96), ("llama_4", 4096, 10**6, 64)):
        page.get_by_label("Model or rule").select_option(name)
        for label, value in (
            ("Target length n", n),
            ("Training length L", length),
            ("Dimension d", d),
        ):
            page.get_by_label(label, exact=True).fill(str(value))
        settle(page)
        changed = {"train_length": length} if name == "yarn" else {}
        policy = POLICIES[name].with_constants(**changed)
        row = page.locator("#table-rules .live-chosen")
        expected = [
            float(policy.scale(n, d)),
            float(policy.alpha(length, d)),
            float(policy.alpha(n, d)),
        ]
        cells = row.locator("td").all_inner_texts()[3:]
        assert [number(cell.strip()) for cell in cells] == pytest.approx(expected, rel=6e-3)
        assert row.locator("input").input_value() == name
        assert number(next(iter(readings(figure).values()))) == pytest.approx(expected[0], rel=6e-4)
        assert page.locator(".live-formula math").count() == 1
        assert name in page.locator(".live-code").last.inner_text()


MOVED = {
    "fig-live-parting": (
        *("mean_gradient", {"α": 3}, "mean of all rows"),
        exact.gradient(LAW, 3.0, tables.PARTING_KEYS),
    ),
    "fig-live-freezing": (
        *("freezing", {"Number of keys n": 10**5, "α": 4}, "of the mean of rows, 1/E Σp²"),
        1 / exact.collision_probability(LAW, 4.0, 10**5),
    ),
    "fig-freezing-contest": (
        *("freezing", {"x, α over the critical α": 0.6}, "of 4096, about"),
        4096 ** (1 - 0.6**2),
    ),
    "fig-live-needle": (
        "retrieval",
        {"Strength of the needle θ": 5.5, "α": 2, "Number of keys n": 10**6},
        "mean loss, all such rows",
        retrieval.loss(LAW, retrieval.Tilted(5.5), 2.0, 10**6),
    ),
    "fig-live-reach": (
        *("retrieval_range", {"Gap Δ": 5, "α": 4.5}, "reach of this α, exact"),
        retrieval.reach(LAW, retrieval.Fixed(5.0), 4.5),
    ),
    "fig-live-jacobian": (
        *("jacobian", {"α": 20, "Gap of the two largest scores": 0.1}, "largest entry of J"),
        rows.jacobian(np.array([*np.linspace(-1.5, 0.6, 6), 1.0, 1.1]), 20.0).max(),
    ),
    "fig-live-variance": ("variance", {"Length of the vectors d": 512}, "predicted: d", 512),
}
"""By figure: its chapter, what is put into its fields, and a reading that it shows then."""


@pytest.mark.parametrize("name", MOVED)
def test_a_figure_follows_its_fields_and_shows_nothing_beside_what_is_refused(shows, name):
    chapter, fields, reading, expected = MOVED[name]
    figure = shows(f"chapters/{chapter}").locator(f"#{name}")
    for label, value in fields.items():
        entry = figure.get_by_label(label, exact=True)
        entry.fill(str(value))
    shown_before = readings(figure)
    assert number(shown_before[reading]) == pytest.approx(float(expected), rel=6e-3)
    entry.fill("-1")
    assert entry.get_attribute("aria-invalid") == "true"
    assert not figure.locator(".live-readings, .live-pictures").first.is_visible()
    entry.fill(str(value))
    assert readings(figure) == shown_before


def test_trained_heads(shows):
    page = shows("chapters/models")
    atlas = page.locator("#fig-models .live-atlas")
    name = page.locator("#fig-models .live-head")
    assert name.inner_text().startswith("SmolLM2, layer 18, head 6: finds what followed")
    atlas.focus()
    page.keyboard.press("ArrowRight")
    assert name.inner_text().startswith("SmolLM2, layer 18, head 7:")
    figure, record = page.locator("#fig-models-attend"), load("real_heads_shown")
    p = rows.softmax(logits_of(record.find(**shown.SHOWN[0].record_key), 36), 0.5)
    figure.get_by_label("Multiplier of all logits", exact=True).fill("0.5")
    keys = float(readings(figure)["effective keys, 1/Σp²"].split(" of ")[0])
    assert keys == pytest.approx(1 / rows.collision_probability(p), rel=6e-3)
    assert readings(figure)["weight of “fox”, outlined"] == f"{100 * p[17]:.2g}\u00a0%"

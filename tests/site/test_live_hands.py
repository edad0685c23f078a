"""The live figures at leisure: by keyboard, pointer and finger, in print, in every scheme."""

import numpy as np
import pytest

from attnlib import annealed
from attnlib.policies import POLICIES
from attnlib.scores import Normal
from tests.site.checks import OVERFLOW, soup
from tests.site.live import (
    addressed,
    drag,
    line,
    settle,
    swipe,
)

pytestmark = pytest.mark.slow

LAW = Normal()

LIVE = {
    "intro": ["fig-face", "fig-landing", "fig-number"],
    "chapters/calculator": ["fig-calculator"],
    "chapters/mean_gradient": ["fig-live-parting"],
    "chapters/freezing": ["fig-live-freezing", "fig-freezing-contest"],
    "chapters/retrieval": ["fig-live-needle"],
    "chapters/scaling_rules": ["fig-policies-plane"],
    "chapters/retrieval_range": ["fig-live-reach"],
    "chapters/variance": ["fig-live-variance"],
    "chapters/jacobian": ["fig-live-jacobian"],
    "chapters/models": ["fig-models", "fig-models-attend"],
}
DRAWN_BY_THE_CHAPTER = ("fig-freezing-contest", "fig-policies-plane")

PRESSED = "button, input, select, .live-hint"


@pytest.mark.parametrize("name", LIVE)
def test_paper_has_what_a_figure_shows_and_not_what_one_presses(opened, site, name):
    page = opened(name)
    page.locator(f"#{LIVE[name][-1]} .live").wait_for()
    page.emulate_media(media="print")
    for id in LIVE[name]:
        figure = page.locator(f"#{id}")
        assert figure.locator(".live").is_hidden() == (id in DRAWN_BY_THE_CHAPTER)
        assert figure.locator("img").count() == (id in DRAWN_BY_THE_CHAPTER)
        assert figure.locator(":is(.live svg, img, .live-answer):visible").count() > 0
        assert figure.locator(f":is({PRESSED}):visible").count() == 0
        # What stands there before any script has run.
        assert len(soup(site / f"{name}.html").select(f"#{id} img[alt]")) == 1


# --- the calculator -------------------------------------------------------------------------------


def test_the_calculator_by_keyboard_alone(opened):
    page = opened("chapters/calculator")
    page.locator("input[name=live-known]:checked").focus()
    page.keyboard.press("Tab")
    entry = page.get_by_label("Number of keys n", exact=True)
    page.keyboard.press("Control+a")
    page.keyboard.type("512")
    page.keyboard.press("Tab")  # to the slider
    page.keyboard.press("ArrowRight")
    settle(page)
    assert int(entry.input_value()) == round(512 * 2 ** (1 / 16))
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("64")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # to queries and keys
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")  # to the mask
    page.keyboard.press("Space")
    addressed(page, "#n=535&d=64&unit=1&causal=1&scale=recommended")
    best = float(annealed.best_alpha(LAW, 535))
    assert line(page, "annealed") == pytest.approx([best, 8 * best], rel=6e-3)
    page.get_by_label("α", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("1.5")
    addressed(page, "scale=1.5")
    assert "scale=12,\n    is_causal=True,\n)" in page.locator(".live-code").first.inner_text()


def test_what_makes_no_sense_is_explained_and_has_no_answer(opened):
    page = opened("chapters/calculator#n=1&d=many&scale=best")
    settle(page)
    text = page.locator(".live").inner_text()
    for explained in ("One key has all", "This is not a number.", "There is no scale “best”."):
        assert explained in text
    answer = page.locator(".live-answer")
    assert answer.inner_text().startswith("No answer yet. Number of keys n: One key has all")
    for part in page.locator(".live-code, .live-table, .live-pictures").all():
        assert part.is_hidden()
    page.get_by_label("Number of keys n", exact=True).fill("2.5")
    page.get_by_text("No answer yet. Number of keys n: n counts keys").wait_for()
    page.evaluate("location.hash = 'n=311&d=64&scale=entropy'")
    page.get_by_text("So few keys cannot have the entropy of 512").wait_for()
    page.get_by_label("α", exact=True).fill("2")
    page.get_by_text("your own α: multiply q·k by 0.2500").first.wait_for()
    assert page.locator("input[value=entropy]").is_disabled()
    assert page.evaluate(OVERFLOW) == []


# --- the front page and the rules in use ----------------------------------------------------------


def test_the_rules_are_sorted_searched_and_picked_by_keyboard(opened):
    page = opened("chapters/scaling_rules")

    def order():
        rows = page.locator("#table-rules tbody tr:visible input")
        return rows.evaluate_all("(inputs) => inputs.map((input) => input.value)")

    assert order() == list(POLICIES)
    button = page.get_by_role("button", name="α at n = 131072")
    button.focus()
    for sign, direction in ((1, "ascending"), (-1, "descending")):
        page.keyboard.press("Enter")
        assert page.locator(f"th[aria-sort={direction}]").count() == 1
        alphas = [sign * float(POLICIES[name].alpha(131_072, 128)) for name in order()]
        assert np.diff(alphas).min() > -6e-3 * max(map(abs, alphas))
    page.locator("#table-rules-search").fill("gpt-2")
    assert set(order()) == {"transformer", "gpt2_by_layer"}
    page.locator("#table-rules input[value=transformer]").focus()
    page.keyboard.press("Space")
    settle(page)
    assert page.get_by_label("Model or rule").input_value() == "transformer"


# --- pointer and finger ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chapter", "name", "label", "low", "high"),
    [
        ("freezing", "fig-live-freezing", "α", 4.5, 6),
        ("scaling_rules", "fig-policies-plane", "Target length n", 5_500, 7_500),
    ],
)
def test_a_pointer_is_dragged(opened, chapter, name, label, low, high):
    page = opened(f"chapters/{chapter}")
    drag(page, name, (0.3, 0.5), (0.5, 0.2))
    value = float(page.locator(f"#{name}").get_by_label(label, exact=True).input_value())
    assert low < value <= high


def test_a_finger_moves_the_handle_and_otherwise_the_page(opened):
    page = opened("chapters/freezing", 390, has_touch=True)
    picture = page.locator("#fig-live-freezing .live svg[role=img]").first
    alpha = page.locator("#fig-live-freezing").get_by_label("α", exact=True)
    picture.scroll_into_view_if_needed()
    dot = picture.locator(".dot").bounding_box()
    swipe(page, dot["x"] + 8, dot["y"] + 8, (0, 60))
    moved = float(alpha.input_value())
    assert moved < 3.5
    slider = page.locator("#fig-live-freezing").get_by_label("α, slider")
    for place in (picture, slider):
        place.scroll_into_view_if_needed()
        box, before = place.bounding_box(), page.evaluate("scrollY")
        swipe(page, box["x"] + 0.3 * box["width"], box["y"] + 0.7 * box["height"], (0, -120))
        page.wait_for_function("(least) => scrollY > least", arg=before + 50)
        assert float(alpha.input_value()) == moved

"""The live figures at leisure: by keyboard, pointer and finger, in print, in every scheme."""

import re

import numpy as np
import pytest

from attnlib import annealed, retrieval, rows
from attnlib.policies import POLICIES
from attnlib.scores import Normal
from experiments.real_heads import shown
from experiments.records import load
from tests.site.checks import OVERFLOW, soup
from tests.site.live import (
    addressed,
    drag,
    fits,
    line,
    logits_of,
    moves,
    number,
    readings,
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


@pytest.mark.parametrize("name", LIVE)
def test_figures_fit_in_each_width_and_scheme(opened, name):
    assert fits(opened(name))


GROW = [
    ("mean_gradient", "fig-live-parting", "α"),
    ("freezing", "fig-live-freezing", "Number of keys n"),
    ("retrieval", "fig-live-needle", "α"),
    ("retrieval_range", "fig-live-reach", "α"),
    ("jacobian", "fig-live-jacobian", "α"),
    ("variance", "fig-live-variance", "Length of the vectors d"),
]


@pytest.mark.parametrize(("chapter", "name", "label"), GROW)
def test_a_button_moves_a_field_until_it_is_stopped(opened, chapter, name, label):
    figure = opened(f"chapters/{chapter}").locator(f"#{name}")
    moves(figure, figure.get_by_role("button", name="grow").inner_text(), label)


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


def test_the_calculator_by_finger_and_a_key_to_find(opened):
    page = opened("chapters/calculator#d=64", 390, has_touch=True)
    page.locator("label", has_text="how far the key").tap()
    page.get_by_label("How far Δ, in standard deviations", exact=True).fill("5")
    page.locator("label", has_text=re.compile("^ ?Transformer$")).tap()
    addressed(page, "n=4096&d=64&theta=5&scale=transformer")
    needle = retrieval.Tilted(5.0)
    weight = float(retrieval.weight(LAW, needle, 1.0, 4096))
    reach = float(retrieval.reach(LAW, needle, 1.0))
    status = page.get_by_role("status")
    status.get_by_text(f"half or more up to n = {reach:.0f}.").wait_for()
    assert f"{100 * weight:.2g}\u00a0% of the weight" in status.inner_text()
    assert line(page, "transformer") == pytest.approx([1, 0.125, 100 * weight], rel=0.06)
    page.locator("label", has_text="a trained head").tap()
    addressed(page, "g=12&v=4&scale=recommended")
    assert page.evaluate(OVERFLOW) == []
    page.locator("label", has_text="nothing:").tap()
    settle(page)
    assert page.locator("input[value=finding]").count() == 0


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


def test_sixteen_keys_by_keyboard_and_finger(opened):
    page = opened("intro", 390, has_touch=True)

    def shown():
        counts = page.locator("#fig-landing .live-count strong").all_inner_texts()
        return [number(text) for text in counts]

    assert shown() == [1.1, 8.0]
    page.get_by_label("q·k", exact=True).focus()
    page.keyboard.press("ArrowRight")  # divides
    assert shown() == [9.3, 1.0]
    page.get_by_role("button", name="Other keys").tap()
    assert shown() == [13.0, 1.0]
    page.get_by_label("Head size d", exact=True).fill("1024")
    assert shown() == [13.0, 1.0]
    page.locator("#fig-landing label", has_text=re.compile("q·k$")).tap()
    page.locator("#fig-landing [role=status]").get_by_text(
        "d = 1024 and scores not divided"
    ).wait_for()
    page.get_by_label("Head size d", exact=True).fill("3")
    assert not page.locator("#fig-landing .live-count").is_visible()


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
        ("mean_gradient", "fig-live-parting", "α", 3, 4.5),
        ("freezing", "fig-live-freezing", "α", 4.5, 6),
        ("freezing", "fig-freezing-contest", "x, α over the critical α", 0.5, 0.7),
        ("retrieval_range", "fig-live-reach", "α", 4, 6),
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


# --- trained heads --------------------------------------------------------------------------------


def test_a_head_is_named_where_one_points(opened):
    page = opened("chapters/models", reduced_motion="reduce")
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


def test_a_recorded_head_by_keyboard(opened):
    page = opened("chapters/models", reduced_motion="reduce")
    figure = page.locator("#fig-models-attend")
    found = load("real_heads_shown").find(**shown.SHOWN[0].at)
    times = figure.get_by_label("Multiplier of all logits", exact=True)
    times.fill("0.5")
    p = rows.softmax(logits_of(found, 36), 0.5)
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

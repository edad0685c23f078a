"""The front page: sixteen keys and a number for a model, against attnlib and in a browser."""

import re

import numpy as np
import pytest

from attnlib import retrieval, rows
from attnlib.scores import Normal
from book.live import tables
from tests.books import ROOT
from tests.site.browser_checks import OVERFLOW
from tests.site.test_calculator import fits, number, settle


@pytest.fixture
def front(opened):
    """Return a function that opens the front page."""

    def front(**options):
        page = opened("../intro.html", **options)
        page.locator("#fig-number .live").wait_for()
        return page

    return front


# --- the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 5])
@pytest.mark.parametrize("divided", [False, True])
def test_the_weights_of_sixteen_keys(call, row, divided):
    scores = np.array(tables.sixteen()[row])
    for d in (4, 64, 1000, 1024):
        found = call("m.sixteenKeys(cases)", {"d": d, "divided": divided, "row": row})
        p = rows.softmax(scores if divided else scores * np.sqrt(d))
        np.testing.assert_allclose(found["weights"], p, rtol=1e-12)
        assert found["keys"] == pytest.approx(1 / float(rows.collision_probability(p)), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "known", "gap", "logits", "variance"),
    [
        (4096, "nothing", 9.0, 1.0, 1.0),
        (2, "gap", 0.5, 1.0, 1.0),
        (500, "gap", 4.0, 1.0, 1.0),
        (tables.KEYS[1], "gap", 12.0, 1.0, 1.0),
        (500, "head", 9.0, 10.0, 4.0),
        (tables.KEYS[1], "head", 9.0, 3.0, 9.0),
        (2, "head", 9.0, 1.0, 0.01),
        (500, "head", 9.0, 40.0, 400.0),
    ],
)
def test_the_number_and_what_it_does(call, n, known, gap, logits, variance):
    state = {"known": known, "gap": gap, "logits": logits, "variance": variance}
    found = call("m.numberFor(cases)", state | {"n": n, "d": 64})
    alpha = np.sqrt(variance)
    expected, strength = {
        "nothing": (1.0, 4.0),
        "gap": (gap, gap),
        "head": (logits / variance, logits / alpha),
    }[known]
    assert found["factor"] == pytest.approx(expected, rel=1e-12)
    assert found["scale"] == pytest.approx(expected / 8, rel=1e-12)
    assert found["strength"] == pytest.approx(strength, rel=1e-12)
    law, needle = Normal(), retrieval.Tilted(strength)
    present = alpha if known == "head" else 1.0
    for place, scale in (("before", present), ("after", expected * present)):
        weight = float(retrieval.weight(law, needle, scale, n))
        assert found[place]["weight"] == pytest.approx(weight, rel=1e-3, abs=1e-9)
        reach = float(retrieval.reach(law, needle, scale))
        shown = found[place].get("reach") or np.inf  # JSON has no infinity
        if reach > tables.KEYS[1]:
            assert shown == np.inf
        else:
            assert shown == pytest.approx(max(reach, 1.0), rel=2e-3, abs=1.0)


# --- the page -------------------------------------------------------------------------------------


def shown(page):
    """Return how many keys share the weight, by the figure, and the spread of their scores."""
    return [number(text) for text in page.locator(".live-count strong").all_inner_texts()]


def test_sixteen_keys_by_keyboard_alone(front):
    page = front()
    assert shown(page) == [1.1, 8.0]
    page.get_by_label("q·k", exact=True).focus()
    page.keyboard.press("ArrowRight")  # divides
    assert shown(page) == [9.3, 1.0]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # other keys
    assert shown(page) == [13.0, 1.0]
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("1024")
    assert shown(page) == [13.0, 1.0]
    page.get_by_label("q·k ÷ √d").focus()
    page.keyboard.press("ArrowLeft")
    assert shown(page) == [1.1, 32.0]
    page.get_by_label("Head size d, slider").focus()
    page.keyboard.press("Home")
    assert shown(page) == [9.7, 2.0]
    spoken = page.locator("#fig-landing [role=status]")
    spoken.get_by_text("d = 4 and scores not divided by √d, 9.7 of 16 keys").wait_for()
    page.get_by_label("Head size d", exact=True).fill("3")
    assert page.get_by_text("Here d is a whole number from 4 to 1024.").is_visible()
    assert shown(page) == [9.7, 2.0]


def test_bars_collapse_and_recover_under_a_finger(front):
    page = front(width=390, has_touch=True)
    heights = "(bars) => bars.map((bar) => Number(bar.getAttribute('height')))"
    bars = page.locator("#fig-landing .bar")
    collapsed = bars.evaluate_all(heights)
    page.locator("#fig-landing label", has_text="÷").tap()
    recovered = bars.evaluate_all(heights)
    p = rows.softmax(np.array(tables.sixteen()[0]), 1.0)
    np.testing.assert_allclose(np.array(recovered) / sum(recovered), p, atol=1e-3)
    assert max(collapsed) > 4 * max(recovered)
    assert page.locator("#fig-landing .bar.marked").count() == 1
    slider = page.get_by_label("Head size d, slider")
    box = slider.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    assert page.get_by_label("Head size d", exact=True).input_value() == "1024"
    assert bars.evaluate_all(heights) == recovered  # the division makes every head size alike


def test_the_first_screen_of_a_phone_has_title_answer_and_figure(front):
    """And its bars move only where motion is welcome."""
    page = front(width=390)
    for part in ("article h1", "article section > p", "#fig-landing .live"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
    assert page.evaluate(OVERFLOW) == []
    for motion, seconds in (("no-preference", "0.15s, 0.15s"), ("reduce", "0s")):
        page.emulate_media(reduced_motion=motion)
        bar = page.locator("#fig-landing .bar").first
        assert bar.evaluate("(bar) => getComputedStyle(bar).transitionDuration") == seconds


def test_a_number_in_place(front):
    page = front(width=390)
    form, answer = page.locator("#fig-number form"), page.locator("#fig-number .live-answer")
    assert answer.inner_text() == "Multiply q·k by 0.08839"
    form.get_by_label("Dimension d of a head", exact=True).fill("64")
    settle(page)
    assert answer.inner_text() == "Multiply q·k by 0.1250"
    form.get_by_text("how far its key stands out").click()
    form.get_by_label("How far Δ, in standard deviations", exact=True).fill("5")
    settle(page)
    assert answer.inner_text() == "Multiply q·k by 0.6250"
    law, needle = Normal(), retrieval.Tilted(5.0)
    weight = 100 * float(retrieval.weight(law, needle, 5.0, 4096))
    assert page.get_by_text(f"among 4096 keys, {weight:.2g}\u00a0% of the weight").is_visible()
    form.get_by_text("its logits: a trained head").click()
    settle(page)
    assert answer.inner_text() == "Multiply the head’s logits by 2.50"
    code = page.locator("#fig-number code").inner_text()
    assert "scale=0.3125)" in code
    assert fits(page)


def test_no_answer_stands_beside_what_cannot_be_used(front):
    page = front()
    answer = page.locator("#fig-number .live-answer")
    entry = page.get_by_label("Dimension d of a head", exact=True)
    for bad in ("7", "64.5", ""):
        entry.fill(bad)
        answer.wait_for(state="hidden")
        entry.fill("64")
        answer.wait_for()
    page.get_by_text("its logits: a trained head").click()
    page.get_by_label("Variance", exact=True).fill("0.01")
    page.get_by_text("0.1 to 30 standard deviations. These are 100").wait_for()
    assert answer.is_hidden()
    page.get_by_text("how far its key stands out").click()
    answer.wait_for()
    page.get_by_label("How far Δ, in standard deviations", exact=True).fill("0")
    answer.wait_for(state="hidden")
    page.get_by_text("nothing: a new model").click()
    answer.wait_for()


def test_the_calculator_goes_on_from_there(front):
    page = front()
    page.get_by_label("Number of keys n", exact=True).fill("1000")
    page.get_by_text("how far its key stands out").click()
    settle(page)
    page.get_by_role("link", name="The calculator", exact=True).click()
    page.locator("#fig-calculator .live").wait_for()
    settle(page)
    assert page.get_by_label("Number of keys n", exact=True).input_value() == "1000"
    status = page.get_by_role("status")
    status.get_by_text("For n = 1000, d = 128, finding: multiply q·k by 0.3536.").wait_for()


def test_print_and_browsers_without_scripts_have_the_stills(front, browser, address):
    page = front()
    figures = page.locator("#fig-landing, #fig-number")
    assert not figures.locator("img").first.is_visible()
    page.emulate_media(media="print")
    assert all(still.is_visible() for still in figures.locator("img").all())
    assert not figures.locator(".live").first.is_visible()
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(f"{address}/../intro.html")
    assert all(still.is_visible() for still in plain.locator("#fig-landing img").all())
    plain.close()


def test_it_works_from_a_file(browser, site):
    page = browser.new_page()
    page.goto((site / "intro.html").as_uri(), wait_until="domcontentloaded")
    page.locator("#fig-landing .live").wait_for()
    assert shown(page) == [1.1, 8.0]
    page.close()


def test_the_readme_begins_with_the_same_answer():
    front, readme = ((ROOT / name).read_text("utf-8") for name in ("intro.md", "README.md"))
    answer = re.sub(r"[*]", "", front.split("\n\n")[1])
    assert " ".join(readme.split("\n\n")[1].split()).startswith(answer)

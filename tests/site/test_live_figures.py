"""The live figures on their pages: by keyboard, pointer and finger, in print, from a file."""

import re

import numpy as np
import pytest

from attnlib import annealed, exact, retrieval, rows, typical
from attnlib.policies import POLICIES
from attnlib.scores import Normal
from book.live import tables
from experiments.real_heads import parts, verdicts
from tests.site.checks import OVERFLOW, soup
from tests.site.live import addressed, drag, fits, moves, number, readings, settle, swipe

LAW = Normal()

LIVE = {
    "intro": ["fig-face", "fig-landing", "fig-number"],
    "chapters/calculator": ["fig-calculator"],
    "chapters/exact": ["fig-live-parting"],
    "chapters/freezing": ["fig-live-freezing", "fig-freezing-contest"],
    "chapters/needle": ["fig-live-needle"],
    "chapters/policies": ["fig-policies-plane"],
    "chapters/reach": ["fig-live-reach"],
    "chapters/why": ["fig-live-variance", "fig-live-jacobian"],
    "models": ["fig-models", "fig-models-attend"],
}
SEEN_ALWAYS = ("intro", "chapters/freezing", "models")
"""The others have a figure in the same way."""

DRAWN_BY_THE_CHAPTER = ("fig-freezing-contest", "fig-policies-plane")

PRESSED = "button, input, select, .live-hint"


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in SEEN_ALWAYS else pytest.mark.slow) for one in LIVE],
)
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


def line(page, name):
    """The α, what multiplies, and if shown the weight that the tables have for a name."""
    row = page.locator("tr", has=page.locator(f'input[name=live-scale][value="{name}"]'))
    return [number(text.split("× ")[-1]) for text in row.locator("td").all_inner_texts()]


def test_the_calculator_opens_on_what_the_book_recommends(opened):
    page = opened("chapters/calculator")
    page.get_by_text("The book recommends it.").wait_for()
    answer = page.locator(".live-answer").inner_text()
    assert answer.endswith(
        "multiply q·k by 0.08839. Then the logits have standard deviation α = 1.00."
    )
    assert page.locator(".live-chosen input").input_value() == "variance"
    assert "scale=0.08839" in page.locator(".live-code").first.inner_text()
    for name in ("annealed", "freezing", "yarn", "clip", "gradient"):
        expected = {"annealed": float(annealed.best_alpha(LAW, 4096)), "freezing": 4.08}
        alpha = expected.get(name) or float(POLICIES[name].alpha(4096, 128))
        assert line(page, name)[0] == pytest.approx(alpha, rel=6e-3)
    page.locator("label", has_text="annealed").click()
    page.get_by_text("The book recommends variance, α = 1.00").wait_for()
    page.get_by_role("button", name="Take variance").click()
    addressed(page, "scale=recommended")
    assert fits(page)


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


# --- the front page -------------------------------------------------------------------------------


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


def test_a_head_reads_while_its_logits_are_multiplied(opened):
    page = opened("intro", 390)
    for part in ("article h1", "article section > p", "#fig-face .live"):  # on the first screen
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900
    words, logits, meant = tables.row_of_head()
    times, losses = verdicts.curve()
    mean = losses.mean(axis=1)
    rise = (mean - mean[times == 1.0])[:, [parts.PRICE_LENGTHS.index(n) for n in (128, 512, 2048)]]
    for factor in (0.5, 2.0):
        page.get_by_label("Multiply its logits", exact=True).fill(f"{factor:g}")
        weight, most = page.locator("#fig-face .live-count strong").all_inner_texts()
        expected = rows.softmax(logits, factor)[meant]
        assert number(weight) == pytest.approx(100 * expected, abs=0.5)
        assert number(most.split("up to ")[1]) == pytest.approx(
            rise[times == factor].max(), abs=0.06
        )
        height = page.locator("#fig-face .meant .live-weight").evaluate("one => one.style.height")
        assert float(height.removesuffix("%")) == pytest.approx(100 * expected, abs=0.1)
    assert page.locator("#fig-face .meant .live-word").inner_text() == words[meant] == "fox"
    page.get_by_label("Multiply its logits", exact=True).fill("3")
    assert not page.locator("#fig-face .live-count").is_visible()


def test_a_number_in_place_and_the_calculator_goes_on_from_there(opened):
    page = opened("intro", 390)
    answer = page.locator("#fig-number .live-answer")
    assert "multiply q·k by 0.08839." in answer.inner_text()  # 1/√128: nothing is known
    page.get_by_text("how far the key to find stands out").click()
    settle(page)
    assert "multiply q·k by 0.3536." in answer.inner_text()
    page.get_by_label("Number of keys n", exact=True).fill("1000")
    page.get_by_text("a trained head, measured by the probe").click()
    settle(page)
    assert "multiply q·k by 0.2652." in answer.inner_text()
    assert fits(page)
    page.get_by_role("link", name="The calculator", exact=True).click()
    status = page.locator("#fig-calculator [role=status]")
    status.get_by_text("For n = 1000, d = 128, finding: multiply q·k by 0.2652.").wait_for()


# --- the rules in use -----------------------------------------------------------------------------


def test_curve_row_formula_and_code_change_together(opened):
    page = opened("chapters/policies")
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
    page.get_by_label("Target length n", exact=True).fill("1")
    page.get_by_text("No answer yet. Target length n: One key").wait_for()
    assert not page.locator(".live-readings").is_visible()
    assert fits(page)


def test_the_rules_are_sorted_searched_and_picked_by_keyboard(opened):
    page = opened("chapters/policies")

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


# --- the others -----------------------------------------------------------------------------------

PARTED = (LAW, 3.0, tables.PARTING_KEYS)
SCORES = np.array([*np.linspace(-1.5, 0.6, 6), 1.0, 1.1])

MOVED = {
    "exact": (
        *("fig-live-parting", {"α": 3}, "still rises"),
        {
            "mean of all rows": exact.gradient(*PARTED),
            "typical row": typical.gradient(*PARTED, rows=tables.PARTING_ROWS)[0],
        },
    ),
    "freezing": (
        *("fig-live-freezing", {"Number of keys n": 10**5, "α": 4}, ""),
        {
            "of the mean of rows, 1/E Σp²": 1 / exact.collision_probability(LAW, 4.0, 10**5),
        },
    ),
    "needle": (
        "fig-live-needle",
        {"Strength of the needle θ": 5.5, "α": 2, "Number of keys n": 10**6},
        f"{float(retrieval.loss(LAW, retrieval.Tilted(5.5), 5.5, 10**6)):.3g}, at α = θ = 5.5",
        {"mean loss, all such rows": retrieval.loss(LAW, retrieval.Tilted(5.5), 2.0, 10**6)},
    ),
    "reach": (
        *("fig-live-reach", {"Gap Δ": 5, "α": 4.5}, "finds"),
        {
            "reach of this α, exact": retrieval.reach(LAW, retrieval.Fixed(5.0), 4.5),
            "by the formula, exp(αΔ − α²/2)": np.exp(4.5 * 5 - 4.5**2 / 2),
        },
    ),
    "jacobian": (
        *("fig-live-jacobian", {"α": 20, "Gap of the two largest scores": 0.1}, ""),
        {
            "gradient g = α(1 − Σp²)": rows.gradient(SCORES, 20.0),
            "largest entry of J": rows.jacobian(SCORES, 20.0).max(),
        },
    ),
    "variance": (
        *("fig-live-variance", {"Length of the vectors d": 512}, ""),
        {"predicted: d": 512},
    ),
}
"""By chapter: the figure, what is put into its fields, a part of its note, and what it shows."""

WHY = ("jacobian", "variance")
"""Two figures of one chapter."""


@pytest.mark.parametrize("chapter", MOVED)
def test_a_figure_follows_its_fields_and_shows_nothing_beside_what_is_refused(opened, chapter):
    name, fields, said, expected = MOVED[chapter]
    page = opened(f"chapters/{'why' if chapter in WHY else chapter}")
    figure = page.locator(f"#{name}")
    for label, value in fields.items():
        entry = figure.get_by_label(label, exact=True)
        entry.fill(str(value))
    shown = readings(figure)
    for reading, value in expected.items():
        assert number(shown[reading]) == pytest.approx(float(value), rel=6e-3), reading
    assert said in figure.locator(".live-note").inner_text()
    entry.fill("-1")
    assert entry.get_attribute("aria-invalid") == "true"
    assert not figure.locator(".live-readings, .live-pictures").first.is_visible()
    entry.fill(str(next(reversed(fields.values()))))
    assert readings(figure) == shown
    play = figure.get_by_role("button", name="grow")
    if play.count():
        grown = {"freezing": "Number of keys n", "variance": "Length of the vectors d"}
        moves(figure, play.inner_text(), grown.get(chapter, "α"))
    assert fits(page)


@pytest.mark.parametrize(
    ("chapter", "name", "label", "low", "high"),
    [
        ("exact", "fig-live-parting", "α", 3, 4.5),
        ("freezing", "fig-live-freezing", "α", 4.5, 6),
        ("freezing", "fig-freezing-contest", "x, α over the critical α", 0.5, 0.7),
        ("reach", "fig-live-reach", "α", 4, 6),
        ("policies", "fig-policies-plane", "Target length n", 5_500, 7_500),
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
        page.wait_for_timeout(100)
        assert float(alpha.input_value()) == moved
        assert page.evaluate("scrollY") > before + 50

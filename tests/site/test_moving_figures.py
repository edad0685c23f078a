"""The live figures that a hand moves: their numbers against attnlib, and themselves."""

import re

import numpy as np
import pytest

from attnlib import annealed, exact, freezing, retrieval, rows, typical
from attnlib.initialisation import sample_rows
from attnlib.scores import DotProduct, Normal
from book import stills
from book.live import tables
from tests.site.html_checks import soup
from tests.site.test_calculator import fits, moves, number, readings, settle

LIVE = {
    "exact": ["fig-live-parting", "fig-exact-gradient"],
    "freezing": ["fig-freezing-contest", "fig-freezing-phases"],
    "needle": ["fig-live-needle"],
    "reach": ["fig-live-reach", "fig-reach-plane"],
    "saturation": ["fig-largest"],
    "variance": ["fig-live-variance"],
}


@pytest.mark.parametrize("chapter", LIVE)
def test_print_and_browsers_without_javascript_have_the_stills(opened, site, chapter):
    page = opened(f"{chapter}.html")
    written = soup(site / "chapters" / f"{chapter}.html")
    for name in LIVE[chapter]:
        still, live = page.locator(f"#{name} img"), page.locator(f"#{name} .live")
        live.wait_for()
        assert not still.is_visible()
        page.emulate_media(media="print")
        assert still.is_visible()
        assert not live.is_visible()
        page.emulate_media(media="screen")
        # What stands there before any script has run.
        assert len(written.select(f"#{name} img[alt]:not(.live-still)")) == 1


def drag(page, figure, start, end):
    """Drag a pointer over a figure's first picture, between two places as shares of its size."""
    box = page.locator(f"#{figure} .live svg[role=img]").first
    box.scroll_into_view_if_needed()
    at = box.bounding_box()
    (x0, y0), (x1, y1) = (
        (at["x"] + x * at["width"], at["y"] + y * at["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
    page.mouse.move(x1, y1)
    page.mouse.up()
    settle(page)


# --- rows that part -------------------------------------------------------------------------------


def test_the_typical_row_of_the_parting_figure(call):
    alpha = np.linspace(0.05, tables.PARTING_ALPHA, 31)
    found = call("cases.map(m.typicalGradient)", alpha.tolist())
    expected, _ = typical.gradient(Normal(), alpha, tables.PARTING_KEYS, rows=tables.PARTING_ROWS)
    np.testing.assert_allclose(found, expected, rtol=3e-4)


def test_the_rows_that_part_are_normal_rows(call):
    s, g = call(
        """(() => { const rows = m.normalRows(100, 512, 1);
          return [rows.map((s) => [...s]), rows.map((s) => m.rowGradients(s, 0.5, 19))]; })()"""
    )
    s, g = np.array(s), np.array(g)
    alpha = 0.5 * np.arange(19)
    assert (np.diff(s) <= 0).all()
    assert abs(s.mean()) < 4 / np.sqrt(s.size)
    assert abs(s.var() - 1) < 4 * np.sqrt(2 / s.size)
    np.testing.assert_allclose(g, np.stack([rows.gradient(s, a) for a in alpha], -1), 1e-9, 1e-12)
    error = g.std(axis=0) / np.sqrt(len(g))
    assert (np.abs(g.mean(axis=0) - exact.gradient(Normal(), alpha, 512)) <= 4 * error + 1e-9).all()


def test_rows_part_under_the_hand(opened):
    page = opened("exact.html")
    alpha = page.get_by_label("α", exact=True)
    law, n = Normal(), tables.PARTING_KEYS
    for value, said in ((1.0, "Together"), (3.0, "still rises"), (6.0, "past its own")):
        alpha.fill(str(value))
        shown = readings(page)
        mean = float(exact.gradient(law, value, n))
        assert number(shown["mean of all rows"]) == pytest.approx(mean, rel=6e-3)
        expected = float(typical.gradient(law, value, n, rows=4000)[0])
        assert number(shown["typical row"]) == pytest.approx(expected, rel=0.05)
        assert said in page.locator(".live-note").inner_text()
    assert shown["approximation"] == "below 0"
    alpha.fill("1.5")
    formula = float(annealed.gradient(law, 1.5, n))
    assert number(readings(page)["approximation"]) == pytest.approx(formula, rel=6e-3)
    drag(page, "fig-live-parting", (0.3, 0.5), (0.5, 0.4))
    assert 3 < float(alpha.input_value()) < 4.5
    bars = "(bars) => bars.map((bar) => bar.getAttribute('height'))"
    before = page.locator(".live svg .bar").evaluate_all(bars)
    page.get_by_role("button", name="Draw other rows").click()
    assert page.locator(".live svg .bar").evaluate_all(bars) != before
    alpha.fill("10")
    assert alpha.get_attribute("aria-invalid") == "true"
    moves(page, "Let α grow", "α")
    assert fits(page)


def test_with_reduced_motion_a_press_is_one_step(opened):
    page = opened("exact.html", reduced_motion="reduce")
    for expected in ("1.13", "2.25"):
        page.get_by_role("button", name="Let α grow").click()
        page.wait_for_timeout(60)
        assert page.get_by_label("α", exact=True).input_value() == expected


# --- the contest ----------------------------------------------------------------------------------


def test_the_winner_of_the_contest(call):
    places = [0.0, 0.3, 0.5, 0.9, 1.0, 1.4, 2.0]
    levels = np.linspace(0, 1, 1001)
    for x, found in zip(places, call("cases.map(m.winner)", places), strict=True):
        weights = 1 - levels**2 + 2 * x * levels
        assert found["level"] == pytest.approx(levels[weights.argmax()], abs=1e-3)
        assert found["weight"] == pytest.approx(weights.max(), abs=1e-5)
        assert found["number"] == pytest.approx(1 - found["level"] ** 2, abs=1e-12)
        # The limit of E log Z, at a number of keys that no row has.
        assert found["weight"] == pytest.approx(1 + x**2 if x <= 1 else 2 * x, rel=1e-9)


def test_the_contest_under_the_hand(opened):
    page = opened("freezing.html")
    figure = page.locator("#fig-freezing-contest")
    scale = figure.get_by_label("x, α over the critical α", exact=True)
    values, note = figure.locator("dd"), figure.locator(".live-note")
    assert values.all_inner_texts()[:2] == ["0.5", "n1.25"]
    drag(page, "fig-freezing-contest", (0.3, 0.5), (0.5, 0.4))
    x = float(scale.input_value())
    assert 0.6 < x < 0.8
    assert float(values.nth(1).inner_text()[1:]) == pytest.approx(1 + x**2, abs=0.006)
    assert number(values.nth(3).inner_text()) == pytest.approx(4096 ** (1 - x**2), rel=0.01)
    assert "rare rows make the mean" in note.inner_text()
    scale.fill("1.5")
    assert values.all_inner_texts() == ["1", "n3", "a few", "a few"]
    assert note.inner_text().startswith("Frozen")
    scale.fill("0.2")
    assert "typical rows and in the mean" in note.inner_text()
    figure.get_by_role("slider").press("ArrowRight")
    assert scale.input_value() == "0.21"
    scale.fill("3")
    assert scale.get_attribute("aria-invalid") == "true"


# --- the plane ------------------------------------------------------------------------------------


def test_the_mean_collision_probability_at_any_place_of_the_plane(call):
    places = [(0.0, 50), (0.05, 300), (0.4, 2), (2.4, 4096), (3.0, 10**9), (8.0, 10**12), (7.0, 16)]
    found = call("cases.map(([alpha, n]) => m.meanCollision(alpha, n))", places)
    expected = [float(exact.collision_probability(Normal(), alpha, n)) for alpha, n in places]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_phases_and_the_rules_of_the_plane(call):
    keys = [3, 500, 4096, 10**6, 10**12]
    bounds = [
        freezing.annealed_typical_bound,
        freezing.annealed_mean_bound,
        freezing.critical_alpha,
    ]
    cases = [[factor * float(f(n)), n] for n in keys for f in bounds for factor in (0.999, 1.001)]
    assert call("cases.map((c) => m.region(...c))", cases) == [0, 1, 1, 2, 2, 3] * len(keys)
    names = ["α*(n)", "0.84 √log n", "log n/log 512", "3.5 log n/√128"]
    found = call("m.SOURCES.slice(1).map(([name, , f]) => [name, cases.map(f)])", keys)
    log_n = np.log(keys)
    expected = [annealed.best_alpha(Normal(), keys), 0.84 * np.sqrt(log_n), log_n / np.log(512)]
    expected.append(3.5 * log_n / np.sqrt(128))
    assert [name for name, _ in found] == names
    np.testing.assert_allclose([values for _, values in found], expected, rtol=1e-9)


def test_a_point_is_dragged_through_the_plane(opened):
    page = opened("freezing.html")
    figure = page.locator("#fig-freezing-phases")
    keys, alpha = (figure.get_by_label(f, exact=True) for f in ("Number of keys n", "α"))
    keys.fill("100000")
    alpha.fill("3")
    ratio, row, mean, formula = map(number, figure.locator("dd").all_inner_texts())
    assert ratio == pytest.approx(3 / freezing.critical_alpha(10**5), rel=6e-3)
    assert row == pytest.approx(1 / stills.sample_row(10**5, 3.0).collision_probability, rel=6e-3)
    expected = 1 / exact.collision_probability(Normal(), 3.0, 10**5)
    assert mean == pytest.approx(float(expected), rel=6e-3)
    assert formula == pytest.approx(10**5 / np.exp(9), rel=6e-3)
    assert figure.locator(".live-note").inner_text().startswith("Neither")
    assert figure.locator("text.here").text_content() == "neither"
    drag(page, "fig-freezing-phases", (0.5, 0.5), (0.3, 0.1))
    assert 100 < int(keys.input_value()) < 10**4
    assert 6.5 < float(alpha.input_value()) < 8
    assert figure.locator(".live-note").inner_text().startswith("Frozen")
    assert fits(page)


def test_a_finger_moves_the_handle_and_otherwise_the_page(opened):
    page = opened("freezing.html", width=390, has_touch=True)
    picture = page.locator("#fig-live-freezing .live svg[role=img]").first
    alpha = page.locator("#fig-live-freezing").get_by_label("α", exact=True)
    devices = page.context.new_cdp_session(page)

    def swipe(x, y, by):
        for step in range(6):
            kind = "touchMove" if step else "touchStart"
            at = {"x": x, "y": y + by * step / 5}
            devices.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
        devices.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        settle(page)

    page.evaluate("window.scrollTo(0, 0)")
    picture.scroll_into_view_if_needed()
    dot = picture.locator(".dot").bounding_box()
    swipe(dot["x"] + 8, dot["y"] + 8, 60)
    moved = float(alpha.input_value())
    assert moved < 3.5
    box, before = picture.bounding_box(), page.evaluate("scrollY")
    swipe(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"], -120)
    page.wait_for_timeout(100)
    assert float(alpha.input_value()) == moved
    assert page.evaluate("scrollY") > before + 50


# --- the needle in its row ------------------------------------------------------------------------


def test_the_mean_loss_of_a_needle(call):
    law, alphas, keys = Normal(), [0.0, 0.05, 0.7, 4.0, 10.0], [2, 512, 4096]
    for kind, needle in (("theta", retrieval.Tilted), ("gap", retrieval.Fixed)):
        for strength in (0.0, 2.0, 8.0):
            found = call(
                """cases.alphas.map((alpha) => cases.keys.map(
                  m.meanLoss({ kind: "normal" }, cases.needle, alpha)))""",
                {
                    "needle": {"kind": kind, "strength": strength},
                    "alphas": alphas,
                    "keys": keys,
                },
            )
            expected = retrieval.loss(law, needle(strength), np.array(alphas)[:, None], keys)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_the_needle_of_the_row_is_moved_by_its_strength(call):
    moved, rests = [], []
    for n in (2, 64, 4096):
        for seed in (1, 2, 9):
            with_one, without = call(
                """[3.5, 0].map((theta) => m.rowWithNeedle(theta, ...cases))
                  .map(({ scores, placed }) => [scores, placed])""",
                [n, seed],
            )
            (s, placed), (s0, placed0) = with_one, without
            assert s0 == call("[...m.normalRows(1, ...cases)[0]]", [n, seed])
            assert s == sorted(s, reverse=True)
            assert len(s) == len(s0) == n
            assert s[placed] - s0[placed0] == pytest.approx(3.5)
            moved.append(s0[placed0])
            rests += s0[:placed0] + s0[placed0 + 1 :]
    assert abs(np.mean(moved)) < 4 / np.sqrt(len(moved))
    assert abs(np.mean(rests)) < 4 / np.sqrt(len(rests))


def test_a_needle_under_the_hand(opened):
    page = opened("needle.html")
    figure = page.locator("#fig-live-needle")
    theta, alpha, keys = (
        figure.get_by_label(name, exact=True)
        for name in ("Strength of the needle θ", "α", "Number of keys n")
    )
    law = Normal()
    for strength, a, n in ((4, 1, 512), (3, 6, 64), (5.5, 2, 4096)):
        for entry, value in zip((theta, alpha, keys), (strength, a, n), strict=True):
            entry.fill(str(value))
        shown = readings(figure)
        needle = retrieval.Tilted(strength)
        mean = float(retrieval.weight(law, needle, a, n))
        assert number(shown["mean weight, all such rows"]) == pytest.approx(100 * mean, rel=0.06)
        loss = float(retrieval.loss(law, needle, a, n))
        assert number(shown["mean loss, all such rows"]) == pytest.approx(loss, rel=6e-3)
        own = number(shown["weight of the needle, this row"]) / 100
        assert number(shown["loss −log p, this row"]) == pytest.approx(-np.log(own), abs=0.06)
        least = float(retrieval.loss(law, needle, strength, n))
        assert f"{least:#.3g}, at α = θ = {strength}" in figure.locator(".live-note").inner_text()
    assert figure.locator(".bar.marked").count() == 1
    said = set()
    for _ in range(12):
        said.add(figure.locator(".live-note").inner_text().split(".")[0])
        figure.get_by_role("button", name="Draw another row").click()
    assert len(said) > 1  # another key is sometimes the best
    drag(page, "fig-live-needle", (0.3, 0.5), (0.6, 0.4))
    assert 4 < float(alpha.input_value()) < 7
    keys.fill("5000")
    assert keys.get_attribute("aria-invalid") == "true"
    moves(figure, "Let α grow", "α")
    assert fits(page)


# --- the reach ------------------------------------------------------------------------------------


def test_the_reach_of_every_gap_and_scale(call):
    cases = [[1.0, 0.5], [1.0, 12.0], [4.0, 1.0], [4.0, 4.0], [6.0, 2.5], [7.0, 7.0], [7.0, 12.0]]
    found = call("cases.map((c) => m.exactReach(...c))", cases)
    for (gap, alpha), at in zip(cases, found, strict=True):
        needle = retrieval.Fixed(gap)
        expected = float(retrieval.reach(Normal(), needle, alpha))
        assert at["reach"] == pytest.approx(expected, rel=3e-3, abs=1), (gap, alpha)
        n, weight = np.array(at["points"]).T
        among = retrieval.weight(Normal(), needle, alpha, np.round(n[20::8]))
        np.testing.assert_allclose(weight[20::8], among, rtol=2e-3, atol=1e-6)


def test_the_reach_under_the_hand(opened):
    page = opened("reach.html")
    figure = page.locator("#fig-live-reach")
    gap, alpha = (figure.get_by_label(name, exact=True) for name in ("Gap Δ", "α"))
    for delta, a, said in ((4, 1, "Too small"), (5, 5.5, "finds"), (3.5, 9, "Only rivals")):
        gap.fill(str(delta))
        alpha.fill(str(a))
        needle = retrieval.Fixed(float(delta))
        reached, formula, largest, share = figure.locator("dd").all_inner_texts()
        assert number(reached) == pytest.approx(
            float(retrieval.reach(Normal(), needle, a)), rel=3e-3
        )
        if a <= delta:
            assert number(formula) == pytest.approx(np.exp(a * delta - a**2 / 2), rel=0.02)
        else:
            assert formula == "only up to α = Δ"
        assert number(largest) == pytest.approx(np.exp(delta**2 / 2), rel=0.01)
        weight = 100 * float(retrieval.weight(Normal(), needle, a, 4096))
        assert number(share) == pytest.approx(weight, rel=0.1, abs=0.6)
        assert said.lower() in figure.locator(".live-note").inner_text().lower()
    gap.fill("7")
    assert "· 10" in figure.locator("dd").first.inner_text()
    drag(page, "fig-live-reach", (0.3, 0.5), (0.4, 0.4))
    assert 2 < float(alpha.input_value()) < 4.5
    alpha.fill("0")
    assert figure.locator("dd").first.inner_text() == "2"
    gap.fill("0.5")
    assert gap.get_attribute("aria-invalid") == "true"
    moves(figure, "Let α grow", "α")
    assert fits(page)


# --- figures that ask first -----------------------------------------------------------------------


def test_the_answers_are_the_library_s(call):
    dimension, scale = call("[m.halfDimension(), m.ninetyPercent()]")
    share = exact.saturation(Normal(), scale, tables.GUESSED_KEYS)
    assert float(share) == pytest.approx(0.9, abs=1e-3)
    reached = call("m.exactReach(6, 1).reach")
    assert reached == float(retrieval.reach(Normal(), retrieval.Fixed(6.0), 1.0))
    # Other rows than the chapter's, at the answer itself.
    rng, d = np.random.default_rng(5), round(dimension)
    above = sample_rows(rng, d, tables.ONE_HOT_KEYS, exponent=0.0).largest > 0.5
    assert abs(above.mean() - 0.5) < 0.06


GUESSES = {
    "saturation": (
        "fig-largest",
        "d",
        "1024",
        r"d = 24 on\. .* of 1024 is 43 times too large",
    ),
    "exact": ("fig-exact-gradient", "α", "2", r"At α = 4\.07\. .* of 2 is 2\.1 too small"),
    "reach": ("fig-reach-plane", "n", "100", r"Among 246\. .* of 100 is 2\.5 times too few"),
}


@pytest.mark.parametrize("chapter", GUESSES)
def test_a_guess_is_placed_and_compared(opened, chapter):
    name, letter, guess, said = GUESSES[chapter]
    page = opened(f"{chapter}.html")
    figure = page.locator(f"#{name}")
    entry = figure.get_by_label(f"Your guess for {letter}", exact=True)
    show, answer, still = (
        figure.get_by_role("button", name="Show the curve"),
        figure.locator(".live-answer"),
        figure.locator("img"),
    )
    curves = figure.locator(".live path.line:not(.guess)")
    show.click()
    assert "Place a guess first" in figure.locator(".live-problem").inner_text()
    assert curves.count() == 0
    assert not still.is_visible()
    # By keyboard: the number, two buttons further on, the space bar.
    entry.focus()
    page.keyboard.type(guess)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert figure.locator(".guess").count() == 1
    page.keyboard.press("Space")
    assert re.search(said, answer.inner_text())
    assert curves.count() >= 1
    assert still.is_visible()
    assert not entry.is_visible()
    page.keyboard.press("Enter")  # the focus is on "Guess again"
    assert figure.locator(".guess").count() == 0
    assert not still.is_visible()
    assert entry.input_value() == ""
    # By hand: a click in the picture places the guess.
    drag(page, name, (0.5, 0.5), (0.6, 0.5))
    assert float(entry.input_value()) > 0
    assert fits(page)
    show.click()
    assert "Your guess of" in answer.inner_text()
    figure.get_by_role("button", name="Guess again").click()
    figure.get_by_role("button", name="Show it without a guess").click()
    assert "Your guess" not in answer.inner_text()
    assert still.is_visible()


# --- dot products that widen ----------------------------------------------------------------------


def test_dot_products_widen_with_the_length_of_the_vectors(call):
    lengths = [1, 4, 64, 512]
    found = call(
        """(() => { const products = m.growingProducts(1000, 1);
          const moments = (d) => ({ values: [...products(d)], ...m.momentsAt(products(d), d) });
          return cases.map(moments); })()""",
        lengths,
    )
    for d, at in zip(lengths, found, strict=True):
        values = np.array(at["values"])
        assert len(values) == 1000
        assert at["mean"] == pytest.approx(values.mean(), abs=1e-6)
        assert at["variance"] == pytest.approx(values.var(ddof=1))
        assert abs(at["variance"] - d) < 4 * at["error"]
        # The fourth moment of the library's law, which has variance 1.
        x = np.linspace(-60, 60, 400_001)
        fourth = np.trapezoid(x**4 * np.exp(DotProduct(max(d, 2)).logpdf(x)), x)
        if d > 1:
            expected = d * np.sqrt((fourth - 1) / 1000)
            assert at["error"] == pytest.approx(expected, rel=1e-3)


def test_dot_products_under_the_hand(opened):
    page = opened("variance.html")
    length = page.get_by_label("Length of the vectors d", exact=True)
    for d in (4, 512):
        length.fill(str(d))
        shown = readings(page)
        value, error = map(float, shown["variance of q·k, measured"].split(" ± "))
        assert abs(value - d) < 4 * error
        assert shown["predicted: d"] == str(d)
        scaled, _ = map(float, shown["variance of q·k/√d"].split(" ± "))
        assert scaled == pytest.approx(value / d, rel=0.01)
    length.fill("0")
    assert length.get_attribute("aria-invalid") == "true"
    moves(page, "Let d grow", "Length of the vectors d")
    assert fits(page)

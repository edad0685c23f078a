"""The explorer of the rules in use: its numbers against attnlib, and its page in a browser."""

import numpy as np
import pytest

from attnlib.policies import POLICIES
from book.catalogue import letters, rules
from tests.site.test_calculator import fits, multiplied, number, settle

__all__ = ["multiplied"]  # a fixture

FOLLOWS = ("train_length", "reference", "start")
"""Constants that are the training length."""


def published_or_own(policy, length, n, *, own):
    """Return a policy with the constants that the explorer gives it."""
    names = [name for name in policy.constants if name in FOLLOWS] if own else []
    changed = dict.fromkeys(names, length)
    if own and "factor" in policy.constants:
        changed["factor"] = max(1.0, n / length)
    return policy.with_constants(**changed), changed


@pytest.mark.parametrize("own", [False, True])
def test_every_rule_has_the_library_s_numbers(call, own):
    length, n, d = 8192, 300_000, 96
    state = {"length": length, "n": n, "d": d, "own": own}
    found = call(
        """m.rulesOf(cases).map((rule) => [
          rule.name, rule.scale, rule.alphaAt(cases.n), rule.alphaAt(cases.length),
          m.constantsOf(rule), Object.keys(rule.changed)])""",
        state,
    )
    assert [rule[0] for rule in found] == list(POLICIES)
    for name, scale, after, before, constants, changed in found:
        policy, expected = published_or_own(POLICIES[name], length, n, own=own)
        assert set(changed) == set(expected), name
        assert scale == pytest.approx(float(policy.scale(n, d)), rel=1e-5)
        assert after == pytest.approx(float(policy.alpha(n, d)), rel=1e-5)
        assert before == pytest.approx(float(policy.alpha(length, d)), rel=1e-5)
        shown = [
            f"{letter} = {policy.constants[key]:.6g}" for key, letter in letters(policy).items()
        ]
        assert constants == ", ".join(shown)


def test_its_lines_of_code_have_its_constants(call, multiplied):
    length, n = 1000, 20_000
    found = call(
        """m.rulesOf(cases).map((rule) =>
          [rule.name, m.code(rule, { n: cases.n, d: 16, causal: true })])""",
        {"length": length, "n": n, "d": 16, "own": True},
    )
    for name, code in found:
        policy, changed = published_or_own(POLICIES[name], length, n, own=True)
        if not changed:
            continue
        whole = name in ("yarn", "longrope")
        keys = np.full(n, n) if whole else np.arange(1, n + 1)
        for text in (code["torch"], code["attnlib"]):
            np.testing.assert_allclose(
                multiplied(text, policy.applied_to),
                policy.scale(keys, 16),
                rtol=6e-4,
                err_msg=text,
            )


def row(page, name):
    """Return the cells of a rule's row in the table."""
    line = page.locator("#table-rules tr", has=page.locator(f'input[value="{name}"]'))
    return [text.strip() for text in line.locator("td").all_inner_texts()]


def test_curve_row_formula_and_code_change_together(opened):
    page = opened("policies.html")
    page.locator("#fig-policies-plane .live svg").wait_for()
    for name, length, n, d in (("yarn", 8192, 65536, 96), ("llama_4", 4096, 10**6, 64)):
        page.get_by_label("Model or rule").select_option(name)
        for label, value in (("Target length n", n), ("Training length L", length)):
            page.get_by_label(label, exact=True).fill(str(value))
        page.get_by_label("Dimension d", exact=True).fill(str(d))
        settle(page)
        assert page.get_by_label("use L in the rules").is_checked()
        policy, _ = published_or_own(POLICIES[name], length, n, own=True)
        scale, before, after = (
            float(policy.scale(n, d)),
            float(policy.alpha(length, d)),
            float(policy.alpha(n, d)),
        )
        cells = row(page, name)
        assert [number(cell) for cell in cells[3:]] == pytest.approx(
            [scale, before, after], rel=6e-3
        )
        assert page.locator("#table-rules .live-chosen input").input_value() == name
        shown = dict(
            zip(
                page.locator(".live-readings dt").all_inner_texts(),
                page.locator(".live-readings dd").all_inner_texts(),
                strict=True,
            )
        )
        assert number(shown[next(key for key in shown if key.startswith("multiplies"))]) == (
            pytest.approx(scale, rel=6e-4)
        )
        assert page.locator(".live-formula math").count() == 1
        assert policy.title in page.locator("#fig-policies-plane svg").get_attribute("aria-label")
        assert name in page.locator(".live-code").last.inner_text()
    assert "torch.log1p(n // 8192)" in page.locator(".live-code").first.inner_text()
    assert fits(page)


def test_the_table_is_sorted_searched_and_picked_by_keyboard(opened):
    page = opened("policies.html")
    page.locator("#fig-policies-plane .live svg").wait_for()
    order = lambda: page.locator("#table-rules tbody input").evaluate_all(  # noqa: E731
        "(inputs) => inputs.filter((i) => !i.closest('tr').hidden).map((i) => i.value)"
    )
    assert order() == list(POLICIES)
    button = page.get_by_role("button", name="α at n = 131072")
    button.focus()
    page.keyboard.press("Enter")
    alphas = [float(POLICIES[name].alpha(131_072, 128)) for name in order()]
    assert np.diff(alphas).min() > -1e-9
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=descending]").count() == 1
    alphas = [float(POLICIES[name].alpha(131_072, 128)) for name in order()]
    assert np.diff(alphas).max() < 1e-9
    page.get_by_label("Find a model or a rule").fill("gpt-2")
    assert set(order()) == {"transformer", "gpt2_by_layer"}
    page.locator("#table-rules input[value=transformer]").focus()
    page.keyboard.press("Space")
    settle(page)
    assert page.get_by_label("Model or rule").input_value() == "transformer"


def test_the_target_length_is_dragged(opened):
    page = opened("policies.html")
    picture = page.locator("#fig-policies-plane .live-wide svg")
    picture.wait_for()
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    lengths = []
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 100)
    page.mouse.down()
    for share in (0.5, 0.7, 1.0):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 100)
        settle(page)
        lengths.append(int(page.get_by_label("Target length n", exact=True).input_value()))
    page.mouse.up()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 100)
    settle(page)
    left, right = 76 / 620, 606 / 620  # of the axes
    expected = [16 * 2 ** (20 * (share - left) / (right - left)) for share in (0.5, 0.7)]
    assert lengths == [*(pytest.approx(n, rel=2e-2) for n in expected), 2**24]
    assert page.get_by_label("Target length n", exact=True).input_value() == str(2**24)


def test_a_length_that_cannot_be_is_explained(opened):
    page = opened("policies.html", width=390, has_touch=True)
    page.locator("#fig-policies-plane .live svg").wait_for()
    page.get_by_label("Target length n", exact=True).fill("1")
    page.get_by_text("No answer yet. Target length n: One key").wait_for()
    assert page.locator(".live-readings").is_hidden()
    assert row(page, "yarn")[3:] == ["", "", ""]
    page.get_by_label("Target length n, slider").tap()
    settle(page)
    assert page.locator(".live-readings").is_visible()
    assert number(row(page, "yarn")[3]) > 0


def test_print_and_browsers_without_javascript_have_figure_and_table(opened, browser, address):
    page = opened("policies.html")
    still = page.locator("#fig-policies-plane img")
    page.locator("#fig-policies-plane .live").wait_for()
    assert not still.is_visible()
    page.emulate_media(media="print")
    assert still.is_visible()
    assert page.locator("#table-rules").is_visible()
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(f"{address}/policies.html")
    assert plain.locator("#fig-policies-plane img").is_visible()
    assert plain.locator("#table-rules math").count() == len(POLICIES)
    assert plain.locator("#table-rules tbody tr").count() == len(rules(131_072, 4096, 128).rows)
    plain.close()

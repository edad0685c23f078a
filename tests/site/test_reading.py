"""Code is opened by one switch that is remembered; a link shows what it refers to."""

import re

import pytest

from tests.site.checks import NARROWEST, SETTLED

PAGE = "chapters/variance"
TAUGHT, DRAWN = "details.code:not(.above-input)", "details.code.above-input"
SEEN = """(selector) => [...document.querySelectorAll(`${selector} pre`)].map(
  (code) => code.checkVisibility({ contentVisibilityAuto: true })
    && code.getBoundingClientRect().height > 0)"""


def shown(page, selector):
    """Return for each piece of code whether it is shown, in the next frame."""
    page.screenshot()  # without scripts a page tells of no frame
    return page.evaluate(SEEN, selector)


@pytest.fixture
def unwatched(new_page, address):
    """Return a function that opens PAGE where requests may fail, as those of scripts do without."""

    def unwatched(**options):
        page = new_page(**options)
        page.goto(f"{address}/{PAGE}.html")
        return page

    return unwatched


def test_the_switch_opens_all_code_and_is_remembered(opened, address):
    page = opened(PAGE)
    switch = page.get_by_role("button", name="Code", exact=True)
    assert switch.get_attribute("aria-pressed") == "false"
    assert not any(shown(page, "details.code"))
    switch.focus()
    page.keyboard.press("Enter")
    assert switch.get_attribute("aria-pressed") == "true"
    assert shown(page, "details.code")
    assert all(shown(page, "details.code"))
    page.goto(f"{address}/chapters/unscaled.html")
    assert all(shown(page, "details.code"))
    switch.focus()
    page.keyboard.press("Space")
    assert not any(shown(page, "details.code"))
    page.reload()
    assert not any(shown(page, "details.code"))


@pytest.mark.slow
def test_without_scripts_each_cell_opens_by_itself_and_links_have_their_colour(unwatched):
    page = unwatched(java_script_enabled=False)
    colour = "(element) => getComputedStyle(element).color"
    words, link = (page.locator(f"article {tag}").first for tag in ("p", "p a"))
    assert words.evaluate(colour) != link.evaluate(colour)
    assert page.locator(".code-switch").count() == 0
    code = page.locator("details.code pre").first
    assert not code.is_visible()
    page.locator("details.code summary").first.click()
    assert code.is_visible()


@pytest.mark.slow
def test_before_printing_the_code_is_opened_and_letters_are_dark(opened):
    page = opened(PAGE, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(theme) == "light"
    assert all(shown(page, TAUGHT))
    assert not any(shown(page, DRAWN))
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"
    assert not any(shown(page, "details.code"))


WIDE = """() => [...document.querySelectorAll(".bd-content article div.math")].map((box) => ({
  more: box.scrollWidth - box.clientWidth > 1,
  marked: box.dataset.more,
  stop: box.tabIndex === 0,
  mask: getComputedStyle(box).maskImage !== "none",
}))"""


@pytest.mark.slow
def test_a_wide_formula_fades_where_it_goes_on_and_keys_scroll_it(opened):
    page = opened("chapters/mean_gradient", NARROWEST)
    page.evaluate(SETTLED)
    formulas = page.evaluate(WIDE)
    assert any(one["more"] for one in formulas)
    assert not all(one["more"] for one in formulas)
    for one in formulas:
        assert one["marked"] == ("right" if one["more"] else "")
        assert one["mask"] == one["stop"] == one["more"]
    wide = page.locator("article div.math[data-more=right]").first
    assert wide.get_attribute("aria-label") == "Wide formula, scrolls"
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 1")
    page.wait_for_function("document.activeElement.dataset.more.includes('left')")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate(SETTLED)
    assert not any(one["more"] or one["marked"] or one["stop"] for one in page.evaluate(WIDE))


def preview(page):
    """Return the preview, once it is there."""
    shown = page.locator("#preview")
    shown.wait_for()
    return shown


def test_a_link_shows_what_it_refers_to_while_a_pointer_or_the_focus_is_on_it(opened):
    page = opened("chapters/retrieval_range")
    link = page.locator("article p a[href*='retrieval.html#thm-']:not(.headerlink)").first
    link.scroll_into_view_if_needed()
    link.hover()
    shown = preview(page)
    assert "Theorem" in shown.inner_text()
    assert link.get_attribute("aria-describedby") == "preview"
    box = shown.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    page.mouse.move(2, 2)
    shown.wait_for(state="detached")
    page.keyboard.press("Tab")
    link.focus()
    preview(page)
    page.keyboard.press("Escape")
    assert page.locator("#preview").count() == 0


def test_a_letter_of_a_formula_is_explained_under_the_pointer(opened):
    page = opened("chapters/freezing")
    letters = page.locator("article p math > mi").filter(has_text=re.compile("^α$"))
    letters.first.hover()
    assert "inverse temperature" in preview(page).inner_text()

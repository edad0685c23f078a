"""Code is opened by one switch that is remembered; a link shows what it refers to."""

import re

PAGE = "chapters/variance"
SEEN = """(selector) => [...document.querySelectorAll(`${selector} pre`)].map(
  (code) => code.checkVisibility({ contentVisibilityAuto: true })
    && code.getBoundingClientRect().height > 0)"""


def shown(page, selector):
    """Return for each piece of code whether it is shown, in the next frame."""
    page.screenshot()  # without scripts a page tells of no frame
    return page.evaluate(SEEN, selector)


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

"""Pages in a browser: in every window, without a jump, accessible, from a folder."""

import re
from html import escape, unescape

import pytest
from axe_playwright_python.sync_playwright import Axe

from book.extensions.pages import SHORT_PATH as PATH
from tests.site.checks import ALL_THERE, NARROWEST, PAGES, SETTLED, WIDTHS, findings

# --- every page, telephone and desk ---------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_page_shows_well(window, address, name):
    page, noted = window
    noted.clear()
    found = findings(page, f"{address}/{name}.html", WIDTHS)
    assert found + noted == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_page_shows_well_in_every_window(window, address, name):
    page, noted = window
    noted.clear()
    page.emulate_media(color_scheme="dark")
    widths = (NARROWEST, 600, 768, 1000, 1400, 1920)
    found = findings(page, f"{address}/{name}.html", widths, pictures=True)
    page.emulate_media(color_scheme="light")
    assert found + noted == []


# --- letters --------------------------------------------------------------------------------------


def families(page, selector):
    """Return the fonts of each element that is selected, and whether they come with the page."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    found = session.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})
    drawn = [
        session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        for node in found["nodeIds"]
    ]
    return [{(font["familyName"], font["isCustomFont"]) for font in fonts} for fonts in drawn]


def test_every_sign_of_a_formula_is_in_the_font_of_the_site(new_page, site, address):
    signs = set()
    for path in site.rglob("*.html"):
        for formula in re.findall(r"<math\b.*?</math>", path.read_text("utf-8"), re.DOTALL):
            signs |= set(unescape(re.sub(r"<[^>]*>", "", formula)))
    signs -= set(" \u2061")  # blanks are not shown
    slanted = {chr(sign) for sign in (*range(0x1D434, 0x1D455), *range(0x1D6FC, 0x1D715))}
    assert len(signs) > 100
    page = new_page()
    page.goto(f"{address}/chapters/about.html")
    text = escape("".join(sorted(signs | slanted)))
    page.set_content(
        f'<link rel="stylesheet" href="{address}/_static/formulas.css">'
        f'<p id="signs" style="font-family: Formulas">{text}</p>'
    )
    page.evaluate("document.fonts.load('16px Formulas').then(() => document.fonts.ready)")
    page.evaluate(SETTLED)
    [used] = families(page, "#signs")
    assert [own for _, own in used] == [True], used


# --- while a page comes ---------------------------------------------------------------------------

SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries())
    window.shifts.push([value, ...sources.map(({ node }) => node?.outerHTML?.slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });"""
PAINTED = "performance.getEntriesByName('first-contentful-paint').length"


@pytest.mark.parametrize(
    ("name", "width"),
    [("intro", 390)]
    + [
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("chapters/freezing", 1280), ("chapters/scaling_rules", 390))
    ],
)
def test_nothing_moves_while_a_page_is_loaded(new_page, address, name, width):
    page = new_page(width)
    page.add_init_script(SHIFTS)
    held, painted = [], False

    def late(route):
        route.continue_() if painted else held.append(route)

    page.route(re.compile(r"_static/.*\.js"), late)
    page.goto(f"{address}/{name}.html", wait_until="commit")
    page.wait_for_function(PAINTED)
    painted = True
    for route in held:
        route.continue_()
    page.wait_for_load_state("load")
    page.evaluate(ALL_THERE)
    assert len(held) > 3
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, *_ in shifts) < 0.05, shifts


def test_the_site_works_from_a_folder(new_page, site):
    page = new_page()
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((site / "chapters" / "why.html").as_uri())
    page.locator("#fig-live-variance .live").wait_for()
    assert page.locator(".math > math").count() == page.locator(".math").count() > 50
    page.locator("nav.short-path a").click()
    page.wait_for_url("file://**/chapters/jacobian.html")
    page.locator("button.search-button-field").click()
    page.keyboard.type("entropy collapse")
    page.keyboard.press("Enter")
    page.wait_for_url("file://**/search.html?q=entropy+collapse")
    page.locator("#search-results li > a", has_text="Questions and answers").first.click()
    page.wait_for_url("file://**/questions.html#what-is-entropy-collapse-and-what-helps")
    assert {one for one in failed if ".html" not in one} <= {"Failed to fetch"}  # no excerpts


DOTTED = """(links) => links
  .filter((link) => getComputedStyle(link, "::after").content.includes("●"))
  .map((link) => link.getAttribute("href"))"""


def test_the_contents_mark_the_short_path_and_an_old_address_leads_on(window, address):
    page, noted = window
    noted.clear()
    page.goto(f"{address}/intro.html")
    dots = page.locator("nav.bd-docs-nav a").evaluate_all(DOTTED)
    assert dots == [f"{name}.html" for name in PATH]
    page.goto(f"{address}/chapters/why.html#theorem-moments")
    page.wait_for_url("**/chapters/variance.html#theorem-moments")
    page.goto(f"{address}/chapters/why.html#theorem-jacobian")  # which has left that page
    page.wait_for_url("**/chapters/jacobian.html#theorem-jacobian")
    assert noted == []


# --- for everybody --------------------------------------------------------------------------------

ONE_OF_A_KIND = """() => {
  const seen = new Set();
  const prune = (element, above) => {
    const style = `${element.className} ${element.getAttribute("style")} ${element.role}`;
    const kind = `${above}>${element.localName} ${style}`;
    for (const child of [...element.children]) prune(child, kind);
    if (seen.has(kind) && !element.children.length) element.remove();
    seen.add(kind);
  };
  prune(document.body, "");
}"""
"""Colours follow from the classes of an element and of those around it: one of each will do."""

COMMON = {"resultTypes": ["violations"], "preload": False}
CONTRAST = {"runOnly": ["color-contrast"], **COMMON}
REST = {"rules": {"color-contrast": {"enabled": False}}, **COMMON}
NOT_OURS = {"exclude": [[".citation-list"]]}
"""The list of literature has the roles that docutils gives it."""


def violations(page):
    """Return what axe calls serious or critical, contrast in both colour schemes."""
    found = Axe().run(page, NOT_OURS, REST).response["violations"]
    page.evaluate(ONE_OF_A_KIND)
    found += Axe().run(page, options=CONTRAST).response["violations"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    found += Axe().run(page, options=CONTRAST).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAGES, "search?q=log n", "genindex"])
def test_page_is_accessible(opened, name):
    # With reduced motion no colour is on its way from one scheme to the other.
    page = opened(name, WIDTHS[0], color_scheme="light", reduced_motion="reduce")
    assert violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["intro", "search", "chapters/claims"])
def test_the_second_stop_of_the_keyboard_is_in_the_text(opened, name):
    page = opened(name, WIDTHS[0])
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = "document.activeElement.closest('article, .bd-search-container') !== null"
    assert page.evaluate(inside)

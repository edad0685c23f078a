"""Pages in a browser: in every window, without a jump, accessible, from a folder."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.site.checks import PAGES, WIDTHS, findings


@pytest.mark.parametrize("name", PAGES)
def test_page_shows_well(window, address, name):
    page, noted = window
    noted.clear()
    problems = findings(page, f"{address}/{name}.html", WIDTHS)
    assert problems + noted == []


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
    assert {address for address in failed if ".html" not in address} <= {
        "Failed to fetch"
    }  # no excerpts


def test_an_old_address_leads_on(window, address):
    page, noted = window
    noted.clear()
    page.goto(f"{address}/chapters/why.html#theorem-jacobian")  # which has left that page
    page.wait_for_url("**/chapters/jacobian.html#theorem-jacobian")
    assert noted == []


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
    problems = Axe().run(page, NOT_OURS, REST).response["violations"]
    page.evaluate(ONE_OF_A_KIND)
    problems += Axe().run(page, options=CONTRAST).response["violations"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    problems += Axe().run(page, options=CONTRAST).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for violation in problems
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAGES, "search?q=log n", "genindex"])
def test_page_is_accessible(opened, name):
    # With reduced motion no colour is on its way from one scheme to the other.
    page = opened(name, WIDTHS[0], color_scheme="light", reduced_motion="reduce")
    assert violations(page) == []

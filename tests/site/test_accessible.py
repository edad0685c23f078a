"""No serious finding of axe-core on any page, in both colour schemes; the keyboard does it all."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from book.browser import serve
from book.contents import page_names
from book.pdf import ROOT

PAGES = [*page_names(ROOT), "search", "genindex"]
WHOLE = {
    *("intro", "models", "search", "chapters/variance", "chapters/short_answer"),
    *("chapters/freezing", "chapters/exact", "chapters/heads", "chapters/policies"),
    *("chapters/calculator", "chapters/claims", "chapters/errata"),
}
"""Pages that are looked at with their formulas and coloured code; the others are where time allows.

The most formulas, the widest, and each kind of what is no text.
"""

PLAIN = """() => {
  for (const code of document.querySelectorAll("pre")) code.textContent = code.textContent;
  for (const formula of document.querySelectorAll(".math")) formula.textContent = "x";
}"""

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

CONTRAST = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
ALL_BUT_CONTRAST = {
    "rules": {"color-contrast": {"enabled": False}},
    "resultTypes": ["violations"],
}
IN_DARK = "() => document.documentElement.dataset.theme === 'dark'"


@pytest.fixture(scope="module")
def address(site):
    with serve(site) as address:
        yield address


def opened(browser, address, *, plain):
    """Return a page; `plain` leaves out formulas and colours of code, thousands of elements.

    With reduced motion no colour is on its way from one scheme to the other.
    """
    page = browser.new_page(
        viewport={"width": 390, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    page.goto(address)
    if plain:
        page.evaluate(PLAIN)
    return page


def findings(page):
    """Return what axe calls serious or critical, contrast in both colour schemes."""
    violations = Axe().run(page, options=ALL_BUT_CONTRAST).response["violations"]
    page.evaluate(ONE_OF_A_KIND)
    violations += Axe().run(page, options=CONTRAST).response["violations"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(IN_DARK)
    violations += Axe().run(page, options=CONTRAST).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def looked_at(browser, address, name, *, plain):
    page = opened(browser, f"{address}/{name}.html", plain=plain)
    found = findings(page)
    page.close()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible(browser, address, name):
    looked_at(browser, address, name, plain=name not in WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if name not in WHOLE])
def test_whole_page_is_accessible(browser, address, name):
    looked_at(browser, address, name, plain=False)


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ('<p style="color: #aaa; background: white">pale</p>', "color-contrast"),
        ("<p>a</p><p>b</p><p style='color: #ccc'>pale</p>", "color-contrast"),
        ('<p style="color: #444; background: light-dark(white, #111)">dark</p>', "color-contrast"),
        ("<button></button>", "button-name"),
        ('<img src="data:,">', "image-alt"),
        ('<input type="range">', "label"),
        ('<div role="list"><a href="#">a</a></div>', "aria-required-children"),
        (
            "<div class='math' style='overflow-x: auto; width: 90px'><math><mi>a</mi>"
            "<mspace width='900px'></mspace><mi>b</mi></math></div>",
            "scrollable-region-focusable",
        ),
    ],
)
def test_what_is_not_accessible_is_found(browser, tmp_path, body, finding):
    follow = (
        "const dark = matchMedia('(prefers-color-scheme: dark)'), root = document.documentElement;"
        "dark.onchange = () => root.dataset.theme = dark.matches ? 'dark' : 'light'"
    )
    scheme = '<meta name="color-scheme" content="light dark">'
    head = f"<title>Page</title>{scheme}<script>{follow}</script>"
    html = f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}</body>'
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with serve(tmp_path) as address:
        page = opened(browser, f"{address}/page.html", plain=False)
        found = findings(page)
        page.close()
    assert any(line.startswith(finding) for line in found), found


@pytest.mark.parametrize("name", ["intro", "search", "genindex", "chapters/claims", "api/laws"])
def test_the_second_stop_of_the_keyboard_is_in_the_text(browser, address, name):
    page = opened(browser, f"{address}/{name}.html", plain=True)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    text = "article, .bd-search-container"
    assert page.evaluate("(text) => document.activeElement.closest(text) !== null", text)
    heading = page.locator("h1:visible").bounding_box()
    assert heading["y"] >= page.locator(".bd-header-article").bounding_box()["height"] or (
        page.evaluate("scrollY") > 0  # the second stop is further down
    )
    page.close()


def test_keyboard_opens_a_solution_and_the_menu(browser, address):
    page = opened(browser, f"{address}/chapters/variance.html", plain=True)
    solution = page.locator(".solution").first
    content = solution.locator("section")
    assert not content.is_visible()
    solution.locator("button.toggle-button").focus()
    page.keyboard.press("Enter")
    assert content.is_visible()

    contents = page.locator(".bd-sidebar-primary a", has_text="Freezing")
    assert not contents.is_visible()
    page.locator("button.primary-toggle").focus()
    page.keyboard.press("Enter")
    contents.wait_for()
    page.keyboard.press("Escape")
    contents.wait_for(state="hidden")
    page.close()

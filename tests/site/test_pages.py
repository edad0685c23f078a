"""Pages: sound, light, accessible, well shown in every window, tied by the short path."""

import gzip
import re
from functools import cache
from html import escape, unescape

import pytest
import tinycss2
import yaml
from axe_playwright_python.sync_playwright import Axe

from book.extensions.paths import SHORT_PATH as PATH
from book.extensions.styles import branches_of, matching, rules, without_unread
from tests.books import ROOT
from tests.site.checks import CHECKS, ONE, PAGES, WIDTHS, each_kind, findings, soup

# --- the HTML -------------------------------------------------------------------------------------


def test_every_page_says_what_it_is_about(site):
    assert all(soup(site / f"{name}.html").select('meta[name="description"]') for name in PAGES)


@pytest.mark.parametrize("name", each_kind())
def test_page_is_sound(site, name):
    page = site / f"{name}.html"
    assert {check.__name__: check(site, page) for check in CHECKS} == {
        check.__name__: [] for check in CHECKS
    }


def test_the_short_path_goes_on_at_the_foot_of_its_pages(site):
    assert [other for other in PAGES if other in PATH] == PATH
    for name in PAGES:
        feet = soup(site / f"{name}.html").select("article nav.short-path")
        assert len(feet) == (name in PATH)
        links = [((site / name).parent / a["href"]).resolve() for one in feet for a in one("a")]
        following = PATH[PATH.index(name) + 1 :][:1] if name in PATH else []
        assert links == [(site / f"{other}.html").resolve() for other in following]


DOTTED = """(links) => links
  .filter((link) => getComputedStyle(link, "::after").content.includes("●"))
  .map((link) => link.getAttribute("href"))"""


def test_the_contents_mark_the_short_path(opened):
    page = opened("intro")
    dots = page.locator("nav.bd-docs-nav a").evaluate_all(DOTTED)
    assert dots == [f"{name}.html" for name in PATH]


def test_formulas_stay_with_what_follows_and_no_word_is_lost(site):
    page = soup(site / "chapters" / "freezing.html")
    wholes = [" ".join(whole.get_text().split()) for whole in page.select("p .whole")]
    assert sum(whole.endswith((".", ",", ";")) for whole in wholes) > 40
    text = " ".join(page.select_one("article").get_text().split())
    assert not re.search(r",\.|\.\.(?!\.)| [.,;:]", text.replace("…", ""))


# --- the weight -----------------------------------------------------------------------------------

LOADED = re.compile(
    r"""<link\b(?=[^>]*rel="(?:stylesheet|icon)")[^>]*href="([^"]+)"|<(?:script|img)\b[^>]*?src="([^"]+)\""""
)
MOST_BYTES = 500_000


@cache
def compressed(path):
    """Return the bytes of a file as servers send it."""
    return len(gzip.compress(path.read_bytes(), 6))


@pytest.mark.parametrize("name", each_kind())
def test_a_page_is_light_and_its_icons_are_drawn(site, name):
    page = site / f"{name}.html"
    html = page.read_text(encoding="utf-8")
    names = {"".join(one).partition("?")[0] for one in LOADED.findall(html)} - {""}
    inside = [one for one in names if not one.startswith("data:")]
    files = [page, *{(page.parent / one).resolve() for one in inside}]
    assert sum(map(compressed, files)) < MOST_BYTES
    assert not {"searchindex.js", "fontawesome.js"} & {file.name for file in files}
    drawn = (site / "_static" / "icons.css").read_text(encoding="utf-8")
    for icon in re.findall(r'class="[^"]*\b(fa-[^"]*)"', html):
        for used in re.findall(r"fa-[\w-]+", icon):
            assert used in ("fa-solid", "fa-lg", "fa-fw") or f".{used} " in drawn


def test_one_small_style_sheet_has_the_rules_of_the_whole_site(site):
    sheet = (site / "_static" / "site.css").read_text(encoding="utf-8")
    assert len(sheet.encode()) < 100_000
    parsed = tinycss2.parse_stylesheet(sheet)
    assert [rule for rule in parsed if rule.type == "error"] == []
    assert len(parsed) > 1000
    for name in PAGES:
        links = soup(site / f"{name}.html").select("link[rel=stylesheet]")
        assert len(links) == 2  # the other encloses the font of the formulas


def test_the_rules_of_a_sheet_that_nothing_matches_go():
    text = (
        "@font-face{src:url(a)} .a .b,.c{x:1} .b .c{x:2} .a~.gone{x:3} p:not(.gone){x:4}"
        "@media print{.gone{x:5} .a{--read:6;--unread:url('a;}')}} .a{x:var(--read)}"
    )
    page = "<div class=a><p class=b></p></div>"
    lines = rules(text, matching(text, branches_of(page)))
    assert "".join(without_unread("".join(lines)).split()) == (
        ".a.b{x:1}p:not(.gone){x:4}@mediaprint{.a{--read:6;}}.a{x:var(--read)}"
    )


SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries())
    window.shifts.push([value, ...sources.map(({ node }) => node?.outerHTML?.slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });"""


@pytest.mark.parametrize(
    ("name", "width"),
    [("intro", 390), ("chapters/freezing", 1280), ("chapters/policies", 390)],
)
def test_nothing_moves_while_a_page_is_loaded(new_page, address, name, width):
    page = new_page(width)
    page.add_init_script(SHIFTS)

    def late(route):
        page.wait_for_timeout(300)  # the page is painted before
        route.continue_()

    page.route(re.compile(r"_static/(?!site-).*\.js"), late)
    page.goto(f"{address}/{name}.html")
    page.wait_for_timeout(300)
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, *_ in shifts) < 0.05, shifts


# --- in a browser ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each_kind())
def test_page_shows_well_on_a_telephone(browser, address, name):
    found = findings(browser, f"{address}/{name}.html", WIDTHS[0])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", each_kind(of=("intro", *ONE)))
def test_page_shows_well_on_a_desk(browser, address, name):
    found = findings(browser, f"{address}/{name}.html", WIDTHS[1])
    assert not found, "\n".join(found)


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


@pytest.mark.parametrize("name", each_kind("search?q=log n", "genindex", of=ONE))
def test_page_is_accessible(opened, name):
    # With reduced motion no colour is on its way from one scheme to the other.
    page = opened(name, 390, color_scheme="light", reduced_motion="reduce")
    assert violations(page) == []


@pytest.mark.parametrize("name", ["intro", "search", "chapters/claims"])
def test_the_second_stop_of_the_keyboard_is_in_the_text(opened, name):
    page = opened(name, 390)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = "document.activeElement.closest('article, .bd-search-container') !== null"
    assert page.evaluate(inside)


def test_every_sign_of_a_formula_is_in_the_font_of_the_site(new_page, site, address):
    signs = set()
    for path in site.rglob("*.html"):
        for formula in re.findall(r"<math\b.*?</math>", path.read_text("utf-8"), re.DOTALL):
            signs |= set(unescape(re.sub(r"<[^>]*>", "", formula)))
    signs -= set(" \u2061")  # blanks are not shown
    slanted = {chr(sign) for sign in (*range(0x1D434, 0x1D455), *range(0x1D6FC, 0x1D715))}
    assert len(signs) > 100
    page = new_page()
    page.goto(f"{address}/about.html")
    text = escape("".join(sorted(signs | slanted)))
    page.set_content(
        f'<link rel="stylesheet" href="{address}/_static/formulas.css">'
        f'<p id="signs" style="font-family: Formulas">{text}</p>'
    )
    page.evaluate("document.fonts.load('16px Formulas').then(() => document.fonts.ready)")
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": "#signs"})["nodeId"]
    fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    used = {font["familyName"]: font["isCustomFont"] for font in fonts if font["glyphCount"]}
    assert list(used.values()) == [True], used


def test_an_old_address_leads_to_where_its_text_is_now(new_page, site, address):
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]
    for old in config["redirects"]:
        leads = soup(site / f"{old}.html").select_one("meta[http-equiv=refresh]")["content"]
        assert ((site / old).parent / leads.partition("url=")[2]).resolve().is_file()
    opened = new_page()
    opened.goto(f"{address}/chapters/jacobian.html#theorem-jacobian")
    opened.wait_for_url("**/chapters/why.html#theorem-jacobian")


def test_the_site_works_from_a_folder(new_page, site):
    page = new_page()
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((site / "chapters" / "why.html").as_uri())
    page.locator("#fig-live-variance .live").wait_for()
    assert page.locator(".math > math").count() == page.locator(".math").count() > 50
    page.locator("nav.short-path a").click()
    page.wait_for_url("file://**/chapters/undivided.html")
    page.locator("button.search-button-field").click()
    page.keyboard.type("entropy collapse")
    page.keyboard.press("Enter")
    page.wait_for_url("file://**/search.html?q=entropy+collapse")
    page.locator("#search-results li > a", has_text="Questions and answers").first.click()
    page.wait_for_url("file://**/questions.html#what-is-entropy-collapse-and-what-helps")
    assert {one for one in failed if ".html" not in one} <= {"Failed to fetch"}  # no excerpts

"""A chapter is light: few requests, half a megabyte, formulas and icons without scripts."""

import gzip
import re
from functools import cache
from pathlib import Path

import pytest

from book.browser import serve
from book.contents import page_names

PAGES = page_names(Path(__file__).parents[2])
LOADED = re.compile(
    r"""<link\b(?=[^>]*rel="(?:stylesheet|icon)")[^>]*href="([^"]+)"|<(?:script|img)\b[^>]*?src="([^"]+)\""""
)
ICON = re.compile(r'class="[^"]*\bfa-[^"]*"')
MOST_BYTES, MOST_REQUESTS = 500_000, 15


@cache
def compressed(path):
    """Return the bytes of a file as servers send it."""
    return len(gzip.compress(path.read_bytes(), 6))


def fetched(page):
    """Return a page and the files that it loads; a picture is one even where it comes late."""
    found = LOADED.findall(page.read_text(encoding="utf-8"))
    names = {"".join(one).partition("?")[0] for one in found} - {""}
    inside = [name for name in names if not name.startswith("data:")]
    return [page, *{(page.parent / name).resolve() for name in inside}]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(site, name):
    files = fetched(site / f"{name}.html")
    assert sum(map(compressed, files)) < MOST_BYTES
    assert len([file for file in files if file.suffix == ".css"]) == 1
    assert len([file for file in files if file.name.startswith("site-")]) == 2
    if name.startswith("chapters/"):
        assert len(files) <= MOST_REQUESTS, sorted(file.name for file in files)


def test_no_page_needs_scripts_for_formulas_or_fonts_of_icons(site):
    for name in PAGES:
        html = (site / f"{name}.html").read_text(encoding="utf-8")
        assert "MathJax" not in html
        assert "fontawesome" not in html
    style = next(file for file in fetched(site / "intro.html") if file.suffix == ".css")
    assert not re.search(r"url\([^)]*fa-", style.read_text(encoding="utf-8"))


PRIVATE = """() => [...document.querySelectorAll(".bd-content *")].flatMap(
  (element) => ["::before", "::after"].map((side) => getComputedStyle(element, side).content)
).filter((content) => /[\\ue000-\\uf8ff]/.test(content))"""


@pytest.mark.parametrize("name", ["chapters/exact", "chapters/claims", "api/laws"])
def test_no_sign_before_or_behind_a_text_is_one_of_fontawesome(browser, site, name):
    with serve(site) as address:
        page = browser.new_page()
        page.goto(f"{address}/{name}.html")
        assert page.evaluate(PRIVATE) == []
        page.close()


def test_every_icon_of_the_theme_is_drawn(site):
    drawn = (site / "_static" / "icons.css").read_text(encoding="utf-8")
    for name in PAGES:
        for icon in ICON.findall((site / f"{name}.html").read_text(encoding="utf-8")):
            for used in re.findall(r"fa-[\w-]+", icon):
                known = used in ("fa-solid", "fa-lg", "fa-fw") or f".{used} " in drawn
                assert known, (name, used)


SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries())
    window.shifts.push([value, ...sources.map(({ node }) => node?.outerHTML?.slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "name",
    [
        "intro",
        "models",
        *(f"chapters/{name}" for name in ("normal", "freezing", "policies", "errata")),
    ],
)
def test_nothing_moves_while_a_page_is_loaded(new_page, address, name, width):
    page = new_page(viewport={"width": width, "height": 800})
    page.add_init_script(SHIFTS)

    def late(route):
        page.wait_for_timeout(300)  # the page is painted before
        route.continue_()

    page.route(re.compile(r"_static/(?!site-).*\.js"), late)
    page.goto(f"{address.removesuffix('/chapters')}/{name}.html")
    page.wait_for_timeout(300)
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, *_ in shifts) < 0.05, shifts

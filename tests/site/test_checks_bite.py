"""Each check of the site finds what it looks for on a page that was written badly on purpose."""

import pytest

from book.browser import serve
from tests.site import html_checks
from tests.site.browser_checks import findings, watch
from tests.site.chromium import without_chromium

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>Page</title><link rel="icon" href="data:,">
<link rel="canonical" href="https://example.org/page.html"><link rel="stylesheet" href="page.css">
</head><body class="page">{}</body></html>"""

GOOD = r"""<h1 id="top">Page</h1><p>As <code>{ref}`x`</code>, <a href="#top">here</a>,
<a href="page.html#top">there</a> and <a href="https://example.org/">outside</a>.</p>
<span class="math"><math><mi>x</mi></math></span>
<div class="math"><math display="block"><mi>x</mi></math></div>
<div class="cell_output"><pre>0.5 ???</pre></div><div class="cell_output"><svg></svg></div>
<div style="overflow-x: auto"><p style="width: 2000px">a wide table</p></div>
<p style="position: absolute; left: -500px; width: 100px">off the canvas</p>
<img src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E" alt="A curve">"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "page.css").write_text("p { background: url(data:,) }", encoding="utf-8")
    (tmp_path / "other.html").write_text(PAGE.format(""), encoding="utf-8")
    return tmp_path


def write(folder, body):
    page = folder / "page.html"
    page.write_text(PAGE.format(body), encoding="utf-8")
    return page


@pytest.mark.parametrize("check", html_checks.CHECKS, ids=lambda check: check.__name__)
def test_good_page_passes_html_check(folder, site, check):
    (folder / "_static").symlink_to(site / "_static")
    assert check(folder, write(folder, GOOD)) == []


@pytest.mark.parametrize(
    ("check", "body", "finding"),
    [
        ("unresolved_markup", "<p>is {glue:text}<code>half</code></p>", "{glue:text}"),
        ("unresolved_markup", "<p>see {cite:t}`a`</p>", "{cite:t}"),
        ("unresolved_markup", "<p>see {numref}`a`</p>", "{numref}"),
        ("unresolved_markup", "<p>see {prf:ref}`a`</p>", "{prf:ref}"),
        ("unresolved_markup", "<p>:::{note}</p>", ":::"),
        ("unresolved_markup", "<p>Theorem ???</p>", "???"),
        ("unresolved_markup", '<span class="problematic">`a`</span>', "`a`"),
        ("unresolved_markup", "<pending_xref>a</pending_xref>", "pending_xref"),
        ("dead_links", '<a href="nowhere.html">a</a>', "nowhere.html"),
        ("dead_links", '<a href="#nowhere">a</a>', "#nowhere"),
        ("dead_links", '<a href="other.html#nowhere">a</a>', "other.html#nowhere"),
        ("dead_links", '<a href="../page.html">a</a>', "../page.html"),
        ("dead_links", '<img src="nowhere.svg" alt="A curve">', "nowhere.svg"),
        ("empty_outputs", '<div class="cell_output"> <div></div></div>', "output 0"),
        ("missing_descriptions", '<img src="data:,">', "<img"),
        ("missing_descriptions", '<img src="data:," alt=" ">', "<img"),
        ("missing_descriptions", '<img src="a/b.svg" alt="../a/b.svg">', "b.svg"),
        ("outside_requests", '<script src="https://example.org/a.js"></script>', "example.org"),
        ("outside_requests", '<img src="//example.org/a.svg" alt="A">', "example.org"),
        ("outside_requests", '<img srcset="a.png, https://b.org/a.png 2x" alt="A">', "b.org"),
        ("outside_requests", '<link rel="stylesheet" href="https://b.org/a.css">', "b.org"),
        ("outside_requests", '<iframe src="http://example.org/"></iframe>', "example.org"),
        ("outside_requests", '<p style="background: url(//b.org/a)">a</p>', "b.org"),
        ("outside_requests", "<style>@import 'https://b.org/a.css';</style>", "b.org"),
        ("outside_requests", '<link rel="stylesheet" href="outside.css">', "b.org"),
    ],
)
def test_html_check_bites(folder, check, body, finding):
    (folder / "outside.css").write_text("p { src: url('https://b.org/a') }", encoding="utf-8")
    found = getattr(html_checks, check)(folder, write(folder, body))
    assert any(finding in line for line in found), found


def test_missing_page_is_found(folder):
    assert html_checks.missing_pages(folder, ["other", "absent"]) == ["absent"]


@pytest.fixture(scope="module")
def written(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "_static").symlink_to(site / "_static")
    (folder / "page.css").write_text("", encoding="utf-8")
    with serve(folder) as address:
        yield folder, f"{address}/page.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_good_page_passes_in_the_browser(browser, written, width):
    folder, address = written
    write(folder, GOOD)
    assert findings(browser, address, width, formulas_expected=True) == []


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ('<span class="math"><math><merror>x</merror></math></span>', "broken formula: x"),
        ('<span class="math"><math></math></span>', "broken formula: "),
        ('<span class="math"><code>x^2</code></span>', "0 of 1 formulas are shown"),
        ('<span class="math">x</span>', "0 of 1 formulas are shown"),
        (r"<p>the scale \(x^2\)</p>", "raw formula: the scale"),
        ("<p>no mathematics</p>", "no formula on the page"),
        ("<script>console.error('alas')</script>", "console: alas"),
        ("<script>throw new Error('alas')</script>", "script error: alas"),
        ('<img src="nowhere.svg">', "missing: http://127.0.0.1"),
        ('<img src="http://127.0.0.1:1/a.svg">', "request failed: http://127.0.0.1:1/a.svg"),
        ('<img src="http://example.org/a.svg">', "outside: http://example.org/a.svg"),
        ("<script>fetch('https://example.org/')</script>", "outside: https://example.org/"),
        ('<div style="width: 2000px">wide</div>', "the page scrolls sideways: 20"),
        ('<div class="wide" style="width: 2000px">wide</div>', "div.wide sticks out: from"),
        (
            '<div style="overflow: hidden"><p style="width: 2000px">cut</p></div>',
            "p sticks out: from",
        ),
        (f"<p>{'w' * 200}</p>", "the text of p sticks out"),
        ('<div class="narrow" style="width: 330px">wide</div>', "div.narrow sticks out: from"),
        (
            '<article><section><h1 style="height: 790px">A</h1><p>late</p></section></article>',
            "the first paragraph ends below",
        ),
        ('<div class="cell_input">import book</div>', "code is open: import book"),
        ('<p style="position: absolute; left: -50px; width: 100px">cut</p>', "p sticks out"),
    ],
)
def test_browser_check_bites(browser, written, body, finding):
    folder, address = written
    write(folder, body)
    found = findings(browser, address, 390, formulas_expected=True)
    assert any(line.startswith(finding) for line in found), found


def test_a_page_may_be_left_before_all_of_it_has_come(browser, written):
    folder, address = written
    write(folder, '<img src="late.svg">')
    page = browser.new_page()
    found = []
    watch(page, found)
    page.route("**/late.svg", lambda _: None)
    page.goto(address, wait_until="commit")
    with page.expect_event("requestfailed"):
        page.goto("about:blank")
    page.close()
    assert found == []


def test_missing_browser_is_skipped_or_fails_in_ci():
    with pytest.raises(pytest.skip.Exception, match="`chromium`"):
        without_chromium({})
    with pytest.raises(pytest.fail.Exception, match="`chromium`"):
        without_chromium({"CI": "true"})

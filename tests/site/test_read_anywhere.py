"""The site works from a folder and under any address, and its search finds what a reader types."""

from urllib.parse import quote

import pytest

from book.browser import serve
from tests.site.browser_checks import findings


@pytest.fixture(scope="module")
def address(site):
    with serve(site) as address:
        yield address


def test_pages_work_from_a_folder(browser, site):
    page = browser.new_page()
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((site / "chapters" / "variance.html").as_uri())
    assert page.locator(".math > math").count() == page.locator(".math").count() > 50
    page.locator("a.right-next").click()
    page.wait_for_url("file://**/chapters/saturation.html")
    assert failed == []
    page.close()


def test_search_works_from_a_folder(browser, site):
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=notation")
    page.locator("#search-results li > a", has_text="Notation").first.wait_for()
    page.close()


@pytest.mark.parametrize("name", ["intro", "chapters/variance", "api/laws"])
def test_site_works_under_a_longer_address(browser, site, name):
    with serve(site.parents[1]) as address:
        path = site.relative_to(site.parents[1]).as_posix()
        assert findings(browser, f"{address}/{path}/{name}.html", 1280) == []


@pytest.mark.parametrize(
    ("typed", "chapter"),
    [
        ("sqrt d", "variance"),
        ("1/sqrt(d)", "variance"),
        ("temperature", "output_scale"),
        ("saturation", "saturation"),
        ("QK norm", "policies"),
        ("YaRN", "policies"),
        ("muP", "policies"),
        ("μP", "policies"),
        ("entropy", "entropy"),
        ("freezing", "freezing"),
        ("vanishing gradients", "gradient"),
        ("effective keys", "saturation"),
        ("learning rate", "training"),
        ("Lambert", "normal"),
    ],
)
def test_search_finds_the_chapter(browser, address, typed, chapter):
    page = browser.new_page()
    page.goto(f"{address}/search.html?q={quote(typed)}")
    page.locator(f'#search-results li > a[href*="chapters/{chapter}.html"]').first.wait_for()
    page.close()

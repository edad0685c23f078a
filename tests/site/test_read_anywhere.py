"""The site works from a folder and under any address."""

import pytest

from book.browser import serve
from tests.site.browser_checks import findings


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


@pytest.mark.parametrize("name", ["intro", "chapters/variance", "api/laws"])
def test_site_works_under_a_longer_address(browser, site, name):
    with serve(site.parents[1]) as address:
        path = site.relative_to(site.parents[1]).as_posix()
        assert findings(browser, f"{address}/{path}/{name}.html", 1280) == []

from collections import Counter

import pytest
from bs4 import BeautifulSoup

from book import pdf
from tests.site.checks import FORMULAS, OVERFLOW, PAGES

pytestmark = pytest.mark.slow  # a minute of printing; every week


@pytest.fixture(scope="module")
def chapters(site):
    return pdf.chapters(site)


@pytest.fixture(scope="module")
def book(site, chapters):
    return BeautifulSoup(pdf.document(site, chapters), "html.parser")


def test_every_page_of_the_site_is_in_the_book_once(book):
    expected = [name.replace("/", "-") for name in PAGES]
    assert [article["id"] for article in book.select("article")] == expected
    assert [entry["href"] for entry in book.select(".parts a")] == [f"#{id}" for id in expected]


def test_links_and_pictures_of_the_book_lead_somewhere(book, site):
    ids = Counter(element["id"] for element in book.find_all(id=True))
    targets = {a["href"] for a in book.select("a[href]")}
    inside = {target[1:] for target in targets if target.startswith("#")}
    assert len(inside) > 100
    assert inside <= set(ids)
    assert [target for target in inside if ids[target] > 1] == []
    pictures = [site / picture["src"] for picture in book.select("img")]
    assert [path for path in pictures if not path.is_file()] == []
    assert not book.select("article script, article details:not([open]), .headerlink, .live")


def test_whole_book_fits_on_its_sheets(browser, address, site, chapters):
    page = pdf.open_page(browser, address, pdf.document(site, chapters))
    assert page.evaluate("document.querySelectorAll('math').length") > 1000
    assert page.evaluate(FORMULAS) + page.evaluate(OVERFLOW) == []
    page.close()

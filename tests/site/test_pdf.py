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


def test_whole_book_fits_on_its_sheets(browser, address, site, chapters):
    page = pdf.open_page(browser, address, pdf.document(site, chapters))
    assert page.evaluate("document.querySelectorAll('math').length") > 1000
    assert page.evaluate(FORMULAS) + page.evaluate(OVERFLOW) == []
    page.close()

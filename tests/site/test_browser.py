from pathlib import Path

import pytest

from book.browser import WIDTHS, serve
from book.contents import page_names
from tests.site.browser_checks import findings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(site):
    with serve(site) as address:
        yield address


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", page_names(ROOT))
def test_page_shows_well(browser, address, name, width):
    notebook = ROOT / f"{name}.ipynb"
    expected = notebook.is_file() and "$" in notebook.read_text(encoding="utf-8")
    found = findings(browser, f"{address}/{name}.html", width, formulas_expected=expected)
    assert not found, "\n".join(found)

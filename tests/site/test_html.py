from pathlib import Path

import pytest

from book.contents import page_names
from tests.site.html_checks import CHECKS, missing_pages

PAGES = page_names(Path(__file__).parents[2])


def test_every_page_is_built(site):
    assert missing_pages(site, PAGES) == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(site, name, check):
    found = check(site, site / f"{name}.html")
    assert not found, "\n".join(found)

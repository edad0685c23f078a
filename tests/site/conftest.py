import os
from pathlib import Path

import pytest

from book.browser import chromium, chromium_path
from tests.site.chromium import without_chromium

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site():
    """Return the folder of the built site."""
    folder = ROOT / "_build" / "html"
    if not (folder / "index.html").is_file():
        pytest.fail("the site is not built: run `make book`")
    return folder


@pytest.fixture(scope="module")
def browser():
    """Return a browser that remembers nothing from one page to the next."""
    if chromium_path() is None:
        without_chromium(os.environ)
    with chromium() as browser:
        yield browser

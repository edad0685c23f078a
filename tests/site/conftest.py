import os
from pathlib import Path

import pytest

from book.browser import chromium, chromium_path, serve
from book.live.script import MODULES
from tests.site.browser_checks import watch
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


@pytest.fixture(scope="module")
def modules():
    """Return the names of the modules that `call` gives; a file may ask for others."""
    return MODULES


@pytest.fixture(scope="module")
def call(browser, site, modules):
    """Return a function that calls an expression with the modules as m, and `cases`."""
    with serve(site.parent / "live") as address:
        page = browser.new_page()
        page.goto(f"{address}/")
        names = [name for name in modules if "main" not in name]

        def call(expression, cases=None):
            body = f"""async (cases) => {{
              const m = {{}};
              for (const name of {names}) Object.assign(m, await import(`/${{name}}.js`));
              return {expression};
            }}"""
            return page.evaluate(body, cases)

        yield call
        page.close()


@pytest.fixture(scope="module")
def address(site):
    with serve(site) as address:
        yield f"{address}/chapters"


@pytest.fixture
def found():
    """Errors and outside requests of the pages of a test: there must be none at its end."""
    noted = []
    yield noted
    assert noted == []


@pytest.fixture
def new_page(browser):
    """Return a function that gives an empty page, which is closed at the test's end."""
    pages = []

    def new_page(**options):
        pages.append(browser.new_page(**options))
        return pages[-1]

    yield new_page
    for page in pages:
        page.close()


@pytest.fixture
def opened(new_page, address, found):
    """Return a function that opens the page of a chapter, and waits until all of it is there."""

    def opened(chapter, width=1280, **options):
        page = new_page(viewport={"width": width, "height": 900}, **options)
        watch(page, found)
        page.goto(f"{address}/{chapter}")
        return page

    return opened

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from book.browser import chromium, chromium_path, serve
from book.live.script import SCRIPTS
from tests.paths import ROOT
from tests.site import fonts
from tests.site.checks import PATIENCE, watch

NO_MODULES = ("main", "ledger")
"""Scripts of book/live that act on a page when they are loaded."""


@pytest.fixture(scope="session")
def site():
    """Return the folder of the built site: what `make book` built, else built here as it would."""
    folder = ROOT / "_build" / "html"
    with FileLock(ROOT / ".build.lock"):
        if not (folder / "index.html").is_file():
            command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT]
            settings = {k: v for k, v in os.environ.items() if not k.startswith("BOOK_")}
            subprocess.run(
                [*command, "--all", "-W", "-n", "--keep-going"], env=settings, check=True
            )
    return folder


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Return a browser. Without one, skip on a contributor's machine, and fail in CI."""
    if chromium_path() is None:
        message = "no browser to look at the site: install Debian's package `chromium`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    with chromium(fonts.configuration(tmp_path_factory.mktemp("fonts"))) as browser:
        yield browser


@pytest.fixture(scope="session")
def address(site):
    """Return the site's address, which is not the root of its server, as on GitHub Pages."""
    with serve(site.parent) as root:
        yield f"{root}/{site.name}"


@pytest.fixture(scope="session")
def call(browser, address):
    """Return a function that calls an expression with the modules as m, and `cases`."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/../live/")
    names = {name for modules in SCRIPTS.values() for name in modules}
    page.evaluate(
        """async (names) => {
          window.m = {};
          for (const name of names) Object.assign(m, await import(`./${name}.js`));
        }""",
        [name for name in names if not name.startswith(NO_MODULES)],
    )
    yield lambda expression, cases=None: page.evaluate(f"(cases) => {expression}", cases)
    page.close()


@pytest.fixture
def problems():
    """Errors and outside requests of the pages of a test: there must be none at its end."""
    noted = []
    yield noted
    assert noted == []


@pytest.fixture(scope="module")
def window(browser):
    """Return one window for many pages, as a reader has it, and what is wrong in it so far."""
    page, noted = browser.new_page(), []
    page.set_default_timeout(PATIENCE)
    watch(page, noted)
    yield page, noted
    page.close()


@pytest.fixture
def new_page(browser):
    """Return a function that gives an empty page, which is closed at the test's end."""
    pages = []

    def new_page(width=1280, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.set_default_timeout(PATIENCE)
        pages.append(page)
        return page

    yield new_page
    for page in pages:
        page.close()


@pytest.fixture
def opened(new_page, address, problems):
    """Return a function that opens a page, and waits until all of it is there."""

    def opened(name, width=1280, **options):
        page = new_page(width, **options)
        watch(page, problems)
        stem = re.match("[^?#]*", name)[0]
        page.goto(f"{address}/{stem}.html{name.removeprefix(stem)}")
        return page

    return opened

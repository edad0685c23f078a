"""A Sphinx extension: the site as a whole, where it is published and how it is loaded.

Three settings of the environment say where it is. BOOK_SITE, its address, brings canonical
addresses and a sitemap. BOOK_REPOSITORY, the https address of a repository, brings the buttons that
lead there and to Binder. BOOK_PDF=1 links the PDF that `make pdf` prints. A build without them has
no such thing, and so no link that is dead.

Pages load one style sheet in place of the theme's dozen; the one that encloses the font of the
formulas stays apart. Scripts in the head wait until the page has been read. What the theme tells a
screen reader wrongly is mended.
"""

import os
import re
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

from attnlib._files import replace

SHEET = re.compile(
    r'\s*<link\b(?=[^>]*rel="stylesheet")(?![^>]*/formulas\.css)[^>]*href="([^"]+)"[^>]*>'
)
SCRIPT = re.compile(r'<script((?![^>]*\bdefer\b)[^>]*\bsrc="([^"]+)"[^>]*)>')
IMPORT = re.compile(r'@import "([^"]+)";')
OWN = ("book.css", "find.css", "icons.css")
"""They come last, for what they say holds."""

AT_ONCE = "documentation_options.js"
"""A short script that the lines behind it need: it comes with the page."""

SEARCH, SIDEBAR = 'button pst-js-only" title="Search"', '<div id="pst-primary-sidebar" '
UNSEEN = '<span class="unseen">row</span>'
MENDED = {
    f'{SEARCH} aria-label="Search"': SEARCH,
    SIDEBAR: f'{SIDEBAR}role="navigation" aria-label="Book" ',
    '<th scope="col"></th>': f'<th scope="col">{UNSEEN}</th>',
    '<th scope="col" class="number"></th>': f'<th scope="col" class="number">{UNSEEN}</th>',
    'role="doc-biblioentry"': 'role="listitem"',
}
"""A name that differs from what is seen, a part outside any region, empty headings, a list
without items."""


def setup(app: Sphinx) -> None:
    """Connect the extension to Sphinx; the tag `pdf` shows text under the directive `only`."""
    if os.environ.get("BOOK_PDF"):
        app.tags.add("pdf")
    if os.environ.get("BOOK_SITE"):
        app.setup_extension("sphinx_sitemap")
        app.connect("config-inited", set_address, priority=100)
    if os.environ.get("BOOK_REPOSITORY"):
        app.connect("config-inited", add_buttons)
    # After the extensions that write sheets, scripts and pages.
    app.connect("build-finished", write_sheet, priority=900)


# --- where it is ----------------------------------------------------------------------------------


def set_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx and its extensions where the site is."""
    config.html_baseurl = os.environ["BOOK_SITE"].rstrip("/") + "/"
    config.sitemap_url_scheme = "{link}"
    config.sitemap_excludes = ["search.html", "genindex.html", "prf-prf.html"]


def add_buttons(app: Sphinx, config: Config) -> None:
    """Add the buttons to the options of the theme in _config.yml."""
    config.html_theme_options = {
        **config.html_theme_options,
        "repository_url": repository_address(os.environ["BOOK_REPOSITORY"]),
        "repository_branch": "main",
        "use_repository_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        },
    }


def repository_address(setting: str) -> str:
    """Return the repository's address; ValueError for one that no button can be made of."""
    text = setting.strip().rstrip("/")
    address = urlsplit(text)
    if address.scheme != "https" or len(address.path.split("/")) != 3:
        raise ValueError(
            "BOOK_REPOSITORY must be the https address of a repository, such as "
            f"https://github.com/owner/name, got {text!r}"
        )
    return text


# --- what a page loads ----------------------------------------------------------------------------


def write_sheet(app: Sphinx, error: Exception | None) -> None:
    """Write the one style sheet, and let the pages load it in place of the others."""
    if error is not None or app.builder.name != "html":
        return
    static = Path(app.outdir, "_static")
    pages = {
        path: text
        for path in Path(app.outdir).rglob("*.html")
        if static not in path.parents and SHEET.search(text := path.read_text("utf-8"))
    }
    links = ((path, address) for path, text in pages.items() for address in SHEET.findall(text))
    sheets = dict.fromkeys(file_of(path, address) for path, address in links)
    ordered = sorted(sheets, key=lambda sheet: sheet.name in OWN)
    style = "\n".join(map(read_sheet, ordered)).encode()
    replace(static / "site.css", style)
    version = sha256(style).hexdigest()[:8]
    script = Path(static, AT_ONCE).read_text("utf-8")
    for path, page in pages.items():
        replace(path, lighten_page(page, version, script).encode())


def file_of(page: Path, address: str) -> Path:
    """Return the file to which an address in a page leads."""
    return (page.parent / urlsplit(address).path).resolve()


def read_sheet(path: Path) -> str:
    """Return the text of a style sheet, with the sheets that it imports."""
    return IMPORT.sub(lambda match: read_sheet(file_of(path, match[1])), path.read_text("utf-8"))


def lighten_page(page: str, version: str, script: str) -> str:
    """Return a page with one style sheet, whose scripts in the head wait until it has been read."""
    first = SHEET.search(page)
    assert first is not None
    folder = first[1].partition("_static/")[0]
    link = f'\n    <link rel="stylesheet" href="{folder}_static/site.css?v={version}" />'
    page = page[: first.start()] + link + SHEET.sub("", page[first.start() :])
    head, end, body = page.partition("</head>")
    at_once = f"<script>{script}"
    waits = SCRIPT.sub(
        lambda match: at_once if AT_ONCE in match[2] else f"<script defer{match[1]}>", head
    )
    page = waits + end + body
    for wrong, right in MENDED.items():
        page = page.replace(wrong, right)
    return page

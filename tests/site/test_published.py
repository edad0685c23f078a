"""What a site has when its address is known, and has not when it is not."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import nbformat
import pytest
from bs4 import BeautifulSoup

from tests.paths import ROOT

SITE = "https://example.org/books/scale"
REPOSITORY = "https://github.com/owner/name"
pytestmark = pytest.mark.slow  # a build in a process of its own, twice

CONF = """
extensions = ["myst_nb", "book.extensions.site"]
html_theme = "sphinx_book_theme"
html_title = "The Scale & Attention"
nb_execution_mode = "off"
"""


def test_published_site_knows_its_addresses_and_those_of_its_source(tmp_path, monkeypatch):
    monkeypatch.delenv("BOOK_PDF", raising=False)
    monkeypatch.setenv("BOOK_SITE", SITE + "/")
    monkeypatch.setenv("BOOK_REPOSITORY", f" {REPOSITORY}/ ")
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "deep").mkdir(parents=True)
    (source / "conf.py").write_text(CONF, encoding="utf-8")
    front = "Front\n=====\n\nThe first words.\n\n.. only:: pdf\n\n   To print.\n\n"
    (source / "index.rst").write_text(f"{front}.. toctree::\n\n   deep/page\n", "utf-8")
    words = nbformat.v4.new_markdown_cell("# Page\n\nIs 1 < 2 & so? Yes.")
    nbformat.write(nbformat.v4.new_notebook(cells=[words]), source / "deep" / "page.ipynb")
    # In a process of its own: the sitemap leaves a server behind, which would be a fork of
    # this process and hold the browser's pipes.
    options = ("-q", "-E", "-b", "html", "-d", tmp_path / "trees", source, out)
    subprocess.run([sys.executable, "-m", "sphinx", *options], cwd=ROOT, check=True)
    page = BeautifulSoup((out / "deep" / "page.html").read_bytes(), "html.parser")
    assert page.select_one("link[rel=canonical]")["href"] == f"{SITE}/deep/page.html"
    links = {link["href"] for link in page.select("a[href]")}
    assert {
        "https://mybinder.org/v2/gh/owner/name/main?urlpath=lab/tree/deep/page.ipynb",
        REPOSITORY,
    } <= links
    places = ElementTree.parse(out / "sitemap.xml").findall(".//{*}loc")
    assert {place.text for place in places} == {f"{SITE}/index.html", f"{SITE}/deep/page.html"}
    assert "To print" not in (out / "index.html").read_text(encoding="utf-8")

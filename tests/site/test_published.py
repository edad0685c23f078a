"""What a site has when its address is known, and has not when it is not."""

import xml.etree.ElementTree as ElementTree

import pytest
from bs4 import BeautifulSoup
from matplotlib.image import imread
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

SITE = "https://example.org/books/scale"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return a function that builds two pages under given settings."""

    def build(**settings):
        for name in ("BOOK_SITE", "BOOK_PDF"):
            monkeypatch.delenv(name, raising=False)
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        source, out = tmp_path / "source", tmp_path / "out"
        (source / "deep").mkdir(parents=True)
        (source / "conf.py").write_text(
            "extensions = ['book.extensions.markup', 'book.extensions.published']\n"
            "html_title = 'The Scale & Attention'\n",
            encoding="utf-8",
        )
        front = "Front\n=====\n\nThe first words.\n\n.. only:: pdf\n\n   To print.\n\n"
        (source / "index.rst").write_text(f"{front}.. toctree::\n\n   deep/page\n", "utf-8")
        (source / "deep" / "page.rst").write_text("Page\n====\n\nIs 1 < 2 & so? Yes.\n", "utf-8")
        with docutils_namespace():
            app = Sphinx(
                source, source, out, tmp_path / "trees", "html", status=None, freshenv=True
            )
            app.build()
        assert app.statuscode == 0
        return out

    return build


def head(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").head


def test_site_without_an_address_names_none(build):
    out = build()
    page = head(out / "deep" / "page.html")
    assert page.find("meta", attrs={"name": "description"})["content"] == "Is 1 < 2 & so? Yes."
    assert not page.select("link[rel=canonical], meta[property^='og:']")
    assert not (out / "sitemap.xml").exists()
    assert not (out / "404.html").exists()
    assert "To print" not in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("site", [SITE, SITE + "/"])
def test_published_site_knows_its_addresses(build, site):
    out = build(BOOK_SITE=site)
    page = head(out / "deep" / "page.html")
    assert page.select_one("link[rel=canonical]")["href"] == f"{SITE}/deep/page.html"
    shown = {tag["property"]: tag["content"] for tag in page.select("meta[property^='og:']")}
    assert shown["og:url"] == f"{SITE}/deep/page.html"
    assert shown["og:title"] == "Page"
    assert shown["og:description"] == "Is 1 < 2 & so? Yes."
    assert shown["og:image"] == f"{SITE}/_static/preview.png"
    assert imread(out / "_static" / "preview.png").shape[:2] == (630, 1200)

    places = ElementTree.parse(out / "sitemap.xml").findall(".//{*}loc")
    assert {place.text for place in places} == {f"{SITE}/index.html", f"{SITE}/deep/page.html"}


def test_page_for_wrong_addresses_needs_no_other_file(build):
    page = (build(BOOK_SITE=SITE) / "404.html").read_text(encoding="utf-8")
    soup = BeautifulSoup(page, "html.parser")
    assert soup.a["href"] == f"{SITE}/"
    assert soup.form["action"] == f"{SITE}/search.html"
    assert soup.title.get_text() == "No such page — The Scale & Attention"
    assert not soup.select("[src], link")


def test_pdf_is_linked_where_it_is_made(build):
    assert "To print" in (build(BOOK_PDF="1") / "index.html").read_text(encoding="utf-8")

"""What a site has when its address is known, and has not when it is not."""

import xml.etree.ElementTree as ElementTree

import pytest
from bs4 import BeautifulSoup
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
    assert not page.select("link[rel=canonical]")
    assert not (out / "sitemap.xml").exists()
    assert not (out / "404.html").exists()
    assert "To print" not in (out / "index.html").read_text(encoding="utf-8")


def test_published_site_knows_its_addresses(build):
    out = build(BOOK_SITE=SITE + "/")
    page = head(out / "deep" / "page.html")
    assert page.select_one("link[rel=canonical]")["href"] == f"{SITE}/deep/page.html"
    places = ElementTree.parse(out / "sitemap.xml").findall(".//{*}loc")
    assert {place.text for place in places} == {f"{SITE}/index.html", f"{SITE}/deep/page.html"}
    lost = BeautifulSoup((out / "404.html").read_text(encoding="utf-8"), "html.parser")
    assert (lost.a["href"], lost.form["action"]) == (f"{SITE}/", f"{SITE}/search.html")
    assert lost.title.get_text() == "No such page — The Scale & Attention"
    assert not lost.select("[src], link")  # a server shows it under addresses of any depth


def test_pdf_is_linked_where_it_is_made(build):
    assert "To print" in (build(BOOK_PDF="1") / "index.html").read_text(encoding="utf-8")

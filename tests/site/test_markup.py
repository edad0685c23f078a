import re
from copy import copy

import pytest
from docutils import nodes
from docutils.utils import new_document

from book.contents import page_names
from book.extensions.markup import LEDGER, LENGTH, SOURCES, description
from book.pdf import ROOT
from tests.site.html_checks import soup


def paragraph(*pieces):
    tree = new_document("page")
    tree += nodes.paragraph("", "", *pieces)
    return tree


def text(words):
    return nodes.Text(words)


def formula(latex):
    return nodes.math(latex, latex)


@pytest.mark.parametrize("name", page_names(ROOT))
def test_every_page_has_a_description_in_words(site, name):
    tag = soup(site / f"{name}.html").find("meta", attrs={"name": "description"})
    assert 40 <= len(tag["content"]) <= LENGTH
    assert not set(tag["content"]) & set("\\{}$")
    assert tag["content"].endswith((".", "?", "…"))


def test_whole_sentences_are_taken_as_long_as_they_fit():
    first, second = "It is 2.5, no more. ", "Is it? "
    assert (
        description(paragraph(text(first + second + "Long " * 50))) == "It is 2.5, no more. Is it?"
    )
    assert description(paragraph(text(f"{first}It is."))) == "It is 2.5, no more. It is."


def test_a_long_sentence_is_cut_between_words():
    found = description(paragraph(text("word " * 100)))
    assert found.endswith("word …")
    assert LENGTH - 5 <= len(found) <= LENGTH + 2


@pytest.mark.parametrize(
    ("latex", "words"),
    [
        (r"1/\sqrt d", "1/√d"),
        (r"\sqrt{2\log n}", "√(2 log n)"),
        (r"\alpha^*(n)", "α*(n)"),
        (r"\operatorname{diag}(p) - pp^\top", "diag(p) − ppᵀ"),
        (r"(n/e)^{1/2}", "(n/e)^(1/2)"),
        (r"-\log\sum_i p_i^2", "−log Σᵢ pᵢ²"),
        (r"Y \approx e^{\alpha^2}/n", "Y ≈ e^(α²)/n"),
        (r"\frac12", "1/2"),
    ],
)
def test_formulas_become_words(latex, words):
    assert description(paragraph(text("It is "), formula(latex), text("."))) == f"It is {words}."


def test_a_page_without_text_has_none():
    assert description(new_document("page")) == ""


def test_the_bibliography_has_no_roles_that_browsers_no_longer_take(site):
    page = soup(site / "bibliography.html")
    assert page.select(".citation")
    assert not page.select("[role=doc-biblioentry], [role=list]")


@pytest.mark.parametrize("name", page_names(ROOT))
def test_the_number_of_a_source_is_a_link_to_its_claims(site, name):
    page = copy(soup(site / f"{name}.html").select_one("article"))
    for link in page.select("a.internal"):
        if re.fullmatch(r"00\d", link.get_text()):
            assert link["href"].endswith(f"claims.html#source-{link.get_text()}")
    for part in page.select("a, h1, h2, h3, pre, code, em, strong, .claim, .cell_output, nav"):
        part.decompose()
    left = [] if name == LEDGER else SOURCES.findall(page.get_text())
    assert left == []


def test_sources_are_linked_where_they_are_named(site):
    for name, number in (
        ("chapters/cosine", "003"),
        ("api/laws", "003"),
    ):
        links = soup(site / f"{name}.html").select("article a.internal")
        assert number in {link.get_text() for link in links}

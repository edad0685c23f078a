"""The glossary explains the words, in a few lines each, and says where the book does."""

import re

from tests.books import CHAPTERS

TEXT = (CHAPTERS.parent / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^(\w[^\n]*)\n  (\S[^\n]*)$", TEXT.split("```")[1], re.MULTILINE))


def test_every_entry_is_read():
    assert len(ENTRIES) == TEXT.count("](chapters/")
    assert list(ENTRIES) == sorted(ENTRIES, key=str.casefold)


def test_every_entry_is_short_and_ends_with_the_page_that_explains_it():
    for term, words in ENTRIES.items():
        page = re.search(r"\. \[[\w' ]+\]\(chapters/(\w+)\)$", words)
        assert page, term
        assert (CHAPTERS / f"{page[1]}.ipynb").exists(), term
        assert len(words) < 300, term


def test_no_term_is_the_name_of_a_chapter():
    # a link to [the chapter](name) would have two targets
    assert not {path.stem for path in CHAPTERS.iterdir()} & {term.casefold() for term in ENTRIES}

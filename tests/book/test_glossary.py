"""The glossary explains the words, in a few lines each, and says where the book does."""

import re

from tests.books import CHAPTERS

TEXT = (CHAPTERS.parent / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^(\w[^\n]*)\n  (\S[^\n]*)$", TEXT.split("```")[1], re.MULTILINE))


def test_every_entry_is_short_and_ends_with_the_page_that_uses_its_words():
    assert len(ENTRIES) == TEXT.count("](chapters/")
    assert list(ENTRIES) == sorted(ENTRIES, key=str.casefold)
    for term, words in ENTRIES.items():
        page = re.search(r"\. \[[\w' ]+\]\(chapters/(\w+)\)$", words)
        assert page, term
        assert len(words) < 300, term
        text = (CHAPTERS / f"{page[1]}.ipynb").read_text(encoding="utf-8").casefold()
        stems = [word[:5].casefold() for word in re.findall(r"\w{4,}", term)] or [term.casefold()]
        assert any(stem in text for stem in stems), (term, page[1])

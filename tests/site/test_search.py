"""The search with its synonyms, and the filters of the ledger."""

import re

import pytest

from book.extensions import search
from tests.site.checks import PATIENCE, anchors

FOUND = """(phrases) => phrases.map((phrase) => {
  const found = Search._performSearch(...Search._parseQuery(phrase));
  return found.reverse().map(([page, , anchor]) => page + anchor);
})"""
"""JavaScript that returns the places that Sphinx finds for each of some phrases, best first."""


ASKED = {
    "why divide by sqrt d and not d": "variance",
    "what temperature for cosine similarity": "cosine",
    "does softmax gradient vanish": "jacobian",
    "why is the output of attention too small": "almost_scaled",
    "should scale grow with context length": "length_extrapolation",
    "how do I check my model's scale": "audit",
    "what is 0.84 sqrt log n": "normal",
    "what happens if I do not divide": "unscaled",
    "my attention kernel gives a wrong scale": "audit",
    "what does QK norm change": "qk_norm",
    "which heads collapse to one-hot": "questions",
    "CLIP logit scale 100": "questions",
}
"""What a newcomer asks, and the page that the search has to show first."""


@pytest.fixture(scope="module")
def search_places(browser, address):
    """Return a function that returns the places that are found for each of some phrases."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/search.html")
    page.wait_for_function("Search.hasIndex()")
    yield lambda phrases: page.evaluate(FOUND, phrases)
    page.close()


def test_a_synonym_finds_first_the_sections_that_are_meant(search_places, site):
    table = list(search.synonyms())
    for written in (str, str.upper):
        places = search_places([written(phrase) for phrase, _, _ in table])
        for (phrase, page, anchor), first in zip(table, places, strict=True):
            section = f"{page}#{anchor}" if anchor else page
            others = sum(1 for other, _, _ in table if other == phrase)
            assert section in first[: others + 2], phrase
    for phrase, page, anchor in table:
        assert not anchor or anchor in anchors(site / f"{page}.html"), phrase


def test_questions_find_their_chapter_first(search_places):
    firsts = [places[0].split("#")[0] for places in search_places(list(ASKED))]
    assert dict(zip(ASKED, firsts, strict=True)) == {
        phrase: f"chapters/{chapter}" for phrase, chapter in ASKED.items()
    }


def test_the_ledger_filters_by_verdict_source_and_chapter(opened):
    page = opened("chapters/claims")
    boxes = page.locator(".claim[id]")
    shown = page.locator(".claim[id]:visible")
    total = boxes.count()
    answered = boxes.filter(has=page.locator("strong", has_text=re.compile("^answered$"))).count()
    verdict, source, chapter = (
        page.get_by_label(name, exact=True) for name in ("Verdict", "Source", "Chapter")
    )
    status = page.locator(".ledger-count")
    verdict.focus()
    page.keyboard.type("answered")  # as a keyboard chooses
    assert set(shown.locator("strong").all_inner_texts()) == {"answered"}
    assert status.inner_text() == f"{answered} of {total} claims"
    verdict.select_option("needs a condition")
    source.select_option("000")
    assert page.url.endswith("?verdict=needs+a+condition&source=000")
    page.reload()
    status.wait_for()
    assert set(shown.locator("strong").all_inner_texts()) == {"needs a condition"}
    assert all("000" in place for place in shown.locator(".claim-place").all_inner_texts())
    page.get_by_role("button", name="Show all").click()
    assert shown.count() == total
    chapter.select_option("trained_heads")
    links = shown.locator(".claim-evidence a:first-of-type").all_inner_texts()
    assert {link.split()[-1].rstrip(".") for link in links} == {"trained_heads"}

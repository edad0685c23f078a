"""The search by section, and the filters of the ledger."""

import gzip
import re
from collections import Counter

import pytest

from book.extensions import search
from book.live.verdicts import verdicts

# --- what is found --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first(call):
    """Return a function that returns the places that are found for each of some words."""

    def first(typed, count=1):
        found = call(
            "cases.map((typed) => m.find(typed).found.slice(0, 30).map((one) => one.href))", typed
        )
        return [places[:count] for places in found]

    return first


def test_the_first_result_of_a_synonym_is_the_section_that_is_meant(first):
    table = search.synonyms()
    for written in (str, str.upper, lambda phrase: phrase.replace(" ", "-")):
        for phrase, [place] in zip(table, first([*map(written, table)]), strict=True):
            page, _, anchor = table[phrase][0].partition("#")
            assert place == f"{page}.html{'#' if anchor else ''}{anchor}", written(phrase)


QUESTIONS = "chapters/questions.html#"


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("why is it not d but √d", f"{QUESTIONS}why-variance-d-and-hence-d-not-d"),
        ("lost in the middle", "chapters/reach.html"),
        ("Lambert's W", "glossary.html#term-Lambert-s-function"),
        ("exact.gradient_limit", "api/gradients.html#attnlib.exact.gradient_limit"),
        ("cosine.fit", "chapters/claims.html#claim-cosine.fit"),
    ],
)
def test_what_is_typed_finds(first, typed, place):
    assert place in first([typed], 2)[0]


def test_a_heading_finds_its_section(call, first):
    sections = call("m.INDEX.sections.map(([page, anchor, title]) => [page, anchor, title])")
    pages = call("m.INDEX.pages")
    common = Counter(title for _, _, title in sections)
    elsewhere = search.synonyms()
    sample = [s for s in sections if common[s[2]] == 1 and s[2].lower() not in elsewhere][::9]
    assert len(sample) > 40
    for (page, anchor, title), places in zip(
        sample, first([title for _, _, title in sample], 5), strict=True
    ):
        assert f"{pages[page][0]}{'#' if anchor else ''}{anchor}" in places, title


def test_every_word_is_wanted_and_if_none_has_them_all_that_is_said(call):
    both = call("m.find('needle entropy')")
    assert both["all"]
    assert 0 < len(both["found"]) < len(call("m.find('needle')")["found"])
    neither = call("m.find('needle zyzzyva')")
    assert not neither["all"]
    assert 0 < len(neither["found"]) <= 10
    assert call("m.find('zyzzyva')")["found"] == []
    assert call("m.find(' ?! ')") == {"words": [], "all": True, "found": []}


def test_excerpts_read_and_have_the_words_marked_whatever_their_ending(call):
    found = call(
        """cases.flatMap((typed) => {
          const { words, found } = m.find(typed);
          return found.slice(0, 25).filter(({ text }) => text).map(({ text }) => {
            const shown = m.excerpt(text, words);
            return [typed, text, shown, m.marked(shown, words)];
          });
        })""",
        ["log n", "gradient", "needle", "√d", "entropy"],
    )
    assert len(found) > 100
    for typed, text, shown, pieces in found:
        assert len(shown) <= 245
        assert not re.search(r"[\\$`]|\{\w+\}|<\w", shown), shown
        assert shown.removeprefix("… ").removesuffix(" …") in text
        assert "".join(piece for piece, _ in pieces) == shown
        assert any(hit for _, hit in pieces) or typed not in text.lower(), (typed, shown)
    pieces = call("m.marked('Heads that freeze: √(2 log n), frozen.', m.find('head log').words)")
    assert [piece for piece, hit in pieces if hit] == ["Heads", "log"]


# --- the page and the dialog ----------------------------------------------------------------------


def test_results_come_while_one_types(opened):
    page = opened("search")
    page.locator("#search-results [role=status]").wait_for(state="attached")
    entry = page.locator(".bd-search-container input")
    entry.focus()
    page.keyboard.type("attention si")
    results = page.locator("#search-results li > a")
    results.first.wait_for()
    assert results.first.inner_text().startswith("Twenty questions › What is an attention sink")
    assert page.locator("#search-results mark").first.inner_text() == "attention"
    assert page.get_by_role("status").inner_text() == f"{results.count()} sections"
    assert page.url.endswith("?q=attention%20si")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/questions.html#what-is-an-attention-sink-*")
    page.wait_for_load_state("networkidle")
    page.go_back()
    results.first.wait_for()
    assert entry.input_value() == "attention si"
    entry.fill("zyzzyva <img src=x onerror=alert()>")
    page.get_by_text("No section has all of these words").wait_for()


def test_a_page_loads_the_search_when_somebody_is_about_to(opened, site):
    page = opened("chapters/freezing")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("Control+k")
    dialog = page.locator("#pst-search-dialog")
    dialog.locator("[role=status]").wait_for(state="attached")
    assert [url.rpartition("/")[2] for url in asked if url.endswith(".js")] == ["search.js"]
    page.keyboard.type("one key to find")
    assert dialog.locator("li > a").first.inner_text() == "One key to find"
    page.keyboard.press("ArrowDown")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapters/needle.html")
    assert len(gzip.compress((site / "_static" / "search.js").read_bytes(), mtime=0)) < 200_000


# --- the ledger -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known():
    return verdicts()["claims"]


def shown(page):
    """Return the claims that the ledger shows."""
    boxes = page.locator(".claim:visible")
    ids = boxes.evaluate_all("(boxes) => boxes.map((box) => box.id)")
    return [name.removeprefix("claim-") for name in ids]


def test_the_ledger_filters_by_verdict_source_and_chapter(opened, known):
    page = opened("chapters/claims")
    verdict, source, chapter = (
        page.get_by_label(name, exact=True) for name in ("Verdict", "Source", "Chapter")
    )
    status = page.locator(".ledger-count")
    verdict.focus()
    page.keyboard.type("wrong")  # as a keyboard chooses
    wrong = [name for name, facts in known.items() if facts[0] == "wrong"]
    assert shown(page) == wrong
    assert status.inner_text() == f"{len(wrong)} of {len(known)} claims"
    verdict.select_option("needs a condition")
    source.select_option("000")
    both = {n for n, facts in known.items() if facts[:2] == ["needs a condition", "000"]}
    assert set(shown(page)) == both
    assert page.locator("article h2:visible").count() == 1
    assert page.url.endswith("?verdict=needs+a+condition&source=000")
    page.reload()
    status.wait_for()
    assert set(shown(page)) == both
    page.get_by_role("button", name="Show all").click()
    assert len(shown(page)) == len(known)
    chapter.select_option("heads")
    assert {known[name][2] for name in shown(page)} == {"heads"}
    page.emulate_media(media="print")
    assert len(shown(page)) == len(known)


def test_a_link_to_a_claim_that_is_filtered_out_shows_it(opened, known):
    page = opened("chapters/claims?verdict=wrong#claim-variance.linear")
    page.locator("#claim-variance\\.linear").wait_for()
    assert len(shown(page)) == len(known)
    assert page.url.endswith("claims.html#claim-variance.linear")

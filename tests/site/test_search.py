"""The search by section, and the filters of the ledger."""

import gzip
import json
import re
from collections import Counter

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from book.browser import serve
from book.extensions import search
from book.live.verdicts import verdicts
from tests.site.test_accessible import findings

PAGE = r"""
The chapter
===========

The answer is :math:`\sqrt{2\log n}`, as :ref:`below <there>`.

.. code-block:: python

   hidden = code

.. _there:

A *part* of it
--------------

Prose before a formula,

.. math:: Y \approx e^{\alpha^2}/n

and after it. Half\ *way*.

.. raw:: html

   <p>computed</p>

.. glossary::

   needle
      The key that is meant.
"""


SHOWN = 30
"""Results on a page."""


# --- the index ------------------------------------------------------------------------------------


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return a function that builds a page with synonyms: what is in the index, and warnings."""

    def built(synonyms):
        monkeypatch.setattr(search, "SYNONYMS", tmp_path / "synonyms.toml")
        (tmp_path / "synonyms.toml").write_text(synonyms, encoding="utf-8")
        source = tmp_path / "source"
        (source / "_static").mkdir(parents=True, exist_ok=True)
        for name in ("find.js", "find.css"):
            (source / "_static" / name).touch()
        settings = "extensions = ['book.extensions.search']\nhtml_static_path = ['_static']\n"
        (source / "conf.py").write_text(settings, encoding="utf-8")
        (source / "index.rst").write_text(PAGE, encoding="utf-8")
        with docutils_namespace(), (tmp_path / "warnings").open("w+") as warned:
            out = tmp_path / "out"
            app = Sphinx(
                *(source, source, out, tmp_path / "trees", "html"),
                status=None,
                warning=warned,
                freshenv=True,
            )
            app.build()
            warned.seek(0)
            text = (tmp_path / "live" / "index.js").read_text("utf-8")
            assert (out / "_static" / "search.js").is_file()
            assert not (out / "searchindex.js").exists()
            return json.loads(re.sub(r"^export const INDEX = |;\s*$", "", text)), warned.read()

    return built


def test_sections_are_prose_with_formulas_in_characters(built):
    index, warned = built(
        '"the part" = "index#a-part-of-it"\n"both" = ["index", "index#term-needle"]'
    )
    assert warned == ""
    assert index["pages"] == [["index.html", "The chapter", 0.5]]
    assert index["sections"] == [
        [0, "", "The chapter", "The answer is √(2 log n), as below."],
        [
            *(0, "a-part-of-it", "A part of it"),
            "Prose before a formula, Y ≈ e^(α²)/n and after it. Halfway.",
        ],
        [0, "term-needle", "needle", "The key that is meant."],
    ]
    assert index["synonyms"] == [["the part", [1]], ["both", [0, 2]]]


def test_a_synonym_that_leads_nowhere_is_a_warning(built):
    _, warned = built('"needle" = "index#gone"')
    assert "the synonym 'needle' leads to index#gone, which no page has" in warned


def test_claims_are_entries_of_their_own():
    box = (
        '<div class="claim claim-wrong" id="claim-a.b"><p class="claim-title">'
        "<strong>wrong</strong> <code>a.b</code></p><p>1 &lt; 0</p>"
        '<p class="claim-evidence">It is not. <a href="x.html#claim-a.b">In chapter x.</a></p>'
        "</div>"
    )
    assert list(search.claims(box)) == [("claim-a.b", "a.b: wrong", "1 < 0 It is not.")]


# --- what is found --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules():
    return ("drawing", "index", "search", "verdicts", "ledger")


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


def test_a_synonym_is_known_before_its_end_and_within_a_question(first):
    sink = "chapters/questions.html#what-is-an-attention-sink-and-what-has-the-scale-to-do-with-it"
    for typed in (
        "attention sin",
        "attentionsink",
        "what is an attention sink?",
        "attention sinks",
    ):
        assert first([typed]) == [[sink]], typed
    assert first(["μP"]) == first(["muP"]) == [["chapters/questions.html#why-1-d-in-p"]]
    assert first(["attention"]) != [[sink]]


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("freezing", "chapters/freezing.html"),
        ("freeze", "chapters/freezing.html"),
        ("the Jacobian of softmax", "chapters/jacobian.html"),
        ("audit", "chapters/audit.html"),
        ("Lambert's W", "glossary.html#term-Lambert-s-function"),
        ("exact.gradient_limit", "api/gradients.html#attnlib.exact.gradient_limit"),
        ("cosine.fit", "chapters/claims.html#claim-cosine.fit"),
        ("why is it not d but √d", "chapters/questions.html#why-variance-d-and-hence-d-not-d"),
        ("how to install it", "intro.html#how-to-get-it"),
    ],
)
def test_what_is_typed_finds(first, typed, place):
    assert place in first([typed], 2)[0]


@pytest.mark.parametrize(
    ("typed", "chapter"),
    [
        ("sqrt d", "variance"),
        ("1/sqrt(d)", "variance"),
        ("temperature", "output_scale"),
        ("saturation", "saturation"),
        ("QK norm", "policies"),
        ("YaRN", "policies"),
        ("muP", "policies"),
        ("μP", "policies"),
        ("entropy", "entropy"),
        ("freezing", "freezing"),
        ("vanishing gradients", "gradient"),
        ("effective keys", "saturation"),
        ("learning rate", "training"),
        ("Lambert", "normal"),
    ],
)
def test_the_chapter_is_among_what_is_shown(first, typed, chapter):
    pages = [place.partition("#")[0] for place in first([typed], SHOWN)[0]]
    assert f"chapters/{chapter}.html" in pages


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


def test_excerpts_read(call):
    found = call(
        """cases.flatMap((typed) => {
          const { words, found } = m.find(typed);
          return found.slice(0, 25).filter(({ text }) => text).map(({ text, title }) => {
            const shown = m.excerpt(text, words);
            return [typed, text, shown, m.marked(shown, words)];
          });
        })""",
        ["log n", "gradient", "temperature of the output", "needle", "√d", "entropy"],
    )
    assert len(found) > 100
    marked = 0
    for typed, text, shown, pieces in found:
        assert len(shown) <= 245
        assert not re.search(r"[\\$`]|\{\w+\}|<\w", shown), shown
        body = shown.removeprefix("… ").removesuffix(" …")
        assert body in text
        assert "".join(piece for piece, _ in pieces) == shown
        has = any(hit for _, hit in pieces)
        assert has or typed not in text.lower(), (typed, shown)
        marked += has
    assert marked > 0.9 * len(found)


def test_words_are_marked_whatever_their_ending(call):
    pieces = call("m.marked('Heads that freeze: μ, √(2 log n), frozen.', m.find('head log').words)")
    assert [piece for piece, hit in pieces if hit] == ["Heads", "log"]
    assert call("['μP', '√', 'Rényi', 'κ'].map(m.folded)") == ["mup", "sqrt", "renyi", "kappa"]


# --- the page and the dialog ----------------------------------------------------------------------


def test_results_come_while_one_types(opened):
    page = opened("../search.html")
    page.locator("#search-results [role=status]").wait_for(state="attached")
    entry = page.locator(".bd-search-container input")
    entry.focus()
    page.keyboard.type("attention si")
    results = page.locator("#search-results li > a")
    results.first.wait_for()
    assert results.first.inner_text().startswith("Twenty questions › What is an attention sink")
    assert page.locator("#search-results mark").first.inner_text() == "attention"
    said = page.get_by_role("status").inner_text()
    assert said == f"{results.count()} sections"
    assert page.url.endswith("?q=attention%20si")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert results.nth(1).evaluate("(link) => link === document.activeElement")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert entry.evaluate("(entry) => entry === document.activeElement")
    page.keyboard.press("Enter")  # the page stays
    page.keyboard.press("Tab")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Enter")
    page.wait_for_url("**/questions.html#what-is-an-attention-sink-*")
    page.wait_for_load_state("networkidle")
    page.go_back()
    results.first.wait_for()
    assert entry.input_value() == "attention si"
    entry.fill("zyzzyva <img src=x onerror=alert()>")
    page.get_by_text("No section has all of these words").wait_for()
    entry.fill("zyzzyva")
    page.get_by_text("Nothing found").wait_for()
    assert results.count() == 0
    entry.fill("")
    page.wait_for_function("!document.querySelector('#search-results [role=status]').textContent")


def test_a_page_loads_the_search_when_somebody_is_about_to(opened):
    page = opened("freezing.html")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("Control+k")
    dialog = page.locator("#pst-search-dialog")
    dialog.locator("[role=status]").wait_for(state="attached")
    assert [url.rpartition("/")[2] for url in asked if url.endswith(".js")] == ["search.js"]
    page.keyboard.type("one key to find")
    link = dialog.locator("li > a").first
    link.wait_for()
    assert link.inner_text() == "One key to find"
    page.keyboard.press("ArrowDown")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapters/needle.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    page.keyboard.type("log n")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=log+n")
    page.get_by_text("sections; these are the first 30").wait_for()


def test_the_search_works_from_a_file(browser, site):
    page = browser.new_page()
    page.goto((site / "chapters" / "needle.html").as_uri(), wait_until="domcontentloaded")
    page.locator("button.search-button-field").click()
    page.keyboard.type("entropy collapse")
    page.locator("#pst-search-dialog li > a").first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("file://**/search.html?q=entropy+collapse")
    page.locator("#search-results li > a", has_text="What is entropy collapse").click()
    page.wait_for_url("file://**/questions.html#what-is-entropy-collapse-and-what-helps")
    page.close()


def test_results_are_accessible_and_fit_a_phone(opened):
    light = {"color_scheme": "light", "reduced_motion": "reduce"}
    page = opened("../search.html?q=log n", width=390, **light)
    page.locator("#search-results li").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert findings(page) == []


def test_the_search_weighs_little(site):
    script = (site / "_static" / "search.js").read_bytes()
    assert len(gzip.compress(script, mtime=0)) < 200_000
    pages = [*site.glob("*.html"), *site.glob("chapters/*.html")]
    carry = {page.name for page in pages if "search.js" in page.read_text("utf-8")}
    assert carry == {"search.html"}


# --- the ledger -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known():
    return verdicts()["claims"]


def shown(page):
    """Return the claims that the ledger shows."""
    return [
        box.get_attribute("id").removeprefix("claim-")
        for box in page.locator(".claim:visible").all()
    ]


def test_the_ledger_filters_by_verdict_source_and_chapter(opened, known):
    page = opened("claims.html")
    verdict, source, chapter = (
        page.get_by_label(name, exact=True) for name in ("Verdict", "Source", "Chapter")
    )
    status = page.locator(".ledger-count")
    assert status.inner_text() == f"{len(known)} of {len(known)} claims"
    count = Counter(found for found, _, _ in known.values())
    options = verdict.locator("option").all_inner_texts()
    assert set(options) == {f"all ({len(known)})", *(f"{v} ({n})" for v, n in count.items())}
    verdict.focus()
    page.keyboard.type("wrong")  # as a keyboard chooses
    wrong = [name for name, facts in known.items() if facts[0] == "wrong"]
    assert shown(page) == wrong
    assert status.inner_text() == f"{len(wrong)} of {len(known)} claims"
    verdict.select_option("needs a condition")
    source.select_option("000")
    both = {n for n, facts in known.items() if facts[:2] == ["needs a condition", "000"]}
    assert set(shown(page)) == both
    assert (
        f"wrong ({sum(known[n][1] == '000' for n in wrong)})"
        in verdict.locator("option").all_inner_texts()
    )
    assert page.locator("article h2:visible").count() == 1
    assert page.url.endswith("?verdict=needs+a+condition&source=000")
    page.reload()
    status.wait_for()
    assert set(shown(page)) == both
    page.get_by_role("button", name="Show all").click()
    assert len(shown(page)) == len(known)
    chapter.select_option("heads")
    assert {known[name][2] for name in shown(page)} == {"heads"}
    assert "Real heads" in chapter.locator("option:checked").inner_text()
    page.emulate_media(media="print")
    assert len(shown(page)) == len(known)
    assert not status.is_visible()


def test_a_link_to_a_claim_that_is_filtered_out_shows_it(opened, known):
    page = opened("claims.html?verdict=wrong#claim-variance.linear")
    page.locator("#claim-variance\\.linear").wait_for()
    assert len(shown(page)) == len(known)
    assert page.url.endswith("claims.html#claim-variance.linear")


def test_the_errata_have_the_same_filters(opened, known):
    page = opened("errata.html?source=002")
    page.get_by_label("Verdict", exact=True).wait_for()
    headings = page.locator("article h2")
    named = headings.locator("xpath=following-sibling::p[1]").all_inner_texts()
    meant = [text for text in named if known.get(text.split()[0], ["", ""])[1] == "002"]
    assert 0 < len(meant) < len(named)
    assert page.locator("article h2:visible").count() == len(meant)
    assert page.locator(".ledger-count").inner_text() == f"{len(meant)} of {len(named)} errata"


def test_without_scripts_the_ledger_is_whole(browser, site, known):
    with serve(site) as address:
        page = browser.new_page(java_script_enabled=False)
        page.goto(f"{address}/chapters/claims.html?verdict=wrong")
        assert len(shown(page)) == len(known)
        page.goto(f"{address}/search.html")
        assert "needs JavaScript" in page.locator("noscript p").inner_text()
        page.close()

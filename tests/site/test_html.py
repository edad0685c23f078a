"""The files of the site: sound, light, tied by the short path; the answer comes first."""

import gzip
import json
import re
from functools import cache
from html import unescape

import pytest
import tinycss2
import yaml
from fontTools.ttLib import TTFont

from book.extensions.paths import SHORT_PATH as PATH
from book.extensions.styles import branches_of, matching, rules, without_unread
from tests.books import ROOT
from tests.site.checks import CHECKS, PAGES, anchors, of_class, soup, tree

# --- every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(site, name):
    page = site / f"{name}.html"
    assert [finding for check in CHECKS for finding in check(site, page)] == []
    assert tree(page).xpath("//meta[@name='description']")  # what it is about


RESULT = f"self::figure or self::table or {of_class('cell_output')} or " + (
    "parent::section and contains(@class, 'highlight-')"
)
MOST_WORDS, MOST_BEFORE = 90, 200
"""Of an answer, and before a result: more would fill a first screen."""


@pytest.mark.parametrize("name", PAGES)
def test_the_answer_comes_first_and_soon_what_shows_it(site, name):
    article = tree(site / f"{name}.html").find(".//article")
    title = article.find(".//h1")
    answer = title.getnext()
    while answer.tag == "span":  # a place that links lead to
        answer = answer.getnext()
    assert answer.tag == "p"
    assert len(answer.text_content().split()) <= MOST_WORDS
    if not article.xpath(f".//details[{of_class('code')}]") or name.endswith("_proofs"):
        return
    result = article.xpath(f".//*[{RESULT}][1]")[0]
    folded = "ancestor::details or ancestor::math or ancestor::script"
    before = result.xpath(f"preceding::text()[ancestor::article][not({folded})]")
    assert len(" ".join(before).split()) <= MOST_BEFORE


def test_the_front_page_says_what_it_is_answers_and_has_doors_before_its_figure(site):
    section = tree(site / "intro.html").find(".//article/section")
    parts = [part for part in section if "site-only" not in part.get("class", "")]  # of the PDF
    assert [part.tag for part in parts[:6]] == ["h1", "p", "p", "div", "p", "figure"]
    assert "doors" in parts[3].get("class")
    assert parts[5].get("id") == "fig-face"


def test_the_short_path_goes_on_at_the_foot_of_its_pages(site):
    assert [other for other in PAGES if other in PATH] == PATH
    for name in PAGES:
        feet = tree(site / f"{name}.html").xpath(f"//article//nav[{of_class('short-path')}]")
        assert len(feet) == (name in PATH)
        links = [link for foot in feet for link in foot.xpath(".//a/@href")]
        places = [((site / name).parent / link).resolve() for link in links]
        following = PATH[PATH.index(name) + 1 :][:1] if name in PATH else []
        assert places == [(site / f"{other}.html").resolve() for other in following]


def test_the_short_path_is_as_long_as_its_beginning_says(site):
    """In quarters of an hour: the first page, and what the foot of each says of the next."""
    for name in ("intro", PATH[0]):
        assert "2¼ hours" in tree(site / f"{name}.html").find(".//article").text_content()
    feet = (tree(site / f"{name}.html").text_content() for name in PATH)
    minutes = [int(match[1]) for foot in feet if (match := re.search(r"\((\d+) minutes\)", foot))]
    assert len(minutes) == len(PATH) - 1
    assert abs(10 + sum(minutes) - 135) < 15


def test_formulas_stay_with_what_follows_and_no_word_is_lost(site):
    page = soup(site / "chapters" / "freezing.html")
    wholes = [" ".join(whole.get_text().split()) for whole in page.select("p .whole")]
    assert sum(whole.endswith((".", ",", ";")) for whole in wholes) > 40
    text = " ".join(page.select_one("article").get_text().split())
    assert not re.search(r",\.|\.\.(?!\.)| [.,;:]", text.replace("…", ""))


def test_an_old_address_leads_to_where_its_text_is_now(site):
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]
    for old in config["redirects"]:
        assert old not in PAGES  # its redirect would overwrite the page without a word
        leads = soup(site / f"{old}.html").select_one("meta[http-equiv=refresh]")["content"]
        assert ((site / old).parent / leads.partition("url=")[2]).resolve().is_file()


def test_a_place_that_moved_is_where_its_address_leads(site):
    text = (site / "_static" / "moved.js").read_text("utf-8")
    moved = dict(re.findall(r"^    (\w+): `([^`]+)`", text, re.MULTILINE))
    assert len(moved) >= 5
    for name, places in moved.items():
        there = {pair.partition(":")[2] or pair for pair in places.split()}
        assert there <= anchors(site / "chapters" / f"{name}.html"), name


def cells(name):
    """Return the code cells of a notebook that the site has: whether hidden, and the code."""
    notebook = json.loads((ROOT / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    tags = [cell["metadata"].get("tags", []) for cell in code]
    return [
        ("hide-input" in tag, "".join(cell["source"]).strip())
        for cell, tag in zip(code, tags, strict=True)
        if "remove-cell" not in tag
    ]


@pytest.mark.parametrize("name", [name for name in PAGES if (ROOT / f"{name}.ipynb").is_file()])
def test_all_code_of_cells_is_folded_and_the_line_says_how_much(site, name):
    page = tree(site / f"{name}.html")
    folded = page.xpath(f"//details[{of_class('code')}]")
    code = [fold.find(".//pre").text_content().strip() for fold in folded]
    hidden = ["above-input" in fold.get("class").split() for fold in folded]
    assert list(zip(hidden, code, strict=True)) == cells(name)
    assert not any("open" in fold.attrib for fold in folded)
    assert len(page.xpath(f"//*[{of_class('cell_input')}]")) == len(folded)
    for fold, lines in zip(folded, code, strict=True):
        said = re.fullmatch(r"Code, (\d+) lines?", fold.find("summary").text_content())
        assert int(said[1]) == len(lines.splitlines())


# --- letters --------------------------------------------------------------------------------------

EVERY_FACE = ("cp1250", "cp1252", "cp1253", "cp1254", "cp437")
"""What a text face of any system has: Latin, Greek, the signs of the first computers."""

OTHERS = re.compile("[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]")
"""Chinese and Korean."""


def in_every_face(sign):
    """Return whether one of the old code pages has a sign."""
    for page in EVERY_FACE:
        try:
            sign.encode(page)
        except UnicodeEncodeError:
            continue
        return True
    return False


def test_the_site_has_the_signs_of_its_text_that_a_face_may_lack(site):
    shown = "//text()[not(ancestor::math or ancestor::script or ancestor::style)]"
    texts = [text for name in PAGES for text in tree(site / f"{name}.html").xpath(shown)]
    texts += [path.read_text("utf-8") for path in (ROOT / "book" / "live").glob("*.js")]
    signs = set(OTHERS.sub("", "".join(texts)))
    rare = {sign for sign in signs if not in_every_face(sign)}
    assert len(rare) > 20
    own = TTFont(site / "_static" / "fonts" / "signs.woff").getBestCmap()
    assert rare <= set(map(chr, own))


def test_quotations_in_chinese_and_korean_are_marked(site):
    text = f"//*[{of_class('claim')}]//text()"
    marked = "ancestor::*[@lang='zh' or @lang='ko']"
    page = tree(site / "chapters" / "claims.html")
    assert len([one for one in page.xpath(f"{text}[{marked}]") if OTHERS.search(one)]) > 20
    assert not [one for one in page.xpath(f"{text}[not({marked})]") if OTHERS.search(one)]


# --- the weight -----------------------------------------------------------------------------------

LOADED = re.compile(
    r"""<link\b(?=[^>]*rel="(?:stylesheet|icon)")[^>]*href="([^"]+)"|<(?:script|img)\b[^>]*?src="([^"]+)\""""
)
MOST_BYTES = 500_000


@cache
def compressed(path):
    """Return the bytes of a file as servers send it."""
    return len(gzip.compress(path.read_bytes(), 6))


def test_pages_are_light_and_their_icons_are_drawn(site):
    drawn = (site / "_static" / "icons.css").read_text(encoding="utf-8")
    for name in PAGES:
        page = site / f"{name}.html"
        html = page.read_text(encoding="utf-8")
        names = {unescape("".join(one)).partition("?")[0] for one in LOADED.findall(html)} - {""}
        inside = [one for one in names if not one.startswith("data:")]
        files = [page, *{(page.parent / one).resolve() for one in inside}]
        assert sum(map(compressed, files)) < MOST_BYTES, name
        assert not {"searchindex.js", "fontawesome.js"} & {file.name for file in files}
        for icon in re.findall(r'class="[^"]*\b(fa-[^"]*)"', html):
            for used in re.findall(r"fa-[\w-]+", icon):
                assert used in ("fa-solid", "fa-lg", "fa-fw") or f".{used} " in drawn


def test_one_small_style_sheet_has_the_rules_of_the_whole_site(site):
    sheet = (site / "_static" / "site.css").read_text(encoding="utf-8")
    assert len(sheet.encode()) < 100_000
    parsed = tinycss2.parse_stylesheet(sheet)
    assert [rule for rule in parsed if rule.type == "error"] == []
    assert len(parsed) > 1000
    for name in PAGES:
        links = tree(site / f"{name}.html").xpath("//link[@rel='stylesheet']")
        assert len(links) == 2  # the other encloses the fonts


def test_the_rules_of_a_sheet_that_nothing_matches_go():
    text = (
        "@font-face{src:url(a)} .a .b,.c{x:1} .b .c{x:2} .a~.gone{x:3} p:not(.gone){x:4}"
        "@media print{.gone{x:5} .a{--read:6;--unread:url('a;}')}} .a{x:var(--read)}"
    )
    page = "<div class=a><p class=b></p></div>"
    lines = rules(text, matching(text, branches_of(page)))
    assert "".join(without_unread("".join(lines)).split()) == (
        ".a.b{x:1}p:not(.gone){x:4}@mediaprint{.a{--read:6;}}.a{x:var(--read)}"
    )

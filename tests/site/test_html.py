"""The files of the site: sound, light, tied by the short path."""

import gzip
import json
import re
from functools import cache
from html import unescape

import pytest
import yaml
from fontTools.ttLib import TTFont

from book.extensions.pages import SHORT_PATH as PATH
from tests.paths import ROOT
from tests.site.checks import CHECKS, PAGES, anchors, of_class, soup, tree

# --- every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(site, name):
    page = site / f"{name}.html"
    assert [finding for check in CHECKS for finding in check(site, page)] == []
    assert tree(page).xpath("//meta[@name='description']")  # what it is about
    assert len(tree(page).xpath("//article//h1")) == 1
    assert not tree(page).xpath("//figcaption//script")  # a fence that is not closed


def test_the_short_path_goes_on_at_the_foot_of_its_pages(site):
    assert [other for other in PAGES if other in PATH] == PATH
    for name in PAGES:
        feet = tree(site / f"{name}.html").xpath(f"//article//nav[{of_class('short-path')}]")
        assert len(feet) == (name in PATH)
        links = [link for foot in feet for link in foot.xpath(".//a/@href")]
        places = [((site / name).parent / link).resolve() for link in links]
        following = PATH[PATH.index(name) + 1 :][:1] if name in PATH else []
        assert places == [(site / f"{other}.html").resolve() for other in following]


SECONDS = {"span[contains(@class, 'math')]": 2, "div[contains(@class, 'math')]": 15}
SECONDS |= {"figure": 25, "table": 25}
NOT_READ = "ancestor::details or ancestor::math or ancestor::*[contains(@class, 'exercise')]"


def test_the_short_path_is_as_long_as_its_beginning_says(site):
    """Words, formulas, figures and tables, without exercises and what is folded."""
    seconds = 0.0
    for name in PATH:
        [article] = tree(site / f"{name}.html").xpath("//article")
        words = " ".join(article.xpath(f".//text()[not({NOT_READ})]")).split()
        seconds += len(words) * 60 / 230
        for part, each in SECONDS.items():
            seconds += each * len(article.xpath(f".//{part}[not({NOT_READ})]"))
    assert abs(seconds / 60 - 117) < 8
    for name in ("intro", PATH[0]):
        assert "two hours" in tree(site / f"{name}.html").find(".//article").text_content()


def test_formulas_stay_with_what_follows_and_no_word_is_lost(site):
    page = soup(site / "chapters" / "freezing.html")
    wholes = [" ".join(whole.get_text().split()) for whole in page.select("p .whole")]
    assert sum(whole.endswith((".", ",", ";")) for whole in wholes) > 30
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
        if not {"remove-cell", "remove-input"} & set(tag)
    ]


@pytest.mark.parametrize("name", [name for name in PAGES if (ROOT / f"{name}.ipynb").is_file()])
def test_all_code_of_cells_is_folded(site, name):
    page = tree(site / f"{name}.html")
    folded = page.xpath(f"//details[{of_class('code')}]")
    code = [fold.find(".//pre").text_content().strip() for fold in folded]
    hidden = ["above-input" in fold.get("class").split() for fold in folded]
    assert list(zip(hidden, code, strict=True)) == cells(name)


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
        assert {file.name for file in files if file.suffix == ".css"} == {
            "site.css",
            "formulas.css",
        }
        for icon in re.findall(r'class="[^"]*\b(fa-[^"]*)"', html):
            for used in re.findall(r"fa-[\w-]+", icon):
                assert used in ("fa-solid", "fa-lg", "fa-fw") or f".{used} " in drawn

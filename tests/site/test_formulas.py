"""Formulas are shown in the font that comes with the site, and stay with their full stops."""

import re
from html import escape, unescape

import pytest

from book.browser import serve
from tests.site.html_checks import soup

MATH = re.compile(r"<math\b.*?</math>", re.DOTALL)


@pytest.fixture(scope="module")
def signs(site):
    """Return all signs of the formulas of the site."""
    found = set()
    for path in site.rglob("*.html"):
        for formula in MATH.findall(path.read_text(encoding="utf-8")):
            found |= set(unescape(re.sub(r"<[^>]*>", "", formula)))
    return sorted(found - set(" \u2061"))  # blanks are not shown


def fonts_of(page, signs):
    """Return for the fonts in which Chromium shows signs whether they come with the site."""
    page.set_content(
        '<link rel="stylesheet" href="/_static/formulas.css">'
        f'<p id="signs" style="font-family: Formulas">{escape("".join(signs))}</p>'
    )
    page.evaluate("document.fonts.load('16px Formulas').then(() => document.fonts.ready)")
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": "#signs"})["nodeId"]
    fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    return {font["familyName"]: font["isCustomFont"] for font in fonts if font["glyphCount"]}


def test_every_sign_of_a_formula_is_in_the_font_of_the_site(browser, site, signs):
    assert len(signs) > 100
    with serve(site) as address:
        page = browser.new_page()
        page.goto(f"{address}/about.html")
        slanted = [chr(sign) for sign in (*range(0x1D434, 0x1D455), *range(0x1D6FC, 0x1D715))]
        assert list(fonts_of(page, [*signs, *slanted]).values()) == [True]
        assert list(fonts_of(page, [*signs, "♠"]).values()) == [True, False]
        page.close()


def test_formulas_stay_with_what_follows_and_no_word_is_lost(site):
    page = soup(site / "chapters" / "freezing.html")
    wholes = [" ".join(whole.get_text().split()) for whole in page.select("p .whole")]
    assert sum(whole.endswith((".", ",", ";")) for whole in wholes) > 50
    assert all(whole.find(class_="math") for whole in page.select(".whole"))
    text = " ".join(page.select_one("article").get_text().split())
    assert not re.search(r",\.|\.\.(?!\.)| [.,;:]", text.replace("…", ""))

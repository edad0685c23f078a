import json
import re

import pytest
from fontTools.ttLib import TTFont

from book import names_font, notation
from tests.books import CHAPTERS

SYMBOLS = [symbol for group in notation.GROUPS for symbol in group.symbols]


def test_page_is_what_the_list_says():
    assert notation.PAGE.read_text(encoding="utf-8") == notation.page(), "run `make notation`"


def test_the_printed_book_has_the_signs_of_all_names():
    assert names_font.signs() <= set(TTFont(names_font.FONT).getBestCmap())


def test_no_symbol_has_two_meanings():
    assert len({symbol.latex for symbol in SYMBOLS}) == len(SYMBOLS)


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.latex)
def test_symbol_is_used_in_its_chapter(symbol):
    notebook = json.loads((CHAPTERS / f"{symbol.chapter}.ipynb").read_text(encoding="utf-8"))
    cells = [
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    ]
    formulas = re.findall(
        r"\$\$.*?\$\$|\$[^$]+\$|```\{math\}.*?```", "\n".join(cells), flags=re.DOTALL
    )
    parts = [re.escape(part) for part in symbol.latex.split(", ")]
    for part in parts:
        pattern = rf"(?<![A-Za-z\\]){part}(?![A-Za-z])"
        assert any(re.search(pattern, formula) for formula in formulas)


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.latex)
def test_names_are_in_their_languages(symbol):
    assert re.search("[\u4e00-\u9fff]", symbol.chinese)
    assert not re.search("[\u4e00-\u9fff\uac00-\ud7af]", symbol.english)
    assert re.search("[\uac00-\ud7af]", symbol.korean)
    assert not re.search("[\u4e00-\u9fff]", symbol.korean)

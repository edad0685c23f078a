import json
import re

import pytest
from fontTools.ttLib import TTFont

from tests.book import notation
from tests.books import CHAPTERS, ROOT

SYMBOLS = notation.symbols()
NAMES = ROOT / "book" / "static" / "fonts" / "names.woff"
"""Of Noto Sans SC and KR the signs of the names: `pyftsubset FONT --text=… --flavor=woff`."""


def test_every_entry_of_the_page_is_read():
    text = notation.PAGE.read_text(encoding="utf-8")
    assert len(SYMBOLS) == text.count("\n: *") == text.count("</span> · [")


def test_the_printed_book_has_the_signs_of_all_names():
    signs = {ord(sign) for symbol in SYMBOLS for sign in symbol.chinese + symbol.korean}
    assert signs <= set(TTFont(NAMES).getBestCmap())


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

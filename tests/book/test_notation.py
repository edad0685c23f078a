"""The page of symbols: what the printed book can show of it."""

import re

from fontTools.ttLib import TTFont

from tests.paths import CHAPTERS, ROOT

NAMES = ROOT / "book" / "static" / "fonts" / "names.woff"
"""Of Noto Sans SC and KR the signs of the names: `pyftsubset FONT --text=… --flavor=woff`."""


def test_the_printed_book_has_the_signs_of_all_chinese_and_korean_names():
    text = (CHAPTERS / "notation.md").read_text("utf-8")
    names = re.findall(r'<span lang="(?:zh|ko)">(.+?)</span>', text)
    assert len(names) > 20
    assert set(map(ord, "".join(names))) <= set(TTFont(NAMES).getBestCmap())

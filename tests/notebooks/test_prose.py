"""A decimal in the text of the book is glued, printed or written by a cell of its page, or cited.

Read are Markdown texts and the captions of figures; integers and headings are not. A typed decimal
must be, to its digits, one that the page's cells print or have in their code, in percent too, or
its sentence must cite: have a citation or a link. A page without cells has those of all chapters.
"""

import re
from decimal import Decimal
from functools import cache
from typing import NamedTuple

import nbformat
import pytest

from tests.paths import ROOT, page_names

GENERATED = {
    f"chapters/{name}"
    for name in ("notation", "performance", "compatibility", "models", "bibliography")
}
"""Pages whose numbers a command or the build writes."""

DECIMAL = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\d.]*\.\d)")
NUMBER = re.compile(r"\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+")
NOT_READ = re.compile(
    r"^(`{3,}|:{3,})(?:python|sh|\{(?:raw|code-block|eval-rst)\})[\s\S]*?^\1|^#.*$|^:(?!alt)\w+:.*$",
    re.MULTILINE,
)
FENCE = re.compile(r"^(?:`{3,}|:{3,}).*$", re.MULTILINE)
"""Where a directive begins, or ends; its text is read."""
ROLE = re.compile(r"\{(cite|[\w:]+)[\w:]*\}`[^`]*`|`[^`]+`|\]\([^)]*\)")
SENTENCE = re.compile(r"(?<=[.!?:;|])\s+|\n\s*\n")


class Page(NamedTuple):
    """The texts of a page, the code of its cells, and what they print."""

    texts: list[str]
    code: str
    printed: str


def read(name: str) -> Page:
    """Return the texts and the outputs of a page of the book."""
    path = ROOT / f"{name}.ipynb"
    if not path.exists():
        return Page([(ROOT / f"{name}.md").read_text("utf-8")], "", printed_anywhere())
    texts, code, printed = [], [], []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            texts.append(cell.source)
            continue
        texts.append(cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", ""))
        code.append(cell.source)
        for output in cell.outputs:
            shown = {k: v for k, v in output.get("data", {}).items() if "svg" not in k}
            printed += [str(text) for text in (output.get("text", ""), *shown.values())]
    return Page(texts, "\n".join(code), "\n".join(printed))


@cache
def printed_anywhere() -> str:
    """Return what the cells of all chapters print and have in their code, for pages without."""
    notebooks = [name for name in page_names() if (ROOT / f"{name}.ipynb").exists()]
    return "\n".join(page.code + page.printed for page in map(read, notebooks))


def sentences(text: str) -> list[str]:
    """Return the sentences of a Markdown text; roles, code and links are ‹cite› or gone."""

    def mark(match: re.Match[str]) -> str:
        return "‹cite›" if match[1] == "cite" or match[0].startswith("](") else ""

    return SENTENCE.split(ROLE.sub(mark, FENCE.sub("", NOT_READ.sub("", text))))


def unproved(page: Page) -> list[str]:
    """Return the sentences with a decimal that the page's cells have not, and that cite nothing."""
    numbers = {Decimal(number) for number in NUMBER.findall(page.code + page.printed)}

    def has(typed: Decimal) -> bool:
        half = Decimal(5).scaleb(typed.as_tuple().exponent - 1)
        return any(abs(number * times - typed) <= half for times in (1, 100) for number in numbers)

    return [
        f"{typed}: {sentence.strip()}"
        for text in page.texts
        for sentence in sentences(text)
        for typed in DECIMAL.findall(sentence)
        if "‹cite›" not in sentence and not has(Decimal(typed.replace(",", "")))
    ]


@pytest.mark.parametrize("name", sorted(set(page_names()) - GENERATED))
def test_every_decimal_is_printed_or_cited(name):
    assert not unproved(read(name))

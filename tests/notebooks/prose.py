"""The numbers that stand typed in the text of the book, and what proves each of them.

Read are the prose of every page, its formulas, headings and tables, the captions of figures and
what is said in place of a picture; and in the code the headings, labels and words to print, which
its numbers must prove. A number there is glued, and so not typed; or

- tied: the metadata "states" of its cell name the line `name = number` that prints it; or
- listed in constants.toml: a constant of definition or citation, with the reason, or "= " what
  computes it, or "as in " the chapter that prints it; or
- found, to the digits given, in what the chapter prints or among the numbers of its code: in the
  figure's own cell, next to the text, in its section, or anywhere. Found counts only where no
  number beside it is found too: none that is one more or less in the last digit, and in the wider
  two none with any other last digit.

What is nearer lies within what is farther. So a number with a wrong last digit has the true one
beside it wherever it is found itself, and is not proved by it.

Not read as numbers: a bare 0 or 1, years, addresses, labels, and in a formula the integers up to
LARGEST_COEFFICIENT and exponents, but for one that is a side of its own, as in n = 2. Words that
measure ("a third", "twice") are left to people.

`python -m tests.notebooks.prose [PAGE…]` lists the numbers that nothing proves. Then there are
three ways: let a cell print it; for a curve, `book.readings(axes)` in a hidden cell after the
figure; or name under "states", in the metadata of the text's cell, the line that `book.glue`
prints. The opening always does that, because plain Jupyter shows a glue role raw. What no cell can
print, such as the number of a source, is listed in constants.toml.
"""

import ast
import math
import operator
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode

from tests.books import ROOT, page_names

CONSTANTS = Path(__file__).with_name("constants.toml")
GENERATED = {"notation", "performance", "compatibility", "models", "bibliography"}
"""Pages that commands write, `make bench` among them: nobody types them."""

LARGEST_COEFFICIENT = 12
"""In a formula, integers up to here belong to its form, but for one that is a whole side of it."""

DROPPED = [
    re.compile(pattern, re.MULTILINE | re.DOTALL)
    for pattern in (
        r"^:(?!alt:)[\w-]+:[^\n]*$",  # options of a directive, but for its alt text
        r"^\([\w-]+\)=$",
        r"\{[\w:]+\}`[^`]*`",  # roles: glued numbers, references to equations, citations
        r"`[^`]+`",
        r"\]\([^)]*\)",  # where a link leads
        r"https?://\S+",
        r"<[^>]+>",
        r"arXiv\s[\d.]+",
        r"(?<![\d,.])00[0-8]\b",  # numbers for names: sources
        r"\b20[12]\d\b",  # years
        r"\b(?:[Hh]ead|[Ll]ayers?|Part) \d(?:\.\d| to \d)?",  # too
        r"^ *\d+\. ",  # the number of an item in a list
    )
]
FENCE = re.compile(r"(?P<fence>`{3,}|:{3,})(?P<name>\{[\w:-]+\}|\w*)")
CODE = re.compile(r"\w*|\{(?:raw|code-block|eval-rst|bibliography)\}")
"""What a fence is called that holds no text."""

MATHS = re.compile(r"\$\$(.*?)\$\$|\$([^$]+)\$", re.DOTALL)
DIGITS = r"\d+(?:(?:,|\\,|\{,\}|[\u202f\u00a0 ])(?=\d{3}(?!\d))\d{3})*(?:\.\d+)?"
EXPONENT = r"(?:\^\{?[-−]?\d+\}?|⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[ ]to[ ]the[ ](?:minus[ ])?\d+)"
NUMBER = re.compile(
    rf"""(?<![\w.\\^])(?<!\w[-−])
    (?P<sign>(?<![\w)\]}}])[-−])?
    (?:(?P<digits>{DIGITS})(?:e(?P<e>[-+]?\d+))?)(?!\.?\d)
    (?P<power>{EXPONENT})?
    (?:(?:·|\\cdot[ ]|[ ]·[ ]|[ ]times[ ])10(?P<ten>{EXPONENT}))?
    (?P<unit>(?:\\,|[\u202f\u00a0 ])?\\?%|[ ]percent|[ ]thousand|[ ]million|[ ]billion)?
    """,
    re.VERBOSE,
)
BEFORE_A_COEFFICIENT = re.compile(r"(?:[√/^·]\(?|\blog )$")
AFTER_A_COEFFICIENT = re.compile(r"/|\s?(?:√|·|×|log\b|E\b)|[^\W\d]")
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
UNITS = {"thousand": 3, "million": 6, "billion": 9}
RELATION = re.compile(r"=|≈|≤|≥|<|>|\\(?:approx|sim|simeq|leq?|geq?|lt|gt|equiv)(?![a-zA-Z])")
SYMBOL = re.compile(
    r"(?:\\[a-zA-Z]+|[a-zA-Z])(?:\^\*|_(?:\{[^}]*\}|\w))*(?:\([a-zA-Z]\))?|\w+|[Α-ω]\*?"
)
JOINED = re.compile(r"\$?,?\s*(?:to|and|or|,|–|,?\s*\\dots,)\s*\$?", re.DOTALL)
"""What may stand between two numbers of which the code has both, side by side."""


class Value(NamedTuple):
    """A number to the digits given: `step` is one of its last digit."""

    number: Decimal
    step: Decimal
    percent: bool = False
    power: int = 0
    """The base, of a number that is a power: its neighbours are the powers beside it."""

    def others(self) -> list[int]:
        """Return how far the number with each other last digit lies, in steps."""
        if self.power:
            return [-2, -1, 1, 2]
        last = int(abs(self.number) / self.step) % 10
        return [digit - last for digit in range(10) if digit != last]

    def moved(self, by: int) -> "Value":
        """Return the number with the last digit, or the exponent, moved."""
        number = self.number * Decimal(self.power) ** by if self.power else self.number
        return self._replace(number=number if self.power else self.number + by * self.step)


class Piece(NamedTuple):
    """A stretch of text: where it stands, how it is typed, and what of it is read."""

    place: str
    source: str
    read: str
    position: int = 0
    section: int = 0
    ties: Mapping[str, str] = {}
    in_code: bool = False


class Number(NamedTuple):
    """A number in a piece of text."""

    piece: Piece
    start: int
    end: int
    value: Value
    error: Value | None
    symbol: str | None
    partner: Value | None = None

    @property
    def text(self) -> str:
        """Return it as it is typed."""
        return self.piece.source[self.start : self.end]

    def __str__(self) -> str:
        before = self.piece.source[max(0, self.start - 40) : self.start]
        after = self.piece.source[self.end : self.end + 25]
        context = f"{before}»{self.text}«{after}".replace("\n", " ")
        return f"{self.piece.place}: {self.text}   [{context}]"


def blank(match: re.Match[str]) -> str:
    """Return blanks of the same length, so that places in the text stay what they are."""
    return re.sub(r"[^\n]", " ", match[0])


def read(source: str) -> str:
    """Return the text without code, roles, addresses and labels, each place where it was."""
    source = "".join(outside_code(source))
    for pattern in DROPPED:
        source = pattern.sub(blank, source)
    return source


def outside_code(source: str) -> Iterator[str]:
    """Return the lines, blank in code and where a fence begins or ends."""
    open_fences: list[tuple[str, bool]] = []
    for line in source.splitlines(keepends=True):
        match = FENCE.match(line)
        fence, is_code = open_fences[-1] if open_fences else ("", False)
        if match and not match["name"] and match["fence"] == fence:
            open_fences.pop()
            yield re.sub(r"[^\n]", " ", line)
        elif match and not is_code:
            open_fences.append((match["fence"], bool(CODE.fullmatch(match["name"]))))
            yield " " * match.end() + line[match.end() :]
        else:
            yield re.sub(r"[^\n]", " ", line) if is_code else line


def exponent(text: str) -> int:
    """Read an exponent however it is typed: ^{-6}, ⁻⁶, to the minus 6."""
    text = text.translate(SUPERSCRIPTS).replace("−", "-").replace("minus ", "-")
    return int(re.sub(r"[^-\d]", "", text))


def value(match: re.Match[str]) -> Value:
    """Read what NUMBER has found."""
    digits = Decimal(re.sub(r"[^\d.]", "", match["digits"]))
    shift = int(match["e"] or 0) + (exponent(match["ten"]) if match["ten"] else 0)
    unit = (match["unit"] or "").strip(" \u202f\u00a0\\,")
    shift += UNITS.get(unit, 0)
    sign = -1 if match["sign"] else 1
    if match["power"] and digits == digits.to_integral() and digits > 1:
        number = digits ** exponent(match["power"])
        return Value(sign * number, number, power=int(digits))
    places = digits.as_tuple().exponent
    assert isinstance(places, int)
    number = sign * digits.scaleb(shift)
    return Value(number, Decimal(1).scaleb(places + shift), unit in ("%", "percent"))


def is_value(match: re.Match[str], formula: str) -> bool:
    """Return whether a number in a formula is a value, not a part of its form."""
    if "." in match["digits"] or match["unit"] or match["ten"]:
        return True
    before, after = formula[: match.start()], formula[match.end() :]
    if re.search(r"_\{?$", before):
        return False
    if match["power"]:
        return value(match).power > 1
    if value(match).number > LARGEST_COEFFICIENT:
        return True
    sides = RELATION.split(before)
    if len(sides) < 2 or sides[-1].strip(" \\,-−&"):
        return False
    if not re.match(r"\s*(?:$|[,.;)]|\\(?:quad|qquad|text)|=|≈|<|>)", after):
        return False
    return SYMBOL.fullmatch(re.split(r"[,;(]|\\q?quad", sides[-2])[-1].strip(" &$")) is not None


def is_form(match: re.Match[str], text: str) -> bool:
    """Return whether a number belongs to the form of a formula in plain text: √(2 log n)."""
    digits = match[0].lstrip("-−")
    if not digits.isdecimal() or int(digits) > LARGEST_COEFFICIENT:
        return False
    before, after = text[: match.start()], text[match.end() :]
    return bool(BEFORE_A_COEFFICIENT.search(before) or AFTER_A_COEFFICIENT.match(after))


def numbers(piece: Piece) -> list[Number]:
    """Return the numbers in a piece of text, in order; a ± b is one."""
    found: list[tuple[re.Match[str], str | None]] = []

    def take(match: re.Match[str]) -> str:
        inside = match[1] if match[1] is not None else match[2]
        offset = match.start(1) if match[1] is not None else match.start(2)
        formula = " " * offset + inside
        for number in NUMBER.finditer(formula, offset):
            if is_value(number, formula):
                found.append((number, symbol_before(formula[offset : number.start()])))
        return blank(match)

    text = MATHS.sub(take, piece.read)
    for number in NUMBER.finditer(text):
        if not is_form(number, text):
            found.append((number, symbol_before(text[: number.start()])))
    found.sort(key=lambda pair: pair[0].start())
    result: list[Number] = []
    for match, symbol in found:
        last = result[-1] if result else None
        if last and re.fullmatch(r"\s*(?:±|\\pm)\s*", piece.read[last.end : match.start()]):
            result[-1] = last._replace(end=match.end(), error=value(match))
        else:
            result.append(Number(piece, match.start(), match.end(), value(match), None, symbol))
    for index, (one, other) in enumerate(pairwise(result)):
        if JOINED.fullmatch(piece.read[one.end : other.start]):
            result[index] = one._replace(partner=other.value)
            result[index + 1] = other._replace(partner=one.value)
    return [number for number in result if number.text not in ("0", "1")]


def symbol_before(text: str) -> str | None:
    """Return the x of `x = ` at the end of a text."""
    match = re.search(r"([\w\\*^{}]+)\s*(?:=|≈|\\approx)\s*$", text)
    name = match[1].replace("\\", "").strip("*^{}") if match else ""
    return GREEK.get(name, name) or None


class Scope:
    """A part of a chapter: what its cells print, and the numbers in their code."""

    def __init__(self, cells: list[NotebookNode], *, outputs: bool = True) -> None:
        self.values: set[Value] = set()
        self.errors: set[tuple[Value, Value]] = set()
        self.typed: set[Decimal] = set()
        self.neighbours: set[tuple[Decimal, Decimal]] = set()
        self.named: set[tuple[str, Decimal]] = set()
        for cell in cells:
            for node in ast.walk(Ranges().visit(ast.parse(cell.source))):
                self.typed |= {number for number in [constant(node)] if number is not None}
                self.neighbours |= set(pairs(node))
                self.named |= set(names(node))
            if outputs:
                self._add(shown(cell))
        self._rounded = cache(self._round)

    def _add(self, text: str) -> None:
        """Add the numbers of a text."""
        last: re.Match[str] | None = None
        for match in NUMBER.finditer(text):
            self.values.add(value(match))
            if last and re.fullmatch(r"\s*±\s*", text[last.end() : match.start()]):
                self.errors.add((value(last), value(match)))
            last = match
        for name, digits in NAMED.findall(text):
            number = Decimal(digits.replace("−", "-"))
            self.named.add((GREEK.get(name, name), number))

    def _round(self, step: Decimal, percent: bool) -> tuple[set[Decimal], set[Decimal]]:
        """Return what a number to this step may be, rounded; and what it may be exactly."""
        rounded, exact = set(), set()
        for literal in self.typed:
            if step >= 1 or percent or literal.as_tuple().exponent:  # 2 is not 2.0
                exact.add(abs(literal) * (100 if percent else 1))
        for printed in self.values:
            if printed.percent and not percent:
                continue
            times = 100 if percent and not printed.percent else 1
            number = times * abs(printed.number)
            if times * printed.step <= step:
                exact.add(number)
                for rounding in (ROUND_HALF_UP, ROUND_HALF_DOWN):
                    rounded.add((number / step).to_integral_value(rounding) * step)
        return rounded, exact

    def has(self, typed: Value) -> bool:
        """Return whether a number is there, to the digits in which it is typed."""
        rounded, exact = self._rounded(typed.step, typed.percent)
        number = abs(typed.number)
        if typed.power or number < 10 * typed.step:  # one digit: no rounding
            return number in exact
        return number in rounded or number in exact

    def shows(self, number: "Number", *, by: int = 0, next_by: int = 0) -> Iterator[bool]:
        """Return in which ways a number is there, alone or with the one that goes with it."""
        moved = number.value.moved(by)
        if number.error is not None:
            error = number.error.moved(next_by)
            yield any(agree(a, moved) and agree(b, error) for a, b in self.errors)
            return
        yield self.has(moved) and not next_by
        yield (number.symbol, moved.number) in self.named and not next_by
        other = number.partner and number.partner.moved(next_by).number
        yield other is not None and (moved.number, other) in self.neighbours

    def proves(self, number: "Number", others: list[int]) -> bool:
        """Return whether the number is there, and none that differs by so many last digits."""
        ways = list(self.shows(number))
        for by in others:
            for beside in (self.shows(number, by=by), self.shows(number, next_by=by)):
                ways = [way and not other for way, other in zip(ways, beside, strict=True)]
        return any(ways)


def agree(printed: Value, typed: Value) -> bool:
    """Return whether what is printed rounds to what is typed."""
    return (
        printed.percent == typed.percent
        and printed.step <= typed.step
        and abs(abs(printed.number) - abs(typed.number)) <= typed.step / 2
    )


def pairs(node: ast.AST) -> Iterator[tuple[Decimal, Decimal]]:
    """Return the numbers that stand side by side in a tuple, a list or a call, either first."""
    beside = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
    for one, other in pairwise(map(constant, beside)):
        if one is not None and other is not None:
            yield from ((one, other), (other, one))


def names(node: ast.AST) -> Iterator[tuple[str, Decimal]]:
    """Return the name to which a number is given: n for n = 512 and f(n=512)."""
    targets: list[str | None] = []
    if isinstance(node, ast.keyword):
        targets = [node.arg]
    elif isinstance(node, ast.Assign):
        targets = [getattr(target, "id", None) for target in node.targets]
    number = constant(node.value) if targets else None
    if number is not None:
        yield from ((GREEK.get(name, name), number) for name in targets if name)


class Ranges(ast.NodeTransformer):
    """Give a range its last number in place of the one after it: 256 for range(1, 257)."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Change the end of a range."""
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        found = [constant(argument) for argument in node.args]
        if name in ("range", "arange") and len(found) > 1 and None not in found:
            start, stop, step = [*found, Decimal(1)][:3]
            if (stop - 1 - start) % step == 0:
                node.args[1] = ast.Constant(int(stop) - 1)
        return node


OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def constant(node: ast.AST) -> Decimal | None:
    """Return the number that an expression without names is."""
    if isinstance(node, ast.Constant):
        typed = type(node.value) in (int, float)
        return Decimal(str(node.value)) if typed else None
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = constant(node.left), constant(node.right)
        if left is not None and right is not None:
            return OPERATIONS[type(node.op)](left, right)
    return None


NAMED = re.compile(r"([^\W\d]\w*|[Α-ω])\*?\s?=\s?([-−]?\d+(?:\.\d+)?)(?![\w.])")


TAG = re.compile(r"<[^>]*>")


def shown(cell: NotebookNode) -> str:
    """Return what the outputs of a code cell say in plain text."""
    texts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        box = unescape(TAG.sub(" ", data.get("text/html", "")))
        text = output.get("text") or data.get("text/plain") or box
        texts.append(text if not text.startswith("<Figure") else "")
    return "\n".join(texts)


GREEK = {"α": "alpha", "ρ": "rho", "σ": "sigma", "Δ": "Delta", "ε": "varepsilon", "δ": "delta"}


class Page:
    """A page of the book: its pieces of text, and what its code prints."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).with_suffix("").as_posix()
        self.cells: list[NotebookNode] = []
        self.sections: list[int] = []
        if path.suffix == ".ipynb":
            self.cells = nbformat.reads(path.read_text("utf-8"), nbformat.NO_CONVERT).cells
            self.pieces = list(self._pieces())
        else:
            source = path.read_text("utf-8")
            self.pieces = [Piece("the page", source, read(source))]
        self._scopes = cache(self._scope)

    def _pieces(self) -> Iterator[Piece]:
        section = 0
        for position, cell in enumerate(self.cells):
            ties = cell.metadata.get("states", {})
            if cell.cell_type == "markdown":
                text = read(cell.source)
                starts = [0, *(m.start() for m in re.finditer(r"^##? ", text, re.M) if m.start())]
                for index, start in enumerate(starts):
                    end = starts[index + 1] if index + 1 < len(starts) else len(text)
                    section += bool(index) or bool(re.match("##? ", text[start:end]))
                    part = text[start:end]
                    yield Piece(cell.id, cell.source[start:end], part, position, section, ties)
            else:
                for node in ast.walk(ast.parse(cell.source)):
                    text = node.value if isinstance(node, ast.Constant) else None
                    if isinstance(text, str) and re.search(r"[^\W\d]|%", text):
                        place = f"{cell.id}, code"
                        yield Piece(place, text, read(text), position, section, ties, True)
                shows = cell.metadata.get("mystnb", {})
                caption = shows.get("figure", {}).get("caption", "")
                alt = shows.get("image", {}).get("alt", "")
                for what, text in (("caption", caption), ("alt", alt)):
                    if text:
                        place = f"{cell.id}, {what}"
                        yield Piece(place, text, read(text), position, section, ties)
            self.sections.append(section)

    def _scope(self, first: int, last: int, in_code: bool) -> Scope:
        cells = [cell for cell in self.cells[first:last] if cell.cell_type == "code"]
        return Scope(cells, outputs=not in_code)

    def scopes(self, piece: Piece) -> Iterator[Scope]:
        """Return what is printed next to a piece, in its section, and in the whole chapter."""
        if not self.cells:
            return
        start = end = piece.position
        yield self._scopes(start, end + 1 + self.hidden(end + 1), piece.in_code)
        while start and self.cells[start - 1].cell_type == "code":
            start -= 1
        while end + 1 < len(self.cells) and self.cells[end + 1].cell_type == "code":
            end += 1
        yield self._scopes(start, end + 1, piece.in_code)
        inside = [i for i, section in enumerate(self.sections) if section == piece.section]
        if inside:
            yield self._scopes(min(start, *inside), max(end, *inside) + 1, piece.in_code)
        yield self._scopes(0, len(self.cells), piece.in_code)

    def hidden(self, position: int) -> bool:
        """Return whether there is a cell that the book hides: the readings of a figure."""
        after = self.cells[position : position + 1]
        return bool(after) and "remove-cell" in after[0].metadata.get("tags", [])

    def tied(self, number: Number) -> bool:
        """Return whether the metadata say which line prints the number."""
        return any(
            covers(number, stated) is not None and f"{name} = {stated}" in self.lines()
            for name, stated in number.piece.ties.items()
        )

    def lines(self) -> set[str]:
        """Return the lines that the chapter prints."""
        return {line for cell in self.cells for line in shown(cell).splitlines()}


def covers(number: Number, text: str) -> int | None:
    """Return where the occurrence of a text starts of which the number is a part."""
    starts = (match.start() for match in re.finditer(re.escape(text), number.piece.source))
    inside = (at for at in starts if at <= number.start and number.end <= at + len(text))
    return next(inside, None)


@cache
def constants(name: str) -> dict[str, str]:
    """Return the texts of a page whose numbers it does not print, each with the reason."""
    listed = tomllib.loads(CONSTANTS.read_text("utf-8"))
    return {**listed["everywhere"], **listed.get(name, {})}


def proof(page: Page, number: Number, listed: Mapping[str, str]) -> bool:
    """Return whether something proves a number."""
    if page.tied(number):
        return True
    for text, reason in listed.items():
        start = covers(number, text)
        if start is not None:
            return reasonable(page, number, start, start + len(text), reason)
    return any(
        scope.proves(number, [-1, 1] if near else number.value.others())
        for near, scope in zip(NEAR, page.scopes(number.piece), strict=False)
    )


def reasonable(page: Page, number: Number, start: int, end: int, reason: str) -> bool:
    """Return whether a reason holds as far as it can be checked.

    "= a; b" computes the numbers of the text from `start` to `end`, in order.
    """
    if reason.startswith("set in the code"):
        return chapter(page.name).has(number.value)
    if reason.startswith("as in "):
        scope = chapter(reason.removeprefix("as in "))
        return scope.proves(number, number.value.others())
    if reason.startswith("= "):
        inside = [n.start for n in numbers(number.piece) if start <= n.start and n.end <= end]
        expression = reason[2:].split(";")[inside.index(number.start)]
        right = Decimal(str(eval(expression, {"__builtins__": {}}, vars(math))))
        tolerance = number.value.step / 2 if not number.value.power else right / 10**9
        return abs(right - number.value.number) <= tolerance
    return True


NEAR = (True, True, False, False)
"""Of the scopes: the cell, what is next to the text, its section, the chapter."""


@cache
def chapter(name: str) -> Scope:
    """Return what a whole chapter prints."""
    page = Page(ROOT / f"{name}.ipynb")
    return Scope([cell for cell in page.cells if cell.cell_type == "code"])


def pages() -> list[Path]:
    """Return the pages whose text is typed."""
    names = ["README", *(name for name in page_names() if name not in GENERATED)]
    paths = [ROOT / f"{name}{suffix}" for name in names for suffix in (".ipynb", ".md")]
    return [path for path in paths if path.exists()]


def unproved(page: Page) -> list[Number]:
    """Return the numbers of a page that nothing proves."""
    listed = constants(page.name)
    found = [number for piece in page.pieces for number in numbers(piece)]
    return [number for number in found if not proof(page, number, listed)]


if __name__ == "__main__":
    for path in pages():
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            page = Page(path)
            print(*(f"{page.name}, {number}" for number in unproved(page)), sep="\n")

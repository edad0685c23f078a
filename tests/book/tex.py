"""Formulas in the TeX that the book uses, and what they are worth.

That is less than a language: products without a sign, fractions, powers, functions, sums,
integrals, means and cases. `_Parser` turns a side of a relation into a function of its letters, and
`evaluate` takes the letters by name: numbers, arrays over many rows at once, lists for letters with
an index, functions for what stands before a bracket, and `E` and `Var`. The name `i in` has the
values of an index i.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from scipy.integrate import quad

Names = Mapping[str, Any]
Node = Callable[[Names], Any]

APPROXIMATE = r"\approx"
"""Near, of the same order, or in the limit: how near, the check has to say."""

RELATIONS = {sign: sign for sign in ("=", "<", ">", r"\le", r"\ge", ":", APPROXIMATE)} | {
    r"\sim": APPROXIMATE,
    r"\to": APPROXIMATE,
}
ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    ">": np.greater,
    r"\le": np.less_equal,
    r"\ge": np.greater_equal,
}
ROUNDING = 1e-12


class FormulaError(ValueError):
    """What is on the page cannot be read, or has no value."""


class Statement(NamedTuple):
    """What the sides of a statement are worth, and the relations between them."""

    tex: str
    values: list[Any]
    relations: tuple[str, ...]

    def holds(self, relative: float, absolute: float, rough: float | None) -> None:
        """Assert each relation: = to `relative`, ≈ to `rough`, all to `absolute` besides."""
        sides = zip(self.values[:-1], self.relations, self.values[1:], strict=True)
        for left, relation, right in sides:
            if relation == APPROXIMATE and rough is None:
                raise FormulaError(f"how near is {self.tex!r} meant to be?")
            near = rough if rough and relation == APPROXIMATE else relative
            assert relation == ":" or _related(left, relation, right, near, absolute), (
                f"{self.tex}: {left} {relation} {right} does not hold"
            )


def evaluate(tex: str, names: Names, *, last: bool = False) -> Statement:
    """Return what a statement says for these letters; of its `last` side only, if asked so.

    A Greek letter may be named without its backslash, "kappa_prime" is κ′, "alpha_star" is α*, and
    "i_in" has the values of an index i.
    """
    letters = {**CONSTANTS, **{_letter(name): value for name, value in names.items()}}
    functions = frozenset(name for name, value in letters.items() if callable(value))
    sides, relations = _parsed(tex, functions)
    sides = sides[-1:] if last else sides
    try:
        with np.errstate(all="ignore"):
            values = [np.asarray(side(letters), dtype=float) for side in sides]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FormulaError(f"{tex!r} has no value: {error!r}") from error
    if not all(np.isfinite(value).all() for value in values):
        raise FormulaError(f"{tex!r} has no value: {values}")
    return Statement(tex, values, relations)


@cache
def _letter(name: str) -> str:
    """Return how a letter is written in TeX whose name is one of Python's."""
    name = name.replace("_prime", "'").replace("_star", "^*").removesuffix("_")
    name = re.sub("_in$", " in", name)
    return re.sub(rf"^({GREEK})(?![a-zA-Z])", r"\\\1", name)


GREEK = (
    "alpha|gamma|delta|Delta|epsilon|varepsilon|eta|theta|kappa|lambda|Lambda|mu|nu|ell|pi|rho"
    "|varrho|sigma|tau|phi|Phi|varphi|psi|Psi"
)


def statements(tex: str) -> list[str]:
    """Return the lines of a formula, one a statement: a line that goes on is joined."""
    inner = re.sub(r"\\(begin|end)\{aligned\}", "", tex)
    cases = CASES.findall(inner)
    for number, case in enumerate(cases):
        inner = inner.replace(case, f"CASES{number}")
    found: list[str] = []
    for line in inner.split(r"\\"):
        start = re.sub(r"^(&|\\quad|\s)+", "", line)
        if found and re.match(r"[-+=]|\\(approx|le|ge)(?![a-z])", start):
            found[-1] += " " + start
        else:
            found.append(start)
    for number, case in enumerate(cases):
        found = [text.replace(f"CASES{number}", case) for text in found]
    return [re.sub(r"(\s|,|\.|\\[,;])+$", "", text) for text in found]


def plain(tex: str) -> str:
    """Return a formula without its blanks and alignment."""
    return re.sub(r"\\begin\{aligned\}|\s|&", "", tex)


class Change(NamedTuple):
    """A sign, a number or a fraction of a formula, changed: what, where, and what comes of it."""

    old: str
    new: str
    at: int
    tex: str

    @property
    def kind(self) -> str:
        """Of what it is a change."""
        kinds = {"+": "sign", "-": "sign", "f": "fraction", "t": "fraction"}
        first = self.old.lstrip("\\")[0]
        return "number" if first.isdigit() else kinds.get(first, "relation")


def changes(tex: str) -> Iterator[Change]:
    """Change each sign of a formula, each number by one, each ≤ or ≥; turn each fraction over."""
    for match in FRACTION.finditer(tex):
        above, below = match["above"], match["below"]
        if above != below:
            new = f"{match['frac']}{{{_bare(below)}}}{{{_bare(above)}}}"
            yield _change(tex, match, new)
    for match in CHANGEABLE.finditer(tex):
        old = match[0]
        yield _change(tex, match, SWAPPED.get(old) or f"{old[:-1]}{(int(old[-1]) + 1) % 10}")


def _change(tex: str, match: re.Match[str], new: str) -> Change:
    return Change(match[0], new, match.start(), tex[: match.start()] + new + tex[match.end() :])


def _bare(piece: str) -> str:
    return piece[1:-1] if piece.startswith("{") else piece


PIECE = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\\[a-zA-Z]+|\w"
FRACTION = re.compile(rf"(?P<frac>\\t?frac)\s*(?P<above>{PIECE})\s*(?P<below>{PIECE})")
SWAPPED = {"+": "-", "-": "+", r"\le": r"\ge", r"\ge": r"\le", "<": ">", ">": "<"}
# What TeX takes for an argument is one digit: ½ in \frac12, and not twelve.
CHANGEABLE = re.compile(
    r"(?<=frac)\d|(?<=frac\d)\d|(?<=sqrt)\d|(?<=\^)\d|(?<=_)\d|\d[\d.]*\d|\d"
    r"|[-+<>]|\\[lg]e(?![a-z])"
)
CASES = re.compile(r"\\begin\{cases\}.*?\\end\{cases\}", re.DOTALL)


def _related(left: Any, relation: str, right: Any, near: float, floor: float = 0.0) -> bool:
    if near and (np.all(left == 0.0) or np.all(right == 0.0)):
        floor = max(floor, ROUNDING)  # what is 0 here is a difference of numbers near 1
    close = np.abs(left - right) <= near * np.maximum(np.abs(left), np.abs(right)) + floor
    if relation in ORDER:
        held = ORDER[relation](left, right)
        return bool(np.all(held | close if near else held))
    return bool(np.all(close))


@cache
def _parsed(tex: str, functions: frozenset[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    parser = _Parser(_tokens(tex), functions)
    sides, relations = parser.chain()
    if parser.token:
        raise FormulaError(f"{parser.token!r} is not understood in {tex!r}")
    return tuple(sides), tuple(relations)


CONSTANTS: Names = {"e": math.e, r"\pi": math.pi, r"\infty": math.inf, r"\dots": 0.0}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    r"\exp": np.exp,
    r"\log": np.log,
    r"\sin": np.sin,
    r"\sinh": np.sinh,
    r"\cosh": np.cosh,
    r"\tanh": np.tanh,
    r"\Gamma": scipy.special.gamma,
    r"\psi": scipy.special.digamma,
    "sech": lambda x: 1.0 / np.cosh(x),
    r"{}_0F_1": lambda *arguments: scipy.special.hyp0f1(*arguments),
}
BEST = {r"\max": np.maximum, r"\min": np.minimum}

DROPPED = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr)(?![a-zA-Z])|\\!|&|\\quad|\\text\{[^}]*\}:?"
)
TOKEN = re.compile(
    r"\{\}_0F_1|\\operatorname\{\w+\}|\\begin\{cases\}|\\end\{cases\}|\\\\|\\[a-zA-Z]+|\\[,;|]|\S"
)
THIN = {r"\,", r"\;"}


def _tokens(tex: str) -> list[str]:
    # ∫ … dx/x is written as a fraction.
    plain = re.sub(r"\\frac\{d(\\?\w+)\}\{([^}]*)\}", r"\\frac{1}{\2} d\1", tex)
    plain = re.sub(r"(_\{)\\text\{(\w+)\}", r"\1\2", plain)
    plain = CASES.sub(lambda match: match[0].replace("&", ","), plain)
    plain = DROPPED.sub("", plain)
    tokens = TOKEN.findall(plain)
    return [re.sub(r"\\operatorname\{(\w+)\}", r"\1", token) for token in tokens]


class _Parser:
    """A recursive descent over the tokens: each method reads what it is named for."""

    def __init__(self, tokens: Sequence[str], functions: frozenset[str]) -> None:
        self.tokens = list(tokens)
        self.at = 0
        self.functions = functions
        self.integrals = 0
        self.norms = 0

    @property
    def token(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    @property
    def next(self) -> str:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.token
        if not token or (wanted and token not in wanted):
            raise FormulaError(f"expected {wanted or 'more'}, got {token!r} in {self.tokens}")
        self.at += 1
        return token

    def skip(self, *tokens: str) -> bool:
        if self.token and self.token in tokens:
            self.at += 1
            return True
        return False

    # relations, sums, products

    def chain(self) -> tuple[list[Node], list[str]]:
        sides, relations = [self.sum()], []
        while self.token in RELATIONS:
            relations.append(RELATIONS[self.take()])
            sides.append(self.sum())
        return sides, relations

    def sum(self) -> Node:
        signed = []
        sign = self.sign()
        while True:
            signed.append((sign, self.product()))
            if self.token not in {"+", "-"}:
                break
            sign = self.sign()
        if len(signed) == 1 and signed[0][0] > 0:
            return signed[0][1]
        return lambda names: sum(sign * term(names) for sign, term in signed)

    def sign(self) -> float:
        sign = 1.0
        while self.token in {"+", "-"} or self.token in THIN:
            sign = -sign if self.take() == "-" else sign
        return sign

    def product(self, *, argument: bool = False) -> Node:
        """Read factors; for the argument of a function only as far as it goes without brackets."""
        factors: list[tuple[bool, Node]] = []
        while True:
            if self.token in THIN:
                if argument and factors:
                    break
                self.take()
                continue
            if self.token == r"\cdot":
                self.take()
                continue
            if self.token == "/" and not argument:
                self.take()
                factors.append((True, self.factor()))
                continue
            if not self.begins_a_factor() or (argument and factors and not self.begins_an_atom()):
                break
            factors.append((False, self.factor()))
        if not factors:
            raise FormulaError(f"expected a number, got {self.token!r} in {self.tokens}")

        def value(names: Names) -> Any:
            result: Any = 1.0
            for divides, factor in factors:
                operand = factor(names)
                result = result / operand if divides else result * operand
            return result

        return value if len(factors) > 1 else factors[0][1]

    def begins_a_factor(self) -> bool:
        token = self.token
        if token in {"|", r"\|", r"\rVert"}:
            return not self.norms and token != r"\rVert"
        if self.integrals and token == "d":
            return not re.fullmatch(r"[a-z]|\\[a-z]{2,}", self.next)
        stops = {
            r"\rfloor",
            "",
            "+",
            "-",
            "/",
            ",",
            ";",
            ".",
            ")",
            "]",
            "}",
            r"\\",
            r"\end{cases}",
            r"\}",
        }
        return token not in stops and token not in RELATIONS

    def begins_an_atom(self) -> bool:
        """Whether a product without brackets goes on: log 2n, but not log 2 (x − 1)."""
        return self.token not in {"(", "[", "E"} and not self.is_function(self.token)

    def is_function(self, token: str) -> bool:
        return token in FUNCTIONS and token not in {r"\Gamma"}

    # factors

    def factor(self) -> Node:
        token = self.token
        if token.isdigit():
            return self.powers(self.number())
        if token in {"(", "[", "{"}:
            return self.powers(self.group())
        if token == r"\lfloor":
            return self.powers(_of(np.floor, self.group(r"\lfloor", r"\rfloor")))
        if token in {r"\frac", r"\tfrac"}:
            self.take()
            above, below = self.argument(), self.argument()
            return self.powers(lambda names: above(names) / below(names))
        if token == r"\sqrt":
            self.take()
            inside = self.argument()
            return self.powers(lambda names: np.sqrt(inside(names)))
        if token in {"|", r"\|", r"\lVert"}:
            return self.norm()
        if token == r"\sum":
            return self.big_sum()
        if token == r"\int":
            return self.integral()
        if token in BEST:
            return self.best()
        if token == r"\begin{cases}":
            return self.cases()
        if token in FUNCTIONS and token not in self.functions:
            return self.function()
        if token in OPERATORS:
            return self.operator()
        return self.name()

    def number(self) -> Node:
        text = self.take()
        while self.token.isdigit() or (self.token == "." and self.next.isdigit()):
            text += self.take()
        value = float(text)
        return lambda names: value

    def group(self, *brackets: str) -> Node:
        opening, closing = (brackets[:1], brackets[1:]) if brackets else ("([{", ")]}")
        self.take(*opening)
        norms, self.norms = self.norms, 0
        inside = self.sum()
        self.norms = norms
        self.take(*closing)
        return inside

    def argument(self) -> Node:
        """Read what TeX takes for an argument: a group in braces, or one sign."""
        while self.token in THIN:
            self.take()
        if self.token == "{":
            return self.group()
        if self.token.isdigit():
            value = float(self.take())
            return lambda names: value
        name = self.take()
        return lambda names: _looked_up(names, name, [])

    def powers(self, base: Node) -> Node:
        """Read what stands behind a factor: powers, factorials, Pochhammer's index."""
        while True:
            if self.token == "^":
                self.take()
                base = _power(base, self.argument())
            elif self.token == "!":
                self.take()
                base = _of(scipy.special.factorial, base)
            elif self.token == "_":
                self.take()
                base = _of(scipy.special.poch, base, self.argument())
            else:
                return base

    def norm(self) -> Node:
        sign = self.take()
        self.norms += 1
        inside = self.sum()
        self.norms -= 1
        self.take("|", r"\|", r"\rVert")
        if sign == "|":
            return self.powers(_of(np.abs, inside))
        self.take("_")
        name = rf"\|_{self.raw()}"
        return self.powers(lambda names: names[name](inside(names)))

    def raw(self) -> str:
        """Read an index as it stands, without its braces."""
        if self.token != "{":
            return self.take()
        self.take()
        text = ""
        while self.token != "}":
            text += self.take()
        self.take()
        return text

    def function(self) -> Node:
        token = self.take()
        function = FUNCTIONS[token]
        power = base = None
        while self.token in {"^", "_"}:
            if self.take() == "^":
                power = self.argument()
            else:
                base = self.argument()
        result = _of(function, *self.arguments())
        if base is not None:
            result = _quotient(result, _of(np.log, base))
        if power is not None:
            return _power(result, power)
        return self.powers(result) if self.closed else result

    def arguments(self) -> list[Node]:
        """Read (a, b) or a product without brackets; `closed` says which it was."""
        while self.token in THIN:
            self.take()
        self.closed = self.token in {"(", "["}
        if not self.closed:
            result = [self.product(argument=True)]
            self.closed = False
            return result
        norms, self.norms = self.norms, 0
        self.take()
        self.skip(";")
        found = [self.sum()]
        while self.skip(",", ";"):
            found.append(self.sum())
        self.take(")", "]")
        self.norms = norms
        self.closed = True
        return found

    def best(self) -> Node:
        """Read max(a, b), or max_i of what follows over the values of i in the names."""
        choose = BEST[self.take()]
        if not self.skip("_"):
            arguments = self.arguments()
            return lambda names: choose(*(node(names) for node in arguments))
        index, body = self.raw(), self.product()

        def value(names: Names) -> Any:
            values = [body({**names, index: one}) for one in _range(names, index)]
            return choose.reduce(values)

        return value

    def big_sum(self) -> Node:
        self.take(r"\sum")
        indices: list[str] = []
        low: Node | None = None
        high: Node | None = None
        while self.token in {"_", "^"}:
            if self.take() == "^":
                high = self.argument()
            elif self.skip("{"):
                indices.append(self.take())
                while self.skip(","):
                    indices.append(self.take())
                if self.skip("="):
                    low = self.sum()
                self.take("}")
            else:
                indices.append(self.take())
        body = self.product()

        def value(names: Names, left: Sequence[str] = tuple(indices)) -> Any:
            if not left:
                return body(names)
            index, *others = left
            numbers: Sequence[Any] = (
                range(int(low(names)), int(high(names)) + 1)
                if low is not None and high is not None
                else _range(names, index)
            )
            return sum(value({**names, index: one}, others) for one in numbers)

        return value

    def integral(self) -> Node:
        self.take(r"\int")
        low: Node = lambda names: -math.inf  # noqa: E731
        high: Node = lambda names: math.inf  # noqa: E731
        while self.token in {"_", "^"}:
            if self.take() == "_":
                low = self.argument()
            else:
                high = self.argument()
        self.integrals += 1
        body = self.product()
        self.integrals -= 1
        self.take("d")
        variable = self.take()

        def value(names: Names) -> float:
            return _integral(
                lambda x: float(body({**names, variable: x})),
                float(low(names)),
                float(high(names)),
            )

        return value

    def cases(self) -> Node:
        self.take(r"\begin{cases}")
        branches = []
        while not self.skip(r"\end{cases}"):
            value = self.sum()
            self.skip(",")
            sides, relations = self.chain()
            branches.append((value, sides, relations))
            while self.skip(",", ".", r"\\"):
                pass

        def chosen(names: Names) -> Any:
            values = []
            for value, sides, relations in branches:
                numbers = [side(names) for side in sides]
                pairs = zip(numbers[:-1], relations, numbers[1:], strict=True)
                if all(_related(a, relation, b, 0.0) for a, relation, b in pairs):
                    values.append(float(value(names)))
            if len(set(values)) != 1:
                raise FormulaError(f"the cases that apply say {values}")
            return values[0]

        return chosen

    def operator(self) -> Node:
        """Read E, Var, … and what they are of; the names say how it is taken."""
        name = self.take()
        while self.token in THIN:
            self.take()
        if self.token in {"(", "["} and name != "E":
            of = self.arguments()
        elif self.token in {"(", "["}:
            of = [self.powers(self.group())]
        else:
            of = [self.product()]
        return self.powers(lambda names: names[name](*(node(names) for node in of)))

    def name(self) -> Node:
        """Read a letter with its primes, star and index, and what it is a function of."""
        base = self.take()
        if not (base.isalpha() or re.fullmatch(r"\\[a-zA-Z]+", base)):
            raise FormulaError(f"{base!r} is not understood in {self.tokens}")
        while self.token == "'":
            base += self.take()
        power: Node | None = None
        index: list[str] = []
        while True:
            if self.token == "^" and self.tokens[self.at + 1 : self.at + 2] == ["*"]:
                self.at += 2
                base += "^*"
            elif self.token == "^" and self.tokens[self.at + 1 : self.at + 3] == ["{", "*"]:
                self.at += 3
                base += "^*"
                power = self.sum()
                self.take("}")
            elif self.token == "^":
                self.take()
                power = self.argument()
            elif self.token == "_" and not index:
                self.take()
                index = _pieces(self.raw())
            else:
                break
        key = f"{base}_{''.join(index)}" if index else base
        if (key in self.functions or base in self.functions) and self.token in {"(", "["}:
            arguments = self.arguments()
            called = self.powers(
                lambda names: _looked_up(names, base, index)(*(node(names) for node in arguments))
            )
            return called if power is None else _power(called, power)
        value: Node = lambda names: _looked_up(names, base, index)  # noqa: E731
        if power is not None:
            value = _power(value, power)
        return self.powers(value) if self.token == "!" else value


OPERATORS = {"E", "Var", "Cov", "std", "diag"}


def _pieces(index: str) -> list[str]:
    return re.findall(r"\\[a-zA-Z]+|\d+|\w|[^,\s]", index)


def _looked_up(names: Names, base: str, index: Sequence[str]) -> Any:
    key = f"{base}_{''.join(index)}" if index else base
    if key in names:
        return names[key]
    if base not in names:
        raise FormulaError(f"{key!r} has no value")
    value = names[base]
    for piece in index:
        number = int(piece) if piece.isdigit() else names.get(piece)
        if number is None:
            raise FormulaError(f"the index {piece!r} of {base!r} has no value")
        value = value(number) if callable(value) else value[number]
    return value


def _range(names: Names, index: str) -> Sequence[Any]:
    values = names.get(f"{index} in")
    if values is None:
        raise FormulaError(f"the values of the index {index!r} are not given")
    return values  # type: ignore[no-any-return]


def _of(function: Callable[..., Any], *arguments: Node) -> Node:
    return lambda names: function(*(argument(names) for argument in arguments))


def _power(base: Node, exponent: Node) -> Node:
    return lambda names: np.power(np.asarray(base(names), dtype=float), exponent(names))


def _quotient(above: Node, below: Node) -> Node:
    return lambda names: above(names) / below(names)


def _integral(function: Callable[[float], float], low: float, high: float) -> float:
    value, _, *_ = quad(function, low, high, limit=200, epsabs=1e-13, epsrel=1e-11, full_output=1)
    return float(value)

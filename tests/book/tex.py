"""Formulas in the TeX that the book uses, and what they are worth.

That is less than a language: products without a sign, fractions, powers, functions, sums,
integrals, means and cases. `_Parser` turns a side of a relation into an expression of Python, and
`evaluate` takes the letters by name: numbers, arrays over many rows at once, lists for letters with
an index, functions for what stands before a bracket, and `E` and `Var`. The name `i in` has the
values of an index i. (sympy's readers of LaTeX take letters for numbers: they know no rows, no
means and no function that is named by a letter.)
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from scipy.integrate import quad

Names = Mapping[str, Any]

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
    joined: list[str] = []
    for line in inner.split(r"\\"):
        start = re.sub(r"^(&|\\quad|\s)+", "", line)
        if joined and re.match(r"[-+=]|\\(approx|le|ge)(?![a-z])", start):
            joined[-1] += " " + start
        else:
            joined.append(start)
    for number, case in enumerate(cases):
        joined = [text.replace(f"CASES{number}", case) for text in joined]
    return [re.sub(r"(\s|,|\.|\\[,;])+$", "", text) for text in joined]


def plain(tex: str) -> str:
    """Return a formula without its blanks and alignment."""
    return re.sub(r"\\begin\{aligned\}|\s|&", "", tex)


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
def _parsed(
    tex: str, functions: frozenset[str]
) -> tuple[list[Callable[[Names], Any]], tuple[str, ...]]:
    parser = _Parser(_tokens(tex), functions)
    sides, relations = parser.chain()
    if parser.token:
        raise FormulaError(f"{parser.token!r} is not understood in {tex!r}")
    return [eval(f"lambda N: {side}", RUNNING) for side in sides], tuple(relations)


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
OPERATORS = {"E", "Var", "Cov", "std", "diag"}
STOPS = {"", "+", "-", "/", ",", ";", ".", ")", "]", "}", r"\\", r"\}", r"\rfloor", r"\end{cases}"}

DROPPED = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])|\\!|&|\\quad|\\text\{[^}]*\}:?")
TOKEN = re.compile(
    r"\{\}_0F_1|\\operatorname\{\w+\}|\\begin\{cases\}|\\end\{cases\}|\\\\|\\[a-zA-Z]+|\\[,;|]|\S"
)
THIN = {r"\,", r"\;"}


def _tokens(tex: str) -> list[str]:
    # ∫ … dx/x is written as a fraction.
    plain = re.sub(r"\\frac\{d(\\?\w+)\}\{([^}]*)\}", r"\\frac{1}{\2} d\1", tex)
    plain = re.sub(r"(_\{)\\text\{(\w+)\}", r"\1\2", plain)
    plain = CASES.sub(lambda match: match[0].replace("&", ","), plain)
    tokens = TOKEN.findall(DROPPED.sub("", plain))
    return [re.sub(r"\\operatorname\{(\w+)\}", r"\1", token) for token in tokens]


class _Parser:
    """A recursive descent over the tokens: each method reads what it is named for.

    It returns an expression of Python, in which N has the letters by name.
    """

    def __init__(self, tokens: Sequence[str], functions: frozenset[str]) -> None:
        self.tokens = [*tokens, ""]
        self.at = 0
        self.functions = functions
        self.integrals = 0
        self.inside_bars = False

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    @property
    def next(self) -> str:
        return self.tokens[self.at + 1] if self.token else ""

    def take(self, *wanted: str) -> str:
        token = self.token
        if not token or (wanted and token not in wanted):
            raise FormulaError(f"expected {wanted or 'more'}, got {token!r} in {self.tokens}")
        self.at += 1
        return token

    def skip(self, *tokens: str) -> bool:
        matches = bool(self.token) and self.token in tokens
        self.at += matches
        return matches

    # relations, sums, products

    def chain(self) -> tuple[list[str], list[str]]:
        sides, relations = [self.sum()], []
        while self.token in RELATIONS:
            relations.append(RELATIONS[self.take()])
            sides.append(self.sum())
        return sides, relations

    def sum(self) -> str:
        terms = [self.sign() + self.product()]
        while self.token in {"+", "-"}:
            terms.append(self.sign() + self.product())
        return f"({''.join(terms)})"

    def sign(self) -> str:
        sign = "+"
        while self.token in {"+", "-"} or self.token in THIN:
            sign = {"+": "-", "-": "+"}[sign] if self.take() == "-" else sign
        return "" if sign == "+" and self.tokens[self.at - 1] != "+" else sign

    def product(self, *, argument: bool = False) -> str:
        """Read factors; for the argument of a function only as far as it goes without brackets."""
        text = ""
        while True:
            if self.token in THIN or self.token == r"\cdot":
                if argument and text and self.token in THIN:
                    break
                self.take()
            elif self.token == "/" and text and not argument:
                self.take()
                text = f"{text}/{self.factor()}"
            elif self.begins_a_factor() and not (argument and text and self.begins_brackets()):
                text = f"{text}*{self.factor()}" if text else self.factor()
            else:
                break
        if not text:
            raise FormulaError(f"expected a number, got {self.token!r} in {self.tokens}")
        return f"({text})"

    def begins_a_factor(self) -> bool:
        token = self.token
        if token == "|":
            return not self.inside_bars
        if self.integrals and token == "d":
            return not re.fullmatch(r"[a-z]|\\[a-z]{2,}", self.next)
        return token not in STOPS and token not in RELATIONS

    def begins_brackets(self) -> bool:
        """Whether a product without brackets ends here: log 2n, but not log 2 (x − 1)."""
        return self.token in {"(", "[", "E"} or self.token in FUNCTIONS.keys() - {r"\Gamma"}

    # factors

    def factor(self) -> str:
        token = self.token
        if token.isdigit():
            return self.powers(self.number())
        if token in {"(", "[", "{"}:
            return self.powers(self.group())
        if self.skip(r"\lfloor"):
            inside = self.sum()
            self.take(r"\rfloor")
            return self.powers(f"floor({inside})")
        if self.skip(r"\frac", r"\tfrac"):
            return self.powers(f"({self.argument()}/{self.argument()})")
        if self.skip(r"\sqrt"):
            return self.powers(f"sqrt({self.argument()})")
        if token == "|":
            return self.absolute()
        if self.skip(r"\sum"):
            return self.big_sum()
        if self.skip(r"\int"):
            return self.integral()
        if token in {r"\max", r"\min"}:
            return self.best()
        if self.skip(r"\begin{cases}"):
            return self.cases()
        if token in FUNCTIONS and token not in self.functions:
            return self.function()
        if token in OPERATORS:
            return self.operator()
        return self.name()

    def number(self) -> str:
        text = self.take()
        while self.token.isdigit() or (self.token == "." and self.next.isdigit()):
            text += self.take()
        return repr(float(text))

    def group(self) -> str:
        self.take("(", "[", "{")
        bars, self.inside_bars = self.inside_bars, False
        inside = self.sum()
        self.inside_bars = bars
        self.take(")", "]", "}")
        return inside

    def argument(self) -> str:
        """Read what TeX takes for an argument: a group in braces, or one sign."""
        if self.token == "{":
            return self.group()
        return repr(float(self.take())) if self.token.isdigit() else f"look(N, {self.take()!r})"

    def powers(self, base: str) -> str:
        """Read the power that stands behind a factor."""
        return f"power({base}, {self.argument()})" if self.skip("^") else base

    def absolute(self) -> str:
        self.take("|")
        self.inside_bars = True
        inside = self.sum()
        self.inside_bars = False
        self.take("|")
        return self.powers(f"abs({inside})")

    def raw(self) -> str:
        """Read an index as it stands, without its braces."""
        if not self.skip("{"):
            return self.take()
        text = ""
        while not self.skip("}"):
            text += self.take()
        return text

    def function(self) -> str:
        token = self.take()
        power = base = ""
        while self.token in {"^", "_"}:
            if self.take() == "^":
                power = self.argument()
            else:
                base = f"/log({self.argument()})"
        closed, arguments = self.arguments()
        result = f"(F[{token!r}]({arguments}){base})"
        if power:
            return f"power({result}, {power})"
        return self.powers(result) if closed else result

    def arguments(self) -> tuple[bool, str]:
        """Read (a, b), or a product without brackets; return which it was, and what."""
        if self.token not in {"(", "["}:
            return False, self.product(argument=True)
        bars, self.inside_bars = self.inside_bars, False
        self.take()
        self.skip(";")
        expressions = [self.sum()]
        while self.skip(",", ";"):
            expressions.append(self.sum())
        self.take(")", "]")
        self.inside_bars = bars
        return True, ", ".join(expressions)

    def best(self) -> str:
        """Read max(a, b)."""
        choose = self.take().removeprefix("\\")
        return f"{choose}imum({self.arguments()[1]})"

    def big_sum(self) -> str:
        indices, low, high = [], "", ""
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
        of = f", range(int({low}), int({high}) + 1)" if low and high else ""
        text = self.product()
        for index in reversed(indices):
            text = f"sum(each(lambda N: {text}, N, {index!r}{of}))"
        return text

    def integral(self) -> str:
        low, high = "-inf", "inf"
        while self.token in {"_", "^"}:
            if self.take() == "_":
                low = self.argument()
            else:
                high = self.argument()
        self.integrals += 1
        body = self.product()
        self.integrals -= 1
        self.take("d")
        return f"integral(lambda N: {body}, N, {self.take()!r}, {low}, {high})"

    def cases(self) -> str:
        branches = []
        while not self.skip(r"\end{cases}"):
            value = self.sum()
            self.skip(",")
            sides, relations = self.chain()
            branches.append(f"({value}, [{', '.join(sides)}], {relations})")
            while self.skip(",", ".", r"\\"):
                pass
        return f"chosen([{', '.join(branches)}])"

    def operator(self) -> str:
        """Read E, Var, … and what they are of; the names say how it is taken."""
        name = self.take()
        while self.skip(*THIN):
            pass
        if self.token not in {"(", "["}:
            of = self.product()
        else:
            of = self.powers(self.group()) if name == "E" else self.arguments()[1]
        return self.powers(f"N[{name!r}]({of})")

    def name(self) -> str:
        """Read a letter with its primes, star and index, and what it is a function of."""
        base = self.take()
        if not (base.isalpha() or re.fullmatch(r"\\[a-zA-Z]+", base)):
            raise FormulaError(f"{base!r} is not understood in {self.tokens}")
        while self.skip("'"):
            base += "'"
        power, index = "", []
        while True:
            if self.token == "^" and self.next == "*":
                self.at += 2
                base += "^*"
            elif self.skip("^"):
                power = self.argument()
            elif self.token == "_" and not index:
                self.take()
                index = re.findall(r"\\[a-zA-Z]+|\d+|\w|[^,\s]", self.raw())
            else:
                break
        text = f"look(N, {', '.join(map(repr, [base, *index]))})"
        functions = {base, f"{base}_{''.join(index)}"} & self.functions
        called = bool(functions) and self.token in {"(", "["}
        if called:
            text = f"{text}({self.arguments()[1]})"
        if power:
            text = f"power({text}, {power})"
        return self.powers(text) if called else text


def _look(names: Names, base: str, *index: str) -> Any:
    key = f"{base}_{''.join(index)}" if index else base
    if key in names:
        return names[key]
    value = names[base]
    for piece in index:
        number = int(piece) if piece.isdigit() else names[piece]
        value = value(number) if callable(value) else value[number]
    return value


def _each(
    function: Callable[[Names], Any], names: Names, index: str, of: Sequence[Any] | None = None
) -> list[Any]:
    values = names[f"{index} in"] if of is None else of
    return [function({**names, index: value}) for value in values]


def _integral(
    function: Callable[[Names], Any], names: Names, variable: str, low: Any, high: Any
) -> float:
    def at(x: float) -> float:
        return float(function({**names, variable: x}))

    value, _, *_ = quad(
        at, float(low), float(high), limit=200, epsabs=1e-13, epsrel=1e-11, full_output=1
    )
    return float(value)


def _chosen(branches: list[tuple[Any, list[Any], list[str]]]) -> Any:
    values = {
        float(value)
        for value, sides, relations in branches
        if all(_related(*of, 0.0) for of in zip(sides[:-1], relations, sides[1:], strict=True))
    }
    if len(values) != 1:
        raise ValueError(f"the cases that apply say {values}")
    return values.pop()


RUNNING: Mapping[str, Any] = {
    "F": FUNCTIONS,
    "abs": np.abs,
    "chosen": _chosen,
    "each": _each,
    "floor": np.floor,
    "inf": math.inf,
    "integral": _integral,
    "log": np.log,
    "look": _look,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": lambda base, exponent: np.power(np.asarray(base, dtype=float), exponent),
    "sqrt": np.sqrt,
}

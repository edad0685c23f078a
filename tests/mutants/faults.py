"""The faults: small changes of a module's text, each one a place and what stands there instead.

Not in docstrings, annotations and decorators, nor in the texts of errors and warnings.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
FUNCTIONS = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil", "log": "log1p"}
FUNCTIONS |= {"argmin": "argmax", "exp": "expm1", "sin": "cos", "zeros_like": "ones_like"}
FUNCTIONS |= {new: old for old, new in FUNCTIONS.items()}


@dataclass(frozen=True)
class Mutant:
    """Bytes `start` to `stop` of a file, and what stands there instead."""

    path: Path
    module: str
    within: str  # the qualified name of the outermost function; "" outside
    line: int
    start: int
    stop: int
    instead: str

    @property
    def source(self) -> str:
        """The whole module with the fault."""
        text = _read(self.path)
        return (text[: self.start] + self.instead.encode() + text[self.stop :]).decode()

    @cached_property
    def before(self) -> str:
        """The lines that it touches, as they are."""
        return self._lines(_read(self.path), self.stop)

    @cached_property
    def after(self) -> str:
        """The same lines with the fault."""
        return self._lines(self.source.encode(), self.start + len(self.instead.encode()))

    def _lines(self, text: bytes, stop: int) -> str:
        first = text.rfind(b"\n", 0, self.start) + 1
        last = text.find(b"\n", stop)
        return " ".join(text[first : last if last >= 0 else None].decode().split())

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What it is called where it is written down: it outlives changes of other lines."""
        return self.module, self.within, self.before, self.after

    def rank(self, seed: int) -> bytes:
        """A place in a random order: the first so many of a module are a uniform sample of it."""
        return hashlib.sha256(repr((seed, self.name)).encode()).digest()


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


def of(path: Path, module: str) -> list[Mutant]:
    """Return the faults of one module, from its top to its end, each change once."""
    text = _read(path)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {
        change[-3:]: Mutant(path, module, *change)
        for change in _Walk(text, starts).body(ast.parse(text).body)
    }
    return sorted(found.values(), key=lambda mutant: (mutant.start, mutant.stop, mutant.instead))


Change = tuple[str, int, int, int, str]


class _Walk:
    def __init__(self, text: bytes, starts: list[int]) -> None:
        self.text, self.starts = text, starts
        self.within = self.prefix = ""

    def body(self, statements: list[ast.stmt]) -> Iterator[Change]:
        for statement in statements:
            yield from self.statement(statement)

    def statement(self, node: ast.stmt) -> Iterator[Change]:
        match node:
            case ast.FunctionDef():
                yield from self.function(node)
                return
            case ast.ClassDef(name=name, body=body):
                outer, self.prefix = self.prefix, f"{self.prefix}{name}."
                yield from self.body(body)
                self.prefix = outer
                return
            case ast.Raise():
                yield self.instead(node, "pass")
                return
            case ast.Expr(value=ast.Constant()):  # a docstring, or "..."
                return
            case ast.Expr(value=ast.Call() as call):
                yield self.instead(node, "pass")
                if ast.unparse(call.func).endswith("warn"):
                    return
            case ast.AugAssign(op=op):
                yield self.instead(node, "pass")
                yield from self.operator(op, node.target, node.value, "=")
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
                yield self.instead(node, "pass")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self.instead(value, "None")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.If(test=test) | ast.While(test=test):
                yield self.negated(test)
        for field, child in ast.iter_fields(node):
            if field != "annotation":
                yield from self.inside(child)

    def function(self, node: ast.FunctionDef) -> Iterator[Change]:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            yield from self.inside(default)
        if outermost := not self.within:
            self.within = self.prefix + node.name
        yield from self.body(node.body)
        if outermost:
            self.within = ""

    def inside(self, child: object) -> Iterator[Change]:
        match child:
            case list():
                for one in child:
                    yield from self.inside(one)
            case ast.stmt():
                yield from self.statement(child)
            case ast.expr():
                yield from self.expression(child)
                for field, one in ast.iter_fields(child):
                    if not (isinstance(child, ast.JoinedStr) or field == "annotation"):
                        yield from self.inside(one)
            case ast.AST():  # a keyword, a comprehension, an except, a case
                if isinstance(child, ast.comprehension):
                    for test in child.ifs:
                        yield self.negated(test)
                for _, one in ast.iter_fields(child):
                    yield from self.inside(one)

    def expression(self, node: ast.expr) -> Iterator[Change]:
        match node:
            case ast.IfExp(test=test):
                yield self.negated(test)
            case ast.Constant(value=bool(value)):
                yield self.instead(node, repr(not value))
            case ast.Constant(value=int(value)):
                yield self.instead(node, repr(value + 1))
            case ast.Constant(value=float(value)):
                yield self.instead(node, repr(_moved(value)))
            case ast.UnaryOp(op=ast.USub() | ast.Not() as op):
                start, sign = self.start(node), 1 if isinstance(op, ast.USub) else len("not")
                yield self.change(node, start, start + sign, "")
            case ast.Compare(left=left, ops=ops, comparators=others):
                for op, one, other in zip(ops, [left, *others[:-1]], others, strict=True):
                    yield from self.operator(op, one, other)
            case ast.BinOp(left=left, op=op, right=right):
                yield from self.operator(op, left, right)
            case ast.BoolOp(op=op, values=values):
                for one, other in pairwise(values):
                    yield from self.operator(op, one, other)
            case ast.Call(func=func, keywords=keywords):
                name = ast.unparse(func).split(".")[-1]
                if name in FUNCTIONS:
                    stop = self.stop(func)
                    yield self.change(func, stop - len(name), stop, FUNCTIONS[name])
                for keyword in keywords:
                    rest = [other for other in keywords if other is not keyword]
                    call = ast.Call(func=func, args=node.args, keywords=rest)
                    yield self.instead(node, ast.unparse(call))

    def operator(
        self, op: ast.AST, left: ast.expr, right: ast.expr, end: str = ""
    ) -> Iterator[Change]:
        if type(op) not in OPERATORS:
            return
        old, new = OPERATORS[type(op)]
        start, stop = self.stop(left), self.start(right)
        between = re.sub(rb"#.*", lambda found: b" " * len(found[0]), self.text[start:stop])
        at = start + between.index((old + end).encode())
        yield self.change(left, at, at + len(old), new)

    def negated(self, test: ast.expr) -> Change:
        return self.instead(
            test, f"(not ({self.text[self.start(test) : self.stop(test)].decode()}))"
        )

    def instead(self, node: ast.expr | ast.stmt, text: str) -> Change:
        return self.change(node, self.start(node), self.stop(node), text)

    def change(self, node: ast.expr | ast.stmt, start: int, stop: int, text: str) -> Change:
        return self.within, node.lineno, start, stop, text

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def stop(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset


def _moved(value: float) -> float:
    """A tenth more; twice as much for a small threshold, the square root of a large one."""
    if value == 0.0:
        return 1.0
    if abs(value) <= 1e-3:
        return 2.0 * value
    return 1.1 * value if abs(value) < 1e4 else value**0.5

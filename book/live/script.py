"""A Sphinx extension: the scripts of the live figures, some seconds.

Browsers do not load modules from files, and the book must also work where it is opened as one. So
numbers and modules are joined to classic scripts. The figures of trained heads have scripts of
their own, because of what their numbers weigh. A page loads a script right behind its first figure:
it runs before what follows is shown, so that nothing moves.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnlib._files import replace
from book.live.heads import atlas, shown_heads
from book.live.tables import tables

HERE = Path(__file__).parent

MODULES = (
    *("table", "chebyshev", "normal", "criteria", "policies", "rows", "drawing", "controls"),
    *("inputs", "advice", "snippets", "jacobian", "freezing", "contest", "mean_vs_typical"),
    *("target_weight", "reaching", "score_histogram", "listing", "calculator", "explorer"),
    *("front_page", "sixteen_keys", "main"),
)
"""In an order in which each imports only from those before it."""

SCRIPTS = {
    "live": MODULES,
    "heads": ("atlas", "drawing", "controls", "heads", "listing", "main_heads"),
    "attend": ("recorded", "drawing", "controls", "attend"),
    "census": ("drawing", "controls", "listing", "main_census"),
    "ledger": ("drawing", "controls", "ledger"),
}
"""The modules of each script."""

MADE: dict[str, Callable[[], dict[str, Any]]] = {
    "table": tables,
    "atlas": atlas,
    "recorded": shown_heads,
}
"""Functions that compute the modules of numbers: `table.js`, `atlas.js` and `recorded.js`."""


def setup(app: Sphinx) -> None:
    """Connect the extension to Sphinx."""
    app.connect("build-finished", add_scripts)


def add_scripts(app: Sphinx, error: Exception | None) -> None:
    """Write the scripts into the site, and their modules beside it, where tests load them."""
    if error is not None or app.builder.name != "html":
        return
    modules = {path.stem: path.read_text("utf-8") for path in HERE.glob("*.js")}
    modules |= {name: numbers_module(name) for name in MADE}
    for name, text in modules.items():
        replace(Path(app.outdir).parent / "live" / f"{name}.js", text.encode())
    for script, names in SCRIPTS.items():
        text = bundle({name: modules[name] for name in names})
        replace(Path(app.outdir, "_static", f"{script}.js"), text.encode())


def numbers_module(name: str) -> str:
    """Return a module of numbers, as JavaScript: one constant, named as the module."""
    numbers = json.dumps(MADE[name](), ensure_ascii=False, separators=(",", ":"))
    return f"export const {name.upper()} = {numbers};\n"


IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
COMMENT = re.compile(r"^ *(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n|^ +", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|let|class|function|async function) (\w+))", re.MULTILINE)


def bundle(modules: dict[str, str]) -> str:
    """Return a script that runs modules one after the other, each as a function.

    A function returns what its module exports. Each module may import, by name, only from those
    before it. Comments and indents are left out. Raises ValueError for other imports and exports.
    """
    parts: dict[str, str] = {}
    for name, text in modules.items():
        exported = ", ".join(EXPORT.findall(text))
        body = EXPORT.sub("", IMPORT.sub(r"const \1 = modules.\2;", COMMENT.sub("", text))).strip()
        left = re.search(r"^(?:import|export)\b.*", body, re.MULTILINE)
        if left:
            raise ValueError(f"{name}.js has what a classic script cannot have: {left[0]}")
        ending = f"\nreturn {{ {exported} }};" if exported else ""
        parts[name] = f"modules.{name} = (() => {{\n{body}{ending}\n}})();"
    return (
        '(() => {\n"use strict";\nconst modules = {};\n' + "\n".join(parts.values()) + "\n})();\n"
    )

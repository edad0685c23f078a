"""The scripts of the live figures: numbers and modules, each joined to one classic script.

Browsers do not load modules from files, and the book must also work where it is opened as one. The
extension `book.extensions.live` makes the scripts while the site is built. The figures of trained
heads have scripts of their own, because of what their numbers weigh.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlib._files import replace
from book.live.heads import atlas, shown
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
    "recorded": shown,
}
"""The modules of numbers, which are made."""


def made_module(name: str) -> str:
    """Return a module of numbers: one constant, named as the module."""
    numbers = json.dumps(MADE[name](), ensure_ascii=False, separators=(",", ":"))
    return f"export const {name.upper()} = {numbers};\n"


def write(folder: Path) -> dict[str, str]:
    """Write the modules into a folder, where tests load them one by one, and return the scripts."""
    modules = {path.stem: path.read_text("utf-8") for path in HERE.glob("*.js")}
    modules |= {name: made_module(name) for name in MADE}
    for name, text in modules.items():
        replace(folder / f"{name}.js", text.encode())
    return {
        script: bundle({name: modules[name] for name in names}) for script, names in SCRIPTS.items()
    }


IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
COMMENT = re.compile(r"^ *(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n|^ +", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|let|class|function|async function) (\w+))", re.MULTILINE)


def bundle(modules: dict[str, str]) -> str:
    """Return modules as functions called one after the other, which return what they export.

    Each may import, by name, only from those before it. Comments and indents stay behind.
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

"""The census as a page: what multiplies q·k in each family of transformers, one layer a row.

The extension `book.extensions.pages` puts it into census.md while the site is built, so that the
page says what the record says.
"""

import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from book.values import long_table
from experiments import records

Row = dict[str, Any]

SAME = 5e-3
"""Two numbers that differ by less, relatively, are one."""


@cache
def rows() -> tuple[Row, ...]:
    """Return the layers of attention that were measured, each with its family."""
    entries = records.load("census").entries
    return tuple(
        {"family": entry.key["family"], **row} for entry in entries for row in entry.result["rows"]
    )


def same_number(a: float, b: float) -> bool:
    """Return whether two numbers differ by less than SAME, relatively."""
    return abs(a / b - 1.0) < SAME


def families(wanted: Any = lambda row: True) -> list[str]:
    """Return the families, in their order, of the layers for which `wanted` is true."""
    return list(dict.fromkeys(row["family"] for row in rows() if wanted(row)))


KINDS: dict[str, Callable[[Row], bool]] = {
    "1/√d": lambda row: same_number(row["alpha"], 1.0),
    "another-scale": lambda row: not same_number(row["alpha"], 1.0),
    "qk-norm": lambda row: set(row.get("norm", ["no"])) != {"no"},
    "rule-by-position": lambda row: "from 4" in row or "by position" in row,
    "soft-cap": lambda row: "cap" in row,
    "sink": lambda row: bool(row["sink"]),
    "gate": lambda row: bool(row["gate"]),
    "window": lambda row: "window of 5" in row,
    "several-products": lambda row: row["terms"] > 1,
}
"""What the choice above the table tells apart: α, and what else a layer has."""


def scale_text(row: Row) -> str:
    """Return what multiplies q·k as a function of d, as far as two sizes show it."""
    exponent, scale = row.get("power"), row["scale"]
    if exponent is None:
        return "1/√d (one d)" if same_number(row["alpha"], 1.0) else f"{scale:g} (one d)"
    suffixes = {-0.5: "/√d", -1.0: "/d", 0.0: "", 0.5: "·√d"}
    nearest = min(suffixes, key=lambda power: abs(power - exponent))
    if abs(nearest - exponent) > 0.02:
        return f"{scale:g}, as d^{exponent:.2f}".replace("-", "−")
    return f"{scale * row['d'] ** -nearest:.4g}{suffixes[nearest]}"


def details(row: Row) -> Iterator[str]:
    """Yield a layer's other properties, in words that a search finds."""
    if KINDS["qk-norm"](row):
        where = dict(zip("qk", row["norm"], strict=True))
        place = " and ".join(f"{tensor} by {how}" for tensor, how in where.items() if how != "no")
        gains = "gains" if any("norm" in name for name in row["parameters"]) else "no gains"
        yield f"norm: {place}, {gains}"
    if row["terms"] > 1:
        yield f"{row['terms']} products"
    if "from 4" in row:
        yield f"rule by position: ×{row['from 4']:g} at 15 with its start at 4"
    elif "by position" in row:
        place = records.load("census").settings["places"][-1]
        yield f"rule by position: ×{row['by position'][-1]:g} at {place}"
    for name in ("yarn", "mscale"):
        if name in row:
            yield f"{name} ×{row[name]:g}"
    if "cap" in row:
        yield f"cap {row['cap']:g}"
    if "window of 5" in row:
        yield "window"
    yield from (name for name in ("sink", "gate") if row[name])
    learned = [name.rpartition(".")[2] for name in row["parameters"] if "norm" not in name]
    if learned:
        yield "learned: " + ", ".join(sorted(set(learned)))


COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "family": ("family", lambda row: row["family"]),
    "alpha": ("α", lambda row: f"{row['alpha']:g}"),
    "scale": ("times q·k", scale_text),
    "d": ("d", lambda row: str(row["d"])),
    "v": ("size of v", lambda row: str(row["v"] or "")),
    "kind": ("what else", lambda row: "; ".join(details(row))),
    "layer": ("layer", lambda row: row["kind"]),
    "file": ("file and line", lambda row: row["where"]),
}
"""What a search calls each column, its heading, and its cell in a row."""


def layer_listing() -> str:
    """Return the table as HTML, one line for each layer."""
    numeric = ("alpha", "scale", "d", "v")
    style = {name: "" if name in numeric else ' class="word"' for name in COLUMNS}
    head = "".join(
        f'<th scope="col" data-name="{name}"{style[name]}>{title}</th>'
        for name, (title, _) in COLUMNS.items()
    )
    lines = []
    for row in sorted(rows(), key=lambda row: row["family"]):
        cells = "".join(
            f"<td{style[name]}>{html.escape(cell(row))}</td>" for name, (_, cell) in COLUMNS.items()
        )
        has = " ".join(name for name, test in KINDS.items() if test(row))
        lines.append(f'<tr data-words="{has}">{cells}</tr>')
    return long_table("census", "All layers", head, "\n".join(lines))


REASONS = {
    r".* requires the (\w+) library.*": r"needs the package \1",
    r"'NoneType' and .*": "its code raises None to a power",
    r"Exactly 1 of .*": "needs exactly one of three inputs",
    r"`get_seq_length` .*": "asks a layer without attention for the length of its cache",
    r".*\(\) missing (\d) required .*": r"needs \1 inputs more",
}
"""What errors say that the record cuts off."""


def reason(line: str) -> str:
    """Return why a layer gave no row, without its class and its model's class."""
    text = line.rpartition(": ")[2]
    for pattern, words in REASONS.items():
        text = re.sub(pattern, words, text)
    return text


def unmeasured_families() -> str:
    """Return the families of which nothing was measured and why, a line for each."""
    lines = [
        f"- {entry.key['family']}: {'; '.join(dict.fromkeys(map(reason, entry.result['not'])))}"
        for entry in records.load("census").entries
        if entry.result["not"] and not entry.result["rows"]
    ]
    written = str.maketrans({"<": "&lt;", "_": r"\_", "`": ""})
    return "\n".join(lines).translate(written)


FAULTS = {
    "doubled": "the scale of one layer doubled",
    "1/√d": "1/√d in place of another scale",
    "no norm": "the norm of q and k left out",
}
"""What was put into models before they were audited."""


def worst_answer(audits: Any) -> str:
    """Return the worst answer of the audit on the released models of a family."""
    order = ("findings", "traceback", "too long", "refused", "not known", "passed")
    return min((run["is"] for run in audits["released"]), key=order.index, default="did not run")


def fault_answer(audited: Any) -> str:
    """Return whether the audit found a fault in its layer, or why not."""
    if audited["is"] == "findings" and audited["named"]:
        return "found"
    return {"passed": "missed", "findings": "found elsewhere"}.get(
        audited["is"], str(audited["is"])
    )


def audit_table() -> str:
    """Return a table of the audit's answers on the families, as Markdown."""
    entries = records.load("census_audit").entries

    def line(name: str, right_answers: set[str], answers: list[tuple[str, str]]) -> str:
        families_of: dict[str, list[str]] = {}
        for family, answer in answers:
            if answer not in right_answers:
                families_of.setdefault(answer, []).append(family)
        others = "; ".join(
            f"{answer}: {', '.join(names) if len(names) < 9 else len(names)}"
            for answer, names in sorted(families_of.items())
        )
        share = f"{len(answers) - sum(map(len, families_of.values()))} of {len(answers)}"
        return f"| {name} | {share} | {others} |".replace("_", "\\_")

    as_they_are = [(entry.key["family"], worst_answer(entry.result)) for entry in entries]
    lines = [
        "| | no alarm, or found | the rest |",
        "|---|---|---|",
        line("as released", {"passed", "not known"}, as_they_are),
    ]
    for name, title in FAULTS.items():
        faults = ((entry.key["family"], entry.result["faults"].get(name)) for entry in entries)
        answers = [(family, fault_answer(audited)) for family, audited in faults if audited]
        lines.append(line(title, {"found"}, answers))
    return "\n".join(lines)


def made() -> dict[str, str]:
    """Return the texts of the page by name: its numbers, its table, the unmeasured families."""
    record = records.load("census")
    alphas = [row["alpha"] for row in rows()]
    counted = {
        "done": len(record.entries),
        "measured": len(families()),
        "layers": len(rows()),
        "one": len(families(KINDS["1/√d"])),
        "above": len(families(lambda row: row["alpha"] > 1.0 + SAME)),
        "below": len(families(lambda row: row["alpha"] < 1.0 - SAME)),
        **{name: len(families(has)) for name, has in KINDS.items()},
        "unmeasured": sum(not e.result["rows"] for e in record.entries),
        "partly": sum(bool(e.result["rows"] and e.result["not"]) for e in record.entries),
    }
    return {
        **{name: str(count) for name, count in counted.items()},
        "least": f"{min(alphas):.3g}",
        "most": f"{max(alphas):.3g}",
        "most_families": ", ".join(families(lambda row: same_number(row["alpha"], max(alphas)))),
        "transformers": record.made["transformers"],
        "torch": record.made["torch"],
        "table": layer_listing(),
        "missing": unmeasured_families(),
        "audits": audit_table(),
        "not-known": str(
            sum(worst_answer(e.result) == "not known" for e in records.load("census_audit").entries)
        ),
    }


def alphas(kind: str, between: str) -> str:
    """Return the α of a class of layers, each once, in the order of its rows."""
    texts = dict.fromkeys(f"{row['alpha']:.3g}" for row in rows() if row["kind"] == kind)
    return between.join(texts)

"""Write the intended scales by the census, for the audit: `python -m experiments.census.meant`.

A class of attention has a rule if one of a few simple rules fits all its layers in the census. A
learned scale has none.
"""

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attnlib.auditing
from attnlib.auditing.meant import rotation_factor
from experiments.records import Record, load

PATH = Path(attnlib.auditing.__file__).with_name("meant.toml")
RULES = {"1/√d": (1.0, -0.5), "1": (1.0, 0.0), "1/d": (1.0, -1.0), "1/√(d/2)": (2**0.5, -0.5)}
"""The factor and the power of d."""
LEARNED = ("scaling", "logit_scale", "per_dim_scale", "q_l2_clip.scale", "cls_token")
"""Endings of the names of parameters that multiply q·k."""
SAME = 2e-3
T = TypeVar("T")


def group_by_class(census: Record, of: Callable[[str, dict[str, Any]], T]) -> dict[str, list[T]]:
    """Return `of` each row's family and the row, grouped by class of attention."""
    groups: dict[str, list[T]] = {}
    for entry in census.entries:
        for row in entry.result["rows"]:
            groups.setdefault(row["kind"], []).append(of(entry.key["family"], row))
    return dict(sorted(groups.items()))


def classes_by_rule(census: Record) -> dict[str, list[str]]:
    """Return the classes of attention that follow each rule."""
    names: dict[str, list[str]] = {rule: [] for rule in RULES}
    for kind, rules in group_by_class(census, rules_of_row).items():
        if common := set.intersection(*rules):
            names[min(common, key=list(RULES).index)].append(kind)
    return names


def normed_classes(census: Record) -> list[str]:
    """Return the classes of attention that normalise q and k in all their rows."""
    by_kind = group_by_class(census, lambda _, row: "no" not in row.get("norm", ["no"]))
    return [kind for kind, each in by_kind.items() if all(each)]


def rules_of_row(family: str, row: dict[str, Any]) -> set[str]:
    """Return the rules that a row of the census follows, if need be with the family's rotation."""
    if any(name.endswith(LEARNED) for name in row["parameters"]):
        return set()
    fits = {rule for rule in RULES if follows(rule, row, 1.0)}
    return fits or {rule for rule in RULES if follows(rule, row, default_rotation(family))}


def follows(rule: str, row: dict[str, Any], rotated: float) -> bool:
    """Return whether a row follows a rule."""
    factor, power = RULES[rule]
    expected = rotated * factor * row["d"] ** power
    measured = row.get("power", power)
    return math.isclose(row["scale"], expected, rel_tol=SAME) and abs(measured - power) < 0.01


def default_rotation(family: str) -> float:
    """Return the factor on q·k of the rotation in a family's default configuration."""
    from transformers import AutoConfig

    try:
        return rotation_factor(AutoConfig.for_model(family)) ** 2
    except (ValueError, AttributeError, ImportError):  # a part of another family
        return 1.0


def toml_text() -> str:
    """Return the text of meant.toml."""
    census = load("census")
    lines = [
        "# What multiplies q·k in classes of attention of transformers, d being the head size.",
        "# Written from the census by `python -m experiments.census.meant`; classes whose scale is",
        "# learned, or no simple one, are not here.",
        f'transformers = "{census.made["transformers"]}"',
        "# Classes that normalise q and k in every layer.",
        f'normed = """\n{textwrap.fill(" ".join(normed_classes(census)), 98)}"""',
    ]
    for rule, names in classes_by_rule(census).items():
        factor, power = RULES[rule]
        lines += ["", "[[rules]]", f'is = "{rule}"', f"factor = {factor!r}", f"power = {power}"]
        lines += [f'classes = """\n{textwrap.fill(" ".join(names), 98)}"""']
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(toml_text(), encoding="utf-8")

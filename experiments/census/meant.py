"""Write what the census says is meant, for the audit: `python -m experiments.census.meant`.

A class of attention has a rule where what the census measured in each of its layers is one of a
few simple ones. A scale that is learned has none.
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
"""How parameters end that multiply q·k."""
SAME = 2e-3
T = TypeVar("T")


def by_class(census: Record, of: Callable[[str, dict[str, Any]], T]) -> dict[str, list[T]]:
    """Return what is found of each row, from its family and the row, by class of attention."""
    found: dict[str, list[T]] = {}
    for entry in census.entries:
        for row in entry.result["rows"]:
            found.setdefault(row["kind"], []).append(of(entry.key["family"], row))
    return dict(sorted(found.items()))


def classes(census: Record) -> dict[str, list[str]]:
    """Return the classes of attention that follow each rule."""
    names: dict[str, list[str]] = {rule: [] for rule in RULES}
    for kind, rules in by_class(census, followed).items():
        if common := set.intersection(*rules):
            names[min(common, key=list(RULES).index)].append(kind)
    return names


def normed(census: Record) -> list[str]:
    """Return the classes of attention that normalise q and k in all that was measured of them."""
    by_kind = by_class(census, lambda _, row: "no" not in row.get("norm", ["no"]))
    return [kind for kind, each in by_kind.items() if all(each)]


def followed(family: str, row: dict[str, Any]) -> set[str]:
    """Return the rules that a row of the census follows, the rotation of its family aside."""
    if any(name.endswith(LEARNED) for name in row["parameters"]):
        return set()
    fits = {rule for rule in RULES if follows(rule, row, 1.0)}
    return fits or {rule for rule in RULES if follows(rule, row, default_rotation(family))}


def follows(rule: str, row: dict[str, Any], rotated: float) -> bool:
    """Return whether a row follows a rule."""
    factor, power = RULES[rule]
    value = rotated * factor * row["d"] ** power
    grows = row.get("power", power)
    return math.isclose(row["scale"], value, rel_tol=SAME) and abs(grows - power) < 0.01


def default_rotation(family: str) -> float:
    """Return what the rotation of a family's default configuration multiplies q·k by."""
    from transformers import AutoConfig

    try:
        return rotation_factor(AutoConfig.for_model(family)) ** 2
    except (ValueError, AttributeError, ImportError):  # a part of another family
        return 1.0


def written() -> str:
    """Return the text of the file."""
    census = load("census")
    lines = [
        "# What multiplies q·k in classes of attention of transformers, d being the head size.",
        "# Written from the census by `python -m experiments.census.meant`; classes whose scale is",
        "# learned, or no simple one, are not here.",
        f'transformers = "{census.made["transformers"]}"',
        "# Classes that normalise q and k in every layer.",
        f'normed = """\n{textwrap.fill(" ".join(normed(census)), 98)}"""',
    ]
    for rule, names in classes(census).items():
        factor, power = RULES[rule]
        lines += ["", "[[rules]]", f'is = "{rule}"', f"factor = {factor!r}", f"power = {power}"]
        lines += [f'classes = """\n{textwrap.fill(" ".join(names), 98)}"""']
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")

"""Find heads in training that deserve a look, by the theory of random scores.

An alarm has a reason in words, with its numbers. It depends on the last few watched steps, so that
one odd batch raises none.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Lines = Sequence[dict[str, Any]]
"""Lines of `Report.table` for one head, of the last `PATIENCE` steps that were watched, the oldest
first."""

WATCHED = 3
"""Watched steps that an alarm looks at: two could be chance, and after more it would come later."""

COLLAPSED = 1.2
"""α/α_c from which a head that goes on growing collapses. Rows of random scores freeze at 1, while
trained heads, which pick out some keys, do well there."""

GROWN = 1.5
"""By which factor α/α_c and the largest logit must both have grown over those steps: sharp heads
are well as long as they stay as they are. Both numbers are chosen on runs of their own, and judged
on others (`experiments.alarms`): lower ones alarm earlier, and in some runs without cause."""

SHARPER = 1.2
"""By which factor α must have grown for even weights to count as sharpening."""

PATIENCE = 20
"""Watched steps for which even weights are no surprise: many models start with them."""

LONG = 256
"""Keys from which dilution is looked for. With fewer, a head that averages is no surprise."""

DILUTED = 0.5
"""α/α_c below which the typical row follows 1/Y = n·e^(−α²): no key holds a share of its own."""

FALLEN = math.e
"""By which factor the largest weight must have fallen: as if n were e times as long."""

EVEN = math.sqrt(-math.log(0.9))
"""α below which 1/Y = n·e^(−α²) is above 0.9 n. As a bound on α it suits rows of unequal n too."""

FROZEN = 0.01
"""Gradient in units of α_c below which none passes; that of random scores grows to about 1."""

FIRST_ONLY = 0.99
"""Weight of the first key at which the output is the same for every query: that key's value."""


class Alarm(NamedTuple):
    """Hold a reason to look at a head: `step`, `layer`, `head`, its kind `name`, `why` in words.

    Chapter: probe.
    """

    step: int
    layer: str
    head: int
    name: str
    """"entropy collapse", "dilution", "dead head" or "not finite"."""
    why: str


def reasons(lines: Lines) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each alarm at the last of a head's lines; none if it has no rows."""
    now = lines[-1]
    if not now["rows"]:
        return
    if not (math.isfinite(now["alpha"]) and math.isfinite(now["largest_logit"])):
        yield "not finite", "its logits are NaN or infinite, or overflow when they are squared"
        return
    if len(lines) < WATCHED:
        return
    if _even(lines):
        share = math.exp(-(now["alpha"] ** 2))
        yield (
            "dead head",
            f"its weights are even: at α = {now['alpha']:.2g}, 1/Y is {share:.2f} n, and they do "
            f"not sharpen over the last {PATIENCE} watched steps",
        )
    lines = list(lines)[-WATCHED:]
    first = lines[0]
    since = f"over the last {WATCHED} watched steps"
    relative, logit = (growth(lines, name) for name in ("alpha_to_critical", "largest_logit"))
    if now["alpha_to_critical"] >= COLLAPSED and min(relative, logit) >= GROWN:
        gain = first["largest_logit"] / now["largest_logit"]
        yield (
            "entropy collapse",
            f"α has grown to {now['alpha_to_critical']:.1f} α_c and the largest logit from "
            f"{first['largest_logit']:.3g} to {now['largest_logit']:.3g} {since}: beyond "
            f"√(2 log n) rows freeze, and {now['effective_keys']:.1f} of {now['keys']:.0f} keys "
            f"share the weight. A gain of {gain:.2g} on its logits would undo that, or QK-clip "
            f"with limit={first['largest_logit']:.3g}, which multiplies its queries and keys by "
            f"{math.sqrt(gain):.2g} each; or a lower learning rate",
        )
    fall = first["largest_weight"] / now["largest_weight"]
    if now["keys"] >= LONG and now["alpha_to_critical"] <= DILUTED and fall >= FALLEN:
        yield (
            "dilution",
            f"the largest weight has fallen from {first['largest_weight']:.2g} to "
            f"{now['largest_weight']:.2g} {since}, and {now['effective_keys']:.0f} of "
            f"{now['keys']:.0f} keys share the weight: at {now['alpha_to_critical']:.2f} α_c no "
            f"logit is log n = {math.log(now['keys']):.1f} above the others",
        )
    dead = _dead(lines)
    if dead:
        yield "dead head", f"{dead}, {since}"


def growth(lines: Lines, name: str) -> float:
    """Return column `name`'s last number over its first > 0; 0 unless the last is the largest."""
    *before, now = (line[name] for line in lines)
    most = max(before)
    return now / before[0] if now > most and before[0] > 0.0 else 0.0


def _even(lines: Lines) -> bool:
    """Return whether the weights are even in `PATIENCE` lines or more, and do not sharpen."""
    known = len(lines) >= PATIENCE and all(line["alpha"] < EVEN for line in lines)
    return known and growth(lines, "alpha") < SHARPER


def _dead(lines: Lines) -> str:
    """Return why a head is dead in all lines though its weights are not even, or ""."""
    now = lines[-1]
    if all(line["first_weight"] >= FIRST_ONLY for line in lines):
        return (
            f"the first key has {now['first_weight']:.1%} of the weight: every query gets its value"
        )
    if all(
        line["alpha"] >= EVEN and line["gradient"] / line["critical_alpha"] < FROZEN
        for line in lines
    ):
        return (
            f"no gradient passes: g = α(1 − Y) is {now['gradient']:.2g}, where random scores have "
            f"up to √(2 log n) = {now['critical_alpha']:.2g}"
        )
    return ""

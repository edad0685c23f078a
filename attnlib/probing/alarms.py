"""Find heads in training that deserve a look, by the theory of random scores.

An alarm has a reason in words, with its numbers. It depends on the last few watched steps, so that
a single odd batch raises none.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Lines = Sequence[dict[str, Any]]
"""Lines of `Report.table` for one head at the last watched steps, at most `PATIENCE`, the oldest
first."""

WINDOW = 3
"""Watched steps behind an alarm: two could be chance, and with more it would come later."""

COLLAPSE = 1.2
"""α/α_c at which a head that still grows is an alarm. Rows of random scores freeze at 1, but
trained heads, which pick out some keys, work well there."""

GROWTH = 1.5
"""Factor by which α/α_c and the largest logit must both have grown over those steps: a sharp head
that no longer grows is no alarm. This and `COLLAPSE` are chosen on some runs and judged on others
(`experiments.alarms`): lower ones alarm earlier, and in some runs without cause."""

SHARPENING = 1.2
"""Factor by which α must have grown for even weights to count as sharpening."""

PATIENCE = 20
"""Number of watched steps for which even weights are usual: many models start with them."""

LONG_ROW = 256
"""Number of keys from which dilution is an alarm. With fewer a head that averages is usual."""

DILUTION = 0.5
"""α/α_c below which the typical row follows 1/Y = n·e^(−α²): no key holds a share of its own."""

FALL = math.e
"""Factor by which the largest weight must have fallen: as if n were e times as large."""

EVEN_ALPHA = math.sqrt(-math.log(0.9))
"""α below which 1/Y = n·e^(−α²) is above 0.9 n. As a bound on α it suits rows of unequal n too."""

DEAD_GRADIENT = 0.01
"""Gradient, in units of α_c, below which a head is dead; that of random scores grows to about 1."""

DEAD_FIRST_WEIGHT = 0.99
"""Weight of the first key from which a head is dead: every query gets that key's value."""


class Alarm(NamedTuple):
    """Hold an alarm: `step`, `layer`, `head`, its kind `name`, and the reason in words, `why`.

    Chapter: probe.
    """

    step: int
    layer: str
    head: int
    name: str
    """"entropy collapse", "dilution", "dead head" or "not finite"."""
    why: str


def find_alarms(lines: Lines) -> Iterator[tuple[str, str]]:
    """Yield the name and reason of each alarm at a head's last line; none if it has no rows."""
    last = lines[-1]
    if not last["rows"]:
        return
    if not (math.isfinite(last["alpha"]) and math.isfinite(last["largest_logit"])):
        yield "not finite", "its logits are NaN or infinite, or overflow when they are squared"
        return
    if len(lines) < WINDOW:
        return
    if _stays_even(lines):
        even_share = math.exp(-(last["alpha"] ** 2))
        yield (
            "dead head",
            f"its weights are even: at α = {last['alpha']:.2g}, 1/Y is {even_share:.2f} n, and "
            f"they do not sharpen over the last {PATIENCE} watched steps",
        )
    lines = list(lines)[-WINDOW:]
    first = lines[0]
    since = f"over the last {WINDOW} watched steps"
    alpha_growth, logit_growth = (
        growth_factor(lines, name) for name in ("alpha_to_critical", "largest_logit")
    )
    if last["alpha_to_critical"] >= COLLAPSE and min(alpha_growth, logit_growth) >= GROWTH:
        gain = first["largest_logit"] / last["largest_logit"]
        yield (
            "entropy collapse",
            f"α has grown to {last['alpha_to_critical']:.1f} α_c and the largest logit from "
            f"{first['largest_logit']:.3g} to {last['largest_logit']:.3g} {since}: beyond "
            f"√(2 log n) rows freeze, and {last['effective_keys']:.1f} of {last['keys']:.0f} keys "
            f"share the weight. A gain of {gain:.2g} on its logits would undo that, or QK-clip "
            f"with limit={first['largest_logit']:.3g}, which multiplies its queries and keys by "
            f"{math.sqrt(gain):.2g} each; or a lower learning rate",
        )
    fall = first["largest_weight"] / last["largest_weight"]
    if last["keys"] >= LONG_ROW and last["alpha_to_critical"] <= DILUTION and fall >= FALL:
        yield (
            "dilution",
            f"the largest weight has fallen from {first['largest_weight']:.2g} to "
            f"{last['largest_weight']:.2g} {since}, and {last['effective_keys']:.0f} of "
            f"{last['keys']:.0f} keys share the weight: at {last['alpha_to_critical']:.2f} α_c no "
            f"logit is log n = {math.log(last['keys']):.1f} above the others",
        )
    death_reason = _death_reason(lines)
    if death_reason:
        yield "dead head", f"{death_reason}, {since}"


def growth_factor(lines: Lines, name: str) -> float:
    """Return the last number of a column over the first; 0 unless it is the largest, first > 0."""
    *before, last = (line[name] for line in lines)
    earlier_max = max(before)
    return last / before[0] if last > earlier_max and before[0] > 0.0 else 0.0


def _stays_even(lines: Lines) -> bool:
    """Return whether the weights are even over `PATIENCE` lines and do not sharpen."""
    even = len(lines) >= PATIENCE and all(line["alpha"] < EVEN_ALPHA for line in lines)
    return even and growth_factor(lines, "alpha") < SHARPENING


def _death_reason(lines: Lines) -> str:
    """Return the reason why a head is dead in all lines, other than even weights; "" for none."""
    last = lines[-1]
    if all(line["first_weight"] >= DEAD_FIRST_WEIGHT for line in lines):
        share = f"{last['first_weight']:.1%} of the weight"
        return f"the first key has {share}: every query gets its value"
    if all(
        line["alpha"] >= EVEN_ALPHA and line["gradient"] / line["critical_alpha"] < DEAD_GRADIENT
        for line in lines
    ):
        return (
            f"no gradient passes: g = α(1 − Y) is {last['gradient']:.2g}, where random scores have "
            f"up to √(2 log n) = {last['critical_alpha']:.2g}"
        )
    return ""

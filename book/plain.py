r"""Formulas as plain text, for what cannot show them: descriptions, and the search.

>>> plain(r"Y \approx e^{\alpha^2}/n"), plain(r"\frac{\sqrt{2\log n}}{d}")
('Y ≈ e^(α²)/n', '√(2 log n)/d')
"""

import re
from functools import cache
from xml.etree import ElementTree

from book.formulas import mathml

Element = ElementTree.Element

RAISED = str.maketrans("0123456789+−-=()niT⊤", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿⁱᵀᵀ")
LOWERED = str.maketrans("0123456789ijknmpt", "₀₁₂₃₄₅₆₇₈₉ᵢⱼₖₙₘₚₜ")
SIGNS = {"∗": "*", "∑": " Σ", "∏": " ∏", "∫": " ∫", ",": ", ", ";": "; ", "⁡": ""}
LARGE = {"Σ", "∏", "∫"}
APART = set("=≈≠<>≤≥≪≫∼∝→↦∈+−±×⟹⇒⇔")
"""Signs with a space on either side where something stands before them."""


ONE = re.compile(r"[\d.]+|√?[^\W\d_]?[₀-₉ᵢⱼₖₙₘₚₜ′*²³ᵀ]*|[a-z]{3,}|[∞*]|√?\([^()]*\)|\|[^|]*\|")
"""What needs no brackets: a number, a letter with its scripts, a name, what has brackets."""


@cache
def plain(tex: str) -> str:
    """Return a formula as plain text."""
    text = re.sub(r"\s+", " ", written(ElementTree.fromstring(mathml(tex)))).strip()
    text = re.sub(r" (?=[),;.\]])|(?<=[(\[√/]) ", "", text)
    return re.sub(r"(^|[(\[=] ?)([−+]) ", r"\1\2", text)


def written(element: Element) -> str:
    """Return an element of MathML as text."""
    parts = [written(child) for child in element]
    match element.tag:
        case "mi" | "mn" | "mtext":
            return element.text or ""
        case "mo":
            text = SIGNS.get(element.text or "", element.text or "")
            return f" {text} " if text in APART and element.get("form") != "prefix" else text
        case "mspace":
            return " "
        case "mfrac":
            return "/".join(map(grouped, parts))
        case "msqrt":
            return "√" + grouped("".join(parts))
        case "msub" | "munder":
            return parts[0] + script("_", parts[1], LOWERED) + after(parts[0])
        case "msup" | "mover":
            return accented(*parts) + after(parts[0])
        case "msubsup" | "munderover":
            below = parts[0] + script("_", parts[1], LOWERED)
            return accented(below, parts[2]) + after(parts[0])
        case "mtr":
            return " ".join(parts)
        case "mtable":
            return "; ".join(parts)
    return "".join(parts)


def after(base: str) -> str:
    """Return the space that stands after large signs."""
    return " " if base.strip() in LARGE else ""


def accented(base: str, above: str) -> str:
    """Return a base with what stands above it."""
    if above in ("*", "′", "′′", "″"):
        return base + above
    if above in "¯ˉ‾˜~^ˆ⏞":
        return base
    return base + script("^", above, RAISED)


def script(sign: str, text: str, table: dict[int, int]) -> str:
    """Return what stands above or below the line, by its own characters if there are such."""
    text = text.strip()
    if text and all(ord(character) in table for character in text):
        return text.translate(table)
    return sign + (f"({text})" if text[-1:] in "²³ᵀ" else grouped(text))


def grouped(text: str) -> str:
    """Return text that is one thing in a line: in brackets, if it is not short."""
    text = text.strip()
    return text if ONE.fullmatch(text) else f"({text})"

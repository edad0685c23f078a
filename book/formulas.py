r"""Formulas as MathML, which browsers show without scripts: docutils' translation, mended.

docutils reads most of LaTeX's mathematics. Commands of the book that it does not know are
replaced by some that it knows; then the spaces between names, signs and letters become TeX's.

>>> mathml(r"c\log n")
'<math><mi>c</mi><mspace width=".17em" /><mi>log</mi><mspace width=".17em" /><mi>n</mi></math>'
"""

import re
from xml.etree import ElementTree

from docutils.utils.math.latex2mathml import tex2mathml

Element = ElementTree.Element

NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'
"""HTML needs no namespace."""

LIMITS = {"max", "min", "sup", "inf", "lim"}
"""Names below which something may stand, which docutils makes signs."""

OPENING, CLOSING = set("([{⟨⌈⌊"), set(")]}⟩⌉⌋")
SIZES = {"big": "1.2em", "Big": "1.623em", "bigg": "2.047em", "Bigg": "2.47em"}
"""Heights of brackets, which LaTeX names; docutils wants both of a pair in one cell of a table."""

UPRIGHT = set("ΓΔΘΛΞΠΣΥΦΨΩ")
LARGE = set("∑∏∫∮")
CLOSE_UP = set("/|‖")
"""Signs around which TeX has no space and browsers have."""

IN_TEX = (
    (r"(\\[bB]igg?l?[(\[](?:(?!\\[bB]ig).)*\\[bB]igg?r?[)\]])(?=[_^])", r"{\1}"),
    (r"\\dots(?![a-z])", r"\\ldots"),
    (r"\\([bB]igg?)[lr]?([()\[\]])", r"\\text{\1\2}"),
    (r"'", r"\\prime "),
    (r"([_^])(\d)(?=\d)", r"\1{\2}"),
    (r"(\\[td]?frac) *(\d|[a-zA-Z]|\\[a-zA-Z]+)", r"\1{\2}"),
)
"""Patterns that docutils does not know, and their replacements."""


def mathml(tex: str, *, block: bool = False) -> str:
    """Return a formula as MathML; `block` for one on a line of its own.

    Raises docutils.utils.math.MathError or ValueError where it cannot be read.
    """
    for pattern, words in IN_TEX:
        tex = re.sub(pattern, words, tex)
    text = "".join(map(str.strip, tex2mathml(tex, as_block=block).splitlines()))
    tree = ElementTree.fromstring(text.replace(NAMESPACE, "").replace("&ApplyFunction;", ""))
    for element in list(tree.iter()):
        mend(element)
    if not block:
        for sign in tree.iter("mo"):
            if sign.text in LARGE:
                sign.set("largeop", "false")  # or it has the room of a large one
    for row in list(tree.iter()):
        if row.tag not in WITHOUT_SPACES:
            set_spaces(row)
    return ElementTree.tostring(tree, encoding="unicode")


WITHOUT_SPACES = {"mfrac", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mroot"}
"""Elements whose children are not beside each other."""


def mend(element: Element) -> None:
    """Change one element: no empty sign, upright capitals, tables in the style of display."""
    for child in list(element):
        if child.tag == "mo" and not child.text:
            element.remove(child)
    size = re.fullmatch(r"([bB]igg?)([()\[\]])", element.text or "")
    if size and element.tag == "mtext":
        element.tag, element.text = "mo", size[2]
        element.attrib.update(
            minsize=SIZES[size[1]], maxsize=SIZES[size[1]], symmetric="true", stretchy="true"
        )
    if element.get("class") == "capital-greek" or element.text in UPRIGHT:
        element.attrib.pop("class", None)
        element.set("mathvariant", "normal")
    if element.tag == "msub" and element[0].tag == "munder" and element[0][-1].text == "⏟":
        element.tag = "munder"  # what is said below a brace
    if element.tag == "mo" and element.text in (",", ";", "."):
        element.set("lspace", "0")
    if element.tag == "mo" and element.text == "‖":
        element.attrib.setdefault("stretchy", "false")
    if element.get("class") == "ams-align":
        for sign in element.iterfind("mtr/mtd[2]/*[1]"):
            if sign.tag == "mo":
                sign.set("form", "infix")
        element.set("displaystyle", "true")
    if element.tag == "mo" and element.text in CLOSE_UP | LIMITS:
        element.attrib.update(lspace="0", rspace="0")


def base_of(element: Element) -> Element:
    """Return the element at the line: the formula without its scripts."""
    while element.tag in WITHOUT_SPACES - {"mfrac", "mroot"} and len(element):
        element = element[0]
    return element


def role(element: Element | None) -> str:
    """Return the role of an element in TeX's spacing: name, letter, sign, bracket or nothing."""
    if element is None or element.tag == "mspace":
        return "nothing"
    base = base_of(element)
    text = base.text or ""
    if text in LIMITS or (
        base.tag == "mi"
        and text.isascii()
        and text.isalpha()
        and (len(text) > 1 or base.get("mathvariant"))
    ):
        return "name"
    if base.tag != "mo" or text in CLOSE_UP or base.get("accent"):
        return "letter"
    if text in OPENING or text in CLOSING:
        return "opening" if text in OPENING else "closing"
    return "sign"


def set_spaces(row: Element) -> None:
    """Set the spaces within a row: around names as TeX does, none after a sign before a number."""
    children = list(row)
    for before, after in zip([None, *children], children, strict=False):
        pair = role(before), role(after)
        if pair in APART:
            row.insert(list(row).index(after), ElementTree.Element("mspace", width=".17em"))
        if base_of(after).text in ("−", "+", "±") and pair[0] in ("sign", "opening", "name"):
            base_of(after).set("form", "prefix")


APART = {
    *(("name", other) for other in ("name", "letter")),
    *((other, "name") for other in ("letter", "closing")),
}

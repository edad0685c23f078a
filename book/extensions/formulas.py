"""A Sphinx extension: formulas are MathML in the pages, and need no script.

A formula that cannot be read is a warning, which ends the build; the page shows it as it was
written. Numbers of equations, and references to them, are Sphinx's own. No line ends between a
formula and the full stop behind it.
"""

import re
from base64 import b64encode
from functools import partial
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from attnlib._files import replace
from book.formulas import mathml

FONT = re.compile(r"fonts/\w+\.(woff2?)")
CLASSES = "math notranslate nohighlight"
SHORT = 6
"""So many elements of MathML fit into any line."""

BEFORE, BEHIND = re.compile(r"[(\[“‘]+$"), re.compile(r"^(?:[^\s/–—-]+-?|-)")
"""What stands at a formula without a space."""

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (in_line, None), (displayed, None))
    app.add_css_file("formulas.css")
    app.connect("doctree-resolved", keep_together)
    app.connect("build-finished", enclose_fonts)


def keep_together(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put formulas into one piece with what stands at them, and numbers with their errors."""
    if app.builder.format != "html":
        return
    for text in list(tree.findall(nodes.Text)):
        if " ± " in text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(
                text, nodes.Text(text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"))
            )
    for formula in list(tree.findall(nodes.math)):
        parent = formula.parent
        place = parent.index(formula)
        ends = [cut_match(parent, place - 1, BEFORE), cut_match(parent, place + 1, BEHIND)]
        if any(ends):
            formula["ends"] = ends
            formula["classes"].append("whole")


def cut_match(parent: nodes.Element, place: int, pattern: re.Pattern[str]) -> str:
    """Take what is found out of the text at a place, if that is text, and return it."""
    text = parent[place] if 0 <= place < len(parent) else None
    if not isinstance(text, nodes.Text) or not (match := pattern.search(text)):
        return ""
    parent[place] = nodes.Text(pattern.sub("", text))
    return match[0]


def enclose_fonts(app: Sphinx, error: Exception | None) -> None:
    """Put the fonts into their style sheet: where pages are files, not every browser reads them."""
    static = Path(app.outdir, "_static")
    sheet = static / "formulas.css"
    if error is None and sheet.is_file():
        replace(sheet, FONT.sub(partial(enclosed, static), sheet.read_text("utf-8")).encode())


def enclosed(static: Path, font: re.Match[str]) -> str:
    """Return an address that is the font itself."""
    return f"data:font/{font[1]};base64,{b64encode((static / font[0]).read_bytes()).decode()}"


def in_line(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line; a short one needs no element around it."""
    formula = shown(writer, node, block=False)
    if "ends" not in node and formula.count("<m") <= SHORT:
        writer.body.append(formula)
        raise nodes.SkipNode
    writer.body.append(writer.starttag(node, "span", "", CLASS=CLASSES))
    before, behind = map(writer.encode, node.get("ends", ("", "")))
    writer.body.append(f"{before}{formula}{behind}</span>")
    raise nodes.SkipNode


def displayed(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS=CLASSES))
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(shown(writer, node, block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def shown(writer: HTML5Translator, node: nodes.Element, *, block: bool) -> str:
    """Return a formula as MathML, as LaTeX where that is not possible."""
    tex = node.astext()
    try:
        return mathml(tex, block=block)
    except (MathError, ValueError, AttributeError) as error:
        logger.warning("formula not shown: %s: %r", error, tex, location=node)
        return f"<code>{writer.encode(tex)}</code>"

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
    """Connect the extension to Sphinx."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_displayed, None))
    app.add_css_file("formulas.css")
    app.connect("doctree-resolved", keep_together)
    app.connect("build-finished", enclose_fonts)


def keep_together(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put a formula into one element with the signs next to it, and numbers with their errors."""
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
    """Cut a match out of the text at a place of the parent, and return it; "" where is none."""
    text = parent[place] if 0 <= place < len(parent) else None
    if not isinstance(text, nodes.Text) or not (match := pattern.search(text)):
        return ""
    parent[place] = nodes.Text(pattern.sub("", text))
    return match[0]


def enclose_fonts(app: Sphinx, error: Exception | None) -> None:
    """Put the fonts into their style sheet: not every browser reads them beside a local page."""
    static = Path(app.outdir, "_static")
    sheet = static / "formulas.css"
    if error is None and sheet.is_file():
        replace(sheet, FONT.sub(partial(data_address, static), sheet.read_text("utf-8")).encode())


def data_address(static: Path, font: re.Match[str]) -> str:
    """Return the address of a font that holds the font itself."""
    return f"data:font/{font[1]};base64,{b64encode((static / font[0]).read_bytes()).decode()}"


def write_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line; a short one needs no element around it."""
    formula = formula_html(writer, node, block=False)
    if "ends" not in node and formula.count("<m") <= SHORT:
        writer.body.append(formula)
        raise nodes.SkipNode
    writer.body.append(writer.starttag(node, "span", "", CLASS=CLASSES))
    before, behind = map(writer.encode, node.get("ends", ("", "")))
    writer.body.append(f"{before}{formula}{behind}</span>")
    raise nodes.SkipNode


def write_displayed(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS=CLASSES))
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(formula_html(writer, node, block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def formula_html(writer: HTML5Translator, node: nodes.Element, *, block: bool) -> str:
    """Return a formula as MathML, or its LaTeX as code if it cannot be read."""
    tex = node.astext()
    try:
        return mathml(tex, block=block)
    except (MathError, ValueError, AttributeError) as error:
        logger.warning("formula not shown: %s: %r", error, tex, location=node)
        return f"<code>{writer.encode(tex)}</code>"

"""Code cells in a page: each shows its output, and its code when it is opened.

The line above the output that opens the code is a `details`, which needs no script. Where there are
scripts the code is no part of the page, in a `noscript`, until it is opened: the colours of the
code are half of a page's elements.
"""

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxTranslator


class FoldedCode(nodes.General, nodes.Element):  # type: ignore[misc]
    """The code of a cell; one that the notebook hides has the class `above-input`."""


def fold(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put the code of each cell into a `FoldedCode`, which is shown folded."""
    if app.builder.format != "html":
        return
    for source in list(tree.findall(nodes.container)):
        if source.get("nb_element") != "cell_code_source":
            continue
        folded = FoldedCode(lines=len(source.astext().strip().splitlines()))
        place = source
        if isinstance(source.parent, HideCodeCellNode):
            place = source.parent
            folded["classes"] = ["above-input"]
        place.parent.replace(place, folded)
        folded += source


def open_details(translator: SphinxTranslator, node: FoldedCode) -> None:
    """Write the line that opens the code."""
    classes = " ".join(["code", *node["classes"]])
    lines = f"{node['lines']} line{'' if node['lines'] == 1 else 's'}"
    translator.body.append(
        f'<details class="{classes}">\n<summary>Code, {lines}</summary>\n<noscript>'
    )


def close_details(translator: SphinxTranslator, node: FoldedCode) -> None:
    """Write the end of the folded code."""
    translator.body.append("</noscript></details>\n")

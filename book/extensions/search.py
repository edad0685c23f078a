"""A Sphinx extension: the search finds pages by readers' words too, not only by the book's.

Sphinx's own search finds titles, words and entries of the index; search.js finds titles and entries
by their words in any order, too. The lines of book/synonyms.toml become such entries; the general
index does not show them.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish, english_stopwords

SYNONYMS = Path(__file__).parents[1] / "synonyms.toml"
SCRIPT = Path(__file__).with_name("search.js")
ASKING = "an can do does happens how i me my s should too we what when which why you your"


class Questions(SearchEnglish):
    """English, where the words that only ask a question are not searched for."""

    stopwords = english_stopwords | set(ASKING.split())
    js_splitter_code = SCRIPT.read_text("utf-8")  # what Sphinx loads before the index


def setup(app: Sphinx) -> None:
    """Connect the extension to Sphinx."""
    app.add_css_file("find.css")
    app.add_search_language(Questions)
    app.connect("doctree-read", add_entries)


def synonyms() -> Iterator[tuple[str, str, str]]:
    """Yield each phrase with a page that answers it and a section there, "" for the whole page."""
    for phrase, targets in tomllib.loads(SYNONYMS.read_text("utf-8")).items():
        for target in [targets] if isinstance(targets, str) else targets:
            page, _, anchor = target.partition("#")
            yield phrase, page, anchor


def add_entries(app: Sphinx, tree: nodes.document) -> None:
    """Add the phrases that a page answers, after Sphinx has read its entries for the index.

    Entries written in the page itself lead to the beginning of their section.
    """
    for written in tree.findall(addnodes.index):
        if isinstance(section := written.parent, nodes.section):
            written["entries"] = [
                (kind, phrase, re.sub(r"^index-\d+$", section["ids"][0], place), main, key)
                for kind, phrase, place, main, key in written["entries"]
            ]
    entries = [
        ("single", phrase, anchor, "main", None)
        for phrase, page, anchor in synonyms()
        if page == app.env.docname
    ]
    tree += addnodes.index(entries=entries)

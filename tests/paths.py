"""Where the book's files are, for the tests that read them."""

import re
from pathlib import Path

from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"


def page_names() -> list[str]:
    """Return the pages of the book without suffix, in the order of its contents."""
    return [str(name) for name in parse_toc_yaml(ROOT / "_toc.yml")]


def examples(page):
    """Return the Python blocks of one of the library's pages."""
    text = (CHAPTERS / "api" / f"{page}.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)

"""The pages of the book, as _toc.yml lists them, and the short path through them."""

from pathlib import Path

from sphinx_external_toc.parsing import parse_toc_yaml

SHORT_PATH = [
    *("chapters/short_answer", "chapters/why", "chapters/undivided", "chapters/freezing"),
    *("chapters/needle", "chapters/reach", "chapters/length", "chapters/policies"),
    *("chapters/calibrate", "chapters/questions"),
]
"""The pages of the short path, in their order."""


def page_names(root: Path) -> list[str]:
    """Return the pages of the book at `root` without suffix, in the order of its contents."""
    return [str(name) for name in parse_toc_yaml(root / "_toc.yml")]

"""The pages of the book, as _toc.yml lists them, and the short path through them."""

from collections.abc import Collection
from pathlib import Path

from sphinx_external_toc.parsing import parse_toc_yaml

SHORT_PATH = (
    *("short_answer", "variance", "saturation", "jacobian", "freezing"),
    *("needle", "reach", "policies", "heads", "questions"),
)
"""The chapters of the short path, in their order. Those that the book does not have are skipped."""


def page_names(root: Path) -> list[str]:
    """Return the pages of the book at `root` without suffix, in the order of its contents."""
    return [str(name) for name in parse_toc_yaml(root / "_toc.yml")]


def short_path(pages: Collection[str]) -> list[str]:
    """Return the pages of the short path, in their order, that are among `pages`."""
    return [name for name in (f"chapters/{chapter}" for chapter in SHORT_PATH) if name in pages]

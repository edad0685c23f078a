"""Where the book's files are, for the tests that read them."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"


@cache
def bibliography_keys() -> set[str]:
    """Return the keys of references.bib."""
    text = (ROOT / "references.bib").read_text(encoding="utf-8")
    return set(re.findall(r"^@\w+\{([^,]+),", text, flags=re.MULTILINE))

"""Lines of results: by what each is known, and who may write them. Nothing here needs torch."""

import json
from pathlib import Path
from typing import Any

from filelock import FileLock


def key_of(table: dict[str, Any]) -> str:
    """Return what a line is known by, as a word: a run's identity, or what a piece is `at`."""
    parts = ("model", "training", "task", "corpus", "at")
    return json.dumps({part: table[part] for part in parts if part in table}, sort_keys=True)


def writing(path: Path) -> FileLock:
    """Return what whoever writes a file of results has to hold; entering raises Timeout at once."""
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)

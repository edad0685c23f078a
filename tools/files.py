"""Files that are written whole or not at all, and those that a long run completes bit by bit."""

import json
import os
from pathlib import Path
from typing import Any


def replace(path: Path, content: bytes) -> None:
    """Replace a file at once, so that an interruption leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file of JSON at once."""
    replace(path, (json.dumps(content, indent=1) + "\n").encode("utf-8"))


def read_entries(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a file that was made with the same settings, or none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text("utf-8"))
    entries: dict[str, Any] = content.pop("entries")
    return entries if content == settings else {}

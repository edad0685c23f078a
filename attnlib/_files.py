"""Write files whole or not at all, and add whole lines to files of JSON."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4


def replace(path: str | Path, content: bytes) -> None:
    """Write a file at once: after an interruption it is the old one or the new one.

    Folders on its path are made where they are missing. Raises OSError where the file cannot be
    written; what was begun is removed.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def append(path: Path, value: Any) -> None:
    """Add a line of JSON at once, and first remove a line that was interrupted.

    Raises ValueError for what is not finite.
    """
    line = json.dumps(value, allow_nan=False).encode() + b"\n"
    with path.open("ab+") as file:
        file.truncate(_whole(path))
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> list[Any]:
    """Return the content of the finished lines of a file; nothing where there is no file.

    Raises ValueError, which names the line, where one is not JSON.
    """
    values = []
    whole = path.read_bytes()[: _whole(path)] if path.exists() else b""
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
    return values


def _whole(path: Path) -> int:
    """Return how many bytes of a file are lines that were finished."""
    return path.read_bytes().rfind(b"\n") + 1

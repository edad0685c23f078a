"""Write files atomically, and append records to files of JSON lines."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4


def replace(path: str | Path, content: bytes) -> None:
    """Write `content` to a file atomically: an interruption leaves the old file or the new one.

    Creates the folders on its path that do not exist. Raises OSError where the file cannot be
    written, after removing the unfinished copy.
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
    """Append `value` as a line of JSON, after removing an unfinished last line from the file.

    Raises ValueError for NaN and infinity.
    """
    line = json.dumps(value, allow_nan=False).encode() + b"\n"
    with path.open("ab+") as file:
        file.truncate(_complete_length(path))
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> list[Any]:
    """Return the values of the complete lines of a JSON lines file, or [] if there is no file.

    Raises ValueError, which names the line, where a complete line is not JSON.
    """
    values = []
    content = path.read_bytes()[: _complete_length(path)] if path.exists() else b""
    for number, line in enumerate(content.splitlines(), 1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
    return values


def _complete_length(path: Path) -> int:
    """Return the number of bytes up to the end of the last complete line of a file."""
    return path.read_bytes().rfind(b"\n") + 1

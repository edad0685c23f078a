"""Files that are written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4


def replace(path: str | Path, content: bytes) -> None:
    """Write a file at once: an interruption leaves the old one or the new one, never a part.

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


def write_json(path: str | Path, table: dict[str, Any]) -> None:
    """Write a table as JSON at once: a line for each key, and for each entry of a list of tables.

    Raises as `replace`, TypeError for what JSON cannot hold, and ValueError for what is not finite.
    """
    lines = ",\n".join(f"{_line(key)}: {_value(value)}" for key, value in table.items())
    replace(path, f"{{\n{lines}\n}}\n".encode())


def _value(value: Any) -> str:
    if isinstance(value, list | tuple) and value and all(isinstance(one, dict) for one in value):
        return "[\n" + ",\n".join(map(_line, value)) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)

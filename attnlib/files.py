"""Files that are written whole or not at all."""

import os
from pathlib import Path
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

"""Writing a file whole or not at all."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace a file at once, so that an interruption leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)

"""What a number was made with: it stands in every record."""

import platform
import re
from importlib.metadata import version
from pathlib import Path


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages.

    Raises importlib.metadata.PackageNotFoundError for one that is not installed.

    >>> list(versions("numpy"))
    ['python', 'numpy']
    """
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def processor() -> str:
    """Return the name of this machine's processor, or its kind where the system does not say."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text("utf-8") if cpus.exists() else ""
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()

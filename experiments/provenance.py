"""Versions, commit and processor that a record was made with: all that makes it again."""

import os
import platform
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attnlib


def made(*packages: str, threads: int, on: str | None = None) -> dict[str, Any]:
    """Return the library's version and commit, other versions, the processor and its threads.

    `on` is by default `processor()`. Raises importlib.metadata.PackageNotFoundError for a package
    that is not installed.

    >>> list(made("numpy", threads=1))
    ['attnlib', 'commit', 'python', 'numpy', 'processor', 'threads']
    """
    return {
        "attnlib": attnlib.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "processor": on or processor(),
        "threads": threads,
    }


@cache
def commit() -> str | None:
    """Return the commit of this library's checkout, with "-dirty" where code differs from it.

    What ATTNLIB_COMMIT says in the environment comes first; None without a checkout or git.
    """
    root = Path(__file__).parents[1]
    if named := os.environ.get("ATTNLIB_COMMIT"):
        return named
    if not (root / ".git").exists() or not shutil.which("git"):
        return None
    head, changed = (
        subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
        for arguments in (["rev-parse", "HEAD"], ["diff", "--quiet", "HEAD", "--", "*.py"])
    )
    if head.returncode:
        return None
    return head.stdout.strip() + ("-dirty" if changed.returncode else "")


def processor() -> str:
    """Return the name of this machine's processor, or its kind where the system does not say."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text("utf-8") if cpus.exists() else ""
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match[1] if match else platform.processor() or platform.machine()

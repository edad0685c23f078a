"""A corpus of Python that anybody can rebuild: the sources of the pinned packages, as installed.

Of the packages in requirements.txt it takes those whose wheels are the same on every system, so
that their files are too, in every environment that has the pins. Nothing is downloaded and nothing
committed but the manifest, corpus.json: names, versions and digests. A file that occurs twice
counts once. The packages of `VALIDATION` come last and are a tenth of the whole (`texts.split`).
Files of a folder stay together; the folders come in the order of the digests of their names, so
that any long stretch is of several packages.

`pack` makes one file for a machine that has no packages.
"""

import bz2
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from attnlib._files import replace

PINS = Path(__file__).parents[2] / "requirements.txt"
MANIFEST = Path(__file__).with_name("corpus.json")
PACKED = Path(__file__).with_name("corpus.bz2")
"""The file of `pack`, which `load` reads where it is there; git ignores it."""

VALIDATION = ("dask", "mpmath", "sphinx")
"""The packages that no model is trained on."""


class Corpus(NamedTuple):
    """The text, and the packages that it is made of."""

    text: bytes
    manifest: dict[str, Any]


class Source(NamedTuple):
    """A file of a package."""

    folder: str
    name: str
    content: bytes


def pinned_packages() -> Iterator[Distribution]:
    """Yield the pinned packages that are pure Python, in the order of requirements.txt.

    Raises ValueError, which names the package, where one is missing or has another version.
    """
    pins = re.findall(r"^([\w.-]+)==(\S+)", PINS.read_text("utf-8"), re.MULTILINE)
    for name, version in pins:
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise ValueError(f"the corpus needs {name}=={version}, which is missing") from None
        if "-none-any" not in (package.read_text("WHEEL") or ""):
            continue
        if package.version != version:
            raise ValueError(f"the corpus needs {name}=={version}, and {package.version} is there")
        yield package


def build_corpus(packages: Iterable[Distribution]) -> Corpus:
    """Return the corpus of packages; those of `VALIDATION` have to be among them."""
    parts: tuple[list[Source], list[Source]] = ([], [])
    listed, seen = [], set()
    for package in packages:
        digest, size, kept = hashlib.sha256(), 0, []
        for source in python_files(package):
            content = hashlib.sha256(source.content).digest()
            if source.content and content not in seen:
                seen.add(content)
                digest.update(content)
                size += len(source.content)
                kept.append(source)
        validates = package.name.lower() in VALIDATION
        parts[validates].extend(kept)
        about = {"name": package.name, "version": package.version, "files": len(kept)}
        part = "validation" if validates else "training"
        listed.append(about | {"bytes": size, "part": part, "sha256": digest.hexdigest()})
    training, validation = map(_join, parts)
    # What `texts.split` cuts off is the validation: a tenth of the whole.
    share = min(len(training) // 9, len(validation))
    text = training[: 9 * share] + validation[:share]
    total = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    return Corpus(text, {**total, "packages": listed})


def python_files(package: Distribution) -> list[Source]:
    """Return the Python files of a package, in the order of their names."""
    files = {file.as_posix(): file for file in package.files or () if ".." not in file.parts}
    return [
        Source(file.parent.as_posix(), path, Path(str(file.locate())).read_bytes())
        for path, file in sorted(files.items())
        if file.suffix == ".py"
    ]


def _join(sources: list[Source]) -> bytes:
    """Return all files as one text, folder by folder."""

    def place(source: Source) -> tuple[str, str]:
        """Return the digest of the folder, and the name."""
        return hashlib.sha256(source.folder.encode()).hexdigest(), source.name

    return b"".join(source.content for source in sorted(sources, key=place))


def sha256() -> str:
    """Return the sha256 of the text, by the manifest."""
    return str(json.loads(MANIFEST.read_text("utf-8"))["sha256"])


def load() -> bytes:
    """Return the text, from the pack where there is one, else from the installed packages.

    Raises ValueError, in one line, where its digest is not that of the manifest.
    """
    if PACKED.exists():
        return _check(bz2.decompress(PACKED.read_bytes()), str(PACKED))
    try:
        return _check(build_corpus(pinned_packages()).text, "what is installed")
    except ValueError as error:
        raise ValueError(f"{error}; install requirements.txt, or put a pack at {PACKED}") from None


def pack() -> Path:
    """Write the corpus of the installed packages into one file, the same bytes every time.

    Raises ValueError as `load`.
    """
    replace(PACKED, bz2.compress(_check(build_corpus(pinned_packages()).text, "what is installed")))
    return PACKED


def _check(text: bytes, origin: str) -> bytes:
    """Return the text; ValueError, which names the origin, where its digest is wrong."""
    if hashlib.sha256(text).hexdigest() != sha256():
        raise ValueError(f"{origin} is not the corpus of {MANIFEST.name}")
    return text


def write_manifest() -> None:
    """Write corpus.json anew, a line for each package, when pins have changed."""
    manifest = build_corpus(pinned_packages()).manifest
    lines = ",\n".join(map(json.dumps, manifest.pop("packages")))
    head = json.dumps(manifest).removesuffix("}")
    replace(MANIFEST, f'{head}, "packages": [\n{lines}\n]}}\n'.encode())

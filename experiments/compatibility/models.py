"""Small models of the families of transformers: two layers, random weights; and what they read."""

import tomllib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SEED = 0
LENGTH, PADDED = 12, 7
"""Tokens of a sequence, and how many of the second are padding."""

TABLES = tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))
SMALL, DECODERS, ENCODERS, BOTH = (TABLES[kind] for kind in ("all", "decoders", "encoders", "both"))
FAMILIES: dict[str, dict[str, Any]] = {**DECODERS, **ENCODERS, **BOTH}
MORE: dict[str, dict[str, Any]] = TABLES["more"]
SEE = ("ViT", *(family for family, told in MORE.items() if "image_size" in told))
HEAR = tuple(family for family, told in MORE.items() if "conv_dim" in told)
SAMPLES = {LENGTH: 200, LENGTH - PADDED: 84}
"""Of a sound, for so many tokens."""


def tiny(family: str, attention: str = "eager", *, head: bool = False, **options: Any) -> Any:
    """Return the small model of a family, with its language head where it has one and is to."""
    import transformers

    torch.manual_seed(SEED)
    own = {**FAMILIES, **MORE}[family]
    family = own.get("of", family)
    settings = {**SMALL, **own, **options}
    for name in ("of", "lacks", *own.get("lacks", ())):
        settings.pop(name, None)
    config = getattr(transformers, f"{family}Config")(**settings)
    kind, stem = f"{family}Model", family.removesuffix("Text")
    if head:
        kinds = (f"{stem}ForCausalLM", f"{family}LMHeadModel")
        kind = f"{stem}ForConditionalGeneration"
        if family in DECODERS:
            kind = next(name for name in kinds if hasattr(transformers, name))
    return getattr(transformers, kind)._from_config(config, attn_implementation=attention).eval()


def tokens(rows: int = 2) -> Tensor:
    """Return sequences of tokens."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return torch.randint(3, SMALL["vocab_size"], (rows, LENGTH), generator=generator)


def mask(padded: bool | str) -> Tensor:
    """Return which tokens are there; the others are on the left, or on the right ("right")."""
    present = torch.ones(2, LENGTH, dtype=torch.long)
    if padded == "right":
        present[1, -PADDED:] = 0
    elif padded:
        present[1, :PADDED] = 0
    return present


def given(family: str, padded: bool | str) -> dict[str, Tensor]:
    """Return what the family's model is called with."""
    generator = torch.Generator().manual_seed(SEED + 2)
    if family in SEE:
        return {"pixel_values": torch.randn(2, 1, 12, 12, generator=generator)}
    if family in HEAR:
        sound = torch.randn(2, SAMPLES[LENGTH], generator=generator)
        present = torch.ones(sound.shape, dtype=torch.long)
        if padded:
            present[1, SAMPLES[LENGTH - PADDED] :] = 0
        return {"input_values": sound * present, "attention_mask": present}
    if family == "Whisper":
        sound = torch.randn(2, 6, 2 * LENGTH, generator=generator)
        return {"input_features": sound, "decoder_input_ids": tokens()}
    inputs = {"input_ids": tokens(), "attention_mask": mask(padded)}
    return {**inputs, "decoder_input_ids": tokens()} if family in BOTH else inputs


def supports(family: str, situation: str) -> bool:
    """Return whether models of the family do that at all."""
    if situation == "generation":
        return family not in ENCODERS
    if "padding" not in situation:
        return True
    return family not in (*SEE, "Whisper") and (family not in HEAR or situation[:5] == "right")

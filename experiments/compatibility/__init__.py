"""Record what attnlib does with the models of transformers, family by family.

    python -m experiments.compatibility

takes some minutes of one core, and goes on where it was stopped. Each family is a small model of
two layers with random weights, from a configuration. Attention is written out once more, in
float64, and put in the place of the model's own; each tool must give what that gives, or say in a
line why it does not. When all is recorded the page `compatibility` is written.

Predicted before the first run: every cell is right or refused. That prediction failed in three
places, which are mended: a model that writes attention out, made with the name of a policy, lost
its mask in silence (Bloom); one that does so in some of its layers was changed in the others only
(LongT5); and advice to use sdpa was given to models that refuse it (Gemma 2, GPT-OSS, GPT-J).

Here are the models, their inputs, and attention by hand; `cells` tries the tools.
"""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.policies import POLICIES

SEED = 0
LENGTH, PADDED = 12, 7
"""Tokens of a sequence, and the padding in the second one."""

TABLES = tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))
SMALL, DECODERS, ENCODERS, BOTH = (TABLES[kind] for kind in ("all", "decoders", "encoders", "both"))
FAMILIES: dict[str, dict[str, Any]] = {**DECODERS, **ENCODERS, **BOTH}
MORE: dict[str, dict[str, Any]] = TABLES["more"]
SEE = ("ViT", *(family for family, told in MORE.items() if "image_size" in told))
HEAR = tuple(family for family, told in MORE.items() if "conv_dim" in told)
SAMPLES = {LENGTH: 200, LENGTH - PADDED: 84}
"""Samples of a sound, by its number of tokens."""


def tiny(family: str, attention: str = "eager", *, head: bool = False, **options: Any) -> Any:
    """Return the small model of a family; with `head` its language model, if there is one."""
    import transformers

    torch.manual_seed(SEED)
    family_settings = {**FAMILIES, **MORE}[family]
    family = family_settings.get("of", family)
    settings = {**SMALL, **family_settings, **options}
    for name in ("of", "lacks", *family_settings.get("lacks", ())):
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
    """Return sequences of random tokens, (rows, LENGTH)."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return torch.randint(3, SMALL["vocab_size"], (rows, LENGTH), generator=generator)


def mask(padded: bool | str) -> Tensor:
    """Return 1 for tokens that are present, 0 for padding: left, or right if "right"."""
    present = torch.ones(2, LENGTH, dtype=torch.long)
    if padded == "right":
        present[1, -PADDED:] = 0
    elif padded:
        present[1, :PADDED] = 0
    return present


def given(family: str, padded: bool | str) -> dict[str, Tensor]:
    """Return the inputs of the family's model."""
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
    """Return whether models of the family can run in the situation at all."""
    if situation == "generation":
        return family not in ENCODERS
    if "padding" not in situation:
        return True
    return family not in (*SEE, "Whisper") and (family not in HEAR or situation[:5] == "right")


# --- attention by hand ----------------------------------------------------------------------------

POLICY, FACTOR = "ssmax", 1.5

Rule = Callable[[float, Tensor, int], Tensor | float]
"""From the model's own scale, the number of keys of each query, and d to the new scale."""

RULES: dict[str, Rule] = {
    "own": lambda own, n, d: own,
    "factor": lambda own, n, d: FACTOR * own,
    "policy": lambda own, n, d: torch.from_numpy(POLICIES[POLICY].scale(n.numpy(), d)),
}


class ByHand:
    """Attention written out in float64, as a function of transformers; its calls are kept."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.calls: dict[tuple[nn.Module, int], tuple[Tensor, Tensor]] = {}

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **rest: Any,
    ) -> tuple[Tensor, None]:
        """Return the output, (batch, queries, heads, d)."""
        q, k, v = query.double(), key.double(), value.double()
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        visible = torch.ones(*q.shape[:3], k.shape[2], dtype=torch.bool)
        is_causal = rest.get("is_causal")
        if attention_mask is not None:
            visible = visible & attention_mask
        elif getattr(module, "is_causal", True) if is_causal is None else is_causal:
            visible = visible.tril() if q.shape[2] > 1 else visible
        n = visible.sum(-1, keepdim=True)
        own = q.shape[-1] ** -0.5 if scaling is None else scaling
        logits = (q @ k.mT) * self.rule(own, n.clamp(min=1), q.shape[-1])
        if rest.get("softcap"):
            logits = rest["softcap"] * torch.tanh(logits / rest["softcap"])
        if rest.get("position_bias") is not None:
            logits = logits + rest["position_bias"]
        logits = logits.masked_fill(~visible, -torch.inf)
        total = logits.exp().sum(-1, keepdim=True)
        if rest.get("s_aux") is not None:
            total = total + rest["s_aux"].double().exp()[:, None, None]
        weights = logits.exp() / total.clamp(min=1e-300)
        call = 1 + max((number for owner, number in self.calls if owner is module), default=-1)
        self.calls[module, call] = logits.detach(), weights.detach()
        return (weights @ v).transpose(1, 2).to(query.dtype), None

    def table(
        self, model: nn.Module, present: Tensor | None
    ) -> dict[tuple[str, int, int], dict[str, float]]:
        """Return columns of the probe's report, by layer, call and head.

        Of the rows that see two keys or more, and whose tokens are `present`.
        """
        names = {module: name for name, module in model.named_modules()}
        config: Any = model.config
        encodes = config.is_encoder_decoder
        lines = {}
        for (module, call), (s, p) in self.calls.items():
            visible = s > -torch.inf
            n = visible.sum(-1)
            rows = n >= 2
            decodes = encodes and "decoder." in names[module]
            if present is not None and not decodes:
                rows &= present[:, None, : s.shape[2]].bool()
            mean = torch.where(visible, s, 0.0).sum(-1) / n
            squares = torch.where(visible, s - mean[..., None], 0.0).square().sum(-1)
            columns: dict[str, Tensor] = {
                "keys": n,
                "alpha": squares / (n - 1),
                "collision_probability": p.square().sum(-1),
                "entropy": torch.special.entr(p).sum(-1),
                "log_sum_exp": s.logsumexp(-1),
            }
            for head, at in enumerate(rows.unbind(1)):
                line = {name: x[:, head][at].double().mean().item() for name, x in columns.items()}
                line["alpha"] **= 0.5
                line["largest_logit"] = s[:, head][at].max().item()
                line["rows"] = float(at.sum())
                lines[names[module], call, head] = line
        return lines


@contextmanager
def by_hand(model: Any, rule: str) -> Iterator[ByHand]:
    """Put attention by hand in place of the model's own, if the model lets one set it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    hand, usual = ByHand(RULES[rule]), model.config._attn_implementation
    AttentionInterface.register("by-hand", hand)
    AttentionMaskInterface.register("by-hand", sdpa_mask)
    try:
        model.set_attn_implementation("by-hand")
        yield hand
    finally:
        model.set_attn_implementation(usual)
        del AttentionInterface._global_mapping["by-hand"]
        del AttentionMaskInterface._global_mapping["by-hand"]

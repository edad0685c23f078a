"""Attention written out in float64, in the place of a model's own, and what its rows are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.policies import POLICIES

POLICY, FACTOR = "ssmax", 1.5

Rule = Callable[[float, Tensor, int], Tensor | float]
"""From the model's own scale, the number of keys of each query and d to the scale."""

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
        """Return columns of the probe's report by layer, call and head.

        Of the rows that see two keys or more, and are of tokens that are `present`.
        """
        names = {module: name for name, module in model.named_modules()}
        config: Any = model.config
        encodes = config.is_encoder_decoder
        lines = {}
        for (module, call), (s, p) in self.calls.items():
            seen = s > -torch.inf
            n = seen.sum(-1)
            rows = n >= 2
            decodes = encodes and "decoder." in names[module]
            if present is not None and not decodes:
                rows &= present[:, None, : s.shape[2]].bool()
            mean = torch.where(seen, s, 0.0).sum(-1) / n
            squares = torch.where(seen, s - mean[..., None], 0.0).square().sum(-1)
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
    """Put attention by hand into the place of the model's own, where the model lets one set it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    hand, own = ByHand(RULES[rule]), model.config._attn_implementation
    AttentionInterface.register("by-hand", hand)
    AttentionMaskInterface.register("by-hand", sdpa_mask)
    try:
        model.set_attn_implementation("by-hand")
        yield hand
    finally:
        model.set_attn_implementation(own)
        del AttentionInterface._global_mapping["by-hand"]
        del AttentionMaskInterface._global_mapping["by-hand"]

"""Intended scales of models: by the configuration, or else by the family.

The module that is audited is never asked. The families are those of the census, in `meant.toml`.
"""

import math
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.models.projections import layer_config

SCALE_SETTINGS = {"query_pre_attn_scalar": -0.5, "attention_multiplier": 1.0}
"""Settings of a configuration that give the scale, and the power of each."""
NORM_SETTING = re.compile(r"qk_?\w*norm|norm_qk|use_\w*qk", re.IGNORECASE)
"""What settings are called that say whether q and k are normalised."""
NORM_NAME = re.compile(r"(q|k|qk|query|key)_?(layer)?_?norm", re.IGNORECASE)
"""What a layer that such a setting concerns calls its norms: other layers may have none."""
NO_NORM = "its length is that of the projection, times one number"


@cache
def _read_intended() -> dict[str, Any]:
    """Return `meant.toml`: "normed" has the classes that normalise q and k, "rules" the scales.

    "transformers" is the version whose classes they are.
    """
    return tomllib.loads(Path(__file__).with_name("meant.toml").read_text("utf-8"))


def norm_is_meant(module: Any) -> bool:
    """Return whether q and k should be normalised: by the family, unless a setting says no.

    In other families of transformers a setting must say so, and the layer have a module named as a
    norm. False outside transformers.
    """
    if not _of_transformers(type(module)):
        return False
    settings = getattr(layer_config(module), "__dict__", {})
    switches = [bool(value) for name, value in settings.items() if NORM_SETTING.search(name)]
    if type(module).__name__ in _read_intended()["normed"].split():
        return all(switches)
    return any(switches) and any(NORM_NAME.fullmatch(name) for name, _ in module.named_children())


def _of_transformers(layer_class: type) -> bool:
    return layer_class.__module__.startswith("transformers.models.")


def meant_scale(module: Any, d: int, rotated: bool = True) -> tuple[float | None, str]:
    """Return what should multiply q·k, and its source; None where that is not known.

    `d` is the size of a head. The rotation's own factor counts only where q and k are `rotated`, or
    in latent attention, which has it in its scale.
    """
    config, family = layer_config(module), type(module)
    has_factor = rotated or getattr(config, "kv_lora_rank", None)
    layer_type = str(_layer_entry(module, "layer_types") or "")
    factor_of_rotation = rotation_factor(config, layer_type) ** 2 if has_factor else 1.0
    for name, power in SCALE_SETTINGS.items():
        number = getattr(config, name, None)
        if number is not None:
            return factor_of_rotation * float(number) ** power, name
    rules = (
        rule for rule in _read_intended()["rules"] if family.__name__ in rule["classes"].split()
    )
    rule = next(rules, None)
    if _of_transformers(family) and rule is not None:
        factor, power = rule["factor"], rule["power"]
        source = f"{rule['is']}, d the head size: transformers {_read_intended()['transformers']}"
        if getattr(config, "scale_attn_weights", True) is False:  # GPT-2 and its kin
            factor, power, source = 1.0, 0.0, "scale_attn_weights"
        if getattr(config, "scale_attn_by_inverse_layer_idx", False):
            factor, source = factor / (module.layer_idx + 1.0), "scale_attn_by_inverse_layer_idx"
        return factor_of_rotation * factor * d**power, source
    products = getattr(module, "pos_att_type", None)
    if _of_transformers(family) and products is not None:
        number = 1 + len({"c2p", "p2c"} & set(products))
        return (number * d) ** -0.5, f"1/√{number}d, of {number} products: the policy deberta"
    return None, "neither the configuration nor the census of families says it"


def meant_temperature(module: Any, queries: int, keys: int) -> list[float] | None:
    """Return the factor on each of the last `queries` of `keys` tokens, or None without one.

    Llama 4 has them in layers without rotation, Ministral 3 in all layers.
    """
    config = layer_config(module)
    positions = range(keys - queries, keys)
    rotary = getattr(config, "rope_parameters", None) or {}
    if beta := rotary.get("llama_4_scaling_beta"):
        period = rotary["original_max_position_embeddings"]
        return [1.0 + beta * math.log1p(position // period) for position in positions]
    if not getattr(config, "attn_temperature_tuning", False) or _layer_entry(
        module, "no_rope_layers"
    ):
        return None
    return [
        1.0 + config.attn_scale * math.log1p((position + 1) // config.floor_scale)
        for position in positions
    ]


def _layer_entry(module: Any, name: str) -> Any:
    """Return the entry of a module's layer in a list of its configuration, or None."""
    entries = getattr(getattr(module, "config", None), name, None) or []
    number = getattr(module, "layer_idx", None)
    return entries[number] if isinstance(number, int) and number < len(entries) else None


def meant_cap(module: Any) -> float | None:
    """Return the soft cap in a module's configuration, or None."""
    return getattr(layer_config(module), "attn_logit_softcapping", None)


def rotation_factor(config: Any, layer_type: str = "") -> float:
    """Return the rotation's factor on q and k: the stated one, YaRN's or LongRoPE's, or 1.

    f is the factor by which the context grows, and y(m) = 0.1 m log f + 1. YaRN's factor is y(1);
    if `mscale` and `mscale_all_dim` are set, y(mscale)/y(mscale_all_dim); in latent attention
    (DeepSeek), whose scale has it, y(mscale_all_dim). LongRoPE's is √(1 + log f / log n₀), n₀ the
    context before. `layer_type` chooses the parameters where they differ by layer.
    """
    rotary = getattr(config, "rope_parameters", None) or {}
    rotary = rotary.get(layer_type) or rotary
    if rotary.get("attention_factor") is not None:
        return float(rotary["attention_factor"])
    rope_type, context = rotary.get("rope_type"), rotary.get("original_max_position_embeddings")
    if rope_type == "yarn":
        log_extension = math.log(max(rotary["factor"], 1.0))
        over, under = (rotary.get(name) for name in ("mscale", "mscale_all_dim"))
        if getattr(config, "kv_lora_rank", None):
            return float(0.1 * (under or 0.0) * log_extension + 1.0)
        if over and under:
            return float((0.1 * over * log_extension + 1.0) / (0.1 * under * log_extension + 1.0))
        return 0.1 * log_extension + 1.0
    if rope_type == "longrope" and context:
        extension = rotary.get("factor") or config.max_position_embeddings / context
        return math.sqrt(1.0 + math.log(max(extension, 1.0)) / math.log(context))
    return 1.0

"""Compute ∂L/∂log t of every head from the weights that make its queries, and their gradients.

Where logits are linear in a head's queries, multiplying them by t is multiplying W_q and b_q, so
∂L/∂log t = ⟨W_q, ∂L/∂W_q⟩ + ⟨b_q, ∂L/∂b_q⟩, or that of the gain and bias of a norm after it. The
keys' weights have the same sum, over the heads that share a key head. This second identity fails
where queries also enter elsewhere, or lie elsewhere in a packed matrix, so every layer is checked
by it.

Sums of weights times gradients are arrays (2, channels or heads): the sum of the products, and the
sum of their squares, which is the mean square of the first if the products have random signs.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnlib import _checking, interception
from attnlib._checking import FloatArray
from attnlib.calibration.gradient import ScaleGradient, scale_gradient
from attnlib.calibration.passes import Loss
from attnlib.projections import (
    FUSED,
    HEADS,
    NORMS,
    PROJECTIONS,
    layer_config,
    named,
    stated_number,
)
from attnlib.weight_gradients import TOLERANCE, mismatch, sum_groups

PAIRS = {
    **PROJECTIONS,
    "query_proj": "key_proj",
    "W_q": "W_k",
    "w_q": "w_k",
    "q_linear": "k_linear",
}
QUERIES = (*PAIRS, "q_b_proj", "q_attn")
"""Linear layers of queries: those with keys beside them, of MLA, and of GPT-2's decoder."""

PACKED = (*FUSED, "to_qkv", "W_pack", "wqkv", "linear_qkv")
"""Linear layers of queries, keys and values at once."""

KNOWN = (
    f"name that is known: of queries {', '.join(QUERIES)}; packed with keys and values "
    f"{', '.join(PACKED)}. A module names its own layers in the attributes query_projection and "
    "key_projection, or packed_projection, and has n_head"
)
"""The end of the message where names are not known."""

SIZES = ("qk_head_dim", "head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
"""What modules call the dimensions of a head."""

RELATIVE = re.compile(r"distance_embedding|linear_pos|pos_\w*proj|rel_pos_[hw]|r|r_\w+")
"""What modules call vectors of relative positions that queries meet."""

HALF_TOLERANCE = 0.05
"""Half precision leaves sums up to 0.03 apart, as seen in 61 small models."""


def from_gradients(
    model: nn.Module,
    *,
    check: tuple[Any, Loss] | None = None,
    tolerance: float | None = None,
) -> ScaleGradient:
    """Compute ∂L/∂log t of every layer and head from the gradients of weights, after backward().

    For each head it is ⟨W_q, ∂L/∂W_q⟩ + ⟨b_q, ∂L/∂b_q⟩ over the head's rows; where a norm follows
    the projection, the same of its gain γ and bias. `scale_gradient` measures the same number. The
    loss is the one whose gradients are in `.grad`. Call it after unscaling and before clipping.

    - `model`: an nn.Module with gradients, the part of a model that is trained.
    - `check`: a pair (batch, loss) as `scale_gradient` takes them. The result is then compared with
      `scale_gradient` on that batch. By default there is no comparison.
    - `tolerance`: how far sums may be apart, in units of the root of the sum of squared products:
      0.001, or 0.05 where gradients are in half precision. Give 0.05 where they were computed in
      half precision (autocast).

    Returns a `ScaleGradient` of one sample, with a loss of NaN. Where heads share a gain only the
    sum over heads is known: it stands at head 0, and the layer is listed in `summed`. A module that
    runs several times gives the sum of its runs. Products are added in float32 or better.

    Queries are recognised by the names of their projection: separate, packed with keys and values
    in either order, of nn.MultiheadAttention, GPT-2 or MLA; compiled, or sharded as DTensors. A
    module of your own names its layers in attributes: `query_projection` and `key_projection`, or
    `packed_projection`, and `n_head`. Where keys have weights of their own, their sums must agree
    with those of the queries. That they agree is necessary, not sufficient: only `check` notices
    queries that also enter beside the logits, as in a gate made of the same product.

    Raises RuntimeError, with the layer's name, where the identity does not hold or cannot be
    computed: relative vectors, a gate packed with queries, norms of queries without a gain, a
    weight that modules share, that is frozen, wrapped (LoRA) or has no gradient, an unknown
    projection in a class with attention in its name. An unknown projection in any other class is
    noticed by `check` alone. Chapter: calibration.
    """
    model = interception.uncompiled(model)
    interception.check_model(model)
    if interception.level_of_transforms() is not None:
        raise RuntimeError(f"{type(model).__name__}: {interception.TRANSFORMED}")
    if tolerance is not None:
        tolerance = _checking.positive("tolerance", tolerance)
    if check is not None:
        _check(model, *check, tolerance)
    layers = _layers(model, tolerance)
    samples = np.full((1, len(layers), max(layer.heads for layer in layers)), np.nan)
    for row, layer in zip(samples[0], layers, strict=True):
        row[: layer.sums.shape[1]] = layer.sums[0]
    summed = tuple(layer.name for layer in layers if layer.summed())
    return ScaleGradient([layer.name for layer in layers], np.full(1, np.nan), samples, summed)


def _check(model: nn.Module, batch: Any, loss: Loss, tolerance: float | None) -> None:
    """Raise RuntimeError where the weights give another number than `scale_gradient` on a batch."""
    with torch.random.fork_rng():
        measured = scale_gradient(model, [batch], loss)
    kept = [(weight, weight.grad) for weight in model.parameters()]
    model.zero_grad()
    try:
        with torch.random.fork_rng():
            loss(model, batch).backward()  # type: ignore[no-untyped-call]
        layers = _layers(model, tolerance)
    finally:
        for weight, gradient in kept:
            weight.grad = gradient
    for name, value in zip(measured.layers, measured.value, strict=True):
        around = [layer for layer in layers if layer.name in interception.around(name)]
        if not around:
            raise RuntimeError(f"{name} attends, and what makes its queries is not known")
        layer = max(around, key=lambda layer: len(layer.name))
        expected = np.array([value[np.isfinite(value)], 0.0 * value[np.isfinite(value)]])
        expected = sum_groups(expected, 1) if layer.summed() else expected
        if expected.shape != layer.sums.shape or mismatch(layer.sums, expected) > layer.tolerance:
            raise layer.refused(f"its weights give {layer.sums[0]}, its logits {expected[0]}")


def _layers(model: nn.Module, tolerance: float | None) -> list["_Layer"]:
    """Return the modules that attend; RuntimeError for the first that cannot be read."""
    owners: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(weight), []).append(name)
    every = [_Layer(name, part, owners, tolerance) for name, part in model.named_modules()]
    layers = [layer for layer in every if layer.read()]
    for layer in reversed(every):  # the inmost first
        name = layer.name
        outer = interception.around(name)
        known = (other.name in outer or name in interception.around(other.name) for other in layers)
        if layer.attends and next(layer.module.parameters(), None) is not None and not any(known):
            raise layer.refused(f"what makes its queries has no {KNOWN}")
    if not layers:
        raise RuntimeError(
            f"no module of {type(model).__name__} has a layer of queries with a {KNOWN}"
        )
    return layers


class _Layer:
    """Hold a module, and once it is read the sums of weights times gradients of its queries.

    `sums` are those of each head, (2, heads); of all together, (2, 1), where they share a gain.
    """

    heads: int
    sums: FloatArray

    def __init__(
        self, name: str, module: Any, owners: dict[int, list[str]], tolerance: float | None
    ) -> None:
        self.name, self.module, self.owners = name, module, owners
        self.given, self.tolerance = tolerance, tolerance or TOLERANCE
        self.attends = bool(interception.LOOKS_LIKE_ATTENTION.search(type(module).__name__))

    def summed(self) -> bool:
        """Return whether the heads share a gain, so that only the sum over them is known."""
        return bool(self.sums.shape[1] < self.heads)

    def read(self) -> bool:
        """Read the sums of queries, and compare them with those of keys; RuntimeError if it fails.

        Return False where nothing known in the module makes queries.
        """
        module, attends = self.module, self.attends
        multi_head = isinstance(module, nn.MultiheadAttention)
        stated = self.part([named(module, "query_projection")])
        queries = stated or self.part(QUERIES)
        keys = self.part([named(module, "key_projection"), PAIRS.get(queries, "")])
        names = [name for name in PACKED if attends or name != "in_proj"]  # of Mamba too
        packed = self.part([named(module, "packed_projection"), *names])
        packed = "" if queries else packed
        known = multi_head or packed or stated or (queries and (keys or attends))
        for name, _ in (*module.named_children(), *module.named_parameters(recurse=False)):
            if (known or attends) and RELATIVE.fullmatch(name):
                raise self.refused(f"its queries meet relative vectors, {name}")
        if not known:
            return False
        gain, key_gain = self.part(NORMS), self.part(NORMS.values())
        if multi_head:
            q, k = self.of_multi_head()
        elif gain:
            q, k = self.linear(gain, norm=True), None
        else:
            q, k = self.linear(queries or packed), None
        heads, size = self.dimensions(0 if gain else q.shape[1], bool(packed))
        if packed and not gain:
            q, k = self.unpacked(q, heads, size)
        if key_gain or keys:
            k = self.linear(key_gain or keys, norm=bool(key_gain))
        q = sum_groups(q, 1 if gain and q.shape[1] == size else heads)
        if k is not None:
            k = sum_groups(k, k.shape[1] // size)
            if (difference := mismatch(q, k)) > self.tolerance:
                raise self.refused(
                    f"the weights of its queries give {q[0].sum():.6g} and those of its keys "
                    f"{k[0].sum():.6g}, one number where these queries meet these keys alone: they "
                    f"are {difference:.2g} apart, and tolerance={self.tolerance}"
                )
        if not gain and q[1].any() and mismatch(q, 0.0 * q) < self.tolerance:
            raise self.refused("its weights give 0, as where a norm without a gain follows")
        self.heads, self.sums = heads, q
        return True

    def refused(self, why: str) -> RuntimeError:
        """Return the RuntimeError that names this module and says `why`."""
        return RuntimeError(f"{self.name or 'the model'} ({type(self.module).__name__}): {why}")

    def part(self, names: Iterable[str]) -> str:
        """Return the first of the names under which the module has a part, or ""."""
        for name in names:
            part = getattr(self.module, name, None)
            if isinstance(part, nn.Module) and not isinstance(part, nn.Identity):
                return name
        return ""

    def dimensions(self, channels: int, packed: bool) -> tuple[int, int]:
        """Return the number of heads and the dimensions of each; RuntimeError if they do not fit.

        `channels` is the number of outputs that make queries, 0 where unknown.
        """
        heads = stated_number(HEADS, self.module, layer_config(self.module))
        size = stated_number(SIZES, self.module)
        if packed:
            size = size or channels // (3 * heads or 1)
        else:
            heads = heads or channels // (size or 1)
            size = size or channels // (heads or 1)
        if not size and not channels:
            raise self.refused(f"its dimensions have no name that is known ({', '.join(SIZES)})")
        if not heads * size or (channels and channels != heads * size and not packed):
            raise self.refused(
                f"{channels} channels are not {heads} heads of {size}: a gate is packed in, or "
                f"the number of heads has no name that is known ({', '.join(HEADS)})"
            )
        return heads, size

    def linear(self, name: str, *, norm: bool = False) -> FloatArray:
        """Return the sums of a linear layer, or of a norm's gain and bias, (2, channels)."""
        part = getattr(self.module, name)
        own = dict(part.named_parameters(recurse=False))
        if next(part.children(), None) or "weight" not in own or not set(own) <= {"weight", "bias"}:
            raise self.refused(f"{name} is a {type(part).__name__}, not a weight and a bias")
        offset = _offset(part) if norm else 0.0
        transposed = type(part).__name__ == "Conv1D"
        sums = self.total(f"{name}.weight", own["weight"], offset, norm=norm, transposed=transposed)
        if "bias" in own:
            sums = sums + self.total(f"{name}.bias", own["bias"], norm=norm)
        return sums

    def of_multi_head(self) -> tuple[FloatArray, FloatArray]:
        """Return the sums of queries and of keys of nn.MultiheadAttention, each (2, width)."""
        module, width = self.module, self.module.embed_dim
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight")
        made = [(name, getattr(module, name)) for name in names]
        parts = [self.total(name, weight) for name, weight in made if weight is not None]
        sums = np.concatenate(parts, axis=1)[:, : 2 * width]
        if module.in_proj_bias is not None:
            sums = sums + self.total("in_proj_bias", module.in_proj_bias)[:, : 2 * width]
        q, k = sums[:, :width], sums[:, width:]
        if module.bias_k is not None:
            k = k + self.total("bias_k", module.bias_k, norm=True)
        return q, k

    def unpacked(self, sums: FloatArray, heads: int, size: int) -> tuple[FloatArray, FloatArray]:
        """Return the sums of queries and of keys, (2, channels) each, from those of a packed layer.

        Its channels are all queries, all keys, all values; or, for each key head, its queries, key
        and value. Of these orders the one counts in which queries and keys have the nearer sums.
        RuntimeError where the number of channels fits neither.
        """
        number = sums.shape[1] // size
        groups = (number - heads) // 2
        if groups < 1 or heads % groups or sums.shape[1] != (heads + 2 * groups) * size:
            raise self.refused(f"{sums.shape[1]} channels are not queries, keys and values")
        parts = sums.reshape(2, number, size)
        by_key = sums.reshape(2, groups, -1, size)
        orders = [
            (parts[:, :heads], parts[:, heads : heads + groups]),
            (by_key[:, :, :-2].reshape(2, heads, size), by_key[:, :, -2]),
        ]
        q, k = min(orders, key=lambda order: mismatch(order[0].sum(-1), order[1].sum(-1)))
        return q.reshape(2, -1), k.reshape(2, -1)

    def total(
        self,
        what: str,
        weight: Tensor,
        offset: float = 0.0,
        *,
        norm: bool = False,
        transposed: bool = False,
    ) -> FloatArray:
        """Return the sums of (W + offset) ∂L/∂W for each channel, and of squares, (2, channels)."""
        if len(names := self.owners[id(weight)]) > 1:
            raise self.refused(f"{' and '.join(names)} are one weight")
        if not weight.requires_grad:
            raise self.refused(f"{what} is frozen")
        if weight.grad is None or not weight.numel():
            raise self.refused(f"{what} has no gradient: call this after a backward pass")
        if self.given is None and weight.grad.dtype in (torch.float16, torch.bfloat16):
            self.tolerance = HALF_TOLERANCE
        wide = torch.promote_types(weight.dtype, torch.float32)
        product = (weight.detach().to(wide) + offset) * weight.grad.to(wide)
        product = product.T if transposed else product
        product = product.reshape(-1, 1) if norm else product.reshape(len(product), -1)
        sums: Any = torch.stack([product.sum(-1), product.square().sum(-1)])
        sums = sums.full_tensor() if hasattr(sums, "full_tensor") else sums  # of all shards
        array: FloatArray = sums.cpu().double().numpy()
        return array


def _offset(norm: nn.Module) -> float:
    """Return what a norm adds to its weight to have its gain: 0, or 1 in Gemma."""
    weight: Any = norm.weight
    x = torch.linspace(-1.0, 2.0, 2 * weight.numel(), device=weight.device)
    x = x.reshape(2, *weight.shape)
    bias = {} if getattr(norm, "bias", None) is None else {"bias": 0.0 * x[0]}
    with torch.no_grad():
        zero, first = (
            functional_call(norm, {"weight": torch.full_like(x[0], value), **bias}, x)
            for value in (0.0, 1.0)
        )
    return float((zero / (first - zero)).nanmedian().round())

"""Compute ∂L/∂log t of every head from the weights that make its queries, and their gradients.

Logits are linear in W_q and b_q, so a factor t on logits is one on W_q and b_q. Hence ∂L/∂log t =
⟨W_q, ∂L/∂W_q⟩ + ⟨b_q, ∂L/∂b_q⟩, or the same of the gain and bias of a norm after the projection.
The weights of the keys have the same sum, over the heads that share a key head. This second
identity fails where queries enter elsewhere too, or have other rows of a packed matrix: it checks
every layer.

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

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.calibration.gradient import ScaleGradient, scale_gradient
from attnlib.calibration.passes import Loss
from attnlib.models import interception, torch_internals
from attnlib.models.projections import (
    FUSED,
    HEADS,
    NORMS,
    PROJECTIONS,
    declared_name,
    layer_config,
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

KNOWN_NAMES = (
    f"name that is known: of queries {', '.join(QUERIES)}; packed with keys and values "
    f"{', '.join(PACKED)}. A module names its own layers in the attributes query_projection and "
    "key_projection, or packed_projection, and has n_head"
)
"""The end of the error for unknown names."""

SIZES = ("qk_head_dim", "head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
"""Attributes of modules that hold the dimensions of a head."""

RELATIVE = re.compile(r"distance_embedding|linear_pos|pos_\w*proj|rel_pos_[hw]|r|r_\w+")
"""Names of vectors of relative positions that are multiplied by queries."""

HALF_TOLERANCE = 0.05
"""The default tolerance in half precision, where sums were up to 0.03 apart in 61 small models."""


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
    model = torch_internals.uncompiled(model)
    torch_internals.check_model(model)
    if torch_internals.level_of_transforms() is not None:
        raise RuntimeError(f"{type(model).__name__}: {torch_internals.TRANSFORMED}")
    if tolerance is not None:
        tolerance = _checking.positive("tolerance", tolerance)
    if check is not None:
        _compare(model, *check, tolerance)
    layers = _read_layers(model, tolerance)
    samples = np.full((1, len(layers), max(layer.heads for layer in layers)), np.nan)
    for row, layer in zip(samples[0], layers, strict=True):
        row[: layer.sums.shape[1]] = layer.sums[0]
    summed = tuple(layer.name for layer in layers if layer.shares_gain())
    return ScaleGradient([layer.name for layer in layers], np.full(1, np.nan), samples, summed)


def _compare(model: nn.Module, batch: Any, loss: Loss, tolerance: float | None) -> None:
    """Compare with `scale_gradient` on a batch; RuntimeError for the first layer that differs."""
    with torch.random.fork_rng():
        measured = scale_gradient(model, [batch], loss)
    saved_gradients = [(weight, weight.grad) for weight in model.parameters()]
    model.zero_grad()
    try:
        with torch.random.fork_rng():
            loss(model, batch).backward()  # type: ignore[no-untyped-call]
        layers = _read_layers(model, tolerance)
    finally:
        for weight, gradient in saved_gradients:
            weight.grad = gradient
    for name, gradients in zip(measured.layers, measured.value, strict=True):
        enclosing = [layer for layer in layers if layer.name in interception.ancestry(name)]
        if not enclosing:
            raise RuntimeError(f"{name} attends, and what makes its queries is not known")
        layer = max(enclosing, key=lambda layer: len(layer.name))
        finite = gradients[np.isfinite(gradients)]
        expected = np.array([finite, 0.0 * finite])
        expected = sum_groups(expected, 1) if layer.shares_gain() else expected
        if expected.shape != layer.sums.shape or mismatch(layer.sums, expected) > layer.tolerance:
            raise layer.refusal(f"its weights give {layer.sums[0]}, its logits {expected[0]}")


def _read_layers(model: nn.Module, tolerance: float | None) -> list["_Layer"]:
    """Return the modules that attend, with sums; RuntimeError for the first without known names."""
    owners: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(weight), []).append(name)
    modules = [_Layer(name, part, owners, tolerance) for name, part in model.named_modules()]
    layers = [layer for layer in modules if layer.find_sums()]
    for layer in reversed(modules):  # the inmost first
        name = layer.name
        outer = interception.ancestry(name)
        near = (
            other.name in outer or name in interception.ancestry(other.name) for other in layers
        )
        if layer.may_attend and next(layer.module.parameters(), None) is not None and not any(near):
            raise layer.refusal(f"what makes its queries has no {KNOWN_NAMES}")
    if not layers:
        raise RuntimeError(
            f"no module of {type(model).__name__} has a layer of queries with a {KNOWN_NAMES}"
        )
    return layers


class _Layer:
    """Hold a module, and after `find_sums` the sums of weights times gradients of its queries.

    `sums` is (2, heads), or (2, 1) for the sum over heads that share a gain.
    """

    heads: int
    sums: FloatArray

    def __init__(
        self, name: str, module: Any, owners: dict[int, list[str]], tolerance: float | None
    ) -> None:
        self.name, self.module, self.owners = name, module, owners
        self.given_tolerance, self.tolerance = tolerance, tolerance or TOLERANCE
        self.may_attend = bool(interception.LOOKS_LIKE_ATTENTION.search(type(module).__name__))

    def shares_gain(self) -> bool:
        """Return whether the heads share a gain: only the sum over them is known."""
        return bool(self.sums.shape[1] < self.heads)

    def find_sums(self) -> bool:
        """Compute the sums of queries, and compare them with those of keys.

        Return False if no known name in the module makes queries. Raises RuntimeError where the
        sums differ or cannot be computed.
        """
        module, may_attend = self.module, self.may_attend
        multi_head = isinstance(module, nn.MultiheadAttention)
        stated = self.find_part([declared_name(module, "query_projection")])
        queries = stated or self.find_part(QUERIES)
        keys = self.find_part([declared_name(module, "key_projection"), PAIRS.get(queries, "")])
        names = [name for name in PACKED if may_attend or name != "in_proj"]  # of Mamba too
        packed = self.find_part([declared_name(module, "packed_projection"), *names])
        packed = "" if queries else packed
        recognised = multi_head or packed or stated or (queries and (keys or may_attend))
        for name, _ in (*module.named_children(), *module.named_parameters(recurse=False)):
            if (recognised or may_attend) and RELATIVE.fullmatch(name):
                raise self.refusal(f"its queries meet relative vectors, {name}")
        if not recognised:
            return False
        gain, key_gain = self.find_part(NORMS), self.find_part(NORMS.values())
        if multi_head:
            q, k = self.multi_head_sums()
        elif gain:
            q, k = self.linear_sums(gain, norm=True), None
        else:
            q, k = self.linear_sums(queries or packed), None
        heads, size = self.heads_and_size(0 if gain else q.shape[1], bool(packed))
        if packed and not gain:
            q, k = self.unpack_sums(q, heads, size)
        if key_gain or keys:
            k = self.linear_sums(key_gain or keys, norm=bool(key_gain))
        q = sum_groups(q, 1 if gain and q.shape[1] == size else heads)
        if k is not None:
            k = sum_groups(k, k.shape[1] // size)
            if (difference := mismatch(q, k)) > self.tolerance:
                raise self.refusal(
                    f"the weights of its queries give {q[0].sum():.6g} and those of its keys "
                    f"{k[0].sum():.6g}, one number where these queries meet these keys alone: they "
                    f"are {difference:.2g} apart, and tolerance={self.tolerance}"
                )
        if not gain and q[1].any() and mismatch(q, 0.0 * q) < self.tolerance:
            raise self.refusal("its weights give 0, as where a norm without a gain follows")
        self.heads, self.sums = heads, q
        return True

    def refusal(self, why: str) -> RuntimeError:
        """Return a RuntimeError with this module's name and class, and the reason `why`."""
        return RuntimeError(f"{self.name or 'the model'} ({type(self.module).__name__}): {why}")

    def find_part(self, names: Iterable[str]) -> str:
        """Return the first of the names that is a part of the module, or ""."""
        for name in names:
            part = getattr(self.module, name, None)
            if isinstance(part, nn.Module) and not isinstance(part, nn.Identity):
                return name
        return ""

    def heads_and_size(self, channels: int, packed: bool) -> tuple[int, int]:
        """Return the number of heads and their dimensions d; RuntimeError if they do not fit.

        `channels` is the number of outputs of the queries' layer, with keys and values if `packed`;
        0 if unknown.
        """
        heads = stated_number(HEADS, self.module, layer_config(self.module))
        size = stated_number(SIZES, self.module)
        if packed:
            size = size or channels // (3 * heads or 1)
        else:
            heads = heads or channels // (size or 1)
            size = size or channels // (heads or 1)
        if not size and not channels:
            raise self.refusal(f"its dimensions have no name that is known ({', '.join(SIZES)})")
        if not heads * size or (channels and channels != heads * size and not packed):
            raise self.refusal(
                f"{channels} channels are not {heads} heads of {size}: a gate is packed in, or "
                f"the number of heads has no name that is known ({', '.join(HEADS)})"
            )
        return heads, size

    def linear_sums(self, name: str, *, norm: bool = False) -> FloatArray:
        """Return the sums of a linear layer, or of a norm's gain and bias, (2, channels)."""
        part = getattr(self.module, name)
        weights = dict(part.named_parameters(recurse=False))
        if next(part.children(), None) or not {"weight"} <= set(weights) <= {"weight", "bias"}:
            raise self.refusal(f"{name} is a {type(part).__name__}, not a weight and a bias")
        offset = _gain_offset(part) if norm else 0.0
        transposed = type(part).__name__ == "Conv1D"
        sums = self.sums_of(
            f"{name}.weight", weights["weight"], offset, norm=norm, transposed=transposed
        )
        if "bias" in weights:
            sums = sums + self.sums_of(f"{name}.bias", weights["bias"], norm=norm)
        return sums

    def multi_head_sums(self) -> tuple[FloatArray, FloatArray]:
        """Return `sums_of` the projections of q and of k of an nn.MultiheadAttention.

        Each is (2, width), biases and `bias_k` included.
        """
        module, width = self.module, self.module.embed_dim
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight")
        weights = [(name, getattr(module, name)) for name in names]
        parts = [self.sums_of(name, weight) for name, weight in weights if weight is not None]
        sums = np.concatenate(parts, axis=1)[:, : 2 * width]
        if module.in_proj_bias is not None:
            sums = sums + self.sums_of("in_proj_bias", module.in_proj_bias)[:, : 2 * width]
        q, k = sums[:, :width], sums[:, width:]
        if module.bias_k is not None:
            k = k + self.sums_of("bias_k", module.bias_k, norm=True)
        return q, k

    def unpack_sums(self, sums: FloatArray, heads: int, size: int) -> tuple[FloatArray, FloatArray]:
        """Return the sums of queries and those of keys, (2, channels) each, of a packed layer.

        The order of its channels is all queries, all keys, all values; or queries, key and value of
        each key head: the one in which sums of queries and keys are nearer is taken. Raises
        RuntimeError if the number of channels fits neither.
        """
        slots = sums.shape[1] // size
        groups = (slots - heads) // 2
        if groups < 1 or heads % groups or sums.shape[1] != (heads + 2 * groups) * size:
            raise self.refusal(f"{sums.shape[1]} channels are not queries, keys and values")
        in_order = sums.reshape(2, slots, size)
        by_key = sums.reshape(2, groups, -1, size)
        orders = [
            (in_order[:, :heads], in_order[:, heads : heads + groups]),
            (by_key[:, :, :-2].reshape(2, heads, size), by_key[:, :, -2]),
        ]
        q, k = min(orders, key=lambda order: mismatch(order[0].sum(-1), order[1].sum(-1)))
        return q.reshape(2, -1), k.reshape(2, -1)

    def sums_of(
        self,
        name: str,
        weight: Tensor,
        offset: float = 0.0,
        *,
        norm: bool = False,
        transposed: bool = False,
    ) -> FloatArray:
        """Return the sums of (W + offset) ∂L/∂W and of its squares by channel, (2, channels).

        For the gain of a norm, `norm`, every entry is a channel. Raises RuntimeError for a weight
        that is shared, frozen or without a gradient; `name` is its name.
        """
        if len(names := self.owners[id(weight)]) > 1:
            raise self.refusal(f"{' and '.join(names)} are one weight")
        if not weight.requires_grad:
            raise self.refusal(f"{name} is frozen")
        if weight.grad is None or not weight.numel():
            raise self.refusal(f"{name} has no gradient: call this after a backward pass")
        if self.given_tolerance is None and weight.grad.dtype in (torch.float16, torch.bfloat16):
            self.tolerance = HALF_TOLERANCE
        precision = torch.promote_types(weight.dtype, torch.float32)
        product = (weight.detach().to(precision) + offset) * weight.grad.to(precision)
        product = product.T if transposed else product
        product = product.reshape(-1, 1) if norm else product.reshape(len(product), -1)
        sums: Any = torch.stack([product.sum(-1), product.square().sum(-1)])
        sums = sums.full_tensor() if hasattr(sums, "full_tensor") else sums  # of all shards
        array: FloatArray = sums.cpu().double().numpy()
        return array


def _gain_offset(norm: nn.Module) -> float:
    """Return the number that a norm adds to its weight for its gain: 0, or 1 in Gemma."""
    weight: Any = norm.weight
    x = torch.linspace(-1.0, 2.0, 2 * weight.numel(), device=weight.device)
    x = x.reshape(2, *weight.shape)
    bias = {} if getattr(norm, "bias", None) is None else {"bias": 0.0 * x[0]}
    with torch.no_grad():
        at_zero, at_one = (
            functional_call(norm, {"weight": torch.full_like(x[0], number), **bias}, x)
            for number in (0.0, 1.0)
        )
    return float((at_zero / (at_one - at_zero)).nanmedian().round())

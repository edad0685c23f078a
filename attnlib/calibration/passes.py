"""Run one text through the model, for its loss and ∂L/∂log t of every head and query."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from attnlib._checking import FloatArray
from attnlib.calibration.logit_factors import Place, scale_logits
from attnlib.models import torch_internals
from attnlib.models.softmax_recorder import ONE_KEY

Loss = Callable[[nn.Module, Any], Tensor]
"""A function of a model and a text that returns the loss, a scalar tensor."""

LogFactor = Callable[[Place, FloatArray], FloatArray]
"""A function from a place and n, (…, 1 or heads, queries), to log t, (…, heads, queries)."""

autograd_grad = torch_internals.without_torch_function(torch.autograd.grad)
"""torch.autograd.grad, inside which a mode sees how activations are computed again."""

RECOMPUTED_TOLERANCE = 1e-3
"""Largest relative difference in length of queries that are computed again."""


class CallGradient(NamedTuple):
    """Hold a call of attention, with ∂L/∂log t and n of its queries, both (…, heads, queries)."""

    place: Place
    gradient: FloatArray
    keys: FloatArray


class LossGradients(NamedTuple):
    """Hold the loss of a text, and the derivatives of each call of attention."""

    loss: float
    parts: list[CallGradient]


def own_loss(model: nn.Module, text: Any) -> Tensor:
    """Return the loss that a model of transformers computes itself; ValueError if it has none.

    `text` is a mapping of the model's arguments, or token ids (batch, tokens). Token ids serve as
    labels too.
    """
    arguments = dict(text) if isinstance(text, Mapping) else {"input_ids": text}
    if "labels" not in arguments and "input_ids" in arguments:
        arguments["labels"] = arguments["input_ids"]
    try:
        loss = model(**arguments).loss
    except (TypeError, AttributeError) as error:
        raise ValueError(
            f"loss must be given for a {type(model).__name__}, which has none of its own: {error}"
        ) from error
    if not isinstance(loss, Tensor):
        raise ValueError(f"loss must be given: {type(model).__name__} has returned none")
    return loss


def no_change(place: Place, keys: FloatArray) -> FloatArray:
    """Return log t = 0 for every place, which leaves the model unchanged."""
    return np.zeros(())


def loss_and_gradients(
    model: nn.Module,
    text: Any,
    loss: Loss,
    log_factor: LogFactor = no_change,
    *,
    gradient: bool = True,
    partial: bool = False,
) -> LossGradients:
    """Return the loss of a text with each head's logits times t, and ∂L/∂log t of each query.

    `log_factor` gives log t; without `gradient` there are no derivatives. Raises RuntimeError where
    all attention is out of reach, or some of it unless `partial`, and ValueError for a loss that is
    not one finite number or does not depend on attention.
    """
    torch_internals.check_model(model)
    if torch_internals.level_of_transforms() is not None:
        raise RuntimeError(f"{type(model).__name__}: {torch_internals.TRANSFORMED}")
    leaves: dict[Place, tuple[Tensor, Tensor]] = {}
    lengths: dict[Place, float] = {}

    def factor(place: Place, query: Tensor, keys: Tensor) -> Tensor:
        length = float(torch.linalg.vector_norm(query.detach().abs(), dtype=torch.float64))
        if torch_internals.in_backward_pass():  # activations are computed again, in another order
            place = min(lengths, key=lambda earlier: abs(lengths[earlier] - length))
            if abs(lengths[place] - length) > RECOMPUTED_TOLERANCE * length:
                raise RuntimeError("the backward pass computes attention that was not seen before")
            return leaves[place][0].exp()
        if gradient and not torch.is_grad_enabled():
            raise RuntimeError(
                f"{place.layer or type(model).__name__} attends under torch.no_grad, in a "
                "torch.autograd.Function, or in a checkpoint other than torch.utils.checkpoint: "
                "the loss has no derivative by its logits"
            )
        log_factors = log_factor(place, keys.double().cpu().numpy())
        shape = np.broadcast_shapes(log_factors.shape, (place.heads, 1), keys.shape)
        leaf = torch.from_numpy(np.broadcast_to(log_factors, shape).copy()).to(keys.device)
        leaves[place], lengths[place] = (leaf.requires_grad_(gradient), keys), length
        return leaf.exp()

    with (
        frozen(model),
        torch.set_grad_enabled(gradient),
        mock.patch.object(checkpoint, "CheckpointFunction", _NotReentrant),
        scale_logits(model, factor) as mode,
    ):
        try:
            output = loss(model, text)
            if not isinstance(output, Tensor) or output.numel() != 1:
                raise ValueError(f"loss must return one number as a tensor, got {output!r:.80}")
            number = output.item()
            if not math.isfinite(number):
                raise ValueError(f"loss must be a finite number, got loss={number}")
            unreached, hints = mode.recorder.report_lines(mode.label), mode.hints()
            if not leaves:
                unreached += hints
                unreached.append(f"{type(model).__name__} has run no attention that can be reached")
                unreached += [ONE_KEY] * mode.recorder.one_key
            elif unreached and not partial:
                unreached.append("partial=True leaves such layers out")
            if not leaves or (unreached and not partial):
                raise RuntimeError("; ".join(unreached))
            if hints:
                warnings.warn(f"may attend and was left out: {'; '.join(hints)}", stacklevel=4)
            if mode.doubts:
                warnings.warn(
                    f"heads are not certain: {'; '.join(mode.doubts.values())}", stacklevel=4
                )
            if gradient and not output.requires_grad:
                raise ValueError(
                    "loss must depend on the model's attention, got one without a gradient, as "
                    "behind detach()"
                )
            inputs = [leaf for leaf, _ in leaves.values()]
            # What the loss does not reach, as weights that are logged, has the derivative 0.
            gradients = autograd_grad(output, inputs, materialize_grads=True) if gradient else ()
        except NotImplementedError as error:  # flex attention on a CPU
            layer = next((place.layer for place in leaves), type(model).__name__)
            remedy = "; attn_implementation='sdpa' has one" if hasattr(model, "config") else ""
            raise RuntimeError(
                f"{layer} attends by a kernel without a backward pass here ({error}){remedy}"
            ) from error
    parts = [
        CallGradient(place, grad.cpu().numpy(), keys.expand(grad.shape).double().cpu().numpy())
        for (place, (_, keys)), grad in zip(leaves.items(), gradients, strict=gradient)
    ]
    return LossGradients(number, parts)


class _NotReentrant:
    """Replace checkpoints of use_reentrant=True, through which leaves get no gradient."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        run = checkpoint.checkpoint
        return run(function, *args, use_reentrant=False, preserve_rng_state=preserve)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no parameter of the model get a gradient inside the context."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)

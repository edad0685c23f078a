"""Follow the tokens behind a call of attention: padding, positions and target keys.

Attention is called with vectors. The arguments of the modules around it (token ids, masks, caches)
tell the tokens to which the vectors belong.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from attnlib import _checking
from attnlib.models.attention_call import HIDDEN
from attnlib.probing.measure import Call, Queries

Places = NDArray[np.int64]
Targets = str | ArrayLike | Callable[[Tensor], ArrayLike]

TARGETS = ("previous", "duplicate", "induction")
NONE = -1
"""The target of a query that has none."""


class Tokens(NamedTuple):
    """Hold the tokens that a module is called with; columns are positions, cached ones first."""

    length: int | None = None  # of each sequence, without the past
    past: int = 0  # how many tokens of each are in a cache
    ids: Tensor | None = None  # (batch, length), where there is no past
    real: Tensor | None = None  # (batch, past + length), False for padding
    crossed: bool = False  # the keys are of other tokens than the queries


class TokenTracker:
    """Follow tokens through a model, to find the padding and the targets of queries.

    `mask` and `targets` are those of `probe`, which says what is raised.
    """

    def __init__(self, mask: Any = None, targets: Targets | None = None) -> None:
        self.mask_from_model = mask is None
        self.mask = None if mask is None or mask is False else _checked_mask(mask)
        self.targets = None if targets is None else _checked_targets(targets)
        self.mask_fits = self.targets_fit = False
        self._last: tuple[Tokens, Places | None] = Tokens(), None

    def inner_tokens(
        self, module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], outer: Tokens
    ) -> Tokens:
        """Return a module's tokens from its arguments, else `outer`, those of the module around."""
        scripted = isinstance(module, torch.jit.ScriptModule)
        parameters = () if scripted else _parameter_names(type(module).forward)
        arguments = {**dict(zip(parameters, args, strict=False)), **named}
        first = args[0] if args else None
        if "input_ids" in parameters:
            return self._model_tokens(arguments.get("input_ids"), arguments)
        if _is_matrix(first) and not first.is_floating_point():
            return self._model_tokens(first, arguments)
        if isinstance(module, nn.MultiheadAttention):
            crossed = arguments.get("key") is not arguments.get("query")
        else:
            other_inputs = arguments.get("key_value_states"), arguments.get("encoder_hidden_states")
            crossed = any(isinstance(other, Tensor) for other in other_inputs)
        if crossed != outer.crossed:
            outer = outer._replace(crossed=crossed)
        real = None if crossed else _real_tokens(arguments, first)
        if real is None or (outer.real is not None and outer.length == real.shape[1]):
            return outer
        return Tokens(real.shape[1], real=real)

    def _model_tokens(self, ids: Any, arguments: Mapping[str, Any]) -> Tokens:
        """Return the tokens of a module called with ids or embeddings; else empty `Tokens`."""
        ids = ids if _is_matrix(ids) else None
        vectors = arguments.get("inputs_embeds") if ids is None else ids
        if not isinstance(vectors, Tensor) or vectors.ndim < 2:
            return Tokens()
        batch, length = vectors.shape[:2]
        mask: Any = arguments.get("attention_mask")
        cached: Any = arguments.get("past_key_values")
        columns = mask.shape[1] if _is_matrix(mask) and mask.shape[0] == batch else 0
        past = max(0, columns - length)
        if hasattr(cached, "get_seq_length"):
            past = int(cached.get_seq_length())
        return Tokens(
            length, past, None if past else ids, mask != 0 if columns == past + length else None
        )

    def queries(self, tokens: Tokens, call: Call) -> Queries | None:
        """Return the real queries of a call and their targets; None unless q has four axes."""
        if call.query.ndim != 4:
            return None
        batch, _, length, _ = call.query.shape
        keys, device = call.key.shape[-2], call.query.device
        fits = tokens.length == length
        if not fits:
            tokens = Tokens(length, crossed=tokens.crossed or keys != length)
        past = tokens.past
        real = tokens.real if self.mask_from_model else self.mask
        if real is not None and (real.shape[0] != batch or not (fits or real.shape[1] == length)):
            real = None
        real_queries = None
        if real is not None:
            real = real.to(device)
            real_queries = _columns(real, past, length, True)
            self.mask_fits = True
        target = None
        if self.targets is not None:
            target = torch.full((batch, length), NONE, device=device)
            places = None if tokens.crossed else self._target_places(tokens, batch, real)
            if places is not None:
                places = places - max(0, past + length - keys)  # a window has dropped these keys
                places = np.where((places >= 0) & (places < keys), places, NONE)
                target = torch.from_numpy(places).to(device)
                self.targets_fit = self.targets_fit or bool((places >= 0).any())
        return Queries(real_queries, target)

    def _target_places(self, tokens: Tokens, batch: int, real: Tensor | None) -> Places | None:
        """Return the target positions, (batch, length), −1 for none; None if they are unknown."""
        if tokens is self._last[0]:
            return self._last[1]
        past, length = tokens.past, tokens.length or 0
        unpadded = None if real is None else _columns(real, 0, past + length, True).cpu().numpy()
        places: Places | None = None
        if isinstance(self.targets, str) and self.targets == "previous":
            places = np.broadcast_to(np.arange(past - 1, past + length - 1), (batch, length))
        elif isinstance(self.targets, np.ndarray):
            if self.targets.shape[0] == batch:
                places = _columns(torch.from_numpy(self.targets), past, length, NONE).numpy()
        elif tokens.ids is not None and tokens.ids.shape[0] == batch:
            if callable(self.targets):
                places = _checked_places(self.targets(tokens.ids), tuple(tokens.ids.shape))
            else:
                places = last_occurrence(tokens.ids.cpu().numpy(), unpadded)
                if self.targets == "induction":
                    places = np.where(places >= 0, places + 1, NONE)
        if places is not None and unpadded is not None:
            is_real = np.take_along_axis(unpadded, places.clip(0, past + length - 1), axis=1)
            places = np.where(is_real, places, NONE)
        self._last = tokens, places
        return places

    def unused(self) -> list[str]:
        """Return a line to warn of each of `mask` and `targets` that fitted no call."""
        lines = []
        if self.mask is not None and not self.mask_fits:
            lines.append(f"mask of shape {tuple(self.mask.shape)}: no call has such queries")
        if self.targets is not None and not self.targets_fit:
            lines.append(
                f"targets={_shortened(self.targets)}: no row has one; they want tokens that attend "
                "to one another, an array the model's own (batch, tokens), and tokens that are "
                "alike or a function a model called with their ids, as `input_ids` or first"
            )
        return lines


def last_occurrence(ids: NDArray[Any], real: NDArray[np.bool_] | None) -> Places:
    """Return the last earlier position of the same token, (batch, tokens); −1 if none or padding.

    `real` is False for padding, (batch, tokens).
    """
    ids = ids.astype(np.int64)
    if real is not None:  # no padding is like another
        ids = np.where(real, ids, -1 - np.arange(ids.shape[1]))
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    before = np.where(ordered[:, 1:] == ordered[:, :-1], order[:, :-1], NONE)
    places = np.full(ids.shape, NONE)
    np.put_along_axis(places, order[:, 1:], before, axis=1)
    return places


@cache
def _parameter_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a `forward`'s parameters, in their order, without self."""
    return tuple(inspect.signature(forward).parameters)[1:]


def _is_matrix(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.ndim == 2


def _real_tokens(arguments: Mapping[str, Any], first: Any) -> Tensor | None:
    """Return the argument that is a mask of tokens, False for padding; None without one."""
    if "src" in arguments and "tgt" in arguments:  # of nn.Transformer, whose parts have the masks
        return None
    for name in ("src_key_padding_mask", "tgt_key_padding_mask", "key_padding_mask"):
        padding = arguments.get(name)
        if _is_matrix(padding):
            return ~padding if padding.dtype == torch.bool else padding > HIDDEN
    mask = arguments.get("attention_mask")
    if not _is_matrix(mask) or mask.is_floating_point() or not isinstance(first, Tensor):
        return None
    return mask != 0 if mask.shape == first.shape[:2] else None


def _columns(matrix: Tensor, start: int, length: int, beyond: int) -> Tensor:
    """Return `length` columns from `start`; columns that the matrix lacks hold `beyond`."""
    missing = max(0, start + length - matrix.shape[1])
    return nn.functional.pad(matrix, (0, missing), value=beyond)[:, start : start + length]


def _checked_mask(value: Any) -> Tensor:
    """Return the argument `mask` as booleans, (batch, tokens); ValueError for another value."""
    try:
        mask = torch.as_tensor(value)
    except (TypeError, ValueError):
        mask = torch.empty(0)
    if mask.ndim != 2 or not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(
            "mask must be of shape (batch, tokens), 1 or True for tokens and 0 or False for "
            f"padding, or False for no mask, got mask={_shortened(value)}"
        )
    return mask != 0


def _checked_targets(value: Targets) -> Targets:
    """Return the argument `targets`: a name, a function, or integers; ValueError for another."""
    if isinstance(value, str):
        return _checking.choice("targets", value, TARGETS)
    return value if callable(value) else _checked_places(value, None)


def _checked_places(value: Any, shape: tuple[int, ...] | None) -> Places:
    """Return target positions as integers, of `shape` or (batch, tokens); ValueError for others."""
    try:
        array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    except ValueError:  # lines of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "iu" or array.ndim != 2 or (shape and array.shape != shape):
        raise ValueError(
            f"targets must be integers of shape {shape or '(batch, tokens)'}, the position of each "
            f"query's key or −1, one of {', '.join(map(repr, TARGETS))}, or a function of the "
            f"token ids that returns such integers, got targets={_shortened(value)}"
        )
    return array.astype(np.int64)


def _shortened(value: Any) -> str:
    return f"{' '.join(repr(value).split()):.80}"

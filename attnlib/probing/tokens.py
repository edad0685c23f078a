"""Follow the tokens behind a call of attention: padding, positions and target keys.

Attention gets vectors. The arguments of the modules around it (token ids, masks, caches) tell which
tokens the vectors belong to.
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
    """Hold the tokens of the model around a call; columns are positions, the past first."""

    length: int | None = None  # of each sequence, without the past
    past: int = 0  # how many tokens of each are in a cache
    ids: Tensor | None = None  # (batch, length), where there is no past
    real: Tensor | None = None  # (batch, past + length), False for padding
    crossed: bool = False  # the keys are of other tokens than the queries


class TokenTracker:
    """Follow tokens through a model to find padding and targets of queries, given as in `probe`."""

    def __init__(self, mask: Any = None, targets: Targets | None = None) -> None:
        self.by_model = mask is None
        self.mask = None if mask is None or mask is False else _mask(mask)
        self.targets = None if targets is None else _targets(targets)
        self.mask_fits = self.targets_fit = False
        self._last: tuple[Tokens, Places | None] = Tokens(), None

    def read(
        self, module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], before: Tokens
    ) -> Tokens:
        """Return a module's tokens, from its arguments and `before`, the outer module's tokens."""
        scripted = isinstance(module, torch.jit.ScriptModule)
        parameters = () if scripted else _parameters(type(module).forward)
        given = {**dict(zip(parameters, args, strict=False)), **named}
        first = args[0] if args else None
        if "input_ids" in parameters:
            return self._of_model(given.get("input_ids"), given)
        if _is_matrix(first) and not first.is_floating_point():
            return self._of_model(first, given)
        if isinstance(module, nn.MultiheadAttention):
            crossed = given.get("key") is not given.get("query")
        else:
            others = given.get("key_value_states"), given.get("encoder_hidden_states")
            crossed = any(isinstance(other, Tensor) for other in others)
        if crossed != before.crossed:
            before = before._replace(crossed=crossed)
        real = None if crossed else _real(given, first)
        if real is None or (before.real is not None and before.length == real.shape[1]):
            return before
        return Tokens(real.shape[1], real=real)

    def _of_model(self, ids: Any, given: Mapping[str, Any]) -> Tokens:
        """Return the tokens of a module that takes token ids or embeddings; unknown if neither."""
        ids = ids if _is_matrix(ids) else None
        vectors = given.get("inputs_embeds") if ids is None else ids
        if not isinstance(vectors, Tensor) or vectors.ndim < 2:
            return Tokens()
        batch, length = vectors.shape[:2]
        mask: Any = given.get("attention_mask")
        kept: Any = given.get("past_key_values")
        columns = mask.shape[1] if _is_matrix(mask) and mask.shape[0] == batch else 0
        past = max(0, columns - length)
        if hasattr(kept, "get_seq_length"):
            past = int(kept.get_seq_length())
        return Tokens(
            length, past, None if past else ids, mask != 0 if columns == past + length else None
        )

    def queries(self, tokens: Tokens, call: Call) -> Queries | None:
        """Return which queries of a call are real, and their targets; None unless q has 4 axes."""
        if call.query.ndim != 4:
            return None
        batch, _, length, _ = call.query.shape
        keys, device = call.key.shape[-2], call.query.device
        known = tokens.length == length
        if not known:
            tokens = Tokens(length, crossed=tokens.crossed or keys != length)
        past = tokens.past
        real = tokens.real if self.by_model else self.mask
        if real is not None and (real.shape[0] != batch or not (known or real.shape[1] == length)):
            real = None
        counted = None
        if real is not None:
            real = real.to(device)
            counted = _columns(real, past, length, True)
            self.mask_fits = True
        target = None
        if self.targets is not None:
            target = torch.full((batch, length), NONE, device=device)
            places = None if tokens.crossed else self._places(tokens, batch, real)
            if places is not None:
                places = places - max(0, past + length - keys)  # what a window has left behind
                places = np.where((places >= 0) & (places < keys), places, NONE)
                target = torch.from_numpy(places).to(device)
                self.targets_fit = self.targets_fit or bool((places >= 0).any())
        return Queries(counted, target)

    def _places(self, tokens: Tokens, batch: int, real: Tensor | None) -> Places | None:
        """Return the target positions, (batch, length), or None if they are unknown."""
        if tokens is self._last[0]:
            return self._last[1]
        past, length = tokens.past, tokens.length or 0
        shown = None if real is None else _columns(real, 0, past + length, True).cpu().numpy()
        places: Places | None = None
        if isinstance(self.targets, str) and self.targets == "previous":
            places = np.broadcast_to(np.arange(past - 1, past + length - 1), (batch, length))
        elif isinstance(self.targets, np.ndarray):
            if self.targets.shape[0] == batch:
                places = _columns(torch.from_numpy(self.targets), past, length, NONE).numpy()
        elif tokens.ids is not None and tokens.ids.shape[0] == batch:
            if callable(self.targets):
                places = _integers(self.targets(tokens.ids), tuple(tokens.ids.shape))
            else:
                places = earlier(tokens.ids.cpu().numpy(), shown)
                if self.targets == "induction":
                    places = np.where(places >= 0, places + 1, NONE)
        if places is not None and shown is not None:
            seen = np.take_along_axis(shown, places.clip(0, past + length - 1), axis=1)
            places = np.where(seen, places, NONE)
        self._last = tokens, places
        return places

    def unused(self) -> list[str]:
        """Return a line for each of `mask` and `targets` that fitted no call."""
        lines = []
        if self.mask is not None and not self.mask_fits:
            lines.append(f"mask of shape {tuple(self.mask.shape)}: no call has such queries")
        if self.targets is not None and not self.targets_fit:
            lines.append(
                f"targets={_short(self.targets)}: no row has one; they want tokens that attend to "
                "one another, an array the model's own (batch, tokens), and tokens that are alike "
                "or a function a model called with their ids, as `input_ids` or first"
            )
        return lines


def earlier(ids: NDArray[Any], real: NDArray[np.bool_] | None) -> Places:
    """Return where each token last occurred before, (batch, tokens); −1 if nowhere or padding."""
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
def _parameters(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments of a module's `forward`, in their order."""
    return tuple(inspect.signature(forward).parameters)[1:]


def _is_matrix(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.ndim == 2


def _real(given: Mapping[str, Any], first: Any) -> Tensor | None:
    """Return which tokens a mask (batch, tokens) among the arguments shows; None without one."""
    if "src" in given and "tgt" in given:  # of nn.Transformer; its parts are asked themselves
        return None
    for name in ("src_key_padding_mask", "tgt_key_padding_mask", "key_padding_mask"):
        padding = given.get(name)
        if _is_matrix(padding):
            return ~padding if padding.dtype == torch.bool else padding > HIDDEN
    mask = given.get("attention_mask")
    if not _is_matrix(mask) or mask.is_floating_point() or not isinstance(first, Tensor):
        return None
    return mask != 0 if mask.shape == first.shape[:2] else None


def _columns(matrix: Tensor, start: int, length: int, beyond: int) -> Tensor:
    """Return `length` columns from `start`; those after the matrix's last hold `beyond`."""
    missing = max(0, start + length - matrix.shape[1])
    return nn.functional.pad(matrix, (0, missing), value=beyond)[:, start : start + length]


def _mask(value: Any) -> Tensor:
    """Return the argument `mask`, (batch, tokens), as booleans; ValueError for another one."""
    try:
        mask = torch.as_tensor(value)
    except (TypeError, ValueError):
        mask = torch.empty(0)
    if mask.ndim != 2 or not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(
            "mask must be of shape (batch, tokens), 1 or True for tokens and 0 or False for "
            f"padding, or False for no mask, got mask={_short(value)}"
        )
    return mask != 0


def _targets(value: Targets) -> Targets:
    """Return the argument `targets`: a name, a function, or an array of integers."""
    if isinstance(value, str):
        return _checking.choice("targets", value, TARGETS)
    return value if callable(value) else _integers(value, None)


def _integers(value: Any, shape: tuple[int, ...] | None) -> Places:
    try:
        array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    except ValueError:  # lines of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "iu" or array.ndim != 2 or (shape and array.shape != shape):
        raise ValueError(
            f"targets must be integers of shape {shape or '(batch, tokens)'}, the position of each "
            f"query's key or −1, one of {', '.join(map(repr, TARGETS))}, or a function of the "
            f"token ids that returns such integers, got targets={_short(value)}"
        )
    return array.astype(np.int64)


def _short(value: Any) -> str:
    return f"{' '.join(repr(value).split()):.80}"

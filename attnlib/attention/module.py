"""Attention with heads and projections, at any scale."""

from typing import cast

from numpy.typing import ArrayLike
from torch import Tensor, nn

from attnlib import checking
from attnlib.attention.arithmetic import attend
from attnlib.attention.options import Options, checked_factor, validate
from attnlib.policies import Policy, Rule


class Attention(nn.Module):
    """Attention with several heads, to itself or to a context, at any scale: `attend` in a module.

    x: (…, L, width), context: (…, S, context_width), by default x; result: (…, L, width).

    `policy`, `alpha`, `scale`, `post_scale`, `normalize_qk` and `dropout_p` (in training) as in
    `attend`; the queries there have the shape (…, heads, L). A Parameter is learned, another tensor
    becomes a buffer: `scale=nn.Parameter(torch.full((heads, 1), 10.0))` is a scale learned by each
    head.
    `key_value_heads`, by default `heads`, share a head of keys and values among several of queries.
    Without `head_size` it is width / heads.

    Raises ValueError or TypeError as `attend`, for sizes that are not whole numbers from 1 on, for
    a width that is no multiple of `heads` where it has to be, and for `key_value_heads` that do not
    divide `heads`. Chapter: policies.

    >>> import torch
    >>> attention = Attention(width=32, heads=4, key_value_heads=2, policy="ssmax")
    >>> attention(torch.zeros(2, 10, 32), is_causal=True).shape
    torch.Size([2, 10, 32])
    """

    alpha: ArrayLike | Tensor | None
    scale: ArrayLike | Tensor | None
    post_scale: ArrayLike | Tensor | None

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        head_size: int | None = None,
        context_width: int | None = None,
        bias: bool = True,
        policy: str | Policy | Rule | None = None,
        alpha: ArrayLike | Tensor | None = None,
        scale: ArrayLike | Tensor | None = None,
        post_scale: ArrayLike | Tensor | None = None,
        normalize_qk: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        validate(Options(policy, alpha, scale, post_scale, normalize_qk))
        width = checking.integer("width", width, minimum=1)
        heads = checking.integer("heads", heads, minimum=1)
        shared = heads if key_value_heads is None else key_value_heads
        shared = checking.integer("key_value_heads", shared, minimum=1)
        if heads % shared:
            raise ValueError(
                f"key_value_heads must divide heads={heads}, got key_value_heads={shared}"
            )
        if head_size is None:
            if width % heads:
                raise ValueError(
                    f"width must be a multiple of heads={heads} unless head_size is given, "
                    f"got width={width}"
                )
            head_size = width // heads
        self.head_size = checking.integer("head_size", head_size, minimum=1)
        source = width if context_width is None else context_width
        source = checking.integer("context_width", source, minimum=1)
        self.query = nn.Linear(width, heads * self.head_size, bias=bias)
        self.key = nn.Linear(source, shared * self.head_size, bias=bias)
        self.value = nn.Linear(source, shared * self.head_size, bias=bias)
        self.output = nn.Linear(heads * self.head_size, width, bias=bias)
        self.enable_gqa = shared != heads
        self.policy = policy
        self.normalize_qk = normalize_qk
        self.dropout_p = dropout_p
        for name, value in {"alpha": alpha, "scale": scale, "post_scale": post_scale}.items():
            if value is not None and not isinstance(value, str | Tensor):
                value = checked_factor(name, value)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the attention of x to the context; `attn_mask` broadcasts to (…, heads, L, S)."""
        context = x if context is None else context
        z = attend(
            self._heads(self.query(x)),
            self._heads(self.key(context)),
            self._heads(self.value(context)),
            policy=self.policy,
            alpha=self.alpha,
            scale=self.scale,
            post_scale=self.post_scale,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=self.dropout_p if self.training else 0.0,
            normalize_qk=self.normalize_qk,
            enable_gqa=self.enable_gqa,
        )
        return cast(Tensor, self.output(z.transpose(-3, -2).flatten(-2)))

    def _heads(self, x: Tensor) -> Tensor:
        heads = x.shape[-1] // self.head_size
        return x.view(*x.shape[:-1], heads, self.head_size).transpose(-3, -2)

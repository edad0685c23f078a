"""A small Transformer over bytes, and the variants of its attention under study.

Decoder or masked encoder, from the same blocks: pre-norm LayerNorm, GELU, learned absolute
positions. The attention branch of a block adds, to its input x of width w,

    r · W (c · z) + b,    z = softmax(α q·k/√d) v per head,

where α, c (`post_scale`) and r (`residual_weight`) are the configuration's. r multiplies the weight
path and not the bias b, so r·c = 1 is the baseline: the same function of the same parameters. With
`weighted_bias` it is r · (W (c · z) + b), and the baseline's only as long as b = 0.

Source 002. Chapters: output_scale, training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from attnlib import checking, exact
from attnlib.checking import FloatArray
from attnlib.lab import data
from attnlib.scores import Cosine, DotProduct

BYTES = 256
LARGEST_ALPHA = 1e4
"""The range of `attnlib.exact`."""


@dataclass(frozen=True)
class Config:
    """A model: its size, and what its attention does. The defaults are source 002's baseline.

    Raises ValueError or TypeError that names a field, its value and what is allowed.

    >>> Config(width=128, sequence=128, post_scale="constant").heads
    2
    """

    width: int = 256
    """A multiple of `head_size`."""
    depth: int = 4
    head_size: int = 64
    sequence: int = 256
    causal: bool = True
    """A decoder that predicts the next byte; else an encoder that fills in masked bytes."""
    biases: bool = True
    """In the linear layers and the LayerNorms."""
    alpha: float | tuple[float, ...] = 1.0
    """The α of α q·k/√d, or of α cos(q, k); one number, or one for each position."""
    cosine: bool = False
    """Bring q and k to length 1 (QK-norm)."""
    post_scale: float | str = "none"
    """c: "none" (1), "constant" ((n/e)^½ with n = sequence, as in source 002), "exact" (for the
    number of keys at each position: `attnlib.exact.post_scale`), or a number."""
    residual_weight: float | str = 1.0
    """r: a number, "constant" ((n/e)^½) or "inverse" ((n/e)^−½)."""
    weighted_bias: bool = False
    """r multiplies the bias too."""
    projection_gain: float | str = 1.0
    """What W is multiplied by at initialisation: as for r."""
    attention: str = "fused"
    """"fused" (PyTorch's kernel) or "written_out" (with the matrix of scores)."""

    def __post_init__(self) -> None:
        checked = {
            **{
                name: checking.integer(name, getattr(self, name), minimum=1, maximum=2**20)
                for name in ("width", "depth", "head_size", "sequence")
            },
            **{
                name: checking.flag(name, getattr(self, name))
                for name in ("causal", "biases", "cosine", "weighted_bias")
            },
            "alpha": _alpha(self.alpha, self.sequence),
            "post_scale": _factor("post_scale", self.post_scale, ("none", "constant", "exact")),
            "residual_weight": _factor("residual_weight", self.residual_weight, NAMED_FACTORS),
            "projection_gain": _factor("projection_gain", self.projection_gain, NAMED_FACTORS),
            "attention": checking.choice("attention", self.attention, ("fused", "written_out")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.width % self.head_size:
            raise ValueError(
                f"width must be a multiple of head_size={self.head_size}, got width={self.width}"
            )
        if self.cosine and self.post_scale == "exact" and self.head_size < 3:
            raise ValueError(
                "head_size must be at least 3 for the exact post_scale of cosines, "
                f"got head_size={self.head_size}"
            )

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.width // self.head_size

    @property
    def note_factor(self) -> float:
        """Source 002's (n/e)^½ at n = sequence."""
        return math.sqrt(self.sequence / math.e)

    def factor(self, value: float | str) -> float:
        """Return `value`, or what "constant" and "inverse" stand for."""
        if isinstance(value, str):
            return self.note_factor if value == "constant" else 1.0 / self.note_factor
        return value

    def alphas(self) -> FloatArray:
        """Return α at each position, shape (sequence,)."""
        return np.broadcast_to(np.asarray(self.alpha, dtype=np.float64), (self.sequence,))

    def output_scales(self) -> FloatArray:
        """Return c at each position, shape (sequence,)."""
        if self.post_scale != "exact":
            scale = 1.0 if self.post_scale == "none" else self.factor(self.post_scale)
            return np.full(self.sequence, scale)
        law = Cosine(self.head_size) if self.cosine else DotProduct(self.head_size)
        position = np.arange(1, self.sequence + 1)
        keys = position if self.causal else np.full_like(position, self.sequence)
        return exact.post_scale(law, self.alphas(), keys)


NAMED_FACTORS = ("constant", "inverse")


def _factor(name: str, value: float | str, words: Sequence[str]) -> float | str:
    if isinstance(value, str):
        return checking.choice(name, value, words)
    try:
        return checking.positive(name, value)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error}; or one of {', '.join(map(repr, words))}") from None


def _alpha(value: float | Sequence[float], sequence: int) -> float | tuple[float, ...]:
    alpha = checking.scale(value)
    if (alpha > LARGEST_ALPHA).any():
        raise ValueError(f"alpha must be at most {LARGEST_ALPHA:g}, got alpha={alpha.max():g}")
    if alpha.ndim == 0:
        return float(alpha)
    if alpha.shape != (sequence,):
        raise ValueError(
            f"alpha must be one number or sequence={sequence} numbers, got shape {alpha.shape}"
        )
    return tuple(alpha.tolist())


# PyTorch's own initial numbers are not drawn: `Transformer` draws them.
def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    layer = skip_init(nn.Linear, inputs, outputs, bias=bias)  # type: ignore[no-untyped-call]
    return cast(nn.Linear, layer)


def _embedding(count: int, width: int) -> nn.Embedding:
    return cast(nn.Embedding, skip_init(nn.Embedding, count, width))  # type: ignore[no-untyped-call]


class Attention(nn.Module):
    """The attention branch, r · W (c · z) + b or r · (W (c · z) + b)."""

    position_alpha: Tensor | None
    position_scale: Tensor | None

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.residual_weight = config.factor(config.residual_weight)
        width = config.width
        self.input = _linear(width, 3 * width, config.biases)
        self.output = _linear(width, width, config.biases)
        # One α goes into the kernel's scale; one for each position multiplies the queries.
        one = not isinstance(config.alpha, tuple)
        self.kernel_scale = float(config.alphas()[0]) if one else 1.0
        if not config.cosine:
            self.kernel_scale /= math.sqrt(config.head_size)
        alpha, scale = (
            torch.tensor(values)[:, None] for values in (config.alphas(), config.output_scales())
        )
        self.register_buffer("position_alpha", None if one else alpha, persistent=False)
        unscaled = bool((scale == 1.0).all())
        self.register_buffer("position_scale", None if unscaled else scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch, shape (batch, sequence, width) as x."""
        heads = self.input(x).unflatten(-1, (3, self.config.heads, self.config.head_size))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        weighted = functional.linear(self.attend(q, k, v), self.output.weight)
        # r multiplies Wz and never b, in one kernel for every r: r·c = 1 stays exact.
        if not self.config.biases:
            return weighted * self.residual_weight
        if self.config.weighted_bias:
            return (weighted + self.output.bias) * self.residual_weight
        return torch.add(self.output.bias, weighted, alpha=self.residual_weight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return c · z, shape (batch, sequence, width).

        q, k, v: (batch, heads, sequence, head_size).
        """
        length = q.shape[-2]
        if self.config.cosine:
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        if self.position_alpha is not None:
            q = q * self.position_alpha[:length]
        attention = self._fused if self.config.attention == "fused" else self._written_out
        z = attention(q, k, v).transpose(-3, -2).flatten(-2)
        return z if self.position_scale is None else z * self.position_scale[:length]

    def _fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.config.causal, scale=self.kernel_scale
        )

    def _written_out(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.transpose(-2, -1)) * self.kernel_scale
        if self.config.causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        return torch.softmax(scores, dim=-1) @ v


class Block(nn.Module):
    """Attention, then a network of one hidden layer, each added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, biases = config.width, config.biases
        self.attention_norm = nn.LayerNorm(width, bias=biases)
        self.attention = Attention(config)
        self.hidden_norm = nn.LayerNorm(width, bias=biases)
        self.hidden = _linear(width, 4 * width, biases)
        self.output = _linear(4 * width, width, biases)

    def forward(self, x: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return the block's output; append rms(attention branch)/rms(x) to `ratios`."""
        branch = self.attention(self.attention_norm(x))
        if ratios is not None:
            ratios.append((branch.square().mean() / x.square().mean()).sqrt())
        x = x + branch
        hidden = functional.gelu(self.hidden(self.hidden_norm(x)))
        return x + cast(Tensor, self.output(hidden))


class Transformer(nn.Module):
    """The model. Its initial parameters depend on the size and on `seed`, on nothing else.

    Matrices have independent normal entries of variance 1/(number of inputs), embeddings of
    variance ½ (so that token plus position has variance 1), biases are 0 and gains 1. So variants
    of one size start from the same numbers, except that W is multiplied by `projection_gain`.

    >>> model = Transformer(Config(width=8, depth=1, head_size=4, sequence=16), seed=0)
    >>> model(torch.zeros(2, 16, dtype=torch.long)).shape
    torch.Size([2, 16, 256])
    """

    def __init__(self, config: Config, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        tokens = BYTES if config.causal else BYTES + 1  # and one for a masked byte
        self.token = _embedding(tokens, config.width)
        self.position = _embedding(config.sequence, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, bias=config.biases)
        self.output = _linear(config.width, BYTES, config.biases)
        self.to(dtype)
        self._initialise(checking.integer("seed", seed, minimum=0))

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        # NumPy draws them, in the order of the modules: the same numbers on every device, and
        # modules without biases draw as many.
        rng = np.random.default_rng([seed, data.WEIGHTS])
        for module in self.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                variance = 0.5 if isinstance(module, nn.Embedding) else 1.0 / module.in_features
                drawn = rng.standard_normal(module.weight.shape) * math.sqrt(variance)
                module.weight.copy_(torch.from_numpy(drawn))
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()
        gain = self.config.factor(self.config.projection_gain)
        for module in self.modules():
            if isinstance(module, Attention):
                module.output.weight.mul_(gain)

    def forward(self, tokens: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return logits, shape (batch, sequence, 256), from tokens of shape (batch, sequence).

        `ratios`, if given, gets rms(attention branch)/rms(skip) of each block.
        """
        length = tokens.shape[-1]
        if length > self.config.sequence:
            raise ValueError(
                f"tokens must be at most sequence={self.config.sequence} long, got {length}"
            )
        x = self.token(tokens) + self.position.weight[:length]
        for block in self.blocks:
            x = block(x, ratios)
        return cast(Tensor, self.output(self.norm(x)))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log p(target) over the targets that are not −100, in nats a byte."""
    return functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=data.IGNORED
    )

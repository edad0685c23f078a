"""A small Transformer over bytes, and the variants of its attention under study.

Decoder or masked encoder, from the same blocks: pre-norm LayerNorm, GELU, positions that are
learned and absolute, rotary, or none. The attention branch of a block adds, to its input x of width
w,

    r · W (c · z) + b,    z = softmax(α q·k/√d) v per head,

where α or a policy, c (`post_scale`) and r (`residual_weight`) are the configuration's, and c · z
is what `attnlib.attention.attend` returns. r multiplies the weight path and not the bias b, so
r·c = 1 is the baseline: the same function of the same parameters. With `weighted_bias` it is
r · (W (c · z) + b), and the baseline's only as long as b = 0.

Source 002. Chapters: output_scale, training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from attnlib import annealed, checking, typical
from attnlib.attention import attend
from attnlib.attention.arithmetic import scaled
from attnlib.attention.options import Options, checked_policy
from attnlib.policies import POLICIES, Policy
from attnlib.scores import Cosine, DotProduct
from experiments.lab import data

BYTES = 256
"""What a decoder tells apart; an encoder has one token more, for a hidden byte."""
LARGEST_ALPHA = 1e4
"""The range of `attnlib.exact`, and of `alpha` here."""
LARGEST_FACTOR = 1e19
"""Of `post_scale`, `residual_weight` and the like: a product of two is within float32."""


@dataclass(frozen=True)
class Config:
    """A model: its size, and what its attention does. The defaults are source 002's baseline.

    Raises ValueError or TypeError that names a field, its value and what is allowed. Source 002.
    Chapters: output_scale, training.

    >>> Config(width=128, sequence=128, post_scale="constant").heads
    2
    """

    width: int = 256
    """A multiple of `head_size`."""
    depth: int = 4
    """Blocks, each attention and then a network of one hidden layer, four times as wide."""
    head_size: int = 64
    """The dimension d of q and k."""
    sequence: int = 256
    """The length n of a window."""
    causal: bool = True
    """A decoder that predicts the next byte; else an encoder that fills in masked bytes."""
    biases: bool = True
    """In the linear layers and the LayerNorms."""
    alpha: float | str = 1.0
    """What multiplies q·k/√d, so that it is the standard deviation of the logits of random q and k,
    or with `cosine` the scale, what multiplies cos(q, k), whose standard deviation is 1/√d. A
    number, or "annealed" or "typical", the best ones for this size: see `alpha_number`."""
    policy: str | None = None
    """In place of `alpha` the name of a policy in `attnlib.policies.POLICIES`, at the n of each
    query: the number of keys that it sees."""
    fit_policy: bool = False
    """The policy's constants that are a length of training are `sequence`."""
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
    initialisation: str = "unit"
    """"unit" or "pytorch", as source 002 has it: see `Transformer`."""
    input_norm: bool = False
    """A LayerNorm of the sum of the embeddings, as in source 002."""
    learned_scale: bool = False
    """Each head multiplies its logits by a number that is learned, 1 at the start."""
    skip_weight: float | str = 1.0
    """What multiplies the input that the branch is added to: as for r."""
    positions: str = "learned"
    """"learned" (an embedding), "rotary", "interleaved" (rotary in the first block and every other
    one from there) or "none": but for "learned" a model reads any length."""
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
                for name in (
                    *("causal", "biases", "cosine", "weighted_bias", "input_norm"),
                    *("learned_scale", "fit_policy"),
                )
            },
            "alpha": _alpha(self.alpha),
            "post_scale": _factor("post_scale", self.post_scale, ("none", "constant", "exact")),
            **{
                name: _factor(name, getattr(self, name), NAMED_FACTORS)
                for name in ("residual_weight", "projection_gain", "skip_weight")
            },
            "initialisation": checking.choice(
                "initialisation", self.initialisation, ("unit", "pytorch")
            ),
            "positions": checking.choice(
                "positions", self.positions, ("learned", "rotary", "interleaved", "none")
            ),
            "attention": checking.choice("attention", self.attention, ("fused", "written_out")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.width % self.head_size:
            raise ValueError(
                f"width must be a multiple of head_size={self.head_size}, got width={self.width}"
            )
        if self.positions in ("rotary", "interleaved") and self.head_size % 2:
            raise ValueError(
                f"head_size must be even for rotary positions, got head_size={self.head_size}"
            )
        named = isinstance(self.alpha, str)
        if self.cosine and (named or self.post_scale == "exact") and self.head_size < 3:
            raise ValueError(
                "head_size must be at least 3 for the best alpha and the exact post_scale of "
                f"cosines, got head_size={self.head_size}"
            )
        if named and self.sequence < 2:
            raise ValueError(f"sequence must be at least 2 for alpha={self.alpha!r}, got 1")
        if self.policy is not None:
            self._check_policy()

    def _check_policy(self) -> None:
        if not isinstance(self.policy, str):
            raise TypeError(
                "policy must be a name in attnlib.policies.POLICIES, "
                f"got policy={' '.join(repr(self.policy).split()):.80}"
            )
        if self.alpha != 1.0:
            raise ValueError(
                "policy and alpha both say what the scale is: give one of them, "
                f"got policy={self.policy!r:.80} and alpha={self.alpha!r}"
            )
        # What it cannot be asked shows here, before a sweep begins.
        checked_policy(self.policy, self.cosine, "cosine").scale(self.sequence, self.head_size)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.width // self.head_size

    @property
    def note_factor(self) -> float:
        """Source 002's (n/e)^½ at n = sequence."""
        return math.sqrt(self.sequence / math.e)

    def factor(self, value: float | str) -> float:
        """Return `value`, or what "constant" and "inverse" stand for: (n/e)^½, (n/e)^−½."""
        if isinstance(value, str):
            return self.note_factor if value == "constant" else 1.0 / self.note_factor
        return value

    def alpha_number(self) -> float:
        """Return `alpha`, or the number that the word stands for.

        "annealed" is `annealed.best_alpha`, "typical" `typical.best_alpha` of 100,000 rows drawn
        with seed 0, which takes a second the first time; both for the law of q·k/√d, or of the
        cosine, of random q and k of `head_size` dimensions, and for n = sequence keys.
        """
        if isinstance(self.alpha, str):
            law = Cosine(self.head_size) if self.cosine else DotProduct(self.head_size)
            return _best_alpha(self.alpha, law, self.sequence)
        return self.alpha


NAMED_FACTORS = ("constant", "inverse")


def fitted(policy: str, length: int) -> Policy:
    """Return a policy by name, those of its constants that are a length of training set to this."""
    rule = POLICIES[policy]
    names = [name for name in rule.constants if name == "train_length"]
    names += ["floor"] if policy == "llama_4" else []
    return rule.with_constants(**dict.fromkeys(names, length))


def _factor(name: str, value: float | str, words: Sequence[str]) -> float | str:
    if isinstance(value, str):
        return checking.choice(name, value, words)
    try:
        factor = checking.positive(name, value)
        if factor > LARGEST_FACTOR:
            raise ValueError(f"{name} must be at most {LARGEST_FACTOR:g}, got {name}={factor:g}")
        return factor
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error}; or one of {', '.join(map(repr, words))}") from None


def _alpha(value: float | str) -> float | str:
    if isinstance(value, str):
        return checking.choice("alpha", value, ("annealed", "typical"))
    alpha = float(checking.alpha(checking.number("alpha", value)))
    if alpha > LARGEST_ALPHA:
        raise ValueError(f"alpha must be at most {LARGEST_ALPHA:g}, got alpha={alpha:g}")
    return alpha


@lru_cache
def _best_alpha(word: str, law: Cosine | DotProduct, n: int) -> float:
    if word == "annealed":
        return float(annealed.best_alpha(law, n))
    return float(typical.best_alpha(law, n, rows=100_000, seed=0).value)


# PyTorch's own initial numbers are not drawn: `Transformer` draws them.
def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    layer = skip_init(nn.Linear, inputs, outputs, bias=bias)  # type: ignore[no-untyped-call]
    return cast(nn.Linear, layer)


def _embedding(count: int, width: int) -> nn.Embedding:
    return cast(nn.Embedding, skip_init(nn.Embedding, count, width))  # type: ignore[no-untyped-call]


class Attention(nn.Module):
    """The attention branch, r · W (c · z) + b or r · (W (c · z) + b). Chapter: training."""

    packed_projection = "input"
    """What gives q, k and v, one after the other: for `attnlib.probing.clip`."""

    def __init__(self, config: Config, layer: int = 0) -> None:
        super().__init__()
        self.config = config
        self.turned = config.positions == "rotary" or (
            config.positions == "interleaved" and layer % 2 == 0
        )
        self.residual_weight = config.factor(config.residual_weight)
        width = config.width
        self.input = _linear(width, 3 * width, config.biases)
        self.output = _linear(width, width, config.biases)
        self.scale = nn.Parameter(torch.ones(config.heads)) if config.learned_scale else None
        c = config.post_scale
        number = None if config.policy else config.alpha_number()
        policy: str | Policy | None = config.policy
        if config.policy is not None and config.fit_policy:
            policy = fitted(config.policy, config.sequence)
        self.options = Options(
            policy=policy,
            alpha=None if config.cosine else number,
            scale=number if config.cosine else None,
            post_scale=c if c == "exact" else 1.0 if c == "none" else config.factor(c),
            normalize_qk=config.cosine,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch, shape (batch, sequence, width) as x."""
        weighted = functional.linear(self.attend(*self.projected(x)), self.output.weight)
        # r multiplies Wz and never b, in one kernel for every r: r·c = 1 stays exact.
        if not self.config.biases:
            return weighted * self.residual_weight
        if self.config.weighted_bias:
            return (weighted + self.output.bias) * self.residual_weight
        return torch.add(self.output.bias, weighted, alpha=self.residual_weight)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, shape (batch, heads, sequence, head_size)."""
        heads = self.input(x).unflatten(-1, (3, self.config.heads, self.config.head_size))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if self.turned:
            q, k = rotated(q), rotated(k)
        if self.scale is not None and not self.config.cosine:
            q = q * self.scale[:, None, None]
        return q, k, v

    def logits(self, x: Tensor, last: int) -> Tensor:
        """Return the logits of the last queries, shape (batch, heads, last, sequence), unmasked."""
        found = []

        def kept(q: Tensor, k: Tensor, v: Tensor, *, scale: float, **_: Any) -> Tensor:
            found.append(q[..., -last:, :] @ k.mT * scale)
            return v

        self._scaled(*self.projected(x), kept)
        return found[0]

    def _scaled(self, q: Tensor, k: Tensor, v: Tensor, kernel: Callable[..., Tensor]) -> Tensor:
        # A factor of q would be lost where q is brought to length 1.
        gain = None if self.scale is None or not self.config.cosine else self.scale[:, None]
        told = self.config.causal, False, self.options, kernel, gain
        return scaled(q, k, v, None, 0.0, *told)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return c · z, shape (batch, sequence, width).

        q, k, v: (batch, heads, sequence, head_size).
        """
        learned_gain = self.scale is not None and self.config.cosine
        if self.config.attention == "fused" and not learned_gain:
            z = attend(q, k, v, is_causal=self.config.causal, **self.options._asdict())
        else:
            fused = self.config.attention == "fused"
            kernel = functional.scaled_dot_product_attention if fused else written_out
            z = self._scaled(q, k, v, kernel)
        return z.transpose(-3, -2).flatten(-2)


def rotated(x: Tensor, base: float = 10000.0) -> Tensor:
    """Return queries or keys, (…, sequence, size), turned by their positions: rotary positions.

    Entry i and entry i + size/2 are a plane, turned by position · base^(−2i/size).
    """
    half = x.shape[-1] // 2
    speed = base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    one, other = x[..., :half], x[..., half:]
    return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


def written_out(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float, **_: Any
) -> Tensor:
    """Return what PyTorch's kernel does, softmax(scale · q kᵀ) v, with the matrix of scores."""
    scores = (q @ k.transpose(-2, -1)) * scale
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


class Block(nn.Module):
    """Attention, then a network of one hidden layer, each added to its input. Chapter: training."""

    def __init__(self, config: Config, layer: int = 0) -> None:
        super().__init__()
        width, biases = config.width, config.biases
        self.skip_weight = config.factor(config.skip_weight)
        self.attention_norm = nn.LayerNorm(width, bias=biases)
        self.attention = Attention(config, layer)
        self.hidden_norm = nn.LayerNorm(width, bias=biases)
        self.hidden = _linear(width, 4 * width, biases)
        self.output = _linear(4 * width, width, biases)

    def forward(self, x: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return the block's output; append rms(attention branch)/rms(skip) to `ratios`."""
        branch = self.attention(self.attention_norm(x))
        if self.skip_weight != 1.0:
            x = x * self.skip_weight
        if ratios is not None:
            ratios.append((branch.square().mean() / x.square().mean()).sqrt())
        x = x + branch
        hidden = functional.gelu(self.hidden(self.hidden_norm(x)))
        return x + cast(Tensor, self.output(hidden))


class Transformer(nn.Module):
    """The model. Its initial parameters depend on the size and on `seed`, on nothing else.

    "unit": matrices have independent normal entries of variance 1/(number of inputs), embeddings of
    variance ½ (so that token plus position has variance 1), biases are 0. "pytorch", its defaults:
    matrices and biases are uniform between ±1/√(number of inputs), a third of that variance, and
    embeddings normal of variance 1. Gains are 1. So variants of one size start from the same
    numbers, except that W is multiplied by `projection_gain`; source 002's model is "pytorch" with
    `input_norm`.
    Raises ValueError or TypeError for a seed that is no whole number from 0 on, and TypeError for
    another `config` or `dtype`. Source 002. Chapter: training.

    >>> model = Transformer(Config(width=8, depth=1, head_size=4, sequence=16), seed=0)
    >>> model(torch.zeros(2, 16, dtype=torch.long)).shape
    torch.Size([2, 16, 256])
    """

    def __init__(self, config: Config, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        checking.instance("config", config, Config)
        checking.instance("dtype", dtype, torch.dtype)
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be one of real numbers, got dtype={dtype}")
        self.config = config
        tokens = BYTES if config.causal else BYTES + 1  # and one for a masked byte
        self.token = _embedding(tokens, config.width)
        self.position = (
            _embedding(config.sequence, config.width) if config.positions == "learned" else None
        )
        self.input_norm = (
            nn.LayerNorm(config.width, bias=config.biases) if config.input_norm else nn.Identity()
        )
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.depth))
        self.norm = nn.LayerNorm(config.width, bias=config.biases)
        self.output = _linear(config.width, BYTES, config.biases)
        self.to(dtype)
        self._initialise(checking.integer("seed", seed, minimum=0))

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        # NumPy draws them, in the order of the modules: the same numbers on every device, and
        # modules without biases draw as many.
        rng = np.random.default_rng([seed, data.WEIGHTS])
        unit = self.config.initialisation == "unit"
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                std = math.sqrt(0.5) if unit else 1.0
                drawn = rng.standard_normal(module.weight.shape) * std
                module.weight.copy_(torch.from_numpy(drawn))
            elif isinstance(module, nn.Linear):
                std = 1.0 / math.sqrt(module.in_features)
                draw = rng.standard_normal if unit else partial(rng.uniform, -1.0, 1.0)
                module.weight.copy_(torch.from_numpy(draw(size=module.weight.shape) * std))
        for module in self.modules():  # after all matrices: those are the same without biases
            if isinstance(module, nn.Linear) and module.bias is not None:
                bound = 0.0 if unit else 1.0 / math.sqrt(module.in_features)
                drawn = rng.uniform(-bound, bound, module.bias.shape)
                module.bias.copy_(torch.from_numpy(drawn))
        gain = self.config.factor(self.config.projection_gain)
        for module in self.modules():
            if isinstance(module, Attention):
                module.output.weight.mul_(gain)

    def forward(self, tokens: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return logits, shape (batch, sequence, 256), from tokens of shape (batch, sequence).

        `ratios`, if given, gets rms(attention branch)/rms(skip) of each block. Raises ValueError
        for tokens longer than `sequence` where positions are learned or, on a CPU, that the model
        does not know, and TypeError for what are none.
        """
        checking.instance("tokens", tokens, Tensor)
        if tokens.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"tokens must be int32 or int64, got {tokens.dtype}")
        length = tokens.shape[-1] if tokens.ndim else 0
        if not length or (self.position is not None and length > self.config.sequence):
            raise ValueError(
                f"tokens must be 1 to sequence={self.config.sequence} long, got {length}"
            )
        # Elsewhere to look would be to wait, and PyTorch sees to it itself.
        if tokens.is_cpu and tokens.numel():
            low, high = (int(end) for end in tokens.aminmax())
            if low < 0 or high >= self.token.num_embeddings:
                raise ValueError(
                    f"tokens must be from 0 to {self.token.num_embeddings - 1}, "
                    f"got {low if low < 0 else high}"
                )
        x = self.token(tokens)
        x = self.input_norm(x if self.position is None else x + self.position.weight[:length])
        for block in self.blocks:
            x = block(x, ratios)
        return cast(Tensor, self.output(self.norm(x)))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log p(target) over the targets that are not −100, in nats a byte.

    logits: (…, 256), targets: (…). Raises ValueError for other shapes and, on a CPU, for targets
    that are all −100 or no byte. Chapter: training.

    >>> loss(torch.zeros(2, 16, 256), torch.zeros(2, 16, dtype=torch.long))  # log 256
    tensor(5.5452)
    """
    checking.instance("logits", logits, Tensor)
    checking.instance("targets", targets, Tensor)
    if logits.ndim < 2 or logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits must have one axis more than targets, and else the same, got the shapes "
            f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    if targets.is_cpu:
        wanted = targets[targets != data.IGNORED]
        if not len(wanted) or wanted.min() < 0 or wanted.max() >= logits.shape[-1]:
            raise ValueError(
                f"targets must be from 0 to {logits.shape[-1] - 1} or {data.IGNORED}, and not all "
                f"{data.IGNORED}, got targets={targets.tolist()!r:.80}"
            )
    return functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=data.IGNORED
    )

"""A small Transformer over bytes, with the variants of its attention under study.

Decoder or masked encoder, from the same blocks: pre-norm LayerNorm, GELU, positions that are
learned and absolute, rotary, none, or the tokens just before. The attention branch of a block adds,
to its input x of width w,

    r · W (c · z) + b,    z = softmax(α q·k/√d) v per head,

where α or a policy, c (`post_scale`) and r (`residual_weight`) are the configuration's, and c · z
is what `attnlib.attention.attend` returns. r multiplies the weight path and not the bias b, so
r·c = 1 is the baseline: the same function of the same parameters. With `weighted_bias` it is
r · (W (c · z) + b), and the baseline's only as long as b = 0.

Source 002. Chapter: almost_scaled_training.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib import _checking, annealed, typical
from attnlib.attention import attend
from attnlib.attention.arithmetic import scaled_attention
from attnlib.attention.options import Options, checked_policy
from attnlib.models.attention_call import Arguments
from attnlib.policies import POLICIES, Policy, own
from attnlib.scores import Cosine, DotProduct
from experiments.lab.batches import IGNORED, WEIGHT_STREAM
from experiments.lab.fields import Checked, checked, positive_or_word

BYTES = 256
"""Tokens of a decoder; an encoder has one more, for a hidden byte."""
POSITIONS = ("learned", "rotary", "none", "preceding")
PRECEDING = 3
"""Tokens before its own that an input has with positions "preceding"."""
FACTORS = ("constant", "inverse")
"""Words for a factor: see `Config.factor`."""


@dataclass(frozen=True)
class Config(Checked):
    """A model: its size and its attention. The defaults are source 002's baseline.

    Raises ValueError or TypeError that names a field, its value and what is allowed. Source 002.
    Chapter: almost_scaled_training.

    >>> Config(width=128, sequence=128, post_scale="constant").heads
    2
    """

    width: int = checked(256, _checking.integer, minimum=1)
    """A multiple of `head_size`."""
    depth: int = checked(4, _checking.integer, minimum=1)
    """Blocks, each attention and then a network of one hidden layer, four times as wide."""
    head_size: int = checked(64, _checking.integer, minimum=1)
    """The dimension d of q and k."""
    sequence: int = checked(256, _checking.integer, minimum=1)
    """The length n of a window."""
    causal: bool = checked(True, _checking.flag)
    """A decoder that predicts the next byte; else an encoder that fills in masked bytes."""
    alpha: float | str = checked(1.0, positive_or_word, words=("annealed", "typical"))
    """What multiplies q·k/√d, so that it is the standard deviation of the logits of random q and k,
    or with `cosine` the scale, what multiplies cos(q, k), whose standard deviation is 1/√d. A
    number, or "annealed" or "typical", the best ones for this size: see `alpha_number`."""
    policy: str | None = checked(None, lambda _, policy: policy)  # see __post_init__
    """In place of `alpha` the name of a policy in `attnlib.policies.POLICIES`, at the n of each
    query: the number of keys that it sees."""
    fit_policy: bool = checked(False, _checking.flag)
    """The policy's constants that are a length of training are `sequence`."""
    cosine: bool = checked(False, _checking.flag)
    """Bring q and k to length 1 (QK-norm)."""
    post_scale: float | str = checked("none", positive_or_word, words=("none", "constant", "exact"))
    """c: "none" (1), "constant" ((n/e)^½ with n = sequence, as in source 002), "exact" (for the
    number of keys at each position: `attnlib.exact.post_scale`), or a number."""
    residual_weight: float | str = checked(1.0, positive_or_word, words=FACTORS)
    """r: a number, "constant" ((n/e)^½) or "inverse" ((n/e)^−½)."""
    weighted_bias: bool = checked(False, _checking.flag)
    """r multiplies the bias too."""
    projection_gain: float | str = checked(1.0, positive_or_word, words=FACTORS)
    """The factor on W at initialisation: as for r."""
    start_factor: float = checked(1.0, _checking.positive)
    """The factor on the logits at initialisation: its root is on W_q and on W_k."""
    initialisation: str = checked("unit", _checking.choice, allowed=("unit", "pytorch"))
    """"unit" or "pytorch", as source 002 has it: see `Transformer`."""
    input_norm: bool = checked(False, _checking.flag)
    """A LayerNorm of the sum of the embeddings, as in source 002."""
    learned_scale: bool = checked(False, _checking.flag)
    """Each head multiplies its logits by a number that is learned, 1 at the start."""
    law: str = checked("none", _checking.choice, allowed=("none", "root_log", "log", "own"))
    """What also multiplies them where a query sees n keys, 1 at n₀ = `sequence`: 1, √(log n/log n₀)
    or log n/log n₀, which is SSMax with `learned_scale`; or "own": a + b log n/log n₀, where each
    head learns a, 1 at the start, and b, 0 at the start."""
    skip_weight: float | str = checked(1.0, positive_or_word, words=FACTORS)
    """The factor on the input that the branch is added to: as for r."""
    hidden_weight: float | str = checked(1.0, positive_or_word, words=FACTORS)
    """The factor on the other branch of the block, the network's: as for r."""
    positions: str = checked("learned", _checking.choice, allowed=POSITIONS)
    """"learned" (an embedding), "rotary", "none", or "preceding": the input is of a token and the
    three before it, and there are no others. But for "learned" a model reads any length, and what
    "none" and "preceding" say of a place is the same at all lengths."""
    rotary_share: float = checked(1.0, _checking.positive)
    """The share of the planes that rotary positions turn, the fastest of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.head_size:
            raise ValueError(
                f"width must be a multiple of head_size={self.head_size}, got width={self.width}"
            )
        if self.law != "none" and (self.policy is not None or self.sequence == 1):
            raise ValueError(
                f"a law wants more than one key and no policy, got law={self.law!r}, "
                f"sequence={self.sequence} and policy={self.policy!r}"
            )
        if self.policy is not None:
            if self.alpha != 1.0:
                raise ValueError(
                    "policy and alpha both say what the scale is: give one of them, "
                    f"got policy={self.policy!r} and alpha={self.alpha!r}"
                )
            # A size that the policy does not take is refused here, before a sweep begins.
            policy = checked_policy(self.policy, self.cosine, "cosine")
            policy.scale(self.sequence, self.head_size)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.width // self.head_size

    @property
    def note_factor(self) -> float:
        """Source 002's (n/e)^½ at n = sequence."""
        return math.sqrt(self.sequence / math.e)

    def factor(self, value: float | str) -> float:
        """Return `value`, or the number of the word: "constant" (n/e)^½, "inverse" (n/e)^−½."""
        if isinstance(value, str):
            return self.note_factor if value == "constant" else 1.0 / self.note_factor
        return value

    def alpha_number(self) -> float:
        """Return `alpha`, or the number of the word.

        "annealed" is `annealed.best_alpha`, "typical" `typical.best_alpha` of 100,000 rows drawn
        with seed 0, which takes a second the first time; both for the law of q·k/√d, or of the
        cosine, of random q and k of `head_size` dimensions, and for n = sequence keys.
        """
        if isinstance(self.alpha, str):
            law = Cosine(self.head_size) if self.cosine else DotProduct(self.head_size)
            return _best_alpha(self.alpha, law, self.sequence)
        return self.alpha


def with_train_length(policy: str, length: int) -> Policy:
    """Return a policy by name; its constants that are a length of training are `length`."""
    rule = POLICIES[policy]
    names = [name for name in rule.constants if name == "train_length"]
    names += ["floor"] if policy == "llama_4" else []
    return rule.with_constants(**dict.fromkeys(names, length))


def named_law(law: str, length: int) -> Policy:
    """Return "root_log", √log n, or a policy by name, for a length of training."""
    if law == "root_log":
        return own(lambda n, d, position: np.sqrt(np.log(n)))
    return with_train_length(law, length)


@lru_cache
def _best_alpha(word: str, law: Cosine | DotProduct, n: int) -> float:
    """Return the best α by "annealed" or by "typical"."""
    if word == "annealed":
        return float(annealed.best_alpha(law, n))
    return float(typical.best_alpha(law, n, rows=100_000, seed=0).value)


class Attention(nn.Module):
    """The attention branch, r · W (c · z) + b or r · (W (c · z) + b).

    Chapter: almost_scaled_training.
    """

    packed_projection = "input"
    """The layer of q, k and v, one after the other: for `attnlib.probing.clip`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.residual_weight = config.factor(config.residual_weight)
        width = config.width
        self.input = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        own = config.law == "own"
        learned = config.learned_scale or own
        self.scale = nn.Parameter(torch.ones(config.heads)) if learned else None
        self.slope = nn.Parameter(torch.zeros(config.heads)) if own else None
        c = config.post_scale
        number = None if config.policy else config.alpha_number()
        policy: str | Policy | None = config.policy
        if config.policy is not None and config.fit_policy:
            policy = with_train_length(config.policy, config.sequence)
        self.options = Options(
            policy=policy,
            alpha=None if config.cosine else number,
            scale=number if config.cosine else None,
            post_scale=c if c == "exact" else 1.0 if c == "none" else config.factor(c),
            normalize_qk=config.cosine,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch, of the shape of x, (batch, sequence, width)."""
        weighted = functional.linear(self.attend(*self.project(x)), self.output.weight)
        # r multiplies Wz and never b, in one kernel for every r: r·c = 1 stays exact.
        if self.config.weighted_bias:
            return (weighted + self.output.bias) * self.residual_weight
        return torch.add(self.output.bias, weighted, alpha=self.residual_weight)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, shape (batch, heads, sequence, head_size)."""
        heads = self.input(x).unflatten(-1, (3, self.config.heads, self.config.head_size))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if self.config.positions == "rotary":
            q, k = (rotate(vectors, share=self.config.rotary_share) for vectors in (q, k))
        gain = self.gain(x.shape[-2])
        if gain is not None and not self.config.cosine:
            q = q * gain[..., None]
        return q, k, v

    def gain(self, length: int) -> Tensor | None:
        """Return the learned factor and the law's, (heads or 1, length or 1); None without both."""
        config, gain = self.config, None if self.scale is None else self.scale[:, None]
        if config.law == "none":
            return gain
        first = 1 if config.causal else length
        like = self.input.weight
        growth = torch.arange(first, length + 1, dtype=torch.float64, device=like.device).log()
        growth = (growth / math.log(config.sequence)).to(like)
        if config.law == "root_log":
            growth = growth.sqrt()
        if self.slope is not None:
            return cast(Tensor, gain) + self.slope[:, None] * growth
        return growth[None] if gain is None else gain * growth

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return c · z, shape (batch, sequence, width).

        q, k, v: (batch, heads, sequence, head_size).
        """
        causal, kernel = self.config.causal, functional.scaled_dot_product_attention
        gain = self.gain(q.shape[-2]) if self.config.cosine else None
        if gain is None:
            z = attend(q, k, v, is_causal=causal, **self.options._asdict())
        else:  # a factor of q would be lost where q is brought to length 1
            z = scaled_attention(Arguments(q, k, v, is_causal=causal), self.options, kernel, gain)
        return z.transpose(-3, -2).flatten(-2)


def rotate(x: Tensor, base: float = 10000.0, share: float = 1.0) -> Tensor:
    """Return queries or keys, (…, sequence, size), turned by their positions: rotary positions.

    Entry i and entry i + size/2 are a plane, turned by position · base^(−2i/size), or not at all
    beyond the first `share` of the planes.
    """
    half = x.shape[-1] // 2
    speed = base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    speed[round(share * half) :] = 0.0
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Block(nn.Module):
    """Attention, then a network of one hidden layer, each added to its input.

    Chapter: almost_scaled_training.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.skip_weight = config.factor(config.skip_weight)
        self.hidden_weight = config.factor(config.hidden_weight)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(config)
        self.hidden_norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return the block's output; append rms(attention branch)/rms(skip) to `ratios`."""
        branch = self.attention(self.attention_norm(x))
        if self.skip_weight != 1.0:
            x = x * self.skip_weight
        if ratios is not None:
            ratios.append((branch.square().mean() / x.square().mean()).sqrt())
        x = x + branch
        hidden = self.output(functional.gelu(self.hidden(self.hidden_norm(x))))
        if self.hidden_weight != 1.0:
            hidden = hidden * self.hidden_weight
        return x + cast(Tensor, hidden)


class Transformer(nn.Module):
    """The model. Its initial parameters depend on the size and on `seed`, on nothing else.

    "unit": matrices have independent normal entries of variance 1/(number of inputs), embeddings of
    variance ½ (so that token plus position has variance 1), biases are 0. "pytorch", its defaults:
    matrices and biases are uniform between ±1/√(number of inputs), a third of that variance, and
    embeddings normal of variance 1. Gains are 1. So variants of one size start from the same
    numbers, except that W is multiplied by `projection_gain`, W_q and W_k by the root of
    `start_factor`; source 002's model is "pytorch" with `input_norm`.
    Source 002. Chapter: almost_scaled_training.

    >>> model = Transformer(Config(width=8, depth=1, head_size=4, sequence=16), seed=0)
    >>> model(torch.zeros(2, 16, dtype=torch.long)).shape
    torch.Size([2, 16, 256])
    """

    def __init__(self, config: Config, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        tokens = BYTES if config.causal else BYTES + 1  # and one for a masked byte
        self.token = nn.Embedding(tokens, config.width)
        learned = config.positions == "learned"
        self.position = nn.Embedding(config.sequence, config.width) if learned else None
        preceding = config.positions == "preceding"
        self.preceding = nn.Embedding(PRECEDING * tokens, config.width) if preceding else None
        self.input_norm = nn.LayerNorm(config.width) if config.input_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, BYTES)
        self.to(dtype)
        self._initialise(seed)

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        """Set the initial parameters."""
        # NumPy draws the parameters, in the order of the modules: the same on every device.
        rng = np.random.default_rng([seed, WEIGHT_STREAM])
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
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = 0.0 if unit else 1.0 / math.sqrt(module.in_features)
                drawn = rng.uniform(-bound, bound, module.bias.shape)
                module.bias.copy_(torch.from_numpy(drawn))
        gain = self.config.factor(self.config.projection_gain)
        for module in self.modules():
            if isinstance(module, Attention):
                module.output.weight.mul_(gain)
                queries_and_keys = slice(0, 2 * self.config.width)
                for parameter in module.input.weight, module.input.bias:
                    parameter[queries_and_keys].mul_(math.sqrt(self.config.start_factor))

    def gains(self) -> list[list[Tensor]]:
        """Return each block's learned `scale` and `slope`, where there are such, (heads,) each."""
        blocks = [cast(Block, block).attention for block in self.blocks]
        return [[p.detach() for p in (a.scale, a.slope) if p is not None] for a in blocks]

    def forward(self, tokens: Tensor, ratios: list[Tensor] | None = None) -> Tensor:
        """Return logits, shape (batch, sequence, 256), from tokens of shape (batch, sequence).

        `ratios`, if given, gets rms(attention branch)/rms(skip) of each block. Raises ValueError
        for tokens longer than `sequence` where positions are learned.
        """
        length = tokens.shape[-1]
        if self.position is not None and length > self.config.sequence:
            raise ValueError(
                f"tokens must be at most sequence={self.config.sequence} long, got {length}"
            )
        x = self.token(tokens)
        if self.preceding is not None:  # token 0 stands before the first
            tokens_each = len(self.preceding.weight) // PRECEDING
            for back in range(1, PRECEDING + 1):
                before = functional.pad(tokens, (back, 0))[..., :length]
                x = x + self.preceding(before + (back - 1) * tokens_each)
        x = self.input_norm(x if self.position is None else x + self.position.weight[:length])
        for block in self.blocks:
            x = block(x, ratios)
        return cast(Tensor, self.output(self.norm(x)))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log p(target) over the targets that are not −100, in nats a byte.

    logits: (…, 256), targets: (…). Chapter: almost_scaled_training.

    >>> loss(torch.zeros(2, 16, 256), torch.zeros(2, 16, dtype=torch.long))  # log 256
    tensor(5.5452)
    """
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def written_out(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None = None, **_: Any
) -> Tensor:
    """Return softmax(scale · q kᵀ) v as PyTorch's kernel does, but with the matrix of scores."""
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(-1) @ v

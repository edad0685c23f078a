"""Heads that learn to find: tasks whose needle is known, and what a trained head wants.

- `nearest`: the query is a noisy copy of one of n keys, which are directions in d dimensions. One
  head, two matrices W_q and W_k, learns it from −log P, P the weight on that key.
- `recall`: pairs of a key and a value, a token each, and then keys, of which the value is to be
  said. A Transformer of one layer can learn it, without positions.
- `induction`: a sequence, and a stretch of it again, of which each next token is to be said. It
  takes two layers, and positions.

What the needle has above the others is a task's `gap`:

- "noise": of a law of the noise's own kind, tilted by θ, whatever n (`attnlib.retrieval.Tilted`);
- "fixed": exactly so much, whatever n (`attnlib.retrieval.Fixed`);
- "growing": tilted by θ log n/log n₀, n₀ the length of training. In `recall` the key that is meant
  stands at one place only, as where the gap is fixed, and a wrong query is one of its 7
  look-alikes: so their number grows with n, and the rule that keeps up with it is log n.

After training the head is measured at other lengths: its gap g, the variance of the other logits
and their mean under softmax, its weight, its loss, the multiplier t* of all its logits that its
loss wants, and its loss under the laws in dispute, each over what it is at n₀.

Chapter: length_extrapolation.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.attention import rescale
from attnlib.probing.measure import Call
from attnlib.probing.measure import logits as logits_of
from attnlib.probing.observer import Observer
from attnlib.probing.sample import choose
from attnlib.scores import Cosine
from experiments.lab import data
from experiments.lab.descent import DECAYS, Descent, descend
from experiments.lab.fields import checked
from experiments.lab.fields import lengths as checked_lengths
from experiments.lab.model import BYTES, Config, Transformer, fitted, named_law

TASKS = ("nearest", "recall", "induction")
GAPS = ("noise", "fixed", "growing")
QUERIES = 8
"""How many queries look into one set of keys, and are measured of a sequence: its last."""
SYMBOLS = 64
"""How many keys of `recall` and tokens of `induction` there are."""
ALIKE = 8
"""Where a needle grows, so many keys of `recall` in a row are taken for one another."""
VALUES = 3
"""How many values a key of `recall` may have."""
BLOCKS = 50
"""The losses of training are kept as the means of so many stretches."""
CHUNK = 2**18
"""Keys that are drawn at a time in a test; an eighth of it, for a Transformer."""
SLACK = 0.1
"""In nats: `least` is the smallest multiplier whose loss is above the best by no more."""
MOST = 64.0
"""t* is looked for from 1/MOST to MOST, and is the end where it lies beyond."""


def _shortest(name: str, value: Any) -> int | None:
    return None if value is None else _checking.integer(name, value, minimum=3 * QUERIES)


@dataclass(frozen=True)
class Task(Descent):
    """What is to be found, how it is learned, and where that is tested.

    A batch is of sets of keys, each with eight queries, or of sequences. Raises ValueError or
    TypeError that names a field, its value and what is allowed. Chapter: length_extrapolation.

    >>> Task(gap="growing", lengths=[16, 64]).lengths
    (16, 64)
    """

    name: str = checked("nearest", _checking.choice, allowed=TASKS)
    """One of `TASKS`."""
    gap: str = checked("noise", _checking.choice, allowed=GAPS)
    """One of `GAPS`."""
    strength: float = checked(0.5, _checking.positive)
    """ϱ, between 0 and 1: the (mean) cosine of query and needle at n₀; of tokens the chance that
    the query is a true copy, which is 1 where the gap is fixed."""
    learning_rate: float = checked(2.0**-7, _checking.positive)
    decay: str = checked("linear", _checking.choice, allowed=DECAYS)
    steps: int = checked(1000, _checking.integer, minimum=1)
    batch: int = checked(32, _checking.integer, minimum=1)
    lengths: tuple[int, ...] = checked((), checked_lengths)
    """Of the tests, in keys or tokens; n₀ is tested first, and alone where there are none."""
    shortest: int | None = checked(None, _shortest)
    """Sequences of training are as long as n₀, or with a number, at least 24, of any length from it
    to n₀, each equally often on a scale of log n and the same in a batch."""
    rows: int = checked(1024, _checking.integer, minimum=1)
    """Queries of a test, a multiple of 8."""


class HeadResult(NamedTuple):
    """What a head has learned. Chapter: length_extrapolation."""

    losses: list[float]
    """Of training: the means of 50 stretches, or of each step where there are fewer."""
    diverged_at: int | None
    """The first of these that is not a number; None if there is none."""
    measured: list[dict[str, Any]]
    """`measured` at n₀ and at the other lengths; empty where it diverged."""
    learned: list[list[list[float]]] | None = None
    """Of a Transformer, for each block and each of `descent.GAINS` that is learned: what the heads
    have learned; None for others."""


LAWS = ("root_log", "ssmax", "qwen", "llama_4", "yarn", "infoscale")
"""The laws in dispute, beside that of no law: log n is "ssmax", and "qwen" from n₀ on."""


def multipliers(n: int, length: int, d: int) -> dict[str, float]:
    """Return each of `LAWS` at n keys, over what it is at `length`, for heads of d dimensions."""
    rules = {law: named_law(law, length) for law in LAWS}
    return {law: float(rule.scale(n, d) / rule.scale(length, d)) for law, rule in rules.items()}


# --- what is to be found --------------------------------------------------------------------------


def tilt(strength: float, d: int) -> float:
    """Return θ, by which a needle among random directions is tilted whose mean cosine is ϱ.

    The root of κ'(θ) = ϱ, 0 < ϱ < 1, for cosines in d ≥ 3 dimensions.
    Chapter: length_extrapolation.

    >>> round(tilt(0.5, 32), 3)
    21.072
    """
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    law = Cosine(d)

    def excess(log_theta: float) -> float:
        return float(law.log_mgf_derivatives(np.exp(log_theta)).first) - strength

    return float(np.exp(brentq(excess, -30.0, 30.0, xtol=1e-12)))


class Drawn(NamedTuple):
    """What a model reads, what each query is to say, and where that stands."""

    read: tuple[NDArray[Any], ...]
    """Queries (sets, queries, d) and keys (sets, n, d), of length √d; or tokens (sets, n)."""
    answer: NDArray[np.int64]
    """(sets, queries): of keys the needle itself."""
    needle: NDArray[np.int64]
    """(sets, queries)"""


def nearest(task: Task, length: int, d: int, n: int, rng: np.random.Generator, sets: int) -> Drawn:
    """Return sets of n keys for a head of training length `length`.

    Keys are uniform on the sphere. A query has the cosine w with its needle and is uniform but for
    that: w = ϱ where the gap is fixed, else of the density (1 − w²)^{(d−3)/2} e^{θw}, so that given
    the query the needle is von Mises and Fisher's. Chapter: length_extrapolation.
    """
    keys = _directions(rng, (sets, n, d))
    needle = rng.integers(0, n, (sets, QUERIES))
    cosine = np.full(needle.shape, task.strength)
    if task.gap != "fixed":
        growth = np.log(n) / np.log(length) if task.gap == "growing" else 1.0
        cosine = np.interp(rng.random(needle.shape), *_quantiles(task.strength, d, growth))
    cosine = cosine[..., None].astype(np.float32)
    targets = np.take_along_axis(keys, needle[..., None], axis=1)
    aside = _directions(rng, targets.shape)
    aside -= (aside * targets).sum(axis=-1, keepdims=True) * targets
    aside /= np.linalg.norm(aside, axis=-1, keepdims=True)
    queries = cosine * targets + np.sqrt(1.0 - cosine**2) * aside
    root = np.float32(np.sqrt(d))
    return Drawn(((root * queries).astype(np.float32), root * keys), needle, needle)


def sequences(
    task: Task, length: int, n: int, rng: np.random.Generator, sets: int, queries: int = QUERIES
) -> Drawn:
    """Return sequences of n tokens, the last of them queries, for training length `length`.

    `recall`: the token 4·key + value is a pair, with a value from 1 to 3, and 4·key asks for it.
    The needle of a query is the pair. `induction`: the queries are tokens in a row of those
    before, and the needle is the one after the query's own.

    Where the gap is fixed, what a query copies stands at one place only. Else all are drawn alike,
    and the copy is true with the chance ϱ, and any other token without it: a needle tilted by
    θ = log(63ϱ/(1 − ϱ)) among scores 0 or 1, times log n/log n₀ where the gap grows. In `recall` it
    then stands at one place only, too, and a wrong token is one of 7 for 63.
    Chapter: length_extrapolation.
    """
    before, induction = n - queries, task.name == "induction"
    similar = task.gap == "growing" and not induction
    alike = task.gap != "fixed" and not similar
    starts = rng.integers(0, before - queries, (sets, 1)) + np.arange(queries)
    anywhere = rng.random((sets, before)).argsort(axis=1)[:, :queries]
    places = starts if induction else anywhere
    shuffled = rng.permuted(np.tile(np.arange(SYMBOLS), (sets, 1)), axis=1)
    drawn = rng.integers(0 if alike else queries, SYMBOLS, (sets, before))
    keys = np.take_along_axis(shuffled, drawn, axis=1)
    if not alike:
        np.put_along_axis(keys, places, shuffled[:, :queries], axis=1)
    asked = np.take_along_axis(keys, places, axis=1)
    if task.gap != "fixed":
        near = ALIKE if similar else SYMBOLS
        odds = np.log(near - 1.0)
        theta = odds + np.log(task.strength / (1.0 - task.strength))
        theta *= np.log(n) / np.log(length) if task.gap == "growing" else 1.0
        wrong = rng.random(asked.shape) * (1.0 + np.exp(theta - odds)) < 1.0
        other = rng.integers(1, near, asked.shape)
        asked = np.where(wrong, asked // near * near + (asked + other) % near, asked)
    if induction:
        answer = np.take_along_axis(keys, places + 1, axis=1)
        return Drawn((np.concatenate([keys, asked], axis=1),), answer, places + 1)
    values = rng.integers(1, VALUES + 1, keys.shape)
    pairs = (VALUES + 1) * keys + values
    tokens = np.concatenate([pairs, (VALUES + 1) * asked], axis=1)
    return Drawn((tokens,), np.take_along_axis(values, places, axis=1), places)


@lru_cache
def _quantiles(strength: float, d: int, growth: float) -> tuple[FloatArray, FloatArray]:
    """Return probabilities, and the cosines of a tilted needle that are below with each."""
    edges = np.linspace(-1.0, 1.0, 2**14 + 1)
    middle = (edges[1:] + edges[:-1]) / 2.0
    log_density = growth * tilt(strength, d) * middle + (d - 3.0) / 2.0 * np.log1p(-(middle**2))
    below = np.cumsum(np.exp(log_density - log_density.max()))
    return np.append(0.0, below) / below[-1], edges


def _directions(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    drawn = rng.standard_normal(shape, dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    return drawn


# --- one head -------------------------------------------------------------------------------------


class Head(nn.Module):
    """One head: the logits of queries and keys that `config.width` numbers describe.

    W_q and W_k start normal, of variance 1/width. The scale is `config.alpha` over √d, or the
    policy's at n₀ = `config.sequence` keys, whatever n is: in a test the laws multiply it. Chapter:
    length_extrapolation.

    >>> head = Head(Config(width=8, head_size=4, sequence=16))
    >>> head(torch.zeros(2, 3, 8), torch.zeros(2, 16, 8)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        rng = np.random.default_rng([seed, data.WEIGHTS])
        drawn = rng.standard_normal((2, config.head_size, config.width)) / np.sqrt(config.width)
        self.query, self.key = (nn.Parameter(torch.from_numpy(matrix).float()) for matrix in drawn)
        self.scale = nn.Parameter(torch.ones(())) if config.learned_scale else None
        if config.policy is None:
            self.unit = config.alpha_number() / (1.0 if config.cosine else config.head_size**0.5)
        else:
            rule = fitted(config.policy, config.sequence)
            self.unit = float(rule.scale(config.sequence, config.head_size))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return logits, shape (…, queries, keys), from shapes (…, queries or keys, width)."""
        config = self.config
        q, k = functional.linear(queries, self.query), functional.linear(keys, self.key)
        if config.cosine:
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        q = self.unit * q if self.scale is None else self.unit * self.scale * q
        return q @ k.mT


def train_and_test(config: Config, task: Task) -> HeadResult:
    """Train a head or a Transformer, and measure it at n₀ = `config.sequence` and other lengths.

    Heads of a Transformer share the tokens among them: each row is measured in the head whose mean
    weight on the needle is largest at n₀, over the rows with the same token as needle. The same
    arguments give the same numbers, with one thread to the last bit. Models of one seed see the
    same rows. Chapter: length_extrapolation.

    >>> small = Config(width=8, head_size=8, sequence=8)
    >>> task = Task(steps=100, rows=64, batch=4, strength=0.9, lengths=[32])
    >>> result = train_and_test(small, task)
    >>> [row["n"] for row in result.measured], result.losses[-1] < result.losses[0]
    ([8, 32], True)
    """
    model, losses = trained(config, task)
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        return HeadResult(losses[: bad[0]].tolist(), int(bad[0]), [])
    with torch.no_grad():
        lengths = dict.fromkeys([config.sequence, *task.lengths])
        trials = (trial(config, task, model, n) for n in lengths)
        tests = of_lengths(trials, config.sequence, config.head_size)
    learned = None
    if isinstance(model, Transformer):
        learned = [[gain.tolist() for gain in block] for block in model.gains()]
    return HeadResult(losses.tolist(), None, tests, learned)


def trained(config: Config, task: Task) -> tuple[nn.Module, FloatArray]:
    """Return a trained model, and the mean losses of the stretches."""
    kind = Head if task.name == "nearest" else Transformer
    model = kind(config, task.seed)
    steps = descend(model, task, batches(config, task), batch_loss)
    losses = [value.item() for *_, value in steps]
    stretches = np.array_split(losses, min(BLOCKS, task.steps))
    return model, np.array([part.mean() for part in stretches])


def rows_of(
    config: Config, task: Task, n: int, rng: np.random.Generator, sets: int
) -> list[Tensor]:
    """Return sets of rows: what the model reads, what it is to say, and the needle."""
    if task.name == "nearest":
        drawn = nearest(task, config.sequence, config.width, n, rng, sets)
    else:  # from many queries the tasks are learned sooner
        queries = max(QUERIES, min(n, config.sequence) // 3)
        drawn = sequences(task, config.sequence, n, rng, sets, queries)
    return [torch.from_numpy(array) for array in (*drawn.read, drawn.answer, drawn.needle)]


def batches(config: Config, task: Task) -> Iterator[list[Tensor]]:
    """Yield batches of training without end, the same for each model."""
    rng, n = np.random.default_rng([task.seed, data.STARTS]), config.sequence
    while True:
        if task.shortest is not None:
            n = round(float(np.exp(rng.uniform(np.log(task.shortest), np.log(config.sequence)))))
        yield rows_of(config, task, n, rng, task.batch)


def batch_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Return the mean loss of a model on a batch."""
    *read, answer, _ = batch
    return _answer_loss(model(*read), answer, "mean")


class Trial(NamedTuple):
    """A test at n keys or tokens."""

    n: int
    logits: FloatArray  # (rows, heads, keys)
    needle: NDArray[np.int64]  # (rows,)
    token: NDArray[np.int64]  # (rows,): of the needle; 0 where there are none
    said: dict[str, Any]  # of a Transformer: `answer_loss` and `accuracy` of what it says, and
    # `answers`, that loss under `LAWS` in all heads, where it has no policy of its own


def trial(config: Config, task: Task, model: nn.Module, n: int) -> Trial:
    """Return what a model does at n; the same rows for each model."""
    rng = np.random.default_rng([task.seed, data.MASKS, n])
    most = max(1, CHUNK // (8 if isinstance(model, Transformer) else 1) // n)
    total = task.rows // QUERIES
    parts = []
    for start in range(0, total, most):
        *read, answer, needle = rows_of(config, task, n, rng, min(most, total - start))
        answer, needle = answer[:, -QUERIES:], needle[:, -QUERIES:]
        if isinstance(model, Transformer):
            part = _answer_columns(model, read[0], answer)
            part["token"] = read[0].gather(1, needle).flatten()
        else:
            part = {"logits": model(*read).flatten(0, 1)[:, None]}
            part["token"] = torch.zeros_like(needle).flatten()
        parts.append({**part, "needle": needle.flatten()})
    rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    logits, needles, token = (rows.pop(name).numpy() for name in ("logits", "needle", "token"))
    results: dict[str, Any] = {name: float(each.double().mean()) for name, each in rows.items()}
    if results:
        results["answers"] = {law: results.pop(law) for law in LAWS if law in results}
    return Trial(n, logits, needles, token, results)


def _answer_columns(model: Transformer, tokens: Tensor, answer: Tensor) -> dict[str, Tensor]:
    """Return of the last queries what `Trial` tells, a number for each row."""
    seen, spoken = _query_logits(model, tokens)
    right = spoken[:, -QUERIES:].argmax(dim=-1) == answer
    lost = _answer_loss(spoken, answer)
    columns = {"logits": seen, "answer_loss": lost, "accuracy": right.flatten().float()}
    length = model.config.sequence
    # A law over what it is at n₀ is for a model without one of its own.
    for law in LAWS if model.config.policy is None and model.config.law == "none" else ():
        with rescale(factor=named_law(law, length), train_length=length):
            columns[law] = _answer_loss(model(tokens), answer)
    return columns


def _answer_loss(spoken: Tensor, answer: Tensor, reduction: str = "none") -> Tensor:
    """Return −log p(answer) of each of the last queries."""
    last = spoken[:, -answer.shape[1] :].flatten(0, 1)
    return functional.cross_entropy(last, answer.flatten(), reduction=reduction)


def _query_logits(model: Transformer, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last queries' logits in every head, (rows, heads, keys), and what is said.

    The keys are those before the queries and, the last of them, the query's own.
    """
    logits, spoken = last_logits(model, tokens, QUERIES)
    before, own = logits[..., :-QUERIES], logits[..., -QUERIES:].diagonal(dim1=-2, dim2=-1)
    both = torch.cat([before, own[..., None]], dim=-1).float()
    return both.transpose(1, 2).flatten(0, 1), spoken


def last_logits(model: Transformer, tokens: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """Return the logits of the last queries, (sets, all heads, queries, n), and what is said."""
    logits: list[Tensor] = []
    sets, n = tokens.shape

    def see(layer: str, number: int, call: Call, output: Tensor) -> None:
        last, _ = choose(call, output, range(sets), range(n - queries, n))
        logits.append(logits_of(last))

    with Observer(model, see).at_work():
        spoken = model(tokens)
    return torch.cat(logits, dim=1), spoken


# --- measurements ---------------------------------------------------------------------------------


def of_lengths(tested: Iterable[Trial], length: int, d: int) -> list[dict[str, Any]]:
    """Return what is measured in tests, the first of them at n₀.

    That is `measured`, what `foresight` gives, and what a Transformer answers; of several heads, in
    `heads`, the t* of each that has rows, on these. The laws of a model with a policy or a law of
    its own are none: it is measured at that.
    """
    tests: list[dict[str, Any]] = []
    for n, heads, needle, token, results in tested:
        here = np.arange(len(needle))
        if not tests:
            shifted = heads - heads.max(axis=-1, keepdims=True)
            weights = np.exp(shifted[here, :, needle]) / np.exp(shifted).sum(axis=-1)
            of_token = [np.bincount(token, row, minlength=BYTES) for row in weights.T]
            head_of = np.argmax(of_token, axis=0)
        logits = heads[here, head_of[token]]
        if not tests:
            foresee = foresight(logits, needle)
        own_law = bool(results) and not results["answers"]
        numbers = measured(logits, needle, {} if own_law else multipliers(n, length, d))
        tests.append({**numbers, **foresee(logits.shape[1]), **results, "n": n})
        if heads.shape[1] > 1:
            rows = [head_of[token] == head for head in np.unique(head_of[token])]
            best = [measured(logits[own_rows], needle[own_rows])["best"] for own_rows in rows]
            tests[-1]["heads"] = [{"best": multiplier} for multiplier in best]
    return tests


def foresight(logits: FloatArray, needle: NDArray[np.int64]) -> Callable[[int], dict[str, float]]:
    """Return what gives, from rows of one length, the weight and the loss at another n.

    No parameter is fitted. With the gap g of each row and κ(1) of all others, `annealed_loss` is
    the mean of log(1 + (n − 1)e^{κ − g}), which is too large near freezing. `predicted_weight` and
    `predicted_loss` are the integrals of `attnlib.retrieval`, of the logits themselves in place of
    a law: ∫ A φ^{n−1} du and ∫ φ_*(1 − φ^{n−1}) du. Chapter: length_extrapolation.
    """
    here, gaps = np.arange(len(logits)), _gaps(logits, needle)
    others = np.delete(
        (logits - (logits[here, needle] - gaps)[:, None]).ravel(), here * logits.shape[1] + needle
    )
    top = others.max()
    kappa = float(np.log(np.exp(others - top).mean()) + top)
    # From where no Gumbel variable is below to where none of 2²⁰ is above.
    u = np.arange(min(gaps.min(), others.min()) - 4.0, max(gaps.max(), top) + 40.0, 0.25)
    counts, edges = np.histogram(others, bins=4096)
    middle = (edges[1:] + edges[:-1]) / 2.0
    log_phi = np.log(np.exp(-np.exp(middle - u[:, None])) @ counts + 1e-300) - np.log(others.size)
    chance = np.exp(gaps - u[:, None])
    needle_first, needle_below = (chance * np.exp(-chance)).mean(1), np.exp(-chance).mean(1)

    def at(n: int) -> dict[str, float]:
        below = np.exp((n - 1.0) * log_phi)
        return {
            "annealed_loss": float(np.logaddexp(0.0, np.log(n - 1.0) + kappa - gaps).mean()),
            "predicted_weight": float((needle_first * below).sum() * 0.25),
            "predicted_loss": float((needle_below * (1.0 - below)).sum() * 0.25),
        }

    return at


def _gaps(logits: FloatArray, needle: NDArray[np.int64]) -> FloatArray:
    """Return the needle's logit less the mean of the others, for each row."""
    n = logits.shape[1]
    target = logits[np.arange(len(logits)), needle].astype(np.float64)
    rest: FloatArray = logits.sum(axis=1, dtype=np.float64) - target
    gaps: FloatArray = target - rest / (n - 1.0)
    return gaps


def measured(
    logits: FloatArray, needle: NDArray[np.int64], laws: dict[str, float] | None = None
) -> dict[str, Any]:
    """Return what a head does to rows: `logits` of shape (rows, n), and where the needle is.

    Means over the rows of: `gap`, the needle's logit less the mean of the others; `variance`, of
    these; `weight`, P; `loss`, −log P. `slope` is κ'(1), κ(t) = log E e^{tℓ} of the others of all
    rows together, each about the mean of its row. `best` is the multiplier t* ≥ 0 of all logits
    that makes the loss least, to 1e-6 of it; `least` the smallest one whose loss is above that by
    0.1 at most; `laws` the loss under multipliers with names. Chapter: length_extrapolation.

    >>> row = measured(np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 2.0]]), np.array([0, 1]))
    >>> row["gap"], row["variance"], round(row["weight"], 3)
    (1.5, 1.0, 0.628)
    """
    number, n = logits.shape
    below = logits - logits.max(axis=1, keepdims=True)
    target = below[np.arange(number), needle].astype(np.float64)

    losses = _losses(below, target, 1.0)
    return {
        "n": n,
        **_other_logits(logits, needle),
        "weight": float(np.exp(-losses).mean()),
        "loss": float(losses.mean()),
        **_best_multiplier(below, target),
        "laws": {name: float(_losses(below, target, t).mean()) for name, t in (laws or {}).items()},
    }


def _losses(below: FloatArray, target: FloatArray, t: float) -> FloatArray:
    """Return −log P of each row under a multiplier, from logits `below` the row's largest."""
    sums = np.exp(t * below).sum(axis=1, dtype=np.float64)
    losses: FloatArray = np.log(sums) - t * target
    return losses


def _other_logits(logits: FloatArray, needle: NDArray[np.int64]) -> dict[str, Any]:
    """Return the gap, and the variance and κ'(1) of the logits beside the needle's."""
    number, n = logits.shape
    here = np.arange(number)
    gaps = _gaps(logits, needle)
    mean = logits[here, needle] - gaps
    centred = logits - mean[:, None].astype(logits.dtype)
    centred[here, needle] = 0.0
    squares = np.square(centred).sum(axis=1, dtype=np.float64) / max(1, n - 2)
    weights = np.exp(centred - float(centred.max()))
    weights[here, needle] = 0.0
    slope = (weights * centred).sum(dtype=np.float64) / weights.sum(dtype=np.float64)
    values = {"gap": gaps.mean(), "variance": squares.mean(), "slope": slope}
    return {name: float(value) for name, value in values.items()}


def _best_multiplier(below: FloatArray, target: FloatArray) -> dict[str, float]:
    """Return t*, its loss, and the least multiplier that is good enough."""
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    def slope(log_t: float) -> float:
        weights = np.exp(np.exp(log_t) * below)
        sums = weights.sum(axis=1, dtype=np.float64)
        weights *= below
        return float((weights.sum(axis=1, dtype=np.float64) / sums - target).mean())

    end, lowest = float(np.log(MOST)), 1.0 / MOST
    if slope(end) <= 0.0:
        best = MOST
    elif slope(-end) >= 0.0:
        best = lowest
    else:
        best = float(np.exp(brentq(slope, -end, end, xtol=1e-6)))
    best_loss = float(_losses(below, target, best).mean())

    def excess(t: float) -> float:
        return float(_losses(below, target, t).mean()) - best_loss - SLACK

    least = lowest if excess(lowest) <= 0.0 else float(brentq(excess, lowest, best, xtol=1e-6))
    return {"best": best, "least": least}

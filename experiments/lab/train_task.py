"""Train a head or a Transformer on a task, to find its needle, and test it at other lengths.

`tasks` draws the rows, and `head_measures` measures them. One head has two matrices W_q
and W_k, and learns `nearest` from −log P, P the weight on the intended key. A Transformer learns
the other tasks from the tokens that it is to say.

Chapter: length_extrapolation.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib._checking import FloatArray
from attnlib.attention import rescale
from attnlib.probing.measure import Call
from attnlib.probing.measure import logits as logits_of
from attnlib.probing.observer import Observer
from attnlib.probing.sample import restrict_call
from experiments.lab.batches import MASK_STREAM, START_STREAM, WEIGHT_STREAM
from experiments.lab.descent import descend
from experiments.lab.head_measures import LAWS, Trial, measure_trials
from experiments.lab.model import Config, Transformer, named_law, with_train_length
from experiments.lab.tasks import QUERIES, Task, draw_nearest, draw_sequences

STRETCHES = 50
"""Parts of training; the mean loss of each is recorded."""
CHUNK = 2**18
"""Keys that are drawn at a time in a test; an eighth of it, for a Transformer."""


class TaskRun(NamedTuple):
    """The results of a run on a task. Chapter: length_extrapolation."""

    losses: list[float]
    """Mean losses of 50 stretches of training, or of each step where there are fewer."""
    diverged_at: int | None
    """The first of these that is not a number; None if there is none."""
    measured: list[dict[str, Any]]
    """`measure_rows` at n₀ and at the other lengths; empty where it diverged."""
    learned: list[list[list[float]]] | None = None
    """Of a Transformer, for each block and each learned one of `descent.GAINS`: the numbers of the
    heads; None for a head."""


class Head(nn.Module):
    """One head: logits from queries and keys of `config.width` numbers.

    W_q and W_k start normal, of variance 1/width. The scale is `config.alpha` over √d, or the
    policy's at n₀ = `config.sequence` keys, whatever n is: in a test the laws multiply it.
    Chapter: length_extrapolation.

    >>> head = Head(Config(width=8, head_size=4, sequence=16))
    >>> head(torch.zeros(2, 3, 8), torch.zeros(2, 16, 8)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        rng = np.random.default_rng([seed, WEIGHT_STREAM])
        drawn = rng.standard_normal((2, config.head_size, config.width)) / np.sqrt(config.width)
        self.query, self.key = (nn.Parameter(torch.from_numpy(matrix).float()) for matrix in drawn)
        self.scale = nn.Parameter(torch.ones(())) if config.learned_scale else None
        if config.policy is None:
            self.unit = config.alpha_number() / (1.0 if config.cosine else config.head_size**0.5)
        else:
            rule = with_train_length(config.policy, config.sequence)
            self.unit = float(rule.scale(config.sequence, config.head_size))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return logits, shape (…, queries, keys), from shapes (…, queries or keys, width)."""
        config = self.config
        q, k = functional.linear(queries, self.query), functional.linear(keys, self.key)
        if config.cosine:
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        q = self.unit * q if self.scale is None else self.unit * self.scale * q
        return q @ k.mT


def train_and_test(config: Config, task: Task) -> TaskRun:
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
    model, losses = train_model(config, task)
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        return TaskRun(losses[: bad[0]].tolist(), int(bad[0]), [])
    with torch.no_grad():
        lengths = dict.fromkeys([config.sequence, *task.lengths])
        trials = (run_trial(config, task, model, n) for n in lengths)
        tests = measure_trials(trials, config.sequence, config.head_size)
    learned = None
    if isinstance(model, Transformer):
        learned = [[gain.tolist() for gain in block] for block in model.gains()]
    return TaskRun(losses.tolist(), None, tests, learned)


def train_model(config: Config, task: Task) -> tuple[nn.Module, FloatArray]:
    """Return a trained model, and the mean losses of the stretches, (stretches,)."""
    model_class = Head if task.name == "nearest" else Transformer
    model = model_class(config, task.seed)
    steps = descend(model, task, draw_batches(config, task), batch_loss)
    losses = [value.item() for *_, value in steps]
    stretches = np.array_split(losses, min(STRETCHES, task.steps))
    return model, np.array([part.mean() for part in stretches])


def draw_rows(
    config: Config, task: Task, n: int, rng: np.random.Generator, sets: int
) -> list[Tensor]:
    """Return the tensors of `Drawn`, in `sets` sets: those to read, the answers and the needles."""
    if task.name == "nearest":
        drawn = draw_nearest(task, config.sequence, config.width, n, rng, sets)
    else:  # from many queries the tasks are learned sooner
        queries = max(QUERIES, min(n, config.sequence) // 3)
        drawn = draw_sequences(task, config.sequence, n, rng, sets, queries)
    return [torch.from_numpy(array) for array in (*drawn.read, drawn.answer, drawn.needle)]


def draw_batches(config: Config, task: Task) -> Iterator[list[Tensor]]:
    """Yield batches of `draw_rows` without end, the same for each model."""
    rng, n = np.random.default_rng([task.seed, START_STREAM]), config.sequence
    while True:
        if task.shortest is not None:
            n = round(float(np.exp(rng.uniform(np.log(task.shortest), np.log(config.sequence)))))
        yield draw_rows(config, task, n, rng, task.batch)


def batch_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Return the mean loss of a model on a batch, in nats."""
    *read, answer, _ = batch
    return _answer_loss(model(*read), answer, "mean")


def run_trial(config: Config, task: Task, model: nn.Module, n: int) -> Trial:
    """Return a test of a model at n, on the same rows for each model."""
    rng = np.random.default_rng([task.seed, MASK_STREAM, n])
    sets_at_once = max(1, CHUNK // (8 if isinstance(model, Transformer) else 1) // n)
    total = task.rows // QUERIES
    parts = []
    for start in range(0, total, sets_at_once):
        *read, answer, needle = draw_rows(config, task, n, rng, min(sets_at_once, total - start))
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
    """Return columns for `Trial`, one row a query: its logits, loss, accuracy and loss by law."""
    logits, spoken = last_logits(model, tokens, QUERIES)
    # Of the queries themselves each sees its own key alone, the last of its keys.
    before, own = logits[..., :-QUERIES], logits[..., -QUERIES:].diagonal(dim1=-2, dim2=-1)
    seen = torch.cat([before, own[..., None]], dim=-1).float().transpose(1, 2).flatten(0, 1)
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
    """Return −log p(answer) of the last queries, (sets · queries,), or its mean."""
    last = spoken[:, -answer.shape[1] :].flatten(0, 1)
    return functional.cross_entropy(last, answer.flatten(), reduction=reduction)


def last_logits(model: Transformer, tokens: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """Return the attention logits of the last queries, (sets, all heads, queries, n).

    The second is the model's output.
    """
    logits: list[Tensor] = []
    sets, n = tokens.shape

    def see(layer: str, number: int, call: Call, output: Tensor) -> None:
        last, _ = restrict_call(call, output, range(sets), range(n - queries, n))
        logits.append(logits_of(last))

    with Observer(model, see).at_work():
        spoken = model(tokens)
    return torch.cat(logits, dim=1), spoken

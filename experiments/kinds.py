"""Record the scale that the loss prefers, by kind of text: twelve kinds, a window a line.

    python -m experiments.kinds

Each line of recorded/kinds.jsonl is a window that a model has read: its loss, ∂L/∂log t of each
head, the loss with all logits times t, and properties of the text. The command goes on where it
was stopped; a line that was cut off is made again. Predicted before the first run:
predictions/kinds.md.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from attnlib.calibration.gradient import sum_by_head
from attnlib.calibration.passes import Loss, loss_and_gradients
from experiments import provenance
from experiments.calibrate import PASSAGE, add_missing, constant_factor, contrastive
from experiments.lab.results import to_json
from experiments.real_heads import kinds, models
from experiments.records import RECORDED, Fields, Work

OUT = RECORDED / "kinds.jsonl"
SHORT, LONG, LONGEST = 512, 2048, 8192
WINDOWS = {SHORT: 24, LONG: 12, LONGEST: 3}
"""Of each kind, by their tokens."""
SOME = ("prose", "bible", "drama", "python")
"""The kinds that are read at LONGEST."""
CONTROLS = ("numbered", "twice", "lower")
"""Changed texts: the Bible with the numbers of its verses, the first half of each window of prose
and then the same again, and prose in small letters."""
PAIR_WINDOWS, PAIRS = 12, 16
"""Of each kind for MiniLM, each of so many passages with the next one of its text."""
SHIFTS = (-0.2, -0.1, 0.1)
"""log t of the whole model at which the loss is taken, beside 0."""
FEW = (-0.1, 0.1)
"""Those at LONGEST."""
RARE = 2**14
"""Tokens from this number on, of 49152, are rare: they were merged late."""
CHUNK = 512
"""Tokens whose logits over the vocabulary there are at a time."""


def entries_to_compute() -> Work:
    """Yield the key of each window and a function that measures it.

    They go round the kinds: a record that is cut short has as many windows of each.
    """
    for model, tokens, windows, some in (
        ("SmolLM2", SHORT, WINDOWS[SHORT], (*kinds.KINDS, *CONTROLS)),
        ("SmolLM2", LONG, WINDOWS[LONG], kinds.KINDS),
        ("MiniLM", PASSAGE, PAIR_WINDOWS, kinds.KINDS),
        ("SmolLM2", LONGEST, WINDOWS[LONGEST], SOME),
    ):
        for window, kind in product(range(windows), some):
            at: Fields = {"model": model, "kind": kind, "tokens": tokens, "window": window}
            yield at, partial(measure_window, **at)


def measure_window(model: str, kind: str, tokens: int, window: int) -> Fields:
    """Return the measures of a window, and the seconds that they took."""
    start = time.process_time()
    readings = (measure_pairs if model == "MiniLM" else measure_text)(kind, tokens, window)
    return {**readings, "processor_seconds": round(time.process_time() - start, 1)}


def measure_text(kind: str, tokens: int, window: int) -> Fields:
    """Return what SmolLM2 does on window number `window` of a kind, of `tokens` tokens.

    In nats: the loss unchanged and at each of SHIFTS (FEW for windows above LONG), ∂L/∂log t of
    each head, the mean loss of each half, the mean entropy of the predictions. And `properties` of
    the tokens.
    """
    ids = window_tokens(kind, tokens, window)
    module: Any = models.smollm2().module
    seen: list[Tensor] = []

    def loss(_: nn.Module, text: Tensor) -> Tensor:
        both = losses_and_entropies(module, text)
        seen.append(both.detach())
        return both[:, 0].mean()

    long = tokens > LONG
    with saving_memory(module) if long else nullcontext():
        losses_at = at_factors(module, torch.tensor([ids]), loss, FEW if long else SHIFTS)
    losses, entropies = seen[0].double().numpy().T
    halves = [float(half.mean()) for half in np.array_split(losses, 2)]
    return {**losses_at, "halves": halves, "entropy": float(entropies.mean()), **properties(ids)}


def window_tokens(kind: str, tokens: int, window: int) -> list[int]:
    """Return the tokens of a window for SmolLM2; those of a control are made from its kind's."""
    model, of = models.smollm2(), WINDOWS[tokens]
    if kind == "twice":
        return 2 * kinds.window(model, "prose", window, of, tokens // 2)
    if kind == "lower":
        return model.reads(kinds.passage("prose", window, of, tokens).lower())[:tokens]
    return kinds.window(model, kind, window, of, tokens)


def measure_pairs(kind: str, tokens: int, window: int) -> Fields:
    """Return losses and gradients of MiniLM on pairs of passages, by its loss of training."""
    model, pairs = models.minilm(), []
    for pair in range(PAIRS):
        number, of = pair * PAIR_WINDOWS + window, PAIRS * PAIR_WINDOWS
        first, *ids, last = model.reads(kinds.passage(kind, number, of, 2 * tokens))
        halves = ids[:tokens], ids[tokens : 2 * tokens]
        pairs.append([[first, *half, last] for half in halves])
    text = torch.tensor(pairs).transpose(0, 1)
    return at_factors(model.module, text, contrastive, SHIFTS)


def at_factors(module: nn.Module, text: Tensor, loss: Loss, shifts: tuple[float, ...]) -> Fields:
    """Return the loss, ∂L/∂log t of each head, and the loss with all logits times e^shift."""
    unchanged = loss_and_gradients(module, text, loss)
    layers = list(dict.fromkeys(part.place.layer for part in unchanged.parts))
    shifted = {
        shift: loss_and_gradients(module, text, loss, constant_factor(shift), gradient=False)
        for shift in shifts
    }
    return {
        "loss": unchanged.loss,
        "gradient": to_json(sum_by_head(unchanged, layers)),
        "log_t": list(shifted),
        "losses": [reading.loss for reading in shifted.values()],
    }


# --- the loss -------------------------------------------------------------------------------------


def losses_and_entropies(module: Any, text: Tensor) -> Tensor:
    """Return −log p of each token but the first, and the entropy of the prediction: (tokens, 2)."""
    hidden = module.base_model(text).last_hidden_state[0, :-1]
    parts = zip(torch.split(hidden, CHUNK), torch.split(text[0, 1:], CHUNK), strict=True)
    return torch.cat(
        [checkpoint(_loss_entropy, module.lm_head, *part, use_reentrant=False) for part in parts]
    )


def _loss_entropy(head: nn.Module, hidden: Tensor, following: Tensor) -> Tensor:
    """Return the same of a chunk of tokens."""
    logs = functional.log_softmax(head(hidden), dim=-1)
    loss = functional.nll_loss(logs, following, reduction="none")
    with torch.no_grad():
        entropy = -(logs.exp() * logs).sum(dim=-1)
    return torch.stack([loss, entropy], dim=-1)


@contextmanager
def saving_memory(module: Any) -> Iterator[None]:
    """Compute layers again in the backward pass, in place of keeping them."""
    module.activation_checkpointing_enable({"use_reentrant": False})
    module.train()  # without it they are kept; this model has no dropout
    try:
        yield
    finally:
        module.eval().activation_checkpointing_disable()


# --- properties of a text -------------------------------------------------------------------------


def properties(ids: list[int]) -> Fields:
    """Return properties that may go with the gradient: shares, and characters a token.

    Of tokens: `repeated` end three in a row that have stood before in the window, `rare` are from
    RARE on. Of characters: `digits`, and `marks`, which are no letters, digits or spaces. Of words,
    which are letters in a row: `capitals` begin with one.
    """
    text = "".join(map(models.smollm2().writes, ids))
    words = re.findall(r"[^\W\d_]+", text)
    triples = list(zip(ids, ids[1:], ids[2:], strict=False))
    marks = sum(not (mark.isalnum() or mark.isspace()) for mark in text)
    return {
        "repeated": 1.0 - len(set(triples)) / len(triples),
        "rare": sum(token >= RARE for token in ids) / len(ids),
        "digits": sum(mark.isdigit() for mark in text) / len(text),
        "marks": marks / len(text),
        "capitals": sum(word[0].isupper() for word in words) / max(1, len(words)),
        "characters": len(text) / len(ids),
    }


if __name__ == "__main__":
    made = provenance.made("numpy", "torch", "transformers", threads=1)
    add_missing(OUT, entries_to_compute(), made=made)

"""Record the best scale by a model's own loss: gradients, fits and needles, a piece a line.

    python -m experiments.calibrate

Each line of recorded/calibrate.jsonl is one piece, of some seconds to some minutes. The command
goes on where it was stopped; a line that was cut off is made again. Predicted before the first run:
predictions/calibrate.md.
"""

import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from attnlib import _files
from attnlib._checking import FloatArray
from attnlib.calibration import fit_scales, needles, repeated_tokens
from attnlib.calibration.gradient import sum_by_head
from attnlib.calibration.logit_factors import Place
from attnlib.calibration.passes import (
    LogFactor,
    LossGradients,
    loss_and_gradients,
    no_change,
    own_loss,
)
from experiments.lab.results import to_json
from experiments.real_heads import models, parts, source_texts
from experiments.real_heads.models import Model
from experiments.records import RECORDED, Fields, Work

OUT = RECORDED / "calibrate.jsonl"
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
TEXTS = 16
SHIFTS = (-0.2, -0.1, 0.1, 0.2)
"""log t of the whole model at which losses and their slopes are taken, beside 0."""
NEAR = {4096: (-0.1, 0.1), 8192: (-0.1,)}
"""Those of the longer texts, of which each takes minutes: at 4096 the least loss lay below 1."""
FIT_LENGTHS = {"head": 512, "log": 2048}
"""Tokens of the texts for a factor per head, and for a rule in log n."""
NEEDLE_LENGTHS = (512, 2048)
KINDS = ("previous", "repeat")
FAR = (-0.6, -0.4, *SHIFTS, 0.4, 0.6)
"""Those of the smaller models."""
MASKED = ("AntiBERTy", "RXNMapper", "rxnfp")
MASKINGS = 8
"""Draws of tokens to be guessed in each text."""
PASSAGE = 64
"""Tokens of each half of a pair."""


def entries_to_compute() -> Work:
    """Yield the key of each piece and a function that computes it, short texts first."""
    for model, text in product((*MASKED, "MiniLM"), range(TEXTS)):
        at: Fields = {"what": "gradient", "model": model, "text": text}
        yield at, partial(gradient, model, text)
        for shift in FAR:
            at = {"what": "shift", "model": model, "text": text, "log_t": shift}
            yield at, partial(loss_at_shift, model, text, shift)
    for length in LENGTHS:
        for text in range(TEXTS):
            at = {"what": "gradient", "length": length, "text": text}
            yield at, partial(gradient, length, text)
        for text, shift in product(range(TEXTS), NEAR.get(length, SHIFTS)):
            at = {"what": "shift", "length": length, "text": text, "log_t": shift}
            yield at, partial(loss_at_shift, length, text, shift)
        for kind, text in product(KINDS if length in NEEDLE_LENGTHS else (), range(TEXTS)):
            at = {"what": "needles", "kind": kind, "length": length, "text": text}
            yield at, partial(needle, kind, length, text)
        for what in (word for word, n in FIT_LENGTHS.items() if n == length):
            yield (
                {"what": f"fit {what}", "length": length},
                partial(fit_even_texts, what, length),
            )


def tokens(length: int, text: int) -> torch.Tensor:
    """Return the tokens of a text, (1, length)."""
    return torch.tensor([parts.window(models.smollm2(), text, length)])


def text_gradients(
    source: int | str, index: int, log_factor: LogFactor = no_change
) -> LossGradients:
    """Return the loss, in nats, and ∂L/∂log t of each query of the text with number `index`.

    `source` is a model's name, or a number of tokens that SmolLM2 reads. `log_factor` gives log t
    of each place, by default 0.
    """
    if source == "MiniLM":
        return loss_and_gradients(models.minilm().module, pairs(index), contrastive, log_factor)
    if isinstance(source, str):
        model = models.MODELS[source]()
        return loss_and_gradients(model.module, masked(model, index), own_loss, log_factor)
    return loss_and_gradients(models.smollm2().module, tokens(source, index), own_loss, log_factor)


def gradient(source: int | str, text: int) -> Fields:
    """Return the loss and ∂L/∂log t of each head, in nats."""
    both = text_gradients(source, text)
    layers = list(dict.fromkeys(part.place.layer for part in both.parts))
    return {"loss": both.loss, "gradient": to_json(sum_by_head(both, layers))}


def loss_at_shift(source: int | str, text: int, shift: float) -> Fields:
    """Return the loss and its slope in log t with all logits times e^shift."""
    both = text_gradients(source, text, constant_factor(shift))
    slope = sum(float(part.gradient.sum()) for part in both.parts)
    return {"loss": both.loss, "slope": slope}


def constant_factor(shift: float) -> LogFactor:
    """Return a function for the log of a factor that is e^shift for all heads and lengths."""

    def log_factor(place: Place, keys: FloatArray) -> FloatArray:
        return np.full((place.heads, 1), shift)

    return log_factor


def masked(model: Model, text: int) -> Fields:
    """Return a text some times, of each 15 % of the tokens to be guessed."""
    kind = source_texts.antibodies() if model.name == "AntiBERTy" else source_texts.REACTIONS
    ids = torch.tensor([model.reads(kind[text * (len(kind) // TEXTS)])] * MASKINGS)
    config: Any = model.module.config
    mask = next(i for i in range(config.vocab_size) if model.writes(i) == "[MASK]")
    inner = ids.shape[1] - 2
    order = np.random.default_rng(text).random((MASKINGS, inner)).argsort(axis=1)
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    hidden[:, 1:-1] = torch.from_numpy(order < max(1, round(0.15 * inner)))
    labels = torch.where(hidden, ids, -100)
    return {"input_ids": torch.where(hidden, mask, ids), "labels": labels}


def pairs(text: int) -> torch.Tensor:
    """Return sixteen pairs of passages, each with the next one of its text, (2, 16, tokens)."""
    model, passages = models.minilm(), []
    for source, place in product(source_texts.SOURCES, range(4)):
        shift = 20_000 * (text // 6) + 4_000 * place
        first, *ids, last = model.reads(source_texts.source_text(source, text % 6, shift)[:2_000])
        halves = ids[:PASSAGE], ids[PASSAGE : 2 * PASSAGE]
        passages.append([[first, *half, last] for half in halves])
    return torch.tensor(passages).transpose(0, 1)


def contrastive(model: torch.nn.Module, passages: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of finding each passage's next one and back, by 20 times cosines."""
    means = model(input_ids=passages.flatten(0, 1)).last_hidden_state.mean(dim=1)
    first, second = functional.normalize(means, dim=-1).chunk(2)
    logits, right = 20 * first @ second.T, torch.arange(len(first))
    return (functional.cross_entropy(logits, right) + functional.cross_entropy(logits.T, right)) / 2


def needle(kind: str, length: int, text: int) -> Fields:
    """Return the sums over each head's rows with a target, as `calibration.Needles` has them."""
    if kind == "repeat":
        [ids] = repeated_tokens(49152, length, 1, seed=text)
    else:
        ids = tokens(length, text)
    rows = needles(models.smollm2().module, [ids], kind)
    names = ("rows", "weight", "gap", "slope", "reach", "derivatives")
    return {name: to_json(getattr(rows, name)[0]) for name in names}


def fit_even_texts(what: str, length: int) -> Fields:
    """Fit factors to the texts with even numbers, and return them with the others' losses."""
    texts = [tokens(length, text) for text in range(TEXTS)]
    options: Fields = {"per": "head"} if what == "head" else {"law": "log"}
    fit = fit_scales(models.smollm2().module, texts[0::2], texts[1::2], **options)
    both = {"before": fit.before.tolist(), "after": fit.after.tolist()}
    return {"fit": json.loads(fit.to_json()), **both}


def add_missing(path: Path, work: Work, **made: Fields) -> None:
    """Compute the entries that a record of lines lacks, and add a line for each at once."""
    torch.set_num_threads(1)
    known = [line["at"] for line in _files.lines(path)]
    for at, compute in tqdm([(at, compute) for at, compute in work if at not in known]):
        _files.append(path, {"at": at, **made, **compute()})


if __name__ == "__main__":
    add_missing(OUT, entries_to_compute())

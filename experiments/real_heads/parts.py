"""All measurements, part by part: each part is a list of entries, each of some seconds."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib._checking import FloatArray
from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from attnlib.policies import POLICIES
from attnlib.probing.tokens import Places
from experiments.known_bugs import BUGS, MULTIPLIERS, Bug
from experiments.lab.results import to_json
from experiments.real_heads import package_files, rows, source_texts
from experiments.real_heads.models import MODELS, Model
from experiments.real_heads.rows import split_by_length
from experiments.real_heads.shown import shown_work
from experiments.real_heads.source_texts import SOURCES
from experiments.records import Fields, Work

LENGTHS = (128, 256, 512, 1024, 2048)
LONG_LENGTHS = (2048, 4096, 8192)
ENGLISH_LENGTHS = (32, 64, 128, 256, 512)
ANTIBODY_LENGTHS = (24, 48, 96)
ROWS = 24
"""Rows at each length of each text."""
TEXTS = 8
"""Windows of the texts: two of each source."""
SHORT_TEXTS = 16
"""Reactions, and antibodies."""
LONG_TEXTS = (0, 3)
REPEATS = {128: 8, 256: 6, 512: 6, 1024: 4, 2048: 4, 4096: 2, 8192: 2}
"""Lengths of the texts that are said twice, and how many there are of each."""

PRICE_LENGTHS = (64, 128, 256, 512, 1024, 2048)
PRICE_TEXTS = 4
SHORT = 512
LAYER = 256
"""Tokens of the windows for policies and faults (SHORT), and for single layers (LAYER)."""
LAYERS = 30
BEYOND = 10240
BEYOND_LENGTHS = (1024, 2048, 4096, 8192, 10240)
SHIFT = 100_000
"""Characters by which the windows of a price lie behind those of the rows."""

LAW_ROWS = 8
"""Rows at each length of each text, for laws of others."""
ONE_SOURCE = 12
"""Windows of SOURCES[0], for outputs of which no text has a mean of its own."""
COMPONENTS = 8
"""Measured components of an output: every eighth of 64."""
COMMA = ","
"""Outputs at this query are compared between texts; of models that see both sides, at the first."""


def window(model: Model, index: int, n: int, shift: int = 0) -> list[int]:
    """Return the first n tokens of a text; ValueError if it is shorter."""
    source, number = SOURCES[index % len(SOURCES)], index // len(SOURCES)
    if source == "python" and shift:
        number, shift = number + 3, 0
    ids = model.reads(source_texts.source_text(source, number, shift)[: 8 * n + 100])[:n]
    if len(ids) < n:
        raise ValueError(f"text {index} has {len(ids)} tokens, which is below {n}")
    return ids


def cut_text(model: Model, index: int) -> list[list[int]]:
    """Return a text at several lengths, for a model that sees both sides."""
    if model.name == "MiniLM":
        ids, end = window(model, index, ENGLISH_LENGTHS[-1]), model.reads("")[-1]
        return [[*ids[: n - 1], end] for n in ENGLISH_LENGTHS]
    if model.name == "AntiBERTy":
        kind = source_texts.antibodies()
        return [model.reads(kind[(5 * index) % len(kind)][: n - 2]) for n in ANTIBODY_LENGTHS]
    return [model.reads(source_texts.REACTIONS[index % len(source_texts.REACTIONS)])]


# --- the atlas ------------------------------------------------------------------------------------


def every_text(both_sides: Callable[..., Fields], causal: Callable[..., Fields]) -> Work:
    """Yield the work on each text of every model, by the function for its kind of model."""
    for index in range(SHORT_TEXTS):
        for name in ("RXNMapper", "rxnfp", "AntiBERTy"):
            yield {"model": name, "text": index}, partial(both_sides, name, index)
    for index in range(TEXTS):
        yield {"model": "MiniLM", "text": index}, partial(both_sides, "MiniLM", index)
    usual = [(index, LENGTHS) for index in range(TEXTS)]
    for index, lengths in (*usual, *((index, LONG_LENGTHS) for index in LONG_TEXTS)):
        at = {"model": "SmolLM2", "text": index, "tokens": lengths[-1]}
        yield at, partial(causal, index, lengths)


def _both_sides(name: str, index: int) -> Fields:
    """Return the rows of a text at its lengths: of a long text some, of a short one all."""
    model = MODELS[name]()
    texts, tables = cut_text(model, index), []
    for ids in texts:
        places = np.arange(1, len(ids) - 1)
        if name == "MiniLM":
            [places] = rows.places_at_lengths([len(ids)], ROWS, index)
        measured = rows.measure(model.module, ids, places, lambda *c: {"rows": rows.row_table(*c)})
        tables.append(head_means(measured["rows"]))
    lengths = ANTIBODY_LENGTHS if name == "AntiBERTy" else [len(ids) for ids in texts]
    return {"lengths": list(lengths), "heads": tables}


def _causal(index: int, lengths: tuple[int, ...]) -> Fields:
    """Return the rows of one text at several places, and its needles there."""
    model = MODELS["SmolLM2"]()
    ids = window(model, index, lengths[-1])
    places = rows.places_at_lengths(lengths, ROWS, index)
    queries = np.concatenate(places)
    targets = rows.find_needles(ids, queries)

    def see(logits: Tensor, *rest: Tensor) -> dict[str, rows.Table]:
        of_needles = {name: rows.needle_table(logits, at) for name, at in targets.items()}
        return {"rows": rows.row_table(logits, *rest), **of_needles}

    measured = rows.measure(model.module, ids, queries, see)
    by_length = {name: split_by_length(table, places) for name, table in measured.items()}
    return {
        "lengths": list(lengths),
        "heads": [head_means(table) for table in by_length["rows"]],
        "needles": {name: [needle_means(table) for table in by_length[name]] for name in targets},
    }


def head_means(table: rows.Table) -> Fields:
    """Return the mean rows of each head, beside normal rows of the same n and α."""
    n, variance, rest = (table[name] for name in ("n", "variance", "variance_rest"))
    random = rows.random_collision(n, np.sqrt(variance))
    random_rest = rows.random_collision(n - 1.0, np.sqrt(rest))
    return {
        "n": to_json(n.mean(1)),
        "alpha": to_json(np.sqrt(variance.mean(1))),
        "alpha_rest": to_json(np.sqrt(rest.mean(1))),
        "keys": to_json(1.0 / table["collision"].mean(1)),
        "keys_rest": to_json(1.0 / table["collision_rest"].mean(1)),
        "entropy": to_json(table["entropy"].mean(1)),
        "output": to_json(np.sqrt(table["output_ratio"].mean(1))),
        "first": to_json(table["first"].mean(1)),
        "random_keys": to_json(1.0 / random.mean(1)),
        "random_keys_rest": to_json(1.0 / random_rest.mean(1)),
    }


def needle_means(table: rows.Table) -> Fields:
    """Return the means over the rows that have a needle, for each head."""
    count = np.isfinite(table["weight"]).sum(1)
    with np.errstate(invalid="ignore"):
        return {name: to_json(np.nansum(column, 1) / count) for name, column in table.items()}


# --- needles --------------------------------------------------------------------------------------


def repeats() -> Work:
    """Yield the work on texts said twice; the needle is the next token of the first time."""
    for n, texts in REPEATS.items():
        for index in range(texts):
            yield {"tokens": n, "text": index}, partial(_repeat, index, n, tuple(REPEATS))


def _repeat(index: int, n: int, lengths: tuple[int, ...]) -> Fields:
    """Return the means over the rows of a text of n tokens that is said twice.

    Of a short text also the losses at `lengths`, as its rows foretell them.
    """
    model = MODELS["SmolLM2"]()
    twice = 2 * window(model, index, n // 2, SHIFT)
    [places] = rows.places_at_lengths([n], 2 * ROWS, index)
    ahead = lengths if n <= SHORT else ()
    at = rows.find_needles_in_repeat(twice, places)

    def see(logits: Tensor, *_: Tensor) -> dict[str, rows.Table]:
        return {"repeat": rows.needle_table(logits, at, ahead)}

    return {"needle": needle_means(rows.measure(model.module, twice, places, see)["repeat"])}


# --- the price of a scale -------------------------------------------------------------------------


def token_losses(model: Model, ids: list[int], chunk: int = 512) -> Tensor:
    """Return the loss of each token but the first, in nats."""
    module: Any = model.module
    hidden = module.base_model(torch.tensor([ids[:-1]])).last_hidden_state[0]
    following = torch.tensor(ids[1:])
    parts = [
        functional.cross_entropy(
            module.lm_head(hidden[i : i + chunk]), following[i : i + chunk], reduction="none"
        )
        for i in range(0, len(hidden), chunk)
    ]
    return torch.cat(parts).double()


@torch.no_grad()
def text_losses(index: int, lengths: tuple[int, ...], **change: Any) -> Fields:
    """Return the losses of a text under a change of the scale, arguments of `rescale`.

    Each is the mean of the tokens that see up to n tokens and more than the last n.
    """
    model = MODELS["SmolLM2"]()
    ids = window(model, index, lengths[-1] + 1, SHIFT)
    with rescale(**change) if change else nullcontext():
        losses = token_losses(model, ids)
    return {"losses": [to_json(float(losses[a:b].mean())) for a, b in pairwise((0, *lengths))]}


def price() -> Work:
    """Yield the work on each multiplier of all logits, 1 first."""
    for index, t in product(range(PRICE_TEXTS), sorted(rows.TIMES, key=lambda t: t != 1.0)):
        at = {"text": index, "times": round(t, 3)}
        yield at, partial(text_losses, index, PRICE_LENGTHS, factor=t)


def beyond() -> Work:
    """Yield the work on three multipliers beyond the length of training."""
    for index, t in product((0, 1), (1.0, 2**-0.25, 2**0.25)):
        at = {"text": index, "times": round(t, 3), "tokens": BEYOND}
        yield at, partial(text_losses, index, BEYOND_LENGTHS, factor=t)


def slopes() -> Work:
    """Yield the work on the derivative of the loss by log t of each head, at t = 1."""
    for index in range(2 * PRICE_TEXTS):
        yield {"text": index, "tokens": 2 * SHORT}, partial(_slopes, index)


def _slopes(index: int) -> Fields:
    """Return ∂L/∂log t of each head, L the loss of the later tokens of a text."""
    model = MODELS["SmolLM2"]()
    ids = window(model, index, 2 * SHORT + 1, SHIFT)
    gradient = scale_gradient(
        model.module, [ids], lambda _, ids: token_losses(model, ids)[SHORT // 2 :].mean()
    )
    return {"late": to_json(gradient.value.flatten())}


def layers() -> Work:
    """Yield the work on multipliers of one layer."""
    for index in range(PRICE_TEXTS):
        yield {"text": index, "layer": None}, partial(text_losses, index, (LAYER,))
        for layer, t in product(range(LAYERS), (2**-0.5, 2**0.5)):
            at = {"text": index, "layer": layer, "times": round(t, 3)}
            yield at, partial(text_losses, index, (LAYER,), factor=t, layers=[layer])


def policies() -> Work:
    """Yield the work on every policy in place of 1/√d, and on laws in n as factors.

    A law is a factor over its value at LENGTHS[-1] tokens.
    """
    for name, policy in POLICIES.items():
        for index in (0, 1):
            at = {"policy": name, "as": "scale", "text": index}
            change = {"policy": name, "normalize_qk": policy.applied_to == "cosine"}
            yield at, partial(text_losses, index, lengths_up_to(SHORT), **change)
    n = np.array([64.0, 2048.0, 65536.0])
    for name, policy in POLICIES.items():
        if policy.applied_to != "cosine" and np.ptp(policy.alpha(n, 64)) > 0.0:
            at = {"policy": name, "as": "factor", "text": 0}
            change = {"factor": name, "train_length": LENGTHS[-1]}
            yield at, partial(text_losses, 0, lengths_up_to(LENGTHS[-1]), **change)


def lengths_up_to(tokens: int) -> tuple[int, ...]:
    """Return the lengths of prices up to so many tokens."""
    return tuple(n for n in PRICE_LENGTHS if n <= tokens)


def faults() -> Work:
    """Yield the work on every known bug that is a wrong multiplier."""
    for bug, index in product(BUGS, (0, 1)):
        if bug.kind in MULTIPLIERS:
            yield {"bug": bug.name, "text": index}, partial(_faulty, bug, index)


def _faulty(bug: Bug, index: int) -> Fields:
    """Return the losses of a text with a bug, and its mean multiplier."""
    wrong = bug.ratio(SHORT)
    losses = text_losses(index, lengths_up_to(SHORT), factor=wrong)
    return {**losses, "times": to_json(float(np.mean(np.asarray(wrong)))), "kind": bug.kind}


# --- laws of others -------------------------------------------------------------------------------
# Dispersion (arXiv 2410.01104): range of the logits and largest weight; counting of gaps; vanishing
# variance (2504.02827): outputs for one query, of text after text.


def law_tables(
    model: nn.Module, ids: Sequence[int], places: Sequence[Places], ends: Places
) -> tuple[list[Fields], FloatArray]:
    """Run a model on a text; return its heads by the rows at the places of each length.

    And some components of the outputs at the ends, (ends, heads, components).
    """
    queries = np.concatenate([*places, ends])
    count = len(queries) - len(ends)

    def see(logits: Tensor, _: Tensor, outs: Tensor) -> dict[str, rows.Table]:
        chosen, step = logits[:, :count], outs.shape[-1] // COMPONENTS
        outputs = outs[:, count:, ::step].numpy()
        return {
            "whole": rows.tail_table(chosen),
            "rest": rows.tail_table(chosen[..., 1:]),
            "outputs": {"some": outputs},
        }

    tables = rows.measure(model, ids, queries, see)
    all_keys, rest = (split_by_length(tables[name], places) for name in ("whole", "rest"))
    return list(map(law_means, all_keys, rest)), tables["outputs"]["some"].swapaxes(0, 1)


def law_means(all_keys: rows.Table, rest: rows.Table) -> Fields:
    """Return each head's mean rows in a text, and Λ and t½ of each row without its first key."""
    return {
        "n": float(all_keys["n"].mean()),
        "range": to_json(all_keys["range"].mean(1)),
        "largest": to_json(all_keys["largest"].mean(1)),
        "largest_rest": to_json(rest["largest"].mean(1)),
        "tail": to_json(rest["tail"]),
        "half": to_json(rest["half"]),
    }


def laws_of_others() -> Work:
    """Yield the work on laws of others, text by text, and on outputs in texts of one source."""
    yield from every_text(_laws_both_sides, _laws_causal)
    computed = {
        "MiniLM": partial(_laws_both_sides, "MiniLM"),
        "SmolLM2": partial(_laws_causal, lengths=LENGTHS),
    }
    for model, i in product(computed, range(ONE_SOURCE)):
        index = len(SOURCES) * i
        at = {"model": model, "text": index, "source": SOURCES[0]}
        yield at, partial(computed[model], index)


def _laws_both_sides(name: str, index: int) -> Fields:
    """Return the rows of a text cut at several lengths, and the output of its first token."""
    model = MODELS[name]()
    texts = cut_text(model, index)
    rng = np.random.default_rng(index)
    tables, outputs = [], []
    for ids in texts:
        places = np.sort(rng.choice(np.arange(1, len(ids) - 1), LAW_ROWS, replace=False))
        [table], [output] = law_tables(model.module, ids, [places], np.array([0]))
        tables.append(table)
        outputs.append(to_json(output))
    fields: Fields = {"lengths": [len(ids) for ids in texts], "heads": tables}
    return {**fields, "outputs": outputs} if len(texts) > 1 else fields


def _laws_causal(index: int, lengths: tuple[int, ...]) -> Fields:
    """Return the rows of one text at several places, and its output at a comma near each."""
    model = MODELS["SmolLM2"]()
    ids = window(model, index, lengths[-1])
    places = rows.places_at_lengths(lengths, LAW_ROWS, index)
    commas = np.flatnonzero(np.array(ids) == model.reads(COMMA)[0])
    ends = [int(max(commas[(n // 2 <= commas) & (commas < n)], default=-1)) for n in lengths]
    tables, outputs = law_tables(model.module, ids, places, np.maximum(ends, 0))
    outputs[np.array(ends) < 0] = math.nan
    return {"lengths": list(lengths), "heads": tables, "ends": ends, "outputs": to_json(outputs)}


PARTS: dict[str, Callable[[], Work]] = {
    "atlas": partial(every_text, _both_sides, _causal),
    "repeats": repeats,
    "price": price,
    "slopes": slopes,
    "layers": layers,
    "policies": policies,
    "faults": faults,
    "beyond": beyond,
    "laws": laws_of_others,
    "shown": shown_work,
}


SETTINGS: Fields = {
    "packages": {name: package._asdict() for name, package in package_files.PACKAGES.items()},
    "lengths": [LENGTHS, LONG_LENGTHS, ENGLISH_LENGTHS, ANTIBODY_LENGTHS],
    "rows": ROWS,
    "texts": TEXTS,
    "repeats": {str(n): count for n, count in REPEATS.items()},
    "price": [PRICE_LENGTHS, PRICE_TEXTS, SHORT, LAYER, BEYOND_LENGTHS, SHIFT],
    "times": [round(t, 3) for t in rows.TIMES],
    "laws": [LAW_ROWS, ONE_SOURCE, COMPONENTS, COMMA],
}
"""Everything but the code on which the numbers depend."""

"""What the probe knows of the tokens: padding, positions in generation, and targets."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from attnlib.probing import measure, probe
from attnlib.probing.observer import Observer
from attnlib.probing.sample import restrict_call
from attnlib.probing.tokens import NONE, TokenTracker
from tests.library import foreign
from tests.library.test_probing import Caller, qkv
from tests.library.test_probing import blocks as blocks  # a fixture

HEADS, LENGTH, SHORT = foreign.HEADS, foreign.LENGTH, foreign.SHORT
REAL = ~foreign.PADDING
LEFT = REAL.flip(1)


def known(model, run, mask=None, targets=None):
    """Return what is known of the queries of each call, by layer."""
    queries = {}
    observer = Observer(
        model,
        lambda layer, number, call, output: queries.setdefault(layer, call.queries),
        TokenTracker(mask, targets),
    )
    with observer.at_work():
        run()
    observer.finish()
    return queries


def few_tokens():
    return torch.randint(0, 4, (2, LENGTH), generator=torch.Generator().manual_seed(5))


# --- padding --------------------------------------------------------------------------------------

OWN = torch.arange(9) >= torch.tensor([[5], [9]])


def transformer():
    torch.manual_seed(0)
    model = nn.Transformer(32, HEADS, 1, 1, 48, batch_first=True)
    masks = {f"{name}_key_padding_mask": foreign.PADDING for name in ("src", "memory")}
    return model, lambda: model(
        foreign.vectors(), foreign.vectors(9), **masks, tgt_key_padding_mask=OWN
    )


@torch.no_grad()
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (foreign.llama_with_padding, (LEFT, LEFT)),
        (foreign.encoder_with_padding, (REAL, REAL)),
        (transformer, (REAL, ~OWN, ~OWN)),  # in the decoder its own tokens'
    ],
)
def test_padding_is_what_the_model_is_told_or_the_probe(build, expected):
    model, run = build()
    by_layer = known(model, run)
    assert len(by_layer) == len(expected)
    for queries, real in zip(by_layer.values(), expected, strict=True):
        assert torch.equal(queries.real, real)
    if len(expected) == 2:
        for mask in (LEFT, LEFT.long().tolist()):
            assert all(torch.equal(call.real, LEFT) for call in known(model, run, mask).values())
    assert all(call.real is None for call in known(model, run, mask=False).values())


# --- targets --------------------------------------------------------------------------------------


def by_hand(logits, places):
    """Return gap, weight, κ and κ′(1) of each row with a target, (4, batch, heads, queries)."""
    statistics = np.full((4, *logits.shape[:3]), np.nan)
    for batch, head, row in np.ndindex(*logits.shape[:3]):
        place, own = int(places[batch][row]), logits[batch, head, row]
        seen = own > -math.inf
        if place < 0 or not seen[place] or seen.sum() < 2:
            continue
        weight = torch.softmax(own, 0)[place]
        seen[place] = False
        centred = own[seen] - own[seen].mean()
        gap = own[place] - own[seen].mean()
        slope = torch.softmax(centred, 0) @ centred
        statistics[:, batch, head, row] = gap, weight, centred.exp().mean().log(), slope
    return statistics


PLACES = np.random.default_rng(3).integers(-1, 11, (2, 11))
SOME = torch.from_numpy(np.random.default_rng(4).random((2, 1, 11, 11)) < 0.6)
CALLS = {
    "scale": {"scale": 1.7},
    "hiding numbers": {"attn_mask": torch.where(SOME, 0.0, -1e9)},
    "negative scale": {"scale": -0.7, "is_causal": True},
}


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", CALLS)
def test_targets_of_an_array(name):
    q, k, v = qkv(key_heads=2)
    options = CALLS[name]
    with probe(model := Caller(), targets=PLACES.tolist(), theory=False) as report:
        model(3.0 * q, k, v, enable_gqa=True, **options)
    named = {"mask" if name == "attn_mask" else name: value for name, value in options.items()}
    logits = measure.logits(measure.Call(3.0 * q, k, v, enable_gqa=True, **named))
    expected = by_hand(logits, PLACES)
    table = report.table()
    for head in range(HEADS):
        for column, numbers in zip(
            ("target_gap", "target_weight", "target_kappa"), expected[:3, :, head], strict=True
        ):
            numbers = numbers[~np.isnan(numbers)]
            assert table["targets"][head] == len(numbers) > 5
            assert table[column][head] == pytest.approx(numbers.mean(), rel=3e-6, abs=3e-6)
        gap, weight, _, slope = expected[:, :, head]
        lost, lost_gap, lost_slope = (np.nansum((1 - weight) * x) for x in (1, gap, slope))
        assert table["target_slope"][head] == pytest.approx(lost_slope / lost, rel=1e-5)
        assert table["target_ratio"][head] == pytest.approx(lost_gap / lost_slope, rel=1e-5)


def test_a_target_far_above_the_others_has_its_digits():
    q, k = torch.tensor([[[[1.0]] * 3]]), torch.tensor([[[[60.0], [0.5], [0.0]]]])
    with probe(model := Caller(), targets=[[0, 0, 0]], theory=False) as report:
        model(q, k, k, scale=1.0)
    line = report.table().loc[0]
    assert line["target_gap"] == pytest.approx(59.75, rel=1e-6)
    assert line["target_kappa"] == pytest.approx(math.log(math.cosh(0.25)), rel=1e-4)
    assert line["target_weight"] == pytest.approx(1.0, rel=1e-7)


def last_earlier(ids, real):
    return [
        [
            max((j for j in range(i) if row[j] == row[i] and shown[j] and shown[i]), default=NONE)
            for i in range(len(row))
        ]
        for row, shown in zip(ids.tolist(), real.tolist(), strict=True)
    ]


NAMED = {
    "previous": lambda ids, real: [
        [i - 1 if i and shown[i - 1] else NONE for i in range(len(shown))] for shown in real
    ],
    "duplicate": last_earlier,
    "induction": lambda ids, real: [
        [place + 1 if place >= 0 and shown[place + 1] else NONE for place in row]
        for row, shown in zip(last_earlier(ids, real), real, strict=True)
    ],
}


@pytest.mark.parametrize("name", NAMED)
def test_targets_by_name_are_no_padding(name):
    model, ids = foreign.llama(), few_tokens()
    real = LEFT.clone()
    real[0, 4] = False
    by_layer = known(model, lambda: model(input_ids=ids, attention_mask=real.long()), None, name)
    for queries in by_layer.values():
        assert queries.target.tolist() == NAMED[name](ids, real)


def test_a_function_of_the_tokens():
    given = []

    def mine(tokens):
        given.append(tokens)
        return torch.full(tokens.shape, 2)

    model, ids = foreign.llama(), few_tokens()
    by_layer = known(model, lambda: model(ids), targets=mine)
    assert len(given) == 1
    assert torch.equal(given[0], ids)
    assert all((queries.target == 2).all() for queries in by_layer.values())
    with pytest.raises(ValueError, match=r"integers of shape \(2, 12\)"):
        known(model, lambda: model(ids), targets=lambda tokens: tokens[:, :3])


SHIFTED = torch.arange(11).expand(2, -1) - 1
"""The key before each query's own."""


def test_a_sample_is_of_the_rows_it_says():
    q, k, v = qkv()
    call = measure.Call(q, k, v, is_causal=True, queries=measure.Queries(target=SHIFTED))
    some, part = restrict_call(call, v, [1], [2, 5, 9])
    every, sampled = measure.measure(call, v), measure.measure(some, part)
    # The outputs' mean differs.
    both = (table.rows._replace(output_square=table.rows.keys) for table in (every, sampled))
    for whole, few in zip(*both, strict=True):
        np.testing.assert_allclose(few[0], whole[1][:, [2, 5, 9]], rtol=1e-5, atol=2e-6)

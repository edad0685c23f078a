"""What the probe knows of the tokens: padding, positions in generation, and targets."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from attnlib.probing import probe
from attnlib.probing.measure import Call
from attnlib.probing.tokens import NONE, Reader, Tokens, earlier
from tests.library import foreign
from tests.library.test_probing import Caller, by_full_weights, calls_of, draw, qkv
from tests.library.test_probing import blocks as blocks  # a fixture

HEADS, LENGTH, SHORT = foreign.HEADS, foreign.LENGTH, foreign.SHORT
REAL = ~foreign.PADDING
SIDES = {"right": REAL, "left": REAL.flip(1)}


def gpt2():
    return foreign.gpt2_with_padding()[0]


MODELS = {"GPT-2": gpt2, "Llama, grouped queries": foreign.llama}


def both(name, side):
    return MODELS[name](), SIDES[side]


# --- padding --------------------------------------------------------------------------------------


def of_real_queries(calls, real):
    """Return the calls, one for each sequence, for the queries that are no padding."""
    for q, k, v, mask, is_causal, scale in calls:
        if mask is None:
            mask = torch.ones(q.shape[-2], k.shape[-2]).tril().bool() if is_causal else None
        for i, kept in enumerate(real):
            own = mask
            if mask is not None:
                own = mask.expand(*q.shape[:3], k.shape[-2])[i, :, kept]
            yield q[i : i + 1, :, kept], k[i : i + 1], v[i : i + 1], own, False, scale


def means(lines):
    """Return the means over the sequences, weighted by their rows."""
    weights = [line["rows"] for line in lines]
    return {
        name: np.average([line[name] for line in lines], weights=weights)
        for name in ("keys", "collision_probability", "entropy", "first_weight", "largest_weight")
    } | {"rows": sum(weights)}


def assert_real_rows(report, calls, real):
    table, per_sequence = report.table(), list(of_real_queries(calls, real))
    batch = len(real)
    for layer in range(len(calls)):
        lines = by_full_weights(per_sequence[batch * layer : batch * (layer + 1)])
        heads = len(lines) // batch
        for head in range(heads):
            expected = means(lines[head::heads])
            line = table.loc[layer * heads + head]
            for name, number in expected.items():
                assert line[name] == pytest.approx(number, rel=3e-6), name


@pytest.mark.parametrize(
    ("name", "side"), [("GPT-2", "right"), ("GPT-2", "left"), ("Llama, grouped queries", "left")]
)
def test_padding_is_no_row_where_the_model_or_the_probe_is_told(name, side, monkeypatch):
    model, real = both(name, side)

    def run():
        return model(foreign.tokens(), attention_mask=real.long())

    calls = calls_of(run, monkeypatch)
    with probe(model, theory=False) as report:
        run()
    assert_real_rows(report, calls, real)
    assert report.padding == (LENGTH - SHORT) * HEADS * 2
    with probe(model, mask=False, theory=False) as every:
        run()
    assert every.padding == 0
    left_out = len(every.rows()) - len(report.rows())  # on the left they see no key
    assert left_out == (0 if side == "left" else report.padding)
    rows = report.rows()
    positions = rows[(rows.sequence == 1) & (rows["head"] == 0)]["query"].unique()
    assert set(positions) <= set(np.flatnonzero(real[1]))

    calls = calls_of(lambda: model(foreign.tokens()), monkeypatch)
    with probe(model, mask=real.long().tolist(), theory=False) as report:
        model(foreign.tokens())
    assert_real_rows(report, calls, real)


@pytest.mark.parametrize("name", ["torch encoder, padding", "BERT, padding"])
def test_padding_of_other_modules(name, monkeypatch):
    model, run = foreign.MODELS[name]()
    calls = calls_of(run, monkeypatch)
    with torch.no_grad(), probe(model, theory=False) as report:
        run()
    assert_real_rows(report, calls, REAL)


def test_a_mask_may_come_without_a_name_or_in_a_wrapper():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, features):
            return self.inner(**features)

    model, _ = foreign.MODELS["BERT, padding"]()
    ids, mask = foreign.tokens(), REAL.long()
    left_out = (LENGTH - SHORT) * HEADS * 2
    for outer, given in [
        (model, (ids, mask)),
        (Wrapper(model), ({"input_ids": ids, "attention_mask": mask},)),
    ]:
        with probe(outer, theory=False) as report:
            outer(*given)
        assert report.padding == left_out
    with probe(model, theory=False) as report:
        model(inputs_embeds=foreign.vectors(), attention_mask=REAL)
    assert report.padding == left_out

    class Own(nn.Module):
        def forward(self, x, attention_mask):
            x = x[:, None]
            hidden = attention_mask[:, None, None].bool()
            return functional.scaled_dot_product_attention(x, x, x, hidden)

    model, x = Own(), foreign.vectors()
    with probe(model, theory=False) as report:
        model(x, REAL)
        model(x, attention_mask=REAL.long())
    assert report.padding == 2 * (LENGTH - SHORT)
    assert report.table()["rows"][0] == 2 * (LENGTH + SHORT)


def test_padding_of_a_decoder_is_that_of_its_own_tokens(monkeypatch):
    torch.manual_seed(0)
    model = foreign.sharpened(nn.Transformer(32, HEADS, 1, 1, 48, batch_first=True))
    own = torch.arange(9) >= torch.tensor([[5], [9]])

    def run():
        return model(
            foreign.vectors(),
            foreign.vectors(9),
            src_key_padding_mask=foreign.PADDING,
            tgt_key_padding_mask=own,
            memory_key_padding_mask=foreign.PADDING,
        )

    calls = calls_of(run, monkeypatch)
    with probe(model, theory=False) as report:
        run()
    table = report.table()
    rows = dict(zip(table["layer"], table["rows"], strict=True))
    assert rows == {
        "encoder.layers.0.self_attn": LENGTH + SHORT,
        "decoder.layers.0.self_attn": 14,
        "decoder.layers.0.multihead_attn": 14,
    }
    first = 2 * HEADS
    assert len(calls) == 3
    crossed = by_full_weights(
        [
            (q[i : i + 1, :, :n], k[i : i + 1], v[i : i + 1], mask[i : i + 1])
            for q, k, v, mask, *_ in calls[2:]
            for i, n in enumerate([5, 9])
        ]
    )
    for head in range(HEADS):
        expected = means(crossed[head::HEADS])
        assert table["entropy"][first + head] == pytest.approx(expected["entropy"], rel=3e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_values_and_first_key_are_those_that_real_queries_see(masked):
    q, k, v = qkv()
    real = torch.ones(2, 11, dtype=torch.bool)
    real[:, 7:] = False
    causal = torch.ones(11, 11, dtype=torch.bool).tril()
    causal[:7, 0] = not masked  # then only padding sees the first key
    options = {"attn_mask": causal} if masked else {"is_causal": True}
    with probe(model := Caller(), mask=real, theory=False) as report:
        model(q, k, v, **options)
    own = causal[:7, :7]
    for head, expected in enumerate(
        by_full_weights([(q[:, :, :7], k[:, :, :7], v[:, :, :7], own)])
    ):
        for name, number in expected.items():
            assert report.table()[name][head] == pytest.approx(number, rel=3e-6), name


def test_a_batch_of_padding_has_no_rows():
    with probe(model := Caller(), mask=np.zeros((2, 11))) as report:
        model(*qkv())
    assert (report.table()["rows"] == 0).all()
    assert report.table()["value_std"].isna().all()
    assert report.not_finite == []
    assert len(report.rows()) == 0


# --- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "none"])
def test_generation_counts_positions_on(side):
    model = foreign.llama(bos_token_id=1, eos_token_id=None)
    real = torch.ones(2, LENGTH, dtype=torch.bool) if side == "none" else SIDES["left"]
    with torch.no_grad():
        with probe(model, targets="duplicate", theory=False) as whole:
            model(foreign.tokens(), attention_mask=real.long())
        with probe(model, targets="duplicate", theory=False) as decoded:
            kept = None
            for start, stop in [(0, 7), (7, 8), (8, 11), (11, 12)]:
                output = model(
                    foreign.tokens()[:, start:stop],
                    attention_mask=real[:, :stop].long() if side == "left" else None,
                    past_key_values=kept,
                    use_cache=True,
                )
                kept = output.past_key_values
    order = ["layer", "head", "sequence", "query"]
    found, expected = (one.rows().sort_values(order, ignore_index=True) for one in (decoded, whole))
    assert len(found) == len(expected)
    for name in (*order, "keys"):
        assert list(found[name]) == list(expected[name]), name
    for name in ("alpha", "entropy", "target_weight", "target_gap", "target_kappa"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-5)
    assert found["target_gap"].notna().any()


def test_generate_is_one_sequence_for_each_of_the_batch():
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    config = foreign.llama(bos_token_id=1, eos_token_id=None, pad_token_id=0).config
    config.max_position_embeddings = 40
    model = LlamaForCausalLM(config).eval()
    with probe(model, targets="induction", theory=False) as report:
        text = model.generate(
            foreign.tokens()[:, :6],
            attention_mask=SIDES["left"][:, -6:].long(),
            max_new_tokens=7,
            do_sample=False,
        )
    rows = report.rows()
    one = rows[(rows["layer"] == rows["layer"][0]) & (rows["head"] == 0)]
    assert sorted(one["sequence"].unique()) == [0, 1]
    assert list(one[one.sequence == 0]["query"]) == list(range(1, 12))
    ids = text[0].tolist()
    wanted = [i for i in range(1, 12) if ids[i] in ids[:i]]
    assert list(one[(one.sequence == 0) & one["target_gap"].notna()]["query"]) == wanted


def test_tokens_that_were_kept_elsewhere_are_unknown():
    model, ids = foreign.llama(bos_token_id=1, eos_token_id=None), few_tokens()
    with torch.no_grad():
        other = model(ids[:, :8].flip(1), use_cache=True).past_key_values
        with probe(model, targets="duplicate", theory=False) as report:
            kept = model(ids[:, :7], use_cache=True).past_key_values
            model(ids[:, 7:8], past_key_values=kept)
            known = report.table()["targets"]
            model(ids[:, 8:], past_key_values=other)
    assert (report.table()["targets"] == known).all()
    assert (report.table()["rows"] == 2 * (6 + 1 + 4)).all()


def test_a_window_moves_the_targets():
    places = [[NONE, 0, 1, 2, 3, 4]]
    reader = Reader(targets=places)
    for past, keys, wanted in ((4, 5, 3), (4, 3, 1), (5, 1, NONE)):  # the last keys are kept
        call = Call(*(draw(1, 1, n, 4) for n in (1, keys, keys)))
        assert reader.queries(Tokens(1, past), call).target.tolist() == [[wanted]]


# --- targets --------------------------------------------------------------------------------------


def by_hand(q, k, places, seen, scale):
    """Return gap, weight and κ of each row with a target, (batch, heads, queries), in float64."""
    q, k = q.detach().double(), k.detach().double()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = scale * (q @ k.mT)
    found = np.full((3, *logits.shape[:3]), np.nan)
    for batch, head, row in np.ndindex(*logits.shape[:3]):
        visible = seen.expand(*logits.shape)[batch, head, row]
        place = int(places[batch][row])
        if place < 0 or not visible[place] or visible.sum() < 2:
            continue
        target, others = logits[batch, head, row, place], visible.clone()
        others[place] = False
        centred = logits[batch, head, row][others]
        mean = centred.mean()
        weight = torch.softmax(logits[batch, head, row][visible], 0)
        found[:, batch, head, row] = (
            target - mean,
            weight[visible[:place].sum()],
            torch.log(torch.exp(centred - mean).mean()),
        )
    return found


def assert_targets(report, q, k, places, seen, scale=None, rtol=3e-6):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    expected = by_hand(q, k, places, seen, scale)
    table, rows = report.table(), report.rows()
    heads = expected.shape[2]
    assert len(table) == heads
    for head in range(heads):
        per_head = expected[:, :, head]
        known = ~np.isnan(per_head[0])
        assert table["targets"][head] == known.sum()
        own = rows[rows["head"] == head]
        for i, name in enumerate(["target_gap", "target_weight", "target_kappa"]):
            numbers = per_head[i][known]
            mean = numbers.mean() if numbers.size else math.nan
            assert table[name][head] == pytest.approx(mean, rel=rtol, abs=rtol, nan_ok=True), name
            np.testing.assert_allclose(own[name].dropna(), numbers, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(
            own["target_weight"],
            1.0 / (1.0 + (own["keys"] - 1.0) * np.exp(own["target_kappa"] - own["target_gap"])),
            rtol=2e-5,
            atol=1e-37,  # the least of single precision
        )


PLACES = np.random.default_rng(3).integers(-1, 11, (2, 11))
CAUSAL = torch.ones(11, 11, dtype=torch.bool).tril()
SOME = torch.from_numpy(np.random.default_rng(4).random((2, 1, 11, 11)) < 0.6)
CALLS = {
    "scale": ({"scale": 1.7}, torch.ones(11, 11, dtype=torch.bool)),
    "hiding numbers": ({"attn_mask": torch.where(SOME, 0.0, -1e9)}, SOME),
    "negative scale": ({"scale": -0.7, "is_causal": True}, CAUSAL),
}


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", CALLS)
def test_targets_of_an_array(name):
    options, seen = CALLS[name]
    q, k, v = qkv(key_heads=2)
    for places in (PLACES.tolist(), torch.from_numpy(PLACES)):
        with probe(model := Caller(), targets=places, theory=False) as report:
            model(3.0 * q, k, v, enable_gqa=True, **options)
        assert_targets(report, 3.0 * q, k, PLACES, seen, options.get("scale"))


def test_a_target_far_above_the_others_has_its_digits():
    q, k = torch.tensor([[[[1.0]] * 3]]), torch.tensor([[[[60.0], [0.5], [0.0]]]])
    with probe(model := Caller(), targets=[[0, 0, 0]], theory=False) as report:
        model(q, k, k, scale=1.0)
    line = report.table().loc[0]
    assert line["target_gap"] == pytest.approx(59.75, rel=1e-6)
    assert line["target_kappa"] == pytest.approx(math.log(math.cosh(0.25)), rel=1e-4)
    assert line["target_weight"] == pytest.approx(1.0, rel=1e-7)

    x = torch.zeros(1, 1, 5, 4)
    with probe(model := Caller(), targets="previous", theory=False) as report:
        model(x, x, x)
    line = report.table().loc[0]
    assert line["targets"] == 4
    assert line["target_gap"] == 0.0
    assert line["target_weight"] == pytest.approx(0.2)
    assert line["target_kappa"] == pytest.approx(0.0, abs=1e-7)


def last_earlier(ids, real, after=0):
    return [
        [
            max(
                (j for j in range(i) if row[j] == row[i] and shown[j] and shown[i]),
                default=-1 - after,
            )
            + after
            for i in range(len(row))
        ]
        for row, shown in zip(ids.tolist(), real.tolist(), strict=True)
    ]


def previous(ids, real):
    return [[i - 1 if i and shown[i - 1] else -1 for i in range(len(shown))] for shown in real]


NAMED = {
    "previous": previous,
    "duplicate": last_earlier,
    "induction": lambda ids, real: last_earlier(ids, real, after=1),
}


def few_tokens():
    return torch.randint(0, 4, (2, LENGTH), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", NAMED)
def test_targets_by_name(name, monkeypatch):
    model, real = both("Llama, grouped queries", "left")
    ids = few_tokens()

    def run():
        return model(input_ids=ids, attention_mask=real.long())

    calls = calls_of(run, monkeypatch)
    with probe(model, targets=name, theory=False) as report:
        run()
    places = NAMED[name](ids, real)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    seen = causal & real[:, None, None, :] & real[:, None, :, None]
    (q, k, *_, scale), _ = calls
    table = report.table()
    report_of_first = table[table["layer"] == table["layer"][0]].reset_index(drop=True)
    expected = by_hand(q, k, places, seen, scale)
    assert np.isfinite(expected[0]).sum() > 20
    for i, column in enumerate(["target_gap", "target_weight", "target_kappa"]):
        for head in range(HEADS):
            number = np.nanmean(expected[i][:, head])
            assert report_of_first[column][head] == pytest.approx(number, rel=1e-5), column


def test_a_function_of_the_tokens():
    model, ids = gpt2(), few_tokens()
    seen = []

    def mine(tokens):
        seen.append(tokens)
        return torch.full(tokens.shape, 2)

    with probe(model, targets=mine, theory=False) as report:
        model(ids)
    assert len(seen) == 1
    assert torch.equal(seen[0], ids)
    assert (report.table()["targets"] == 2 * (LENGTH - 2)).all()  # those before see it not
    short = probe(model, targets=lambda tokens: tokens[:, :3])
    with pytest.raises(ValueError, match=r"integers of shape \(2, 12\)"), short:
        model(ids)


def test_a_model_of_ones_own_is_called_with_tokens_first():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 8)

        def forward(self, tokens):
            x = self.embed(tokens)[:, None]
            return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    torch.manual_seed(0)
    ids = few_tokens()
    with probe(model := Own(), targets="duplicate") as report:
        model(ids)
    x = model.embed(ids)[:, None]
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    assert_targets(report, x, x, last_earlier(ids, torch.ones_like(ids)), causal)


def test_crossed_attention_has_no_targets():
    model, run = foreign.decoder_with_padding()
    with probe(model, targets="previous", theory=False) as report:
        run()
    targets = report.table().groupby("layer")["targets"].max()
    assert dict(targets) == {
        "layers.0.multihead_attn": 0,
        "layers.0.self_attn": 2 * 8,
        "layers.1.multihead_attn": 0,
        "layers.1.self_attn": 2 * 8,
    }


def test_padding_is_no_target():
    model, real = both("GPT-2", "left")
    for targets in ("previous", last_earlier(torch.zeros(2, LENGTH), torch.ones(2, LENGTH))):
        with probe(model, mask=real, targets=targets, theory=False) as report:
            model(foreign.tokens())
        assert (report.table()["targets"] == LENGTH + SHORT - 2).all()
        rows = report.rows()
        first = rows[(rows["sequence"] == 1) & (rows["query"] == LENGTH - SHORT)]
        assert first["target_gap"].isna().all()
        assert len(first) == 2 * HEADS


def test_a_mask_and_targets_that_fit_no_call_are_named():
    model, square, other = Caller(), qkv(), qkv(5, 9)
    for options, tensors, message in (
        ({"targets": "previous"}, other, "targets='previous': no row has one"),
        ({"targets": "induction"}, square, "targets='induction': no row has one"),
        ({"targets": np.zeros((3, 11), int)}, square, r"targets=array\(\[\[0.*: no row has one"),
        ({"mask": [[1] * 5] * 2}, square, r"mask of shape \(2, 5\): no call has such queries"),
    ):
        with pytest.warns(UserWarning, match=message), probe(model, **options):
            model(*tensors)


def test_without_targets_there_are_no_such_columns():
    with probe(model := Caller(), theory=False) as report:
        model(*qkv())
    assert not [name for name in report.table().columns if name.startswith("target")]
    assert not [name for name in report.rows().columns if name.startswith("target")]
    assert "target_gap" not in report.definitions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": "next"}, "targets must be one of 'previous', 'duplicate', 'induction'"),
        ({"targets": [[0.5]]}, r"targets must be integers of shape \(batch, tokens\)"),
        ({"targets": [[1], [1, 2]]}, "targets must be integers"),
        ({"targets": np.zeros((1, 2, 3), int)}, "targets must be integers"),
        ({"mask": [1, 1]}, "mask must be of shape"),
        ({"mask": [[0.5]]}, "mask must be of shape"),
        ({"mask": True}, "mask must be of shape"),
        ({"mask": [[1], [1, 0]]}, "mask must be of shape"),
        ({"rows": 0}, "rows must be from 1"),
        ({"rows": 1.5}, "rows must be an integer"),
    ],
)
def test_what_it_does_not_take(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        probe(Caller(), **options).__enter__()


def test_the_last_earlier_place_by_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids, real = rng.integers(0, 4, (3, 9)), rng.random((3, 9)) < 0.8
        assert earlier(ids, real).tolist() == last_earlier(ids, real)
        assert earlier(ids, None).tolist() == last_earlier(ids, np.ones_like(real))
    assert earlier(np.zeros((2, 0), int), None).shape == (2, 0)


# --- a sample of the rows -------------------------------------------------------------------------


def test_a_sample_is_of_the_rows_it_says():
    model, real = both("Llama, grouped queries", "left")
    ids = few_tokens().repeat(4, 1)
    masks = real.repeat(4, 1).long()
    found = []
    for rows in (None, 20):
        with probe(model, rows=rows, targets="duplicate", theory=False) as report:
            model(ids, attention_mask=masks)
            model(ids.flip(0), attention_mask=masks.flip(0))
        found.append(report.rows())
    every, some = found
    place = ["layer", "head", "sequence", "query"]
    one = some[(some["layer"] == some["layer"][0]) & (some["head"] == 0)]
    assert 20 <= len(one) <= 2 * 20
    assert one["sequence"].nunique() == 8  # four of each call
    assert one["sequence"].max() >= 8
    both_found = some.merge(every, on=place, suffixes=("", "_all"))
    assert len(both_found) == len(some)
    for column in ("keys", "alpha", "entropy", "largest_logit", "target_gap", "target_weight"):
        # The first key that the chosen queries see may be another, and what is near 0 is a
        # difference of logits of up to 4, in float32.
        np.testing.assert_allclose(
            both_found[column], both_found[f"{column}_all"], rtol=1e-5, atol=2e-5
        )


def test_tokens_beyond_a_mask_are_no_padding():
    reader = Reader(mask=[[0, 1, 1]], targets="previous")
    for past, wanted in ((1, -1), (2, 1), (3, 2), (4, 3)):
        call = Call(*(draw(1, 1, n, 4) for n in (1, past + 1, past + 1)))
        found = reader.queries(Tokens(1, past), call)
        assert found.target.tolist() == [[wanted]]
        assert found.real.tolist() == [[True]]

"""What a report keeps: exact sums of all rows, and of many rows a random sample."""

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.probing import probe, report
from attnlib.probing.measure import Measured, Rows
from attnlib.probing.tally import PARTS, Tally
from tests.library.test_probing import Caller, draw

HEADS, LENGTH = 3, 20
ROWS = 60 * 4 * (LENGTH - 1)
"""Of each head, in 60 calls of 4 sequences whose first query sees one key."""


def measured(calls=60, **options):
    with probe(model := Caller(), theory=False, **options) as found:
        for seed in range(calls):
            inputs = [draw(4, HEADS, LENGTH, 6, seed=10 * seed + i) for i in range(3)]
            model(*inputs, is_causal=True)
    return found


@pytest.fixture(scope="module")
def whole():
    return measured(targets="previous")


def test_up_to_a_number_all_rows_are_kept(whole, monkeypatch):
    assert len(whole.rows()) == HEADS * ROWS
    monkeypatch.setattr(report, "KEPT", HEADS * ROWS)
    pd.testing.assert_frame_equal(measured(targets="previous").rows(), whole.rows())


def test_of_more_there_are_sums_of_all_and_a_sample(whole, monkeypatch):
    kept, every = 400, whole.rows()
    monkeypatch.setattr(report, "KEPT", HEADS * kept + 2)
    sampled = measured(targets="previous")
    with pytest.warns(UserWarning, match=f"rows has a random sample, of {kept} rows") as caught:
        some = sampled.rows()
    assert caught[0].filename == __file__
    tables = (one.table().drop(columns="gradient_median") for one in (sampled, whole))
    pd.testing.assert_frame_equal(*tables, rtol=1e-14, atol=0.0)

    # They are rows of all heads at the same places, each as it was.
    merged = some.merge(every, on=["head", "sequence", "query"], suffixes=("", "_all"))
    assert len(merged) == len(some) == HEADS * kept
    assert (merged["entropy"] == merged["entropy_all"]).all()
    assert some.groupby(["sequence", "query"])["head"].nunique().eq(HEADS).all()
    assert all(one["sequence"].is_monotonic_increasing for _, one in some.groupby("head"))
    # The sample is even over the run.
    quarters = np.bincount(some["sequence"] // 60) / HEADS
    assert np.abs(quarters - kept / 4).max() < 4 * np.sqrt(kept / 4)
    # The rank of the median has the standard error 1/(2√k).
    for head in range(HEADS):
        own = every[every["head"] == head]["gradient"]
        rank = (own < sampled.table()["gradient_median"][head]).mean()
        assert abs(rank - 0.5) < 4 * 0.5 / np.sqrt(kept)


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(report, "KEPT", HEADS * 400)
    (tally,) = measured()._tallies.values()
    assert sum(len(part.drawn) for part in tally._parts) <= 2 * 400
    assert tally.lengths.shape == (HEADS, LENGTH + 1)


def test_many_calls_of_one_row_are_put_together():
    with probe(model := Caller(), theory=False) as found:
        for seed in range(PARTS + 10):
            model(draw(1, 1, 1, 4, seed=seed), *(draw(1, 1, 5, 4, seed=i) for i in range(2)))
        (tally,) = found._tallies.values()
        assert len(tally._parts) < 20
    assert list(found.rows()["sequence"]) == list(range(PARTS + 10))


def test_a_row_is_kept_if_one_of_the_heads_sees_two_keys():
    mask = torch.stack([torch.ones(4, 4, dtype=torch.bool), torch.eye(4, dtype=torch.bool)])
    with probe(model := Caller(), theory=False) as found:
        model(*(draw(1, 2, 4, 6, seed=i) for i in range(3)), attn_mask=mask[None])
    rows = found.rows()
    assert rows["query"].tolist() == [0, 1, 2, 3]
    assert set(rows["head"]) == {0}
    assert found.table()["rows"].tolist() == [4, 0]


def test_each_generation_is_of_other_sequences():
    tally = Tally(1)
    rows = Rows(*np.full((len(Rows._fields), 2, 1, 1), 3.0))
    for past in (0, 1, 2, 0, 1, 2):
        place = np.array([0, 1]), np.full((2, 1), past)
        tally.add(Measured(rows, None, np.ones((2, 1)), 4, 1.0, *place, 2, past, 5), 100)
    assert tally.kept(100).place[0].tolist() == [0, 1] * 3 + [2, 3] * 3
    assert tally.padding == 30

"""What a report keeps: exact sums of all rows, and of many rows a random sample."""

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.probing import probe, report
from attnlib.probing.tally import PARTS
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


def test_of_more_there_are_sums_of_all_and_a_sample(monkeypatch):
    whole = measured(targets="previous")
    kept, every = 400, whole.rows()
    assert len(every) == HEADS * ROWS
    monkeypatch.setattr(report, "KEPT", HEADS * kept + 2)
    sampled = measured(targets="previous")
    (tally,) = sampled._tallies.values()
    assert sum(len(part.drawn) for part in tally._parts) <= 2 * kept
    with pytest.warns(UserWarning, match=f"rows has a random sample, of {kept} rows") as caught:
        some = sampled.rows()
    assert caught[0].filename == __file__
    pd.testing.assert_frame_equal(sampled.table(), whole.table(), rtol=1e-14, atol=0.0)

    # They are rows of all heads at the same places, each as it was.
    merged = some.merge(every, on=["head", "sequence", "query"], suffixes=("", "_all"))
    assert len(merged) == len(some) == HEADS * kept
    assert (merged["entropy"] == merged["entropy_all"]).all()
    assert some.groupby(["sequence", "query"])["head"].nunique().eq(HEADS).all()
    assert all(one["sequence"].is_monotonic_increasing for _, one in some.groupby("head"))
    # The sample is even over the run.
    quarters = np.bincount(some["sequence"] // 60) / HEADS
    assert np.abs(quarters - kept / 4).max() < 4 * np.sqrt(kept / 4)


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

"""What a report keeps: exact sums, a sample of many rows; merging, saving and loading."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.probing import Report, probe, report
from attnlib.probing.measure import Measured, Rows
from attnlib.probing.tally import Tally
from tests.library.test_probing import Caller, draw

HEADS, LENGTH = 3, 20


def inputs(seed, batch=4, length=LENGTH):
    return [draw(batch, HEADS, length, 6, seed=10 * seed + i) for i in range(3)]


def measured(seeds, **options):
    with probe(model := Caller(), theory=False, **options) as found:
        for seed in seeds:
            model(*inputs(seed), is_causal=True)
    return found


def assert_same_tables(one, other, but=()):
    tables = (found.table().drop(columns=list(but)) for found in (one, other))
    pd.testing.assert_frame_equal(*tables, rtol=1e-14, atol=0.0)


@pytest.fixture
def few_are_kept(monkeypatch):
    monkeypatch.setattr(report, "KEPT", 1200)


def test_all_rows_are_kept_up_to_a_number(monkeypatch):
    all_rows = measured(range(5))
    count = 5 * 4 * (LENGTH - 1) * HEADS
    assert len(all_rows.rows()) == count
    monkeypatch.setattr(report, "KEPT", count)
    assert measured(range(5)).share_kept == 1.0
    monkeypatch.setattr(report, "KEPT", count - 1)
    assert measured(range(5)).share_kept == 0.5


def test_of_more_rows_there_is_a_sample_and_sums_of_all(few_are_kept, monkeypatch):
    sampled = measured(range(60), targets="previous")
    share = sampled.share_kept
    assert share in (1 / 16, 1 / 32)
    with pytest.warns(UserWarning, match=f"rows has a random sample, {share:g} of all") as caught:
        some = sampled.rows()
    assert caught[0].filename == __file__
    monkeypatch.undo()
    whole = measured(range(60), targets="previous")
    every = whole.rows()
    assert_same_tables(sampled, whole, but=["gradient_median"])

    assert 400 < len(some) <= 1200
    expected = share * len(every)
    assert abs(len(some) - expected) < 5 * np.sqrt(HEADS * expected)
    # They are rows of all heads at the same places, each as it was.
    merged = some.merge(every, on=["head", "sequence", "query"], suffixes=("", "_all"))
    assert len(merged) == len(some)
    assert (merged["entropy"] == merged["entropy_all"]).all()
    assert some.groupby(["sequence", "query"])["head"].nunique().eq(HEADS).all()
    # The rank of the median has the standard error 1/(2√k).
    for head in range(HEADS):
        own = every[every["head"] == head]["gradient"]
        rank = (own < sampled.table()["gradient_median"][head]).mean()
        assert abs(rank - 0.5) < 4 * 0.5 / np.sqrt((some["head"] == head).sum())


def test_a_sample_is_even_over_the_run(few_are_kept):
    sequences = 240
    chosen = np.zeros(sequences)
    found = measured(range(60))
    with pytest.warns(UserWarning, match="sample"):
        rows = found.rows()
    counts = rows[rows["head"] == 0]["sequence"].value_counts()
    chosen[counts.index] = counts
    assert counts.index.max() < sequences
    quarters = chosen.reshape(4, -1).sum(axis=1)
    assert np.abs(quarters - quarters.mean()).max() < 4 * np.sqrt(quarters.mean())


def test_memory_does_not_grow_with_the_rows(few_are_kept):
    found = measured(range(30))
    sizes = []
    for seed in range(30, 60):
        found.merge(measured([seed]))
        (tally,) = found._tallies.values()
        sizes.append(sum(len(place[0]) for _, place in tally.parts) * HEADS)
    assert max(sizes) <= 1200
    assert tally.lengths.shape == (1, LENGTH + 1)


def test_the_same_calls_keep_the_same_rows(few_are_kept):
    reports = [measured(range(20)) for _ in range(2)]
    with pytest.warns(UserWarning, match="sample"):
        one, other = (found.rows() for found in reports)
    pd.testing.assert_frame_equal(one, other)


# --- merging --------------------------------------------------------------------------------------


def test_two_reports_are_one():
    together, first, second = measured(range(4)), measured(range(2)), measured(range(2, 4))
    first.table()
    before = second.rows()
    first.merge(second)
    assert_same_tables(first, together)
    pd.testing.assert_frame_equal(first.rows(), together.rows(), rtol=1e-14)
    pd.testing.assert_frame_equal(second.rows(), before)
    first.merge(first)
    assert (first.table()["rows"] == 2 * together.table()["rows"]).all()
    assert first.rows()["sequence"].nunique() == 32


def test_modules_that_only_one_has_are_there():
    class Named(torch.nn.Module):
        def __init__(self, name):
            super().__init__()
            self.add_module(name, Caller())

        def forward(self, *args):
            (one,) = self.children()
            return one(*args)

    reports = []
    for name, length in [("a", 7), ("b", 9)]:
        with probe(model := Named(name)) as found:
            model(*inputs(1, length=length))
        reports.append(found)
    first, second = reports
    first.merge(second)
    assert list(first.table()["layer"]) == ["a"] * HEADS + ["b"] * HEADS
    assert list(first.table()["keys"]) == [7.0] * HEADS + [9.0] * HEADS


def test_samples_of_two_shares_become_one(few_are_kept):
    many, few = measured(range(60)), measured(range(60, 62))
    assert few.share_kept == 1.0
    for one, other in [(many, few), (few, many)]:
        share = min(one.share_kept, other.share_kept)
        one.merge(other)
        assert one.share_kept <= share
        (tally,) = one._tallies.values()
        assert len(tally) <= 1200
    with pytest.warns(UserWarning, match="sample"):
        assert len(many.rows()) == len(next(iter(many._tallies.values())))


def test_only_like_is_merged():
    with pytest.raises(TypeError, match="other must be of Report"):
        measured([0]).merge("other")
    with pytest.raises(ValueError, match="other must have targets"):
        measured([0]).merge(measured([0], targets="previous"))


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"targets": "previous"}, {"mask": np.eye(4, LENGTH) < 1}])
def test_what_is_saved_is_loaded(options, tmp_path):
    found = measured(range(3), **options)
    found.save(path := tmp_path / "folder" / "report.npz")
    loaded = Report.load(path)
    assert loaded.to_json() == found.to_json()
    assert loaded.padding == found.padding
    pd.testing.assert_frame_equal(loaded.rows(), found.rows(), check_exact=True)
    loaded.save(again := tmp_path / "again.npz")
    assert again.read_bytes() == path.read_bytes()
    assert sorted(one.name for one in path.parent.iterdir()) == ["report.npz"]
    loaded.merge(found)
    assert (loaded.table()["rows"] == 2 * found.table()["rows"]).all()


def test_what_is_loaded_goes_on(tmp_path):
    measured(range(2)).save(path := tmp_path / "report.npz")
    loaded, whole = Report.load(path), measured(range(4))
    assert loaded._kept == 2 * 4 * (LENGTH - 1) * HEADS
    loaded.merge(measured(range(2, 4)))
    assert_same_tables(loaded, whole)
    pd.testing.assert_frame_equal(loaded.rows(), whole.rows(), rtol=1e-14)


def test_numbers_that_are_not_finite_and_no_rows_are_saved(tmp_path):
    q, k, v = inputs(0)
    k[0, 1, 2] = np.nan
    with pytest.warns(UserWarning, match="NaN or infinity"), probe(model := Caller()) as found:
        model(q, k, v)
    found.save(path := tmp_path / "nan.npz")
    assert Report.load(path).to_json() == found.to_json()
    assert Report.load(path).not_finite == ["Caller"]
    with probe(model) as found:
        model(*(x[:, :, :1] for x in inputs(0)))
    found.save(path)
    assert (Report.load(path).table()["rows"] == 0).all()
    assert len(Report.load(path).rows()) == 0
    assert Report.load(path).to_json() == found.to_json()


def refusal(path):
    with pytest.raises(ValueError, match="is not a report that can be read: ") as caught:
        Report.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_damaged_file_is_refused_in_a_line(tmp_path):
    with probe(model := Caller(), theory=False) as small:
        model(*inputs(0, batch=1, length=3))
    small.save(path := tmp_path / "report.npz")
    whole = path.read_bytes()
    for content in (b"", b"\0", b"no report\n", whole[:-1], whole[:500], whole[100:]):
        path.write_bytes(content)
        refusal(path)
    expected = Report.load(save_again(whole, path)).to_json()
    for place in range(0, len(whole), 7):
        try:
            found = Report.load(save_again(whole, path, place))
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:  # a byte that says nothing, such as a date
            assert found.to_json() == expected


def save_again(content, path, place=None):
    """Write a file with one byte changed."""
    damaged = bytearray(content)
    if place is not None:
        damaged[place] ^= 0xFF
    path.write_bytes(damaged)
    return path


def test_another_format_is_refused(tmp_path):
    np.savez(path := tmp_path / "other.npz", x=np.zeros(3))
    assert "head" in refusal(path)
    np.savez(path, head=np.array(json.dumps({"report": "attnlib probe 9"})))
    assert "attnlib probe 9" in refusal(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    refusal(path.with_suffix(".npy"))
    with pytest.raises(FileNotFoundError):
        Report.load(tmp_path / "none.npz")


def test_many_calls_of_one_row_are_put_together():
    with probe(model := Caller(), theory=False) as found:
        for seed in range(600):
            model(draw(1, 1, 1, 4, seed=seed), *(draw(1, 1, 5, 4, seed=i) for i in range(2)))
    (tally,) = found._tallies.values()
    assert len(tally.parts) <= 257
    rows = found.rows()
    assert list(rows["sequence"]) == list(range(600))
    assert rows["entropy"].mean() == pytest.approx(found.table()["entropy"][0], rel=1e-14)


def test_a_row_is_kept_if_one_of_the_heads_sees_two_keys():
    mask = torch.stack([torch.ones(4, 4, dtype=torch.bool), torch.eye(4, dtype=torch.bool)])
    with probe(model := Caller(), theory=False) as found:
        model(*(draw(1, 2, 4, 6, seed=i) for i in range(3)), attn_mask=mask[None])
    rows = found.rows()
    assert rows["query"].tolist() == [0, 1, 2, 3]
    assert set(rows["head"]) == {0}
    assert found.table()["rows"].tolist() == [4, 0]


def test_of_two_tallies_the_largest_logit_and_all_padding():
    one, other = Tally.empty(2), Tally.empty(2)
    one.largest_logit[:], one.padding = (1.0, 5.0), 3
    other.largest_logit[:], other.padding = (2.0, 4.0), 4
    one.merge(other)
    assert one.largest_logit.tolist() == [2.0, 5.0]
    assert one.padding == 7


def test_each_generation_is_of_other_sequences():
    tally = Tally.empty(1)
    rows = Rows(*np.full((len(Rows._fields), 2, 1, 1), 3.0))
    for past in (0, 1, 2, 0, 1, 2):
        place = np.array([0, 1]), np.full((2, 1), past)
        tally.add(Measured(rows, None, np.ones((2, 1)), 4, 1.0, *place, 2, past, 0))
    assert tally.sequences == 4
    assert tally.kept()[1][0].tolist() == [0, 1] * 3 + [2, 3] * 3

"""Records: one schema for all, written entry by entry, and never believed when something is off."""

from functools import partial

import pytest

from experiments import records
from experiments.lab import results, sweep
from experiments.records import compute_missing_at, save

SWEEPS = sorted(path.stem for path in records.SWEEPS.glob("*.toml"))


@pytest.mark.parametrize("name", SWEEPS)
def test_every_training_run_of_a_sweep_is_recorded_and_no_other(name):
    runs = records.runs(name)
    lines = results.read(sweep.read(records.SWEEPS / f"{name}.toml").results)
    assert list(lines) == [run.setting.key for run in runs]


def work(computed):
    """Three entries, which note that they are computed."""

    def compute(n):
        computed.append(n)
        return {"square": n * n, "root": n**0.5}

    for n in (2, 3, 5):
        yield {"law": "normal", "n": n}, partial(compute, n)


MADE = {"command": "python -m x", "settings": {"seed": 1, "ns": (2, 3)}, "made": {"numpy": "2"}}


def test_a_stopped_recorder_goes_on_to_the_same_bytes(tmp_path):
    path = tmp_path / "new" / "record.json"
    whole = compute_missing_at(path, work(computed := []), **MADE)
    assert computed == [2, 3, 5]
    assert whole.find(n=3) == {"square": 9, "root": 3**0.5}
    text = path.read_bytes()
    assert compute_missing_at(path, work(computed := []), **MADE) == whole
    assert computed == []
    for lost in ({2}, {3}, {5}, {2, 5}):
        save(path, whole._replace(entries=[e for e in whole.entries if e.key["n"] not in lost]))
        assert compute_missing_at(path, work(computed := []), **MADE) == whole
        assert set(computed) == lost
        assert path.read_bytes() == text
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]
    compute_missing_at(path, work(computed := []), **{**MADE, "settings": {}})
    assert computed == [2, 3, 5]  # what was made otherwise is made again
    with pytest.raises(KeyError, match="0 entries with"):
        whole.find(m=2)
    with pytest.raises(KeyError, match="3 entries with"):
        whole.find(law="normal")

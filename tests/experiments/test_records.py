"""Records: one schema for all, written entry by entry, and never believed when something is off."""

import importlib
import json
import re
from functools import partial

import pytest

from experiments import records
from experiments.lab import results, sweep
from experiments.records import RECORDED, load, resume, save

NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
SWEEPS = sorted(path.stem for path in records.SWEEPS.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_record_says_what_it_is_and_how_it_was_made(name):
    record = load(name)
    module = record.command.removeprefix("python -m ").split()[0]
    assert importlib.util.find_spec(module), record.command
    recorder = module.removeprefix("experiments.")
    assert name == recorder or name.startswith(f"{recorder}_")  # a record for each part
    assert {"numpy", "scipy"} <= set(record.made)
    assert record.entries
    assert {"attnlib", "python", "processor", "threads"} <= set(record.made)
    assert re.fullmatch("[0-9a-f]{40}", record.made["commit"]), "a record is made of a commit"


@pytest.mark.parametrize("name", SWEEPS)
def test_every_training_run_of_a_sweep_is_recorded_and_no_other(name):
    found = records.runs(name)
    lines = results.read(sweep.read(records.SWEEPS / f"{name}.toml").results)
    assert list(lines) == [one.setting.key for one in found]


def test_runs_of_two_experiments_are_the_same_and_there_is_no_other_file():
    described = [sweep.read(records.SWEEPS / f"{name}.toml").results for name in SWEEPS]
    assert set(RECORDED.glob("*/*.jsonl")) == set(described)
    seen = {}
    for file in described:
        for key, line in results.read(file).items():
            assert seen.setdefault(key, line) == line
    lines = records.training_runs()
    assert len(lines) == sum("corpus" in key for key in map(json.loads, seen))
    assert all(line["timing"]["processor_seconds"] > 0.0 for line in lines if "timing" in line)


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
    whole = resume(path, work(computed := []), **MADE)
    assert computed == [2, 3, 5]
    assert whole.find(n=3) == {"square": 9, "root": 3**0.5}
    text = path.read_bytes()
    assert resume(path, work(computed := []), **MADE) == whole
    assert computed == []
    for lost in ({2}, {3}, {5}, {2, 5}):
        save(path, whole._replace(entries=[e for e in whole.entries if e.key["n"] not in lost]))
        assert resume(path, work(computed := []), **MADE) == whole
        assert set(computed) == lost
        assert path.read_bytes() == text
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]
    resume(path, work(computed := []), **{**MADE, "settings": {}})
    assert computed == [2, 3, 5]  # what was made otherwise is made again
    with pytest.raises(KeyError, match="0 entries with"):
        whole.find(m=2)
    with pytest.raises(KeyError, match="3 entries with"):
        whole.find(law="normal")

"""Sweeps: what a file says, the results that a run leaves, and kills at any moment."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from attnlib import provenance
from experiments.__main__ import app
from experiments.lab import data, sweep
from experiments.lab.model import Config
from experiments.lab.train import train
from tests.books import ROOT

kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")

SMALL = """\
results = "results"
corpus = "text"
seeds = [3, 4]

[model]
width = 8
head_size = 4
depth = 1
sequence = 16

[training]
batch = 2
steps = 12
record_every = 5
validation_windows = 10

[grid]
learning_rate = [0.01, 0.001]

[variants.baseline]
[variants.note]
post_scale = "constant"
"""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text").write_bytes(data.embedded(5000).tobytes())
    (tmp_path / "sweep.toml").write_text(SMALL)
    return tmp_path


def run_here(file, **options):
    with ThreadPoolExecutor(1) as pool:
        return sweep.run(sweep.read(file), executor=pool, **options)


def results(folder):
    """Return the bytes of every result."""
    return {path.name: path.read_bytes() for path in folder.glob("results/*.json")}


def copied(folder, name):
    """Return a folder with the same sweep and no results."""
    other = folder / name
    other.mkdir()
    for file in ("text", "sweep.toml"):
        (other / file).write_bytes((folder / file).read_bytes())
    return other


# --- the file ------------------------------------------------------------------------------------


def test_a_file_gives_every_run_once_the_first_seed_first(folder):
    found = sweep.read(folder / "sweep.toml")
    assert found.results == folder / "results"
    runs = [(s.training.seed, s.training.learning_rate, s.variant) for s in found.settings]
    assert runs == [
        (seed, rate, variant)
        for seed in (3, 4)
        for rate in (0.01, 0.001)
        for variant in ("baseline", "note")
    ]
    assert {s.config.post_scale for s in found.settings if s.variant == "note"} == {"constant"}
    assert all(s.config.width == 8 and s.training.batch == 2 for s in found.settings)
    assert len({s.name for s in found.settings}) == 8


def test_the_recorded_sweep_is_that_of_the_source_in_small():
    found = sweep.read(ROOT / "experiments" / "learning_rate.toml")
    assert len(found.settings) == 36
    rates = sorted({s.training.learning_rate for s in found.settings})
    assert rates == [2.0**-exponent for exponent in range(12, 6, -1)]
    assert found.settings[0].sha256 == data.SHAKESPEARE_SHA256
    assert found.results.resolve() == ROOT / "experiments" / "recorded" / "training"
    # Recorded results are found by this name: it may not change.
    first = found.settings[0]
    assert first.name == "d42ec4af8dd44575"
    whole = replace(first, training=replace(first.training, losses_every=1))
    assert whole.name == "51585aaebf488ab8"


def test_a_setting_that_is_a_default_does_not_change_a_name(folder):
    before = [s.name for s in sweep.read(folder / "sweep.toml").settings]
    spelt_out = SMALL.replace("[model]", "[model]\ncausal = true\nalpha = 1")
    (folder / "sweep.toml").write_text(spelt_out)
    assert [s.name for s in sweep.read(folder / "sweep.toml").settings] == before


def test_the_text_is_part_of_the_name(folder):
    before = [s.name for s in sweep.read(folder / "sweep.toml").settings]
    (folder / "text").write_bytes(data.embedded(5001).tobytes())
    after = [s.name for s in sweep.read(folder / "sweep.toml").settings]
    assert set(before).isdisjoint(after)


WRONG = [
    ("width = 8", "width = 9", "width must be a multiple of head_size=4, got width=9 (variant 'ba"),
    (
        "width = 8",
        "widht = 8",
        "[model] has 'widht'",
        "may have the keys width, depth, head_size,",
    ),
    ("width = 8", "learning_rate = 1", "[model] has 'learning_rate'", "may have the keys"),
    ("steps = 12", "steps = 0", "steps must be from 1 to", "got steps=0"),
    ("steps = 12", "steps = nan", "steps must be an integer, got steps=nan"),
    ("steps = 12", "steps = 1979-05-27", "steps must be an integer", "datetime.date(1979, 5, 27)"),
    (
        "steps = 12",
        "seed = 1",
        "[training] has 'seed'",
        "may have the keys learning_rate, steps",
    ),
    ("steps = 12", "learning_rate = 1", "'learning_rate' in both [training] and [grid]"),
    ("depth = 1", "learning_rate", "not a TOML file", "line 8"),
    ("[3, 4]", "[]", "seeds must be a list that is not empty, got []"),
    ("[3, 4]", "3", "seeds must be a list that is not empty, got 3"),
    ("[3, 4]", "[3, 3]", "no run may be there twice, got variant 'baseline' with seed=3"),
    ("[3, 4]", "[-1]", "seed must be from 0 to", "got seed=-1"),
    ("[3, 4]", '["x"]', "seed must be an integer, got seed='x'"),
    ("[0.01, 0.001]", "0.01", "learning_rate in [grid] must be a list that is not empty, got 0.01"),
    ("[0.01, 0.001]", "[]", "learning_rate in [grid] must be a list that is not empty, got []"),
    ("[0.01, 0.001]", "[0]", "learning_rate must be a finite number above 0"),
    (
        "[grid]",
        "[gird]",
        "the file has 'gird'",
        "may have the keys results, corpus, seeds, model",
    ),
    ("[grid]", "[grid]\nseeds = [1]", "[grid] has 'seeds'", "may have the keys"),
    ("[grid]", "[grid]\nwidth = [8]", "'width' in both [model] and [grid]"),
    ('"constant"', '"const"', "post_scale must be one of 'none', 'constant', 'exact'", "'const'"),
    ('"constant"', '"none"', "got variant 'note' with seed=3, which is as variant 'baseline'"),
    ("post_scale =", "alpha =", "alpha must be one of 'annealed', 'typical', got alpha='constant'"),
    ("post_scale =", "policy =", "policy must be a name in attnlib.policies.POLICIES", "similar"),
    ("post_scale =", "learning_rate =", "'learning_rate' in both [variants.note] and [grid]"),
    ("post_scale =", "scale =", "[variants.note] has 'scale'", "may have the keys width,"),
    ("[variants.baseline]", "[variants]\nbaseline = 3", "baseline must be a table, got baseline=3"),
    ('"text"', '"texts"', "corpus must be 'embedded', 'tiny-shakespeare' or the path of a file"),
    ('"text"', "7", "corpus must be a string that is not empty, got corpus=7"),
    ('results = "results"', "", "results must be a string that is not empty, got results=None"),
    ("[3, 4]", "[" * 10**5, "not a TOML file"),
    ("[3, 4]", str(list(range(30_000))), "a sweep may have at most 100000 runs, got 120000"),
]


def refusal(file, *options):
    """Return the one line with which the command refuses a file."""
    finished = CliRunner().invoke(app, ["sweep", str(file), *options])
    assert finished.exit_code == 2, finished.output
    (line,) = finished.output.splitlines()
    assert line.startswith(f"Error: {file}: ")
    return line


@pytest.mark.parametrize(("old", "new", "first", "second"), [(*w, "")[:4] for w in WRONG])
def test_a_wrong_file_gets_one_line(folder, old, new, first, second):
    assert SMALL.count(old) == 1
    (folder / "sweep.toml").write_text(SMALL.replace(old, new))
    line = refusal(folder / "sweep.toml")
    assert first in line
    assert second in line
    assert len(line) < 500
    assert not (folder / "results").exists()


def test_what_shows_only_with_the_text_gets_one_line_too(folder):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("sequence = 16", "sequence = 500"))
    assert "sequence must be below 500, the bytes of the validation text" in refusal(file)
    file.write_text(SMALL)
    (folder / "other").write_bytes(b"another text" * 1000)
    line = refusal(file, "--text", str(folder / "other"))
    assert "other is not text: its sha256 is" in line
    assert "No such file" in refusal(file, "--text", str(folder / "nothing"))
    assert "cannot be read: No such file or directory" in refusal(folder / "no.toml")
    assert re.search("cannot be read: (Is a directory|Permission denied)", refusal(folder))
    file.write_bytes(b"\xff\xfe")
    assert "not a TOML file" in refusal(file)


UNWRITABLE = "/proc/results" if sys.platform != "win32" else "Q:/results"


@pytest.mark.parametrize("where", ["text", "text/results", "\\u0000", UNWRITABLE])
def test_results_that_cannot_be_written_get_one_line(folder, where):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace('"results"', f'"{where}"'))
    assert "results cannot be written: " in refusal(file)


def toml(value):
    """Return a value as TOML spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value)


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
WHERE = [("", key) for key in sweep.KEYS]
WHERE += [("model", key) for key in sweep.MODEL_KEYS]
WHERE += [("training", key) for key in sweep.TRAINING_KEYS]


@given(where=st.sampled_from(WHERE), value=VALUES)
@settings(max_examples=150)
def test_any_value_of_any_key_is_refused_in_one_line_or_read(tmp_path_factory, where, value):
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.with_name("text").write_bytes(b"text")
    tables = {"results": "r", "corpus": "text", "seeds": [0], "model": {}, "training": {}}
    place = tables[where[0]] if where[0] else tables
    place[where[1]] = value
    file.write_text("\n".join(f"{key} = {toml(v)}" for key, v in tables.items()), "utf-8")
    message = refused(file)
    if message is not None:
        assert message.startswith(f"{file}: ")
        assert len(message.splitlines()) == 1
        assert len(message) < 600


@given(content=st.binary(max_size=40))
def test_any_bytes_are_refused_in_one_line(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "bytes.toml"
    file.write_bytes(content)
    assert refused(file).startswith(f"{file}: ")


def refused(file):
    try:
        sweep.read(file)
    except sweep.SweepError as error:
        return str(error)
    return None


# --- results -------------------------------------------------------------------------------------


def test_a_text_that_changed_is_read_again(folder):
    run_here(folder / "sweep.toml")
    (folder / "text").write_bytes(data.embedded(6000).tobytes())
    assert sweep.outcomes(sweep.read(folder / "sweep.toml")) == []
    assert len(run_here(folder / "sweep.toml")) == 8


def test_results_are_the_runs_with_their_configuration(folder):
    outcomes = run_here(folder / "sweep.toml")
    assert len(outcomes) == 8
    torch.set_num_threads(1)
    for setting, run in outcomes:
        direct = train(setting.config, setting.training, data.read(folder / "text"))
        for name in type(run).__dataclass_fields__:
            np.testing.assert_array_equal(getattr(run, name), getattr(direct, name), err_msg=name)
        written = json.loads((folder / "results" / f"{setting.name}.json").read_text())
        assert Config(**written["model"]) == setting.config
        assert not written["model"].items() & asdict(Config()).items()
        assert written["training"]["learning_rate"] == setting.training.learning_rate
        assert written["corpus"] == {"name": "text", "sha256": data.digest(data.embedded(5000))}
        assert written["made"]["torch"] == version("torch")
        assert written["made"]["commit"] == provenance.commit()
        assert written["made"]["threads"] == 1
        assert written["made"]["processor"].endswith(torch.backends.cpu.get_cpu_capability())
        timing = json.loads((folder / "results" / "timings" / f"{setting.name}.json").read_text())
        assert timing["seconds"] > 0.0


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_results_of_every_precision_are_kept_to_the_last_bit(folder, precision):
    changed = SMALL.replace("batch = 2", f'batch = 2\nprecision = "{precision}"')
    (folder / "sweep.toml").write_text(changed.replace("[3, 4]", "[3]"))
    torch.set_num_threads(1)
    for setting, run in run_here(folder / "sweep.toml"):
        direct = train(setting.config, setting.training, data.read(folder / "text"))
        for name in type(run).__dataclass_fields__:
            np.testing.assert_array_equal(getattr(run, name), getattr(direct, name), err_msg=name)


def test_a_diverged_run_is_a_result(folder):
    changed = SMALL.replace("[0.01, 0.001]", "[0.01, 1e30]").replace("[3, 4]", "[3]")
    (folder / "sweep.toml").write_text(changed)
    diverged = {
        s.training.learning_rate: run.diverged_at for s, run in run_here(folder / "sweep.toml")
    }
    assert diverged == {0.01: None, 1e30: 1}
    finished = CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml")])
    assert "4 runs finished, 2 of them diverged" in finished.output


def test_what_is_there_is_not_run_again(folder, monkeypatch):
    file = folder / "sweep.toml"
    run_here(file)
    before = {path: path.stat().st_mtime_ns for path in (folder / "results").rglob("*.json")}
    monkeypatch.setattr(sweep, "_work", None)
    assert len(run_here(file)) == len(sweep.outcomes(sweep.read(file))) == 8
    assert before == {
        path: path.stat().st_mtime_ns for path in (folder / "results").rglob("*.json")
    }


def test_a_longer_sweep_adds_to_a_shorter_one(folder):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("[3, 4]", "[4]"))
    run_here(file)
    shorter = results(folder)
    file.write_text(SMALL)
    assert len(sweep.outcomes(sweep.read(file))) == 4
    assert len(run_here(file)) == 8
    assert shorter.items() <= results(folder).items()


def test_a_damaged_result_is_named_set_aside_and_made_again(folder):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("[3, 4]", "[3]"))
    run_here(file)
    whole = results(folder)
    first, second, *_ = sorted(whole)
    for damage in (b'{"model": {}, "train', b"\xff"):  # twice: the first is not overwritten
        (folder / "results" / first).write_bytes(damage)
        (folder / "results" / second).rename(folder / "results" / "elsewhere")
        with pytest.raises(sweep.SweepError, match=f"{first} is not the result of its run: "):
            sweep.outcomes(sweep.read(file))
        with pytest.warns(UserWarning, match=rf"{first} is not .*; it is now {first}\.damaged"):
            assert len(run_here(file)) == 4
        assert results(folder) == whole
    aside = [path.read_bytes() for path in sorted((folder / "results").glob("*.damaged*"))]
    assert aside == [b'{"model": {}, "train', b"\xff"]


def test_the_command_names_what_it_sets_aside(folder, monkeypatch):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("[3, 4]", "[3]"))
    run_here(file)
    path = folder / "results" / min(results(folder))
    path.write_text(path.read_text().replace('"final_loss": ', '"final_loss": 1'))
    monkeypatch.setattr(sweep, "_processes", one_thread_of_this_process)
    finished = CliRunner().invoke(app, ["sweep", str(file)])
    assert finished.exit_code == 0, finished.stderr
    (line,) = [one for one in finished.stderr.splitlines() if "Warning" in one]
    assert f"{path} is not the result of its run: final_loss is 1" in line
    assert f"it is now {path.name}.damaged, and the run is done again" in line


@contextmanager
def one_thread_of_this_process(workers):
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_result_that_cannot_be_read_is_left_alone(folder):
    found = sweep.read(folder / "sweep.toml")
    found.path(found.settings[0]).mkdir(parents=True)
    with pytest.raises(sweep.SweepError, match=r"Is a directory|Permission denied"):
        run_here(folder / "sweep.toml")
    assert "Error: " in CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml")]).stderr


# --- full disks and too little memory ------------------------------------------------------------


def test_on_a_full_disk_the_command_ends_in_one_line_and_keeps_what_is_finished(
    folder, monkeypatch
):
    file = folder / "sweep.toml"
    expected = copied(folder, "expected")
    run_here(expected / "sweep.toml")
    really, written = os.fsync, count(1)

    def full(descriptor):
        if next(written) > 7:  # in the middle of the fourth run: a timing and a result each
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(sweep, "_processes", one_thread_of_this_process)
    finished = CliRunner().invoke(app, ["sweep", str(file)])
    assert finished.exit_code == 1
    assert finished.stdout == ""
    *_, line = finished.stderr.splitlines()
    assert line.startswith("Error: [Errno 28] No space left on device; what was finished is in ")
    assert len([one for one in finished.stderr.splitlines() if "Error" in one]) == 1
    kept = results(folder)
    assert len(kept) == 3
    assert kept.items() <= results(expected).items()
    assert not list((folder / "results").rglob("*.part"))
    monkeypatch.undo()
    run_here(file)
    assert results(folder) == results(expected)
    assert not list((folder / "results").rglob(".*"))


OUT_OF_MEMORY = [
    MemoryError(),
    MemoryError("Unable to allocate 96.0 GiB for an array"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
    torch.OutOfMemoryError("CUDA out of memory."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: str(error)[:20])
def test_runs_too_large_for_memory_do_not_keep_the_others_from_being_done(
    folder, monkeypatch, error
):
    work = sweep._work

    def limited(setting, *others):
        if setting.variant == "note":
            raise error
        return work(setting, *others)

    monkeypatch.setattr(sweep, "_work", limited)
    with pytest.raises(sweep.UnfinishedError, match="4 of 8 runs need more memory") as caught:
        run_here(folder / "sweep.toml")
    assert "the first of them variant 'note' with seed=3 (" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(results(folder)) == 4


def test_another_error_of_a_run_is_not_taken_for_one_of_memory(folder, monkeypatch):
    def broken(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(sweep, "_work", broken)
    with pytest.raises(RuntimeError, match=r"^a fault of ours$"):
        run_here(folder / "sweep.toml")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to a limit of memory")
def test_a_model_that_memory_does_not_hold_ends_the_command_in_one_line(folder):
    large = SMALL.replace('post_scale = "constant"', "width = 65536").replace("width = 8\n", "")
    large = large.replace("[variants.baseline]", "[variants.baseline]\nwidth = 8")
    (folder / "sweep.toml").write_text(large.replace("[3, 4]", "[3]").replace("0.01, ", ""))
    command = [sys.executable, "-m", "tests.experiments.limited_sweep", folder / "sweep.toml"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert finished.returncode == 1
    *_, line = finished.stderr.splitlines()
    assert line.startswith("Error: 1 of 2 runs need more memory than there is, the first of them")
    assert "Traceback" not in finished.stderr
    assert len(results(folder)) == 1


# --- two at once ---------------------------------------------------------------------------------


def test_two_sweeps_of_one_file_share_the_runs_and_give_the_same_bytes(folder, monkeypatch):
    expected = copied(folder, "expected")
    run_here(expected / "sweep.toml")
    done, work = [], sweep._work

    def noted(setting, *others):
        done.append(setting.name)
        return work(setting, *others)

    monkeypatch.setattr(sweep, "_work", noted)
    monkeypatch.setattr(sweep, "POLL", 0.01)
    monkeypatch.setattr(sweep, "_processes", one_thread_of_this_process)
    found = sweep.read(folder / "sweep.toml")
    with ThreadPoolExecutor(3) as three:
        for future in [three.submit(sweep.run, found, workers=1) for _ in range(3)]:
            assert len(future.result(timeout=120)) == 8
    assert sorted(done) == sorted(setting.name for setting in found.settings)
    assert results(folder) == results(expected)
    assert not list((folder / "results").rglob(".*"))


def test_a_sweep_leaves_alone_what_another_is_writing(folder, monkeypatch):
    """The first is stopped in the middle of a write, and the second waits for that run alone."""
    really, writing, go_on = os.fsync, threading.Event(), threading.Event()

    def stopped(descriptor):
        if not writing.is_set():
            writing.set()
            assert go_on.wait(60)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", stopped)
    monkeypatch.setattr(sweep, "POLL", 0.01)
    found = sweep.read(folder / "sweep.toml")
    seven = threading.Event()

    def go_on_when_the_others_are_done():
        wait_until(lambda: len(results(folder)) == 7)
        (part,) = (folder / "results").rglob("*.part")
        seven.set()
        go_on.set()
        return part

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(sweep.run, replace(found, settings=found.settings[:1]), executor=pool)
        assert writing.wait(60)
        second = pool.submit(run_here, folder / "sweep.toml")
        part = pool.submit(go_on_when_the_others_are_done).result(timeout=120)
        assert seven.is_set()
        assert len(first.result(timeout=60)) == 1
        assert len(second.result(timeout=60)) == 8
    assert found.settings[0].name in part.name
    assert not list((folder / "results").rglob(".*"))


# --- executors and kills -------------------------------------------------------------------------


class Broken(Executor):
    """An executor whose second worker dies."""

    def __init__(self):
        self.submitted = 0

    def submit(self, function, *arguments):
        self.submitted += 1
        future = Future()
        if self.submitted == 2:
            future.set_exception(BrokenProcessPool("a process died"))
        elif self.submitted == 1:
            future.set_result(function(*arguments))
        return future


def test_when_a_worker_dies_what_is_finished_is_kept(folder):
    with pytest.raises(sweep.WorkerError, match="running the sweep again goes on from there"):
        sweep.run(sweep.read(folder / "sweep.toml"), executor=Broken())
    assert len(results(folder)) <= 1
    assert len(run_here(folder / "sweep.toml")) == 8


def test_dask_is_an_executor_like_any_other(folder):
    distributed = pytest.importorskip("distributed")
    expected = copied(folder, "expected")
    run_here(expected / "sweep.toml")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        sweep.run(sweep.read(folder / "sweep.toml"), executor=client.get_executor())
        assert results(folder) == results(expected)
        told = ["sweep", str(copied(folder, "again") / "sweep.toml")]
        shutil.rmtree(folder / "again" / "results", ignore_errors=True)
        finished = CliRunner().invoke(app, [*told, "--scheduler", cluster.scheduler_address])
    assert finished.exit_code == 0, finished.output
    assert "8 runs finished, 0 of them diverged" in finished.output
    assert results(folder / "again") == results(expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scheduler", "127.0.0.1:9", "--workers", "2"], "not with --scheduler"),
        (["--scheduler", "nonsense://127.0.0.1:9"], "no Dask scheduler answers at nonsense://"),
    ],
)
def test_a_scheduler_that_cannot_be_used_is_one_line(folder, arguments, said):
    finished = CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml"), *arguments])
    assert finished.exit_code == 2
    assert finished.stderr.count("\n") == 1
    assert said in finished.stderr


@kill_9
def test_killed_at_twenty_random_moments_it_ends_with_the_same_bytes(folder):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("[3, 4]", str(list(range(16)))))
    expected = copied(folder, "expected")
    start = time.perf_counter()
    assert len(run_here(expected / "sweep.toml")) == 64
    a_run = (time.perf_counter() - start) / 64
    command = [sys.executable, "-m", "tests.experiments.killed_sweep", file, "20", f"{a_run:.3f}"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert finished.returncode == 0, finished.stderr
    killed, kept = map(int, finished.stdout.split())
    assert killed >= 15
    assert 1 <= kept < 64
    assert results(folder) == results(expected)
    assert not list((folder / "results").rglob(".*"))


@kill_9
def test_a_killed_command_leaves_no_workers_and_goes_on(folder):
    file = folder / "sweep.toml"
    file.write_text(SMALL.replace("steps = 12", "steps = 60"))
    expected = copied(folder, "expected")
    command = [sys.executable, "-m", "experiments", "sweep", str(file), "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: results(folder) or process.poll() is not None)
        workers = children(process.pid)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert workers
    wait_until(lambda: not any(map(alive, workers)))
    assert 1 <= len(results(folder)) < 8
    run_here(file)
    run_here(expected / "sweep.toml")
    assert results(folder) == results(expected)


def test_an_interrupted_command_says_that_it_goes_on(folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run", interrupted)
    finished = CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml")])
    assert finished.exit_code == 130
    assert finished.stderr == "Stopped; the same command goes on from here.\n"


def wait_until(condition):
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def children(process):
    if not os.path.exists("/proc/self/task"):
        pytest.skip("needs Linux's /proc")
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def alive(process):
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_no_cuda(folder):
    finished = CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml"), "--device", "cuda"])
    assert finished.exit_code == 2
    assert finished.output.startswith("Error: device must be 'cpu' where PyTorch finds no GPU")
    assert len(finished.output.splitlines()) == 1
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'cuda', got device='tpu'"):
        sweep.run(sweep.read(folder / "sweep.toml"), device="tpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_sweep_on_a_gpu_gives_what_the_cpu_gives(folder):
    other = copied(folder, "other")
    here = run_here(folder / "sweep.toml")
    there = sweep.run(sweep.read(other / "sweep.toml"), device="cuda")
    for (_, one), (_, run) in zip(here, there, strict=True):
        np.testing.assert_allclose(one.losses, run.losses, rtol=1e-3)


def test_the_command_shows_how_far_it_is(folder):
    (folder / "sweep.toml").write_text(SMALL.replace("[3, 4]", "[3]"))
    run_here(folder / "sweep.toml")
    finished = CliRunner().invoke(app, ["sweep", str(folder / "sweep.toml")])
    assert finished.exit_code == 0
    assert "4/4" in finished.stderr
    assert finished.stdout == "4 runs finished, 0 of them diverged\n"


def test_a_run_takes_one_thread(folder, monkeypatch):
    threads = []

    def seen(*arguments, **options):
        threads.append(torch.get_num_threads())
        return train(*arguments, **options)

    monkeypatch.setattr(sweep, "train", seen)
    torch.set_num_threads(2)
    assert len(run_here(folder / "sweep.toml")) == 8
    assert threads == [1] * 8


def test_after_a_failure_no_other_run_is_begun(folder, monkeypatch):
    begun = []

    def fails(*arguments, **_):
        begun.append(arguments)
        if len(begun) > 1:
            time.sleep(1.0)  # until the first failure has been seen
        raise RuntimeError("broken")

    monkeypatch.setattr(sweep, "train", fails)
    with pytest.raises(RuntimeError, match="broken"):
        run_here(folder / "sweep.toml")
    assert len(begun) <= 2  # one more may have begun before the failure was seen


def test_no_bar_is_shown_unless_asked_for(folder, capsys):
    (folder / "sweep.toml").write_text(SMALL.replace("[3, 4]", "[3]"))
    run_here(folder / "sweep.toml")
    assert capsys.readouterr() == ("", "")


def test_without_seeds_there_is_one(folder):
    (folder / "sweep.toml").write_text(SMALL.replace("seeds = [3, 4]\n", ""))
    assert {one.training.seed for one in sweep.read(folder / "sweep.toml").settings} == {0}


def test_a_run_is_timed_from_its_start_to_its_end(folder, monkeypatch):
    clocks = {"perf_counter": iter((100.0, 102.5)), "process_time": iter((7.0, 8.25))}
    for name, readings in clocks.items():
        monkeypatch.setattr(sweep.time, name, readings.__next__)
    monkeypatch.setattr(sweep, "train", lambda *_, **__: None)
    setting = sweep.read(folder / "sweep.toml").settings[0]
    _, _, timing = sweep._work(setting, folder / "text", "cpu")
    assert (timing["seconds"], timing["processor_seconds"]) == (2.5, 1.25)


def test_an_error_among_processes_is_not_swallowed():
    with pytest.raises(ZeroDivisionError), sweep._processes(1) as pool:
        _ = 1 / 0
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_only_a_sweep_is_run():
    with pytest.raises(TypeError, match="sweep must be of Sweep"):
        sweep.run("sweep.toml")

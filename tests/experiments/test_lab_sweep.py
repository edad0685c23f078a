"""Sweeps: what a file says, the lines that runs leave, and kills at any moment."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from typer.testing import CliRunner

from attnlib import _files
from experiments import provenance
from experiments.cli import app
from experiments.lab import results, sweep, texts, train_task
from experiments.lab.model import Config
from experiments.lab.train import Training, train

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = """\
results = "results.jsonl"
corpus = "embedded"
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

HEADS = """\
results = "results.jsonl"

[model]
width = 8
head_size = 8
sequence = 8

[task]
strength = 0.9
batch = 4
rows = 64
lengths = [4, 16]
steps = 60

[variants.noise]
[variants.fixed]
gap = "fixed"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SMALL)
    return path


def run_here(file):
    with ThreadPoolExecutor(1) as pool:
        return sweep.run(sweep.read(file), executor=pool)


def numbers(file):
    """Return what the runs of a sweep gave: their lines but for how and how fast they were made."""
    lines = results.read(sweep.read(file).results)
    return {
        key: {name: value for name, value in line.items() if name not in ("made", "timing")}
        for key, line in lines.items()
    }


def test_a_file_gives_every_run_once_the_first_seed_first(file):
    plan = sweep.read(file)
    assert plan.results == file.parent / "results.jsonl"
    runs = [(s.training.seed, s.training.learning_rate, s.variant) for s in plan.settings]
    assert runs == [
        (seed, rate, variant)
        for seed in (3, 4)
        for rate in (0.01, 0.001)
        for variant in ("baseline", "note")
    ]
    assert {s.config.post_scale for s in plan.settings if s.variant == "note"} == {"constant"}
    assert all(s.config.width == 8 and s.training.batch == 2 for s in plan.settings)


def refusal(file, *options):
    """Return the one line with which the command refuses a file."""
    finished = CliRunner().invoke(app, ["sweep", str(file), *options])
    assert finished.exit_code == 2, finished.output
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ("", 1000.0),
        ("record_attention = true", 1000.0),
        ("record_scale = true\nlosses_every = 4", 5.7),
        ("lengths = [16, 32]\nrecord_gains = true\npositions = 'none'\nlaw = 'own'", 1000.0),
    ],
)
def test_a_line_has_the_run_to_the_last_bit_and_its_configuration(
    file, changed, limit, monkeypatch
):
    text = texts.embedded(5000)
    monkeypatch.setattr(sweep, "_load_text", lambda name: text)
    monkeypatch.setattr("experiments.lab.train.LOSS_LIMIT", limit)
    file.write_text(SMALL.replace("batch = 2", f"batch = 2\n{changed}").replace("[3, 4]", "[3]"))
    outcomes = run_here(file)
    lines = results.read(file.parent / "results.jsonl")
    assert len(outcomes) == len(lines) == 4
    for setting, run in outcomes:
        again = train(setting.config, setting.training, text)
        np.testing.assert_equal(vars(run), vars(again))
        line = lines[setting.key]
        assert Config(**line["model"]) == setting.config
        assert Training(**line["training"]) == setting.training
        assert line["corpus"]["sha256"] == texts.sha256("embedded")
        assert line["made"]["commit"] == provenance.commit()
        assert line["timing"]["seconds"] > 0.0


def test_a_sweep_of_heads_keeps_eight_digits(file):
    file.write_text(HEADS)
    for setting, run in run_here(file):
        direct = train_task.train_and_test(setting.config, setting.training)
        np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-7)
        for row, other in zip(run.measured, direct.measured, strict=True):
            assert row.pop("laws") == pytest.approx(other.pop("laws"), rel=1e-7)
            assert row == pytest.approx(other, rel=1e-7)


def test_a_diverged_run_is_a_result(file):
    file.write_text(SMALL.replace("[0.01, 0.001]", "[0.01, 1e30]").replace("[3, 4]", "[3]"))
    diverged = {s.training.learning_rate: run.diverged_at for s, run in run_here(file)}
    assert diverged == {0.01: None, 1e30: 1}
    finished = CliRunner().invoke(app, ["sweep", str(file)])
    assert finished.stdout == "4 runs finished, 2 of them diverged\n"
    assert "4/4" in finished.stderr


def test_what_is_there_is_not_run_again_and_a_longer_sweep_adds_to_it(file, monkeypatch):
    file.write_text(SMALL.replace("[3, 4]", "[4]"))
    run_here(file)
    shorter = (file.parent / "results.jsonl").read_bytes()
    file.write_text(SMALL)
    assert len(sweep.outcomes(sweep.read(file))) == 4
    assert len(run_here(file)) == 8
    whole = (file.parent / "results.jsonl").read_bytes()
    assert whole.startswith(shorter)
    monkeypatch.setattr(sweep, "_train_run", None)
    assert len(run_here(file)) == 8
    assert (file.parent / "results.jsonl").read_bytes() == whole


def test_one_sweep_at_a_time_writes_and_others_read(file):
    plan, seen = sweep.read(file), []

    class Reading(ThreadPoolExecutor):
        def submit(self, *arguments):
            seen.append(refusal(file))
            seen.append(len(sweep.outcomes(plan)))
            return super().submit(*arguments)

    with Reading(1) as pool:
        assert len(sweep.run(plan, executor=pool)) == 8
    assert "another sweep is writing" in seen[0]
    assert all(0 <= number <= 8 for number in seen[1::2])
    assert len(run_here(file)) == 8


CHOOSING = SMALL.replace("seeds = [3, 4]", 'seeds = [3, 4]\nwiden = "final_loss"')
JUDGING = SMALL.split("[grid]")[0].replace("results.jsonl", "judged.jsonl")
JUDGING = (
    JUDGING.replace("[3, 4]", '[5]\nrates = "sweep.toml"')
    + '[variants.note]\npost_scale = "constant"'
)


def with_losses(file, losses):
    """Give the file's runs a final loss by learning rate, None for one that diverged."""
    for setting in sweep.read(file).settings:
        rate = setting.training.learning_rate
        if rate in losses and setting.key not in results.read(file.parent / "results.jsonl"):
            line = {**setting.identity(), "final_loss": losses[rate]}
            _files.append(file.parent / "results.jsonl", line)
    return sorted({planned.training.learning_rate for planned in sweep.read(file).settings})


def test_a_best_rate_at_an_end_widens_the_sweep_until_it_is_inside(file):
    file.write_text(CHOOSING.replace("[0.01, 0.001]", "[0.02, 0.01]"))
    assert with_losses(file, {}) == [0.01, 0.02]
    assert with_losses(file, {0.01: 2.0}) == [0.01, 0.02]
    assert with_losses(file, {0.02: 3.0}) == [0.005, 0.01, 0.02]
    assert with_losses(file, {0.005: 1.0}) == [0.0025, 0.005, 0.01, 0.02]
    file.with_name("judged.toml").write_text(JUDGING)
    assert "lacks runs at 2 of them" in refusal(file.with_name("judged.toml"))
    assert with_losses(file, {0.0025: None}) == [0.0025, 0.005, 0.01, 0.02]
    (only,) = sweep.read(file.with_name("judged.toml")).settings
    assert (only.training.learning_rate, only.training.seed) == (0.005, 5)
    assert only.config.post_scale == "constant"


class Failing(Executor):
    """An executor whose second run fails."""

    def __init__(self, reason):
        self.reason, self.submitted = reason, 0

    def submit(self, function, *arguments):
        self.submitted += 1
        future = Future()
        if self.submitted == 2:
            future.set_exception(self.reason)
        elif self.submitted == 1:
            future.set_result(function(*arguments))
        return future


def test_when_a_run_fails_what_is_finished_is_kept_and_no_other_is_begun(file):
    reason = BrokenProcessPool("a process died")
    message = rf"variant '\w+' failed: {type(reason).__name__}: .*goes on from there"
    with pytest.raises(sweep.SweepError, match=message):
        sweep.run(sweep.read(file), executor=Failing(reason))
    assert len(numbers(file)) == 1
    assert len(run_here(file)) == 8


def test_cut_off_anywhere_it_goes_on_to_the_same_numbers(file):
    """What a kill leaves is a beginning of the file, to which lines are only added."""
    run_here(file)
    path, expected = file.parent / "results.jsonl", numbers(file)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in (0, ends[0] - 1, ends[3] + 30):
        path.write_bytes(whole[:cut])
        assert len(numbers(file)) == sum(end <= cut for end in ends)
        run_here(file)
        assert numbers(file) == expected

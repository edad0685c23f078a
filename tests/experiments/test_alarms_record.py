"""The record of alarms: what the code gives, made twice alike, and which predictions held."""

import math

import pytest

from attnlib.probing.alarms import COLLAPSED
from experiments import alarms
from experiments.lab import data
from experiments.records import Entry, Record, load


@pytest.fixture(scope="module")
def recorded():
    return load("alarms")


def test_it_is_complete_and_was_made_by_its_command(recorded):
    assert recorded.command == alarms.COMMAND
    assert [entry.at for entry in recorded.entries] == [at for at, _ in alarms.work(None)]
    assert recorded.settings["steps"] == alarms.STEPS
    assert recorded.settings["every"] == alarms.EVERY


def test_every_run_is_whole(recorded):
    for at, found in recorded.entries:
        ended = found["diverged_at"]
        watched = -(-(alarms.STEPS if ended is None else ended + 1) // alarms.EVERY)
        assert len(found["loss"]) == len(found["alpha_to_critical"]) == watched, at
        assert found["lowest_at"] < (ended or alarms.STEPS), at
        for name, alarm in found["alarms"].items():
            assert alarm["name"] == name, at
            assert alarm["step"] % alarms.EVERY == 0, at
            assert alarm["heads"] >= 1, at
        if alarms.COLLAPSE in found["alarms"]:
            place = found["alarms"][alarms.COLLAPSE]["step"] // alarms.EVERY
            assert found["alpha_to_critical"][place] >= COLLAPSED, at


def test_what_was_expected_and_what_came(recorded):
    found = {text.split(":")[0]: (number, held) for text, number, held in alarms.verdicts(recorded)}
    assert found["runs that are warned of entropy collapse before, of 20"] == (19, True)
    assert [found[f"false alarms of collapse to 2⁻{rate}, of 10"] for rate in "⁹⁸⁷"] == [
        (0, True)
    ] * 3
    failed = {text: number for text, (number, held) in found.items() if not held}
    assert failed == {
        "steps before, the median with 2 layers": 23.0,
        "runs that are warned before their loss turns, of 20": 6,
        "false alarms of collapse from α = 4, of 10": 7,
    }


def test_runs_that_differ_later_begin_alike(recorded):
    # The warm-up is the same up to the steps 150, 200 and 250.
    for seed in alarms.SEEDS:
        endless = recorded.find(group=alarms.DIVERGING[0], seed=seed)["loss"]
        for group, alike in zip(alarms.USUAL, (8, 11, 13), strict=True):
            found = recorded.find(group=group, seed=seed)["loss"]
            assert found[:alike] == endless[:alike], seed
            assert found[alike : alike + 4] != endless[alike : alike + 4], seed


def test_the_first_steps_are_those_of_the_day_it_was_recorded(monkeypatch):
    # On a text that needs no network; in the record tiny-shakespeare.
    monkeypatch.setattr(alarms, "STEPS", 41)
    found = alarms.run(alarms.GROUPS[0], 0, data.embedded(20_000))
    assert found["loss"] == pytest.approx([5.987, 4.221, 3.55], rel=1e-3)
    assert found["alpha_to_critical"] == pytest.approx([0.4094, 0.4061, 0.4087], rel=1e-3)
    assert found["lowest_at"] == 40


def test_the_rate_doubles_and_ends_where_it_is_told_to():
    endless, ended = alarms.GROUPS[0], alarms.GROUPS[2]
    assert [math.log2(alarms.rate(endless, step)) for step in (0, 50, 500)] == [-12, -11, -2]
    assert [math.log2(alarms.rate(ended, step)) for step in (0, 50, 500)] == [-12, -11, -9]


def test_a_run_ends_when_its_loss_has_risen(monkeypatch):
    losses = iter([5.0] * 30 + [3.0] * 30 + [3.6] * 60)

    def loss(logits, targets):
        return logits.mean() * 0.0 + next(losses)

    monkeypatch.setattr(alarms, "loss", loss)
    found = alarms.run(alarms.GROUPS[2], 0, data.embedded(4096))
    assert found["lowest"] == pytest.approx(3.0)
    assert found["lowest_at"] == 49
    # 17 of the last 20 at 3.6 make a mean of 3.51.
    assert found["diverged_at"] == 60 + 16


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_a_divergence(monkeypatch, number):
    losses = iter([5.0] * 30 + [number])
    monkeypatch.setattr(alarms, "loss", lambda logits, targets: logits.mean() * 0.0 + next(losses))
    found = alarms.run(alarms.GROUPS[2], 0, data.embedded(4096))
    assert found["diverged_at"] == 30


def entry(group, seed, diverged_at, alarm):
    told = {} if alarm is None else {alarms.COLLAPSE: {"step": alarm}}
    found = {"diverged_at": diverged_at, "lowest_at": 100, "alarms": told}
    return Entry({"group": group, "seed": seed}, found)


def test_what_is_counted():
    first, second = alarms.DIVERGING
    entries = (
        entry(first, 0, 200, 150),
        entry(first, 1, 200, 80),
        entry(first, 2, 200, 220),
        entry(first, 3, 200, None),
        entry(second, 0, None, 60),
        entry("to 2⁻⁹", 0, None, None),
        entry("to 2⁻⁸", 0, None, 40),
    )
    record = Record("", {}, {}, entries)
    assert alarms.leads(record, first) == [50, 120, -20]
    assert alarms.count_diverged(record, alarms.DIVERGING) == 4
    assert alarms.count_warned(record) == 2
    assert alarms.count_before_turning(record) == 1
    assert alarms.alarmed(record, "to 2⁻⁸") == [40]
    assert alarms.alarmed(record, "to 2⁻⁹") == []
    assert alarms.count_dead(record) == 0

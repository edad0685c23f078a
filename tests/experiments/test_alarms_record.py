"""The record of alarms: what the code gives, made twice alike, and which predictions held."""

import math

import pytest

from experiments import alarms
from experiments.lab import texts


def test_the_first_steps_are_those_of_the_day_it_was_recorded(monkeypatch):
    # On a text that needs no network; in the record tiny-shakespeare.
    monkeypatch.setattr(alarms, "STEPS", 41)
    record = alarms.run(alarms.GROUPS[0], 0, texts.embedded(20_000))
    assert record["loss"] == pytest.approx([5.987, 4.221, 3.55], rel=1e-3)
    assert record["alpha_to_critical"] == pytest.approx([0.4094, 0.4061, 0.4087], rel=1e-3)
    assert record["lowest_at"] == 40
    for group, logs in ((alarms.GROUPS[0], (0, 1, 10)), (alarms.GROUPS[2], (0, 1, 5))):
        rates = (alarms.rate_multiplier(group, step) for step in (0, 50, 500))
        assert tuple(map(math.log2, rates)) == logs


@pytest.mark.parametrize(
    ("losses", "lowest_at", "diverged_at"),
    [
        # 17 of the last 20 at 3.6 make a mean of 3.51
        ([5.0] * 30 + [3.0] * 30 + [3.6] * 60, 49, 60 + 16),
        ([5.0] * 30 + [math.nan], 19, 30),
        ([5.0] * 30 + [math.inf], 19, 30),
    ],
)
def test_a_run_ends_when_its_loss_has_risen(monkeypatch, losses, lowest_at, diverged_at):
    several = iter(losses)
    loss = alarms.batch_loss
    monkeypatch.setattr(alarms, "batch_loss", lambda *of: 0.0 * loss(*of) + next(several))
    record = alarms.run(alarms.GROUPS[2], 0, texts.embedded(4096))
    assert (record["lowest_at"], record["diverged_at"]) == (lowest_at, diverged_at)

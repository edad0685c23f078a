"""The recorded scale of attention's output: as computed today, and made the same way twice."""

import pytest

from attnlib import exact
from attnlib.scores import Normal
from experiments import output_scale
from experiments.records import load


def estimates(entries):
    """Yield the name, the value, its standard error and the exact value of all that is recorded."""
    for at, content in entries:
        name = str(at)
        if at["of"] == "heads":
            for quantity in ("output", "query", "key", "value"):
                both = content[quantity]
                yield f"{name}: {quantity}", *both["measured"].values(), both["exact"]
        else:
            yield name, *content["weights"].values(), content["exact"]


def test_what_is_recorded_is_complete_and_agrees_with_the_exact_numbers_of_today():
    recorded = load("output_scale")
    work = output_scale.work(recorded.settings["scores"], recorded.settings["heads"])
    assert [entry.at for entry in recorded.entries] == [at for at, _ in work]
    for name, value, error, expected in estimates(recorded.entries):
        assert abs(value - expected) < 4.5 * error, name
        assert error < 0.15 * value, name
    for at, content in recorded.entries:
        if at["of"] != "heads":
            today = float(exact.output_std(Normal(), 1.0, at["n"]))
            assert content["exact"] == pytest.approx(today, rel=1e-9)


def test_an_entry_is_the_same_twice_and_of_the_exact_size(monkeypatch):
    monkeypatch.setattr(output_scale, "POWERS", (4, 16))
    monkeypatch.setattr(output_scale, "HEADS", ((16, 8, 1.0, False, 1.0), (16, 8, 1.0, True, 1.0)))

    def made():
        return [(at, compute()) for at, compute in output_scale.work(4000, 40)]

    first = made()
    assert len(first) == 4
    assert made() == first
    for name, value, error, expected in estimates(first):
        assert abs(value - expected) < 4.5 * error, name

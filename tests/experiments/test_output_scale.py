"""The recorded scale of attention's output: as computed today, and made the same way twice."""

import numpy as np

from attnlib import exact
from attnlib.scores import DotProduct
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
            for place in content.get("positions", []):
                yield f"{name}: {place['n']}", *place["output"].values(), place["exact"]
        else:
            for row in content:
                for way in ("outputs", "weights"):
                    yield f"{name}: {way}", *row[way].values(), row["exact"]


def test_what_is_recorded_is_complete_and_agrees_with_the_exact_numbers_of_today():
    recorded = load("output_scale")
    work = output_scale.work(recorded.settings["scores"], recorded.settings["heads"])
    assert [entry.at for entry in recorded.entries] == [at for at, _ in work]
    for name, value, error, expected in estimates(recorded.entries):
        assert abs(value - expected) < 4.5 * error, name
        assert error < 0.15 * value, name
    for at, content in recorded.entries:
        if at["of"] != "heads":
            law = output_scale.LAWS[at["law"]]
            scales = 1.0 / np.array([row["t"] for row in content])
            today = exact.output_std(law, scales, at["n"])
            np.testing.assert_allclose([row["exact"] for row in content], today, rtol=1e-9)


def test_an_entry_is_the_same_twice_and_of_the_exact_size(monkeypatch):
    monkeypatch.setattr(output_scale, "LENGTHS", (64,))
    monkeypatch.setattr(output_scale, "POWERS", (4, 16))
    monkeypatch.setattr(output_scale, "LAWS", {"d = 16": DotProduct(16)})
    monkeypatch.setattr(output_scale, "HEADS", ((16, 8, 1.0, False, 1.0), (16, 8, 1.0, True, 1.0)))

    def made():
        return [(at, compute()) for at, compute in output_scale.work(4000, 40)]

    first = made()
    assert len(first) == 5
    assert made() == first
    for name, value, error, expected in estimates(first):
        assert abs(value - expected) < 4.5 * error, name

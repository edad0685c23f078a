"""The recorded scale of attention's output: as computed today, and made the same way twice."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from attnlib import exact
from attnlib.scores import DotProduct, Normal
from tools import output_scale

SMALL = ["--scores", "4000", "--heads", "40"]


@pytest.fixture(scope="module")
def recorded():
    return json.loads(output_scale.RESULTS.read_text("utf-8"))


def estimates(entries):
    """Yield the name, the value, its standard error and the exact value of all that is recorded."""
    for name, content in entries.items():
        if name.startswith("heads"):
            for quantity in ("output", "query", "key", "value"):
                both = content[quantity]
                yield f"{name}: {quantity}", *both["measured"].values(), both["exact"]
            for place in content.get("positions", []):
                yield f"{name}: {place['n']}", *place["output"].values(), place["exact"]
        else:
            for row in content:
                for way in ("outputs", "weights"):
                    yield f"{name}: {way}", *row[way].values(), row["exact"]


def test_everything_is_recorded_with_how_it_was_made(recorded):
    wanted = dict(output_scale.work(recorded["scores"], recorded["heads"]))
    assert list(recorded["entries"]) == list(wanted)
    assert recorded["command"] == "python -m tools.output_scale"
    assert set(recorded["versions"]) == {"python", "numpy", "scipy", "torch"}


def test_what_is_recorded_agrees_with_the_exact_numbers(recorded):
    for name, value, error, expected in estimates(recorded["entries"]):
        assert abs(value - expected) < 4.5 * error, name
        assert error < 0.15 * value, name


def test_the_exact_numbers_are_those_of_today(recorded):
    laws = {"temperatures": Normal(), **output_scale.LAWS}
    for name, content in recorded["entries"].items():
        kind, *rest = name.split(", ")
        if kind in laws:
            n = int(rest[0].removeprefix("n = "))
            today = exact.output_std(laws[kind], 1.0 / np.array([row["t"] for row in content]), n)
            np.testing.assert_allclose([row["exact"] for row in content], today, rtol=1e-9)


def test_started_again_it_ends_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(output_scale, "LENGTHS", (64,))
    monkeypatch.setattr(output_scale, "POWERS", (4, 16))
    monkeypatch.setattr(output_scale, "LAWS", {"d = 16": DotProduct(16)})
    monkeypatch.setattr(output_scale, "HEADS", ((16, 8, 1.0, False, 1.0), (16, 8, 1.0, True, 1.0)))
    path = tmp_path / "results" / "output_scale.json"

    def run():
        result = CliRunner().invoke(output_scale.main, [*SMALL, "--out", str(path)])
        assert result.exit_code == 0, result.output
        return path.read_bytes()

    first = run()
    content = json.loads(first)
    assert len(content["entries"]) == 5
    assert run() == first
    for lost in list(content["entries"])[1::2]:
        del content["entries"][lost]
    path.write_text(json.dumps(content), "utf-8")
    assert run() == first
    path.write_text(json.dumps({**content, "seed": 0}), "utf-8")  # made otherwise: not taken over
    assert run() == first
    assert [file.name for file in path.parent.iterdir()] == [path.name]

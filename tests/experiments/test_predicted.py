"""All predictions in one list: none is left out, and their parts are read off the runs."""

import re

import numpy as np
import pytest

from experiments import records
from experiments.judges import judging, predicted
from experiments.judges.judging import HOLDS, number, require_interval_above_0, verdict

NUMBERED = re.compile(r"^# (\d+)\. ", re.MULTILINE)
OTHERS = {"alarms.py", "gpu/gain.toml", "gpu/length.toml"}
"""Files with predictions that are in other folders."""


def test_every_file_with_predictions_is_in_the_list():
    files = [*records.SWEEPS.glob("*.toml"), *(records.HERE / "predictions").glob("*.md")]
    texts = {path.relative_to(records.HERE).as_posix(): path.read_text("utf-8") for path in files}
    written = {
        name
        for name, text in texts.items()
        if "before the first r" in text.replace("\n# ", " ") or name.endswith(".md")
    }
    assert len(written) > 20
    assert {group.file for group in predicted.GROUPS} == written | OTHERS
    titles = [group.title for group in predicted.GROUPS]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("group", predicted.GROUPS, ids=lambda group: group.title)
def test_every_prediction_has_parts_and_no_part_stands_twice(group):
    parts = list(group.parts())
    assert len({(part.prediction, part.what, part.expected) for part in parts}) == len(parts)
    text = (records.HERE / group.file).read_text("utf-8")
    numbers = set(map(int, NUMBERED.findall(text))) if group.file.startswith("sweeps") else set()
    assert numbers <= {part.prediction for part in parts}
    assert not group.words or set(group.words) == {part.prediction for part in parts}


def test_a_number_whose_interval_holds_0_is_not_sure():
    for values, kept in (([1.0, 1.2], False), ([1.0, 1.001], True), ([0.1, 0.1001], False)):
        part = require_interval_above_0(number(1, "x", np.array(values), "above 0.5"))
        assert (part.verdict == HOLDS) == kept
        assert part.expected == "above 0.5, its interval above 0"


def test_a_part_holds_within_its_margin_or_on_its_side():
    for values, expected in (([1.0, 1.2], "holds"), ([1.0, 1.4], "refuted"), ([0, 1.0], "refuted")):
        part = judging.near(1, "x", np.array(values), 1.1, 0.05)
        assert (part.verdict, part.mean) == (expected, np.mean(values))
    ends = ("above 1", "below 1.2", "at least 1.2", "at most 1")
    verdicts = [judging.number(1, "x", np.array([1.0, 1.2]), end).verdict for end in ends]
    assert verdicts == ["holds", "holds", "refuted", "refuted"]
    graded = [judging.graded(1, "x", value, 2.0, 1.0).verdict for value in (2.0, 1.0, 0.9)]
    assert graded == ["holds", "open", "refuted"]
    signs = (
        ([1.0, 1.1], "holds"),
        ([-1.0, -1.1], "refuted"),
        ([-1.0, 2.0], "open"),
        ([1.0, -2.0], "open"),
    )
    for values, expected in signs:
        assert judging.above(1, "x", np.array(values)).verdict == expected
    part = judging.near(1, "x", np.array([1.0, 1.0]), 1.0, 0.1)
    others = [part._replace(verdict=word) for word in (judging.OPEN, judging.REFUTED)]
    worst = [verdict([part, *others[:count]]) for count in (0, 1, 2)]
    assert worst == ["holds", "open", "refuted"]  # that of its worst part

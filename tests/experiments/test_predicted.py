"""All predictions in one list: none is left out."""

import re

import numpy as np
import pytest

from experiments import judging, predicted, records
from experiments.judging import verdict

NUMBERED = re.compile(r"^# (\d+)\. ", re.MULTILINE)
OTHERS = {"gpu/gain.toml", "gpu/length.toml"}
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
def test_every_prediction_has_its_parts(group):
    found = {part.prediction for part in group.parts()}
    text = (records.HERE / group.file).read_text("utf-8")
    numbers = set(map(int, NUMBERED.findall(text))) if group.file.startswith("sweeps") else set()
    assert numbers <= found
    assert not group.words or set(group.words) == found


def test_a_part_holds_within_its_margin_or_on_its_side():
    for values, expected in (([1.0, 1.2], "holds"), ([1.0, 1.4], "refuted"), ([0, 1.0], "refuted")):
        part = judging.between(1, "x", np.array(values), 1.05, 1.15)
        assert (part.verdict, part.mean) == (expected, np.mean(values))
    ends = ("above 1", "below 1.2", "at least 1.2", "at most 1")
    found = [judging.number(1, "x", np.array([1.0, 1.2]), end).verdict for end in ends]
    assert found == ["holds", "holds", "refuted", "refuted"]
    signs = (([1.0, 1.1], "holds"), ([-1.0, -1.1], "refuted"), ([-1.0, 2.0], "open"))
    for values, expected in signs:
        assert judging.above(1, "x", np.array(values)).verdict == expected
    part = judging.between(1, "x", 1.0, 0.9, 1.1)
    others = [part._replace(verdict=word) for word in (judging.OPEN, judging.REFUTED)]
    worst = [verdict([part, *others[:count]]) for count in (0, 1, 2)]
    assert worst == ["holds", "open", "refuted"]  # that of its worst part

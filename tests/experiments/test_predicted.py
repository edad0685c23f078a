"""All predictions in one list: none is left out, and their parts are read off the runs."""

import json
import re

import numpy as np
import pytest

from experiments import judging, length, length_models, predicted, records, trained
from experiments.judging import HOLDS, number, surely, verdict
from experiments.lab.comparison import interval

NUMBERED = re.compile(r"^# (\d+)\. ", re.MULTILINE)
INCOMPLETE = {"predictions/kinds.md"}
"""Predictions whose record is not complete."""
OTHERS = {"alarms.py", "gpu/gain.toml", "gpu/length.toml"}
"""Files with predictions that are in other folders."""


def parts_of(file):
    return [part for group in predicted.GROUPS if group.file == file for part in group.parts()]


def test_every_file_with_predictions_is_in_the_list():
    files = [*records.SWEEPS.glob("*.toml"), *(records.HERE / "predictions").glob("*.md")]
    texts = {path.relative_to(records.HERE).as_posix(): path.read_text("utf-8") for path in files}
    written = {
        name
        for name, text in texts.items()
        if "before the first r" in text.replace("\n# ", " ") or name.endswith(".md")
    }
    assert len(written) > 20
    assert {group.file for group in predicted.GROUPS} == written - INCOMPLETE | OTHERS


@pytest.mark.parametrize("group", predicted.GROUPS, ids=lambda group: group.title)
def test_every_prediction_has_parts_and_no_part_stands_twice(group):
    parts = list(group.parts())
    assert len({(part.prediction, part.what, part.expected) for part in parts}) == len(parts)
    text = (records.HERE / group.file).read_text("utf-8")
    numbers = set(map(int, NUMBERED.findall(text))) if group.file.startswith("sweeps") else set()
    assert numbers <= {part.prediction for part in parts}
    words = group.words()
    assert not words or set(words) == {part.prediction for part in parts}


def test_a_number_whose_interval_holds_0_is_not_sure():
    for values, kept in (([1.0, 1.2], False), ([1.0, 1.001], True), ([0.1, 0.1001], False)):
        part = surely(number(1, "x", np.array(values), "above 0.5"))
        assert (part.verdict == HOLDS) == kept
        assert part.expected == "above 0.5, its interval above 0"


def test_what_failed_of_whole_predictions_is_what_the_chapters_found():
    """The verdicts that chapters computed on their own before there was one list."""
    failed = {
        file: {
            name
            for name in {part.prediction for part in parts}
            if verdict([part for part in parts if part.prediction == name]) != HOLDS
        }
        for file in ("calibrate.md", "starts.md", "real_heads.md")
        if (parts := parts_of(f"predictions/{file}"))
    }
    assert failed["calibrate.md"] == {"C4", "C5", "C6", "C9"}
    assert failed["starts.md"] == {3}
    assert len(failed["real_heads.md"]) == 31 - 12
    [output] = [part for part in parts_of("predictions/starts.md") if part.verdict != HOLDS]
    assert output.what.startswith("GPT-2, 512 keys")


def test_a_share_of_the_factors_rise_is_read_off_the_lines_of_its_runs():
    path = records.RECORDED / "training" / "dose.jsonl"
    losses = {"skip": [], "factor": [], "1": []}
    shown = {("constant", "constant"): "skip", ("constant", None): "factor", (None, None): "1"}
    for line in map(json.loads, path.read_text("utf-8").splitlines()):
        model, training = line["model"], line["training"]
        others = set(model) - {"width", "sequence", "initialisation", "input_norm"}
        kind = model.get("post_scale"), model.get("skip_weight")
        if training.get("learning_rate") == 2.0**-9 and others <= {"post_scale", "skip_weight"}:
            losses[shown[kind]].append(line["final_loss"])
    skip, factor, base = (np.mean(losses[name]) for name in ("skip", "factor", "1"))
    [part] = [part for part in parts_of("sweeps/dose.toml") if part.what == "skip over factor, 2⁻⁹"]
    assert part.mean == pytest.approx((skip - base) / (factor - base), rel=1e-6)


def test_a_chapter_says_how_many_parts_held():
    assert predicted.came("probe") == "11 parts held and 0 failed"
    parts = [p for g in predicted.GROUPS if g.chapter == "length_extrapolation" for p in g.parts()]
    held, failed, undecided = (
        sum(part.verdict == word for part in parts) for word in ("holds", "refuted", "open")
    )
    said = f"{held} parts held, {failed} failed and {undecided} are open"
    assert predicted.came("length_extrapolation") == said


def test_a_part_holds_within_its_margin_or_on_its_side():
    for values, expected in (([1.0, 1.2], "holds"), ([1.0, 1.4], "refuted"), ([0, 1.0], "refuted")):
        part = judging.near(1, "x", np.array(values), 1.1, 0.05)
        assert (part.verdict, part.mean) == (expected, np.mean(values))
    ends = ("above 1", "below 1.2", "at least 1.2", "at most 1")
    found = [judging.number(1, "x", np.array([1.0, 1.2]), end).verdict for end in ends]
    assert found == ["holds", "holds", "refuted", "refuted"]
    graded = [judging.graded(1, "x", value, 2.0, 1.0).verdict for value in (2.0, 1.0, 0.9)]
    assert graded == ["holds", "open", "refuted"]
    signs = (([1.0, 1.1], "holds"), ([-1.0, -1.1], "refuted"), ([-1.0, 2.0], "open"))
    for values, expected in signs:
        assert judging.above(1, "x", np.array(values)).verdict == expected
    part = judging.near(1, "x", np.array([1.0, 1.0]), 1.0, 0.1)
    others = [part._replace(verdict=word) for word in (judging.OPEN, judging.REFUTED)]
    worst = [verdict([part, *others[:count]]) for count in (0, 1, 2)]
    assert worst == ["holds", "open", "refuted"]  # that of its worst part


def test_losses_of_models_are_those_of_the_answer():
    models = length.Heads(length_models.outcomes())
    for key in (("fixed", 2000, 1024), ("noise", 2000, 4096)):
        none, law = models("none", *key), models("ssmax", *key)
        assert none == pytest.approx([one["answer_loss"] for one in models.found(*key)])
        assert law == pytest.approx([one["answers"]["ssmax"] for one in models.found(*key)])
        assert not np.allclose(models("loss", *key), none)


def test_what_ssmax_saves_is_read_off_the_lines_of_its_runs():
    """What SSMax saves at 16 n₀ where the needle stands once, and what its heads learn."""
    path = records.RECORDED / "heads" / "trained_law.jsonl"
    losses, learned = {}, []
    for line in map(json.loads, path.read_text("utf-8").splitlines()):
        task, law = line["task"], line["model"].get("law", "none")
        if task.get("gap") != "fixed" or "shortest" in task:
            continue
        if law == "none" or line["model"].get("learned_scale"):
            (far,) = (one for one in line["measured"] if one["n"] == 1024)
            losses[law, task.get("seed", 0)] = far["answer_loss"]
        if line["model"].get("learned_scale"):
            learned.append(np.abs(np.array(line["learned"][0][0]) - 1).mean())
    saved = interval([losses["none", seed] - losses["log", seed] for seed in range(5)])
    parts = list(trained.recall(trained.Recall(records.runs("trained_law"))))
    for what, wanted in (("fixed, none − ssmax", saved), ("fixed, |s − 1|", interval(learned))):
        (part,) = (part for part in parts if part.what == what)
        assert [part.mean, part.half_width] == pytest.approx([float(x) for x in wanted])

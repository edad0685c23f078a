"""The predictions about models trained with a rule in n, held against the lines of the runs."""

import json
import re

import numpy as np
import pytest

from experiments import gains, records, trained
from experiments.lab.comparison import interval


def texts():
    """Return the runs of both files of texts."""
    return trained.Text(records.runs("trained_text") + records.runs("trained_text_more"))


FILES = {
    "trained_law": ("heads", lambda runs: trained.recall(trained.Recall(runs))),
    "gain_text": ("training", lambda runs: gains.brief(gains.Gains(runs))),
    "gain_recall": ("heads", lambda runs: gains.recall(gains.Gains(runs))),
    "trained_text": ("training", lambda runs: trained.text(trained.Text(runs))),
    "trained_text_more": ("training", lambda _: trained.more(texts())),
}


@pytest.mark.parametrize("name", FILES)
def test_every_prediction_of_the_file_has_its_parts(name):
    text = (records.SWEEPS / f"{name}.toml").read_text("utf-8")
    numbers = set(map(int, re.findall(r"^# (\d+)\. ", text, re.MULTILINE)))
    parts = list(FILES[name][1](records.runs(name)))
    assert {part.prediction for part in parts} == numbers
    assert len({part.what for part in parts}) == len(parts)


def lines(name):
    path = records.RECORDED / FILES[name][0] / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_part_is_read_off_the_lines_of_its_runs():
    """What SSMax saves at 16 n₀ where the needle stands once, and what its heads learn."""
    losses, learned = {}, []
    for line in lines("trained_law"):
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

"""The audit of released families: what was recorded is found again, and nothing is alarming."""

import pytest

from experiments.census import audited
from experiments.records import load, path_of

ROWS = {entry.key["family"]: entry.result["rows"] for entry in load("census").entries}
QUICK = ("t5", "bert", "qwen3")
SLOW = ("bloom", "convbert", "deberta", "gemma3n", "gemma4", "gpt2", "granite", "inkling")
SLOW += ("llama4", "olmo2", "swinv2", "whisper")
FAMILIES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def answers(entry):
    models = [(answer["model"], answer["is"]) for answer in entry["released"]]
    return models, {name: (a["is"], a.get("named")) for name, a in entry["faults"].items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_audited_as_recorded(family):
    entry = audited.audit_family(family, ROWS[family])
    assert {answer["is"] for answer in entry["released"]} <= {"passed", "not known"}
    assert entry["faults"]["doubled"]["is"] == "findings"
    assert answers(entry) == answers(load(audited.NAME).find(family=family))


def test_the_record_is_of_every_family_of_the_census():
    assert path_of(audited.NAME).exists()
    audited_families = [entry.key["family"] for entry in load(audited.NAME).entries]
    assert audited_families == [name for name, rows in ROWS.items() if rows]

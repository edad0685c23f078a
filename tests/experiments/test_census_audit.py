"""The audit of released families: what was recorded is found again, and nothing is alarming."""

import pytest

from experiments.census import audited
from experiments.records import load, path_of

ROWS = {entry.key["family"]: entry.result["rows"] for entry in load("census").entries}
QUICK = ("t5", "bert", "qwen3")
SLOW = ("bloom", "convbert", "deberta", "gemma3n", "gemma4", "gpt2", "granite", "inkling")
SLOW += ("llama4", "olmo2", "swinv2", "whisper")
FAMILIES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def answers(found):
    models = [(one["model"], one["is"]) for one in found["released"]]
    return models, {name: (one["is"], one.get("named")) for name, one in found["faults"].items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_audited_as_recorded(family):
    with audited.cache_kernels():
        found = audited.audit_family(family, ROWS[family])
    assert {one["is"] for one in found["released"]} <= {"passed", "not known"}
    assert found["faults"]["doubled"]["is"] == "findings"
    assert answers(found) == answers(load(audited.NAME).find(family=family))


def test_the_record_is_of_every_family_of_the_census():
    entries = load(audited.NAME).entries
    assert path_of(audited.NAME).exists()
    assert [one.key["family"] for one in entries] == [name for name, rows in ROWS.items() if rows]

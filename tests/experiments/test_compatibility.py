"""What attnlib does with the models of transformers: the record, the page, and what a run finds."""

import re

import pytest
import torch

from attnlib import rows
from experiments import compatibility
from experiments.compatibility import (
    FAMILIES,
    IMPLEMENTATIONS,
    IN_PART,
    NONE,
    REFUSED,
    RIGHT,
    SITUATIONS,
    TOOLS,
    WRONG,
    by_hand,
    cell,
    given,
    tiny,
    usual,
    work,
)
from experiments.records import load
from tests.books import ROOT

RECORD = load("compatibility")
FUSED = [
    family
    for family in FAMILIES
    if RECORD.find(family=family, implementation="sdpa", situation="plain")["probe"]["is"] != NONE
]


def test_the_record_has_every_cell_and_none_is_wrong():
    assert [entry.at for entry in RECORD.entries] == [at for at, _ in work()]
    cells = [found for entry in RECORD.entries for found in entry.found.values()]
    assert {found["is"] for found in cells} == {RIGHT, REFUSED, NONE}
    assert len(FAMILIES) >= 16
    for found in cells:
        if found["is"] == REFUSED:
            assert "\n" not in found["line"]


def test_the_page_shows_the_record():
    assert compatibility.PAGE.read_text("utf-8") == compatibility.page(RECORD)
    assert (ROOT / "_toc.yml").read_text("utf-8").count("- file: compatibility\n") == 1


def compare(family, implementation, situation, tools=TOOLS):
    expected = RECORD.find(family=family, implementation=implementation, situation=situation)
    for tool in tools:
        assert cell(family, implementation, tool, situation) == expected[tool], tool


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_recorded_as_a_run_finds_it(family):
    situation = "padding" if compatibility.there_is(family, "padding") else "plain"
    compare(family, usual(family), situation)


@pytest.mark.parametrize(
    ("family", "implementation", "situation", "tools"),
    [
        ("Llama", "eager", "plain", TOOLS),
        ("Gemma2", "flex_attention", "plain", TOOLS),
        ("Gemma3Text", "sdpa", "generation", TOOLS),
        ("Whisper", "sdpa", "cache", TOOLS),
        ("Phi3", "sdpa", "bfloat16", TOOLS),
        ("GptOss", "eager", "checkpointing", TOOLS),
        # Its experts break the graph, and a mode's own function was compiled.
        ("Mixtral", "sdpa", "compile", ["probe"]),
    ],
)
def test_some_other_cells_are_as_recorded(family, implementation, situation, tools):
    compare(family, implementation, situation, tools)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_cell_is_as_recorded(family):
    for implementation in IMPLEMENTATIONS:
        compare(family, implementation, "plain")
    for situation in SITUATIONS:
        compare(family, usual(family), situation)


@pytest.mark.parametrize("family", FUSED)
def test_what_is_written_out_by_hand_is_the_models_own_eager_attention(family):
    model = tiny(family)
    hand_reaches = tiny(family, "sdpa") if family == "Falcon" else model
    with torch.no_grad():
        own = model(**given(family, False))[0]
        with by_hand(hand_reaches, "own"):
            torch.testing.assert_close(
                hand_reaches(**given(family, False))[0], own, rtol=1e-3, atol=1e-5
            )


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(FUSED)))
def test_the_probe_s_advice_for_models_that_refuse_sdpa_works(family):
    line = RECORD.find(family=family, implementation="eager", situation="plain")["probe"]["line"]
    assert re.search("attn_implementation='eager' and output_attentions=True", line)
    with torch.no_grad():
        outputs = tiny(family, "eager")(**given(family, False), output_attentions=True)
    weights = outputs["decoder_attentions" if family in IN_PART else "attentions"]
    assert len(weights) == 2
    share = weights[1] / weights[1].sum(-1, keepdim=True)  # the rest is a sink's, in GPT-OSS
    assert rows.collision_probability(share).min() > 0.0


def test_a_wrong_number_is_called_wrong(monkeypatch):
    hand = {**compatibility.RULES, "policy": lambda own, n, d: 1.01 * own}
    monkeypatch.setattr(compatibility, "RULES", hand)
    assert cell("Llama", "sdpa", "register")["is"] == WRONG

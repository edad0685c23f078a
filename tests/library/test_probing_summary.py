"""What a report says in words."""

import math

import pytest

from attnlib.probing import DEFINITIONS, probe, summary
from tests.library import foreign

USUAL = {
    **dict.fromkeys(DEFINITIONS, 0.0),
    **{"layer": "attention", "call": 0, "head": 0, "rows": 50, "dimension": 64, "scale": 0.125},
    **{"keys": 100.0, "alpha": 1.0, "critical_alpha": 3.0, "first_weight": 0.01},
    **{"effective_keys": 40.0, "random_effective_keys": 40.0, "entropy": 4.0},
    **{"random_entropy": 4.0, "gradient": 0.9, "random_gradient": 0.9},
    **{"output_std": 0.1, "random_output_std": 0.1},
}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"effective_keys": 40.0 / 1.51}, "a few logits stand out"),
        ({"effective_keys": 40.0 * 1.51}, "many keys tie near the top"),
        ({"first_weight": 0.3}, "the first key has 30% of the weight, an attention sink"),
        ({"wide": 0.5}, "50% of its rows spread beyond"),
        ({"effective_keys": 91.0, "random_effective_keys": 91.0}, "evenly, over 91.0 of 100.0"),
        ({"effective_keys": math.nan}, "NaN or infinite"),
    ],
)
def test_a_head_that_stands_out_is_named_with_its_reason(changed, reason):
    [(line, why)] = summary.unusual([USUAL, {**USUAL, "head": 7, **changed}])
    assert line["head"] == 7
    assert reason in why


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"effective_keys": 40.0, "random_effective_keys": 60.0},
        {"effective_keys": 60.0, "random_effective_keys": 40.0},
        {"first_weight": 0.29},
        {"first_weight": 0.3, "keys": 6.0, "effective_keys": 5.0, "random_effective_keys": 5.0},
        {"wide": 0.49},
        {"keys": 2.0, "effective_keys": 2.0, "random_effective_keys": 2.0},
    ],
)
def test_a_usual_head_is_not_named(changed):
    assert summary.unusual([{**USUAL, **changed}]) == []


def test_the_key_that_is_meant_is_shown_by_head_within_a_line():
    model = foreign.llama()
    with probe(model, targets="previous") as report:
        model(foreign.tokens())
    best = report.table().sort_values("target_weight").iloc[-1]
    lines = str(report).splitlines()
    shown = lines[lines.index("The key that is meant, by head:") + 2]
    columns = ("target_weight", ".3f"), ("target_gap", ".2f"), ("target_ratio", ".2f")
    numbers = [f"{best[name]:{spec}}" for name, spec in columns]
    assert [shown.split()[i] for i in (0, 1, 3, 4, 6)] == [best.layer, str(best["head"]), *numbers]
    assert max(map(len, lines)) <= summary.PAGE

"""What a report says in words."""

import math

import pytest
import torch

from attnlib.probing import probe, summary
from tests.library import foreign

USUAL = {
    "layer": "attention",
    "call": 0,
    "head": 0,
    "rows": 50,
    "keys": 100.0,
    "alpha": 1.0,
    "critical_alpha": 3.0,
    "effective_keys": 40.0,
    "random_effective_keys": 40.0,
    "entropy": 4.0,
    "random_entropy": 4.0,
    "gradient": 0.9,
    "random_gradient": 0.9,
    "wide": 0.0,
    "random_wide": 0.0,
    "output_std": 0.1,
    "random_output_std": 0.1,
    "first_weight": 0.01,
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
        {"effective_keys": 40.0 / 1.49},
        {"effective_keys": 40.0 * 1.49},
        {"first_weight": 0.29},
        {"first_weight": 0.3, "keys": 6.0, "effective_keys": 5.0, "random_effective_keys": 5.0},
        {"wide": 0.49},
        {"rows": 0, "effective_keys": math.nan},
        {"effective_keys": 89.0, "random_effective_keys": 89.0},
    ],
)
def test_a_usual_head_is_not_named(changed):
    assert summary.unusual([{**USUAL, **changed}]) == []


def test_the_furthest_come_first():
    lines = [{**USUAL, "head": i, "effective_keys": keys} for i, keys in enumerate([9, 99, 2, 20])]
    assert [line["head"] for line, _ in summary.unusual(lines, 3)] == [2, 0, 1]


def test_the_text_has_a_line_for_each_layer_beside_random_scores():
    heads = [{**USUAL, "head": i, "alpha": float(i)} for i in range(4)]
    second = {**USUAL, "call": 1, "random_entropy": math.nan, "effective_keys": math.inf}
    lines = summary.text([*heads, second]).splitlines()
    assert lines[2].split() == ["keys", "1/Y", "entropy", "gradient", "wide", "output", "std"]
    assert lines[3].split() == ["layer", "α", "α_c", *["model", "random"] * 5]
    numbers = [
        "1.50",
        "3.00",
        "40.0",
        "40.0",
        "4.00",
        "4.00",
        "0.90",
        "0.90",
        "0.00",
        "0.00",
        "0.100",
        "0.100",
    ]
    assert lines[4].split() == ["attention", *numbers]
    assert lines[5].split()[:6] == ["attention", "1", "1.00", "3.00", "–", "40.0"]
    assert lines[5].split()[7] == "–"
    assert "- attention 1 head 0: its numbers are NaN or infinite" in lines
    assert len({len(line) for line in lines[2:6]}) == 1


def test_without_theory_there_is_nothing_beside():
    model, run = foreign.MODELS["Llama, grouped queries"]()
    with probe(model, theory=False) as report:
        run()
    assert "model" not in str(report)
    assert "layers.1.self_attn" in str(report)


def test_a_report_names_its_sink():
    attention = torch.nn.MultiheadAttention(8, 1, batch_first=True)
    x = torch.zeros(1, 40, 8)
    x[:, 0, 0] = 30.0
    with torch.no_grad():
        attention.in_proj_bias.fill_(1.0)
        attention.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
    with probe(model := torch.nn.Sequential(Alone(attention))) as report:
        model(x)
    [(layer, call, head, why)] = report.unusual()
    assert (layer, call, head) == ("0.attention", 0, 0)
    assert "an attention sink" in why
    with pytest.raises(ValueError, match="count must be from 1"):
        report.unusual(0)


class Alone(torch.nn.Module):
    """Self-attention of vectors."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

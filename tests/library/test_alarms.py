"""Which numbers of a head that trains are alarms: each from both sides of its threshold."""

import math
import warnings

import numpy as np
import pytest
import torch

from attnlib.probing import Monitor, alarms
from attnlib.probing.alarms import find_alarms
from tests.library import foreign

WELL = {
    "rows": 256,
    "keys": 512.0,
    "alpha": 2.0,
    "critical_alpha": 3.5,
    "alpha_to_critical": 0.57,
    "largest_logit": 9.0,
    "largest_weight": 0.3,
    "first_weight": 0.1,
    "effective_keys": 20.0,
    "gradient": 1.9,
}


def alarms_of(columns, count=alarms.WINDOW):
    """Return the alarms of a head that is well but for these columns: the numbers of each step."""
    lines = [dict(WELL) for _ in range(count)]
    for name, numbers in columns.items():
        for line, number in zip(lines, np.broadcast_to(numbers, count).tolist(), strict=True):
            line[name] = number
    return list(find_alarms(lines))


GROWING = {"alpha_to_critical": (0.8, 1.0, 1.21), "largest_logit": (20.0, 25.0, 31.0)}
FADING = {"alpha_to_critical": 0.49, "largest_weight": (0.055, 0.03, 0.02)}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("entropy collapse", GROWING),
        (
            "entropy collapse",  # just at each threshold
            {"alpha_to_critical": (0.75, 1.0, 1.2), "largest_logit": (10.0, 12.0, 15.0)},
        ),
        ("dilution", FADING | {"keys": 256.0}),
        (
            "dilution",
            {"alpha_to_critical": 0.5, "keys": 256.0, "largest_weight": (math.e / 4.0, 0.3, 0.25)},
        ),
        ("dead head", {"first_weight": 0.99}),
        ("dead head", {"gradient": 0.0349}),
    ],
)
def test_what_is_an_alarm(name, columns):
    assert [kind for kind, _ in alarms_of(columns)] == [name]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        GROWING | {"alpha_to_critical": (0.7, 1.0, 1.19)},
        GROWING | {"alpha_to_critical": (0.82, 1.0, 1.21)},  # by 1.48
        GROWING | {"alpha_to_critical": (0.8, 1.25, 1.21)},  # falls again
        GROWING | {"alpha_to_critical": 5.0},  # sharp, and stays so
        GROWING | {"largest_logit": (21.0, 25.0, 31.0)},  # by 1.48
        FADING | {"keys": 255.0},
        FADING | {"alpha_to_critical": 0.51},
        FADING | {"largest_weight": (0.054, 0.03, 0.02)},
        {"first_weight": 0.989},
        {"gradient": 0.0351},
        {"gradient": (0.0351, 0.01, 0.01)},
        {"gradient": 0.01, "critical_alpha": 1.0},
        {"rows": 0, "alpha": math.nan},
    ],
)
def test_what_is_none(columns):
    assert alarms_of(columns) == []


@pytest.mark.parametrize("column", ["alpha", "largest_logit"])
def test_what_is_not_finite_is_told_at_once_and_the_rest_after_three_steps(column):
    for number in (math.nan, math.inf):
        assert [name for name, _ in alarms_of({column: number}, 1)] == ["not finite"]
    assert alarms_of({"alpha_to_critical": (1.5, 2.5), "largest_logit": (20.0, 40.0)}, 2) == []


# --- the monitor tells them ----------------------------------------------------------------------


def sharpening(model, steps):
    """Run training steps, and double the queries after each; they start small."""
    for step in range(steps):
        with torch.no_grad():
            for layer in model.layers:
                layer.self_attn.q_proj.weight.mul_(2.0 if step else 1.0 / 16.0)
        model(foreign.tokens())


def test_a_collapse_is_told_once_for_each_head():
    model, heard = foreign.llama().train(), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Monitor(model, every=1, on_alarm=heard.append) as monitor:
            sharpening(model, 12)
    assert heard == monitor.alarms
    kinds = [(alarm.layer, alarm.head, alarm.name) for alarm in monitor.alarms]
    assert len(set(kinds)) == len(kinds)
    collapsed = [alarm for alarm in monitor.alarms if alarm.name == "entropy collapse"]
    assert len(collapsed) == 2 * foreign.HEADS
    spreads = monitor.table().set_index(["layer", "head", "step"])["alpha_to_critical"]
    for alarm in collapsed:  # at the first step at which it holds
        assert spreads[alarm.layer, alarm.head, alarm.step] >= alarms.COLLAPSE
        assert spreads[alarm.layer, alarm.head, alarm.step - 1] < alarms.COLLAPSE

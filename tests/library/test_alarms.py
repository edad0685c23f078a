"""Which numbers of a head that trains are alarms: each from both sides of its threshold."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnlib import exact, typical
from attnlib.probing import Monitor, alarms, measure, probe
from attnlib.probing.alarms import reasons
from attnlib.scores import Normal
from tests.library import foreign
from tests.library.test_probing import Caller, draw

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


def lines(count=alarms.WATCHED, **columns):
    """Return lines of a head that is well but for these columns: the numbers of each step."""
    columns = {
        name: numbers if isinstance(numbers, tuple) else (numbers,) * count
        for name, numbers in columns.items()
    }
    return [WELL | {name: numbers[i] for name, numbers in columns.items()} for i in range(count)]


def names(*given, **columns):
    return [name for name, _ in reasons(lines(*given, **columns))]


def test_a_head_that_is_well_gives_none():
    assert names() == []
    assert names(alpha_to_critical=(0.5, 0.6, 0.9), largest_logit=(9.0, 12.0, 20.0)) == []


GROWING = {"alpha_to_critical": (1.5, 1.8, 2.01), "largest_logit": (20.0, 22.0, 25.0)}


def test_entropy_collapse_is_growth_beyond_twice_the_critical_alpha():
    assert names(**GROWING) == ["entropy collapse"]
    (_, why), *_ = reasons(lines(**GROWING))
    assert "α has grown to 2.0 α_c and the largest logit from 20 to 25 over the last 3" in why
    assert "20.0 of 512 keys share the weight" in why


@pytest.mark.parametrize(
    "columns",
    [
        {"alpha_to_critical": (1.5, 1.8, 1.99)},
        {"alpha_to_critical": (1.7, 1.8, 2.01)},  # by 1.18
        {"alpha_to_critical": (1.5, 2.1, 2.01)},  # falls again
        {"alpha_to_critical": (5.0, 5.0, 5.0)},  # sharp, and stays so
        {"largest_logit": (21.0, 22.0, 25.0)},  # by 1.19
        {"largest_logit": (20.0, 26.0, 25.0)},
        {"largest_logit": (-20.0, -5.0, -1.0)},
    ],
)
def test_entropy_does_not_collapse_by_half_of_that(columns):
    assert names(**(GROWING | columns)) == []


def test_two_steps_are_too_few():
    assert names(2, alpha_to_critical=(1.5, 2.5), largest_logit=(20.0, 40.0)) == []


FADING = {"alpha_to_critical": 0.49, "largest_weight": (0.055, 0.03, 0.02)}


def test_dilution_is_a_fall_by_e_where_no_key_stands_out():
    assert names(**FADING, keys=256.0) == ["dilution"]
    (_, why), *_ = reasons(lines(**FADING))
    assert "from 0.055 to 0.02 over the last 3 watched steps, and 20 of 512 keys" in why
    assert "at 0.49 α_c no logit is log n = 6.2 above the others" in why


@pytest.mark.parametrize(
    "columns",
    [
        {"keys": 255.0},
        {"alpha_to_critical": 0.51},
        {"largest_weight": (0.054, 0.03, 0.02)},
        {"largest_weight": 0.02},
    ],
)
def test_weights_that_spread_less_are_not_diluted(columns):
    assert names(**(FADING | columns)) == []


def test_a_head_with_even_weights_is_dead():
    assert names(alpha=0.324) == ["dead head"]
    (_, why), *_ = reasons(lines(alpha=(0.32, 0.3, 0.3)))
    assert why == "its weights are even: at α = 0.3, 1/Y is 0.91 n, over the last 3 watched steps"
    assert names(alpha=0.325) == []
    assert names(alpha=(0.325, 0.1, 0.1)) == []


def test_a_head_that_sharpens_is_not_dead():
    assert names(alpha=(0.05, 0.055, 0.059)) == ["dead head"]
    assert names(alpha=(0.05, 0.055, 0.061)) == []
    assert names(alpha=(0.05, 0.07, 0.061)) == ["dead head"]
    assert names(alpha=0.0) == ["dead head"]
    assert names(alpha=(0.01, 0.015, 0.02), gradient=(0.01, 0.015, 0.02)) == []


def test_a_head_that_sees_only_the_first_key_is_dead():
    assert names(first_weight=0.991) == ["dead head"]
    (_, why), *_ = reasons(lines(first_weight=0.991))
    assert why.startswith("the first key has 99.1% of the weight: every query gets its value")
    assert names(first_weight=0.989) == []
    assert names(first_weight=(0.989, 0.999, 0.999)) == []


def test_a_head_without_gradient_is_dead():
    assert names(gradient=0.0349) == ["dead head"]
    (_, why), *_ = reasons(lines(gradient=0.03))
    assert "g = α(1 − Y) is 0.03, where random scores have up to √(2 log n) = 3.5" in why
    assert names(gradient=0.0351) == []
    assert names(gradient=(0.0351, 0.01, 0.01)) == []


@pytest.mark.parametrize("column", ["alpha", "largest_logit"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_is_told_at_once(column, number):
    assert names(1, **{column: number}) == ["not finite"]
    assert names(**{column: (math.nan, 1.0, 1.0)}) == []


def test_a_head_without_rows_gives_none():
    assert names(rows=0, alpha=math.nan) == []


# --- the thresholds say what they are made of ----------------------------------------------------


@pytest.mark.parametrize("n", [16, 256])
def test_beyond_collapsed_the_median_gradient_of_random_scores_falls(n):
    best = typical.best_alpha(Normal(), n, "median", rows=40_000, seed=3)
    unit = math.sqrt(2.0 * math.log(n))
    assert best.value + 4.5 * best.standard_error < alarms.COLLAPSED * unit


@pytest.mark.parametrize("n", [16, 256, 4096])
def test_even_is_nine_tenths_of_all_keys(n):
    at = 1.0 / float(exact.collision_probability(Normal(), alarms.EVEN, n)) / n
    assert at == pytest.approx(0.9, abs=0.01)


def test_even_weights_are_even_under_a_causal_mask_too():
    # There 1/Y of the mean Y is far below the mean of n.
    q, k, v = (draw(4, 1, 64, 8, seed=i) for i in range(3))
    call = measure.Call(0.2 * q, k, v, is_causal=True)
    rows = measure.measure(call, functional.scaled_dot_product_attention(*call[:3])).rows
    seen = rows.keys >= 2.0
    share = 1.0 / (rows.keys * rows.collision_probability)[seen]
    alpha = math.sqrt(rows.variance[seen].mean())
    assert share.mean() == pytest.approx(math.exp(-(alpha**2)), abs=0.01)
    assert 1.0 / rows.collision_probability[seen].mean() < 0.6 * rows.keys[seen].mean()


# --- the monitor tells them ----------------------------------------------------------------------


def sharpening(model, steps, factor):
    """Run training steps, and multiply queries by a factor after each; they start small."""
    for step in range(steps):
        with torch.no_grad():
            for layer in model.layers:
                layer.self_attn.q_proj.weight.mul_(factor if step else 1.0 / 16.0)
        model(foreign.tokens())


def test_a_collapse_is_warned_of_once_for_each_head():
    model = foreign.llama().train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Monitor(model, every=1) as monitor:
            sharpening(model, 12, 2.0)
    texts = [str(warning.message) for warning in caught]
    assert {warning.category for warning in caught} == {UserWarning}
    kinds = [(alarm.layer, alarm.head, alarm.name) for alarm in monitor.alarms]
    assert len(set(kinds)) == len(kinds)
    heads = 2 * foreign.HEADS
    assert [name for *_, name in kinds].count("entropy collapse") == heads
    assert any("entropy collapse in layers.0.self_attn head " in text for text in texts)
    assert all(text.startswith("step ") and "\n" not in text for text in texts)
    assert sum(text.count("α_c") for text in texts) < heads  # three of a step are shown
    assert any("more in monitor.alarms" in text for text in texts)
    first = min(alarm.step for alarm in monitor.alarms)
    table = monitor.tables[first]
    assert table["alpha_to_critical"].max() >= alarms.COLLAPSED
    assert monitor.tables[first - 1]["alpha_to_critical"].max() < alarms.COLLAPSED


def test_a_function_gets_the_alarms_and_nothing_is_warned_of():
    model = foreign.llama().train()
    told = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Monitor(model, every=1, on_alarm=told.append) as monitor:
            sharpening(model, 8, 2.0)
        with Monitor(model, every=1, alarms=False) as silent:
            sharpening(model, 3, 2.0)
    assert told == monitor.alarms != []
    assert silent.alarms == []


def test_a_longer_context_at_the_same_alpha_is_diluted():
    model = Caller().train()
    with Monitor(model, every=1, rows=64, on_alarm=lambda _: None) as monitor:
        for n in (128, 512, 2048):
            model(*(draw(1, 1, n, 64, seed=i) for i in range(3)))
    assert [(alarm.name, alarm.step) for alarm in monitor.alarms] == [("dilution", 2)]


def test_numbers_that_are_not_finite_are_an_alarm():
    model = Caller().train()
    with Monitor(model, every=1, on_alarm=lambda _: None) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.full((1, 1, 4, 2), math.inf), *(draw(1, 1, 4, 2, seed=i) for i in range(2)))
    assert [alarm.name for alarm in monitor.alarms] == ["not finite"]


def test_training_that_is_well_gives_none():
    model = foreign.llama().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, every=1) as monitor:
        for _ in range(8):
            optimizer.zero_grad()
            model(foreign.tokens())[0].square().mean().backward()
            optimizer.step()
    with probe(model, theory=False) as report:
        model(foreign.tokens())
    assert np.isfinite(report.table()["alpha"]).all()
    assert monitor.alarms == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alarms": 1}, "alarms must be"),
        ({"on_alarm": "print"}, "on_alarm must be a function of an alarm, got 'print'"),
    ],
)
def test_what_it_does_not_take(options, message):
    with pytest.raises(TypeError, match=message):
        Monitor(Caller(), **options)


# --- at a threshold, and on both sides of it ------------------------------------------------------


def test_what_is_just_at_a_threshold():
    at = {"alpha_to_critical": (1.5, 1.7, 2.0), "largest_logit": (10.0, 11.0, 12.0)}
    assert names(**at) == ["entropy collapse"]
    assert names(**(GROWING | {"largest_logit": (20.0, 25.0, 25.0)})) == []  # the same as before
    fallen = {"alpha_to_critical": 0.5, "keys": 256.0}
    assert names(**fallen, largest_weight=(math.e / 4.0, 0.3, 0.25)) == ["dilution"]
    assert names(alpha=(0.125, 0.13, 0.15)) == []  # a fifth sharper
    assert names(first_weight=0.99) == ["dead head"]
    assert names(alpha=alarms.EVEN) == []
    assert names(alpha=alarms.EVEN, gradient=0.01) == ["dead head"]
    assert names(gradient=0.01, critical_alpha=1.0) == []


def test_growth_is_the_last_over_the_first():
    assert alarms.growth([{"alpha": x} for x in (2.0, 1.0, 3.0)], "alpha") == 1.5
    for numbers in ((0.0, 1.0, 2.0), (-1.0, 1.0, 2.0), (1.0, 2.0, 2.0), (2.0, 2.0, 1.0)):
        assert alarms.growth([{"alpha": x} for x in numbers], "alpha") == 0.0
    (_, why), *_ = reasons(lines(alpha=(0.32, 0.31, 0.3)))
    assert "at α = 0.3, " in why

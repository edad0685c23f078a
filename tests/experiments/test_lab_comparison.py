"""Differences of variants over seeds, against formulas written out and simulated coverage."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.lab import comparison
from experiments.lab.model import Config
from experiments.lab.sweep import Outcome, Setting
from experiments.lab.train import Run, Training

NONE = np.zeros(0)


def outcome(variant, rate, seed, loss):
    training = Training(learning_rate=rate, seed=seed)
    run = Run(NONE, None if loss else 0, loss, loss and loss + 0.5, NONE.astype(int), NONE, NONE)
    return Outcome(Setting(variant, Config(), training, "embedded", ""), run)


SWEEP = [
    outcome(variant, rate, seed, base + rate + 0.1 * seed)
    for seed in (5, 3)
    for rate in (0.5, 0.25, 2.0)
    for variant, base in (("baseline", 1.0), ("note", 2.0))
]


def test_losses_are_by_rate_and_seed_in_the_order_of_the_sweep():
    np.testing.assert_array_equal(comparison.learning_rates(SWEEP), [0.5, 0.25, 2.0])
    losses = comparison.losses(SWEEP, "note")
    np.testing.assert_allclose(losses, [[3.0, 2.8], [2.75, 2.55], [4.5, 4.3]], rtol=1e-15)
    of_validation = comparison.losses(SWEEP, "note", "validation_loss")
    np.testing.assert_allclose(of_validation, losses + 0.5, rtol=1e-15)


def test_a_run_that_diverged_has_an_infinite_loss_and_two_are_equally_bad():
    runs = [outcome(variant, 0.5, 0, None) for variant in ("baseline", "note")]
    np.testing.assert_array_equal(comparison.losses(runs, "note"), [[np.inf]])
    np.testing.assert_array_equal(comparison.loss_increase(runs, "note"), [[0.0]])


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_interval_is_that_of_scipys_t_test(values):
    values[0] += 1.0 if len(set(values)) == 1 else 0.0  # scipy has no interval for equal values
    for comparisons in (1, 6):
        test = stats.ttest_1samp(values, 0.0)
        low, high = test.confidence_interval(1.0 - 0.05 / comparisons)
        mean, half_width = comparison.interval(values, comparisons)
        np.testing.assert_allclose([mean - half_width, mean + half_width], [low, high], atol=1e-9)


def test_the_best_rate_of_a_seed_is_that_of_the_others():
    losses = {0.5: (1.0, 4.0, 4.0), 2.0: (3.0, 2.0, 2.5)}
    runs = [outcome("note", r, s, x) for r, row in losses.items() for s, x in enumerate(row)]
    # Seeds 1 and 2 choose rate 2; those of seeds 0 and 2 are 2.5, 2.75, of seeds 0 and 1 both 2.5.
    np.testing.assert_array_equal(comparison.losses_at_best(runs, "note"), [3.0, 4.0, 4.0])

"""Monte Carlo: the same bytes on any executor, and honest errors."""

import math
import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import stats

from attnlib import rows, sampling, scores
from attnlib.scores import Normal
from tests.paths import examples

N, ROWS = 64, 100_000  # 13 batches of at most 8192 rows, each in 8 chunks
GOOD = {"law": Normal(), "n": 4, "statistic": lambda s: s[:, 0], "rows": 10, "seed": 0}


class Backwards(Executor):
    """Runs what it is given from the last to the first."""

    def map(self, function, *arguments, **options):
        calls = list(zip(*arguments, strict=True))
        return reversed([function(*call) for call in reversed(calls)])


def three_numbers(s):
    return np.stack([s[:, 0], s.max(axis=-1), np.exp(s).sum(axis=-1)], axis=-1)


def of_gradients(**others):
    gradient = partial(rows.gradient, alpha=2.0)
    return sampling.sample(Normal(), N, gradient, **{"rows": ROWS, "seed": 3, **others})


def content(sample):
    """Return everything that a sample says, as bytes."""
    estimates = (sample.mean(), sample.quantile([0.01, 0.5, 0.9]))
    return b"".join(np.asarray(part).tobytes() for estimate in estimates for part in estimate)


@pytest.fixture(scope="module")
def expected():
    return content(of_gradients(executor=Backwards()))


def test_threads_and_processes_give_the_same_bytes(expected):
    assert content(of_gradients()) == expected
    with ThreadPoolExecutor(2) as executor:
        assert content(of_gradients(executor=executor)) == expected
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        assert content(of_gradients(executor=executor)) == expected
    assert content(of_gradients(seed=4)) != expected


def test_a_cluster_gives_the_same_bytes_and_its_example_runs(expected):
    (code,) = examples("simulation")
    names = {"rows": rows, "scores": scores, "sampling": sampling}
    with LocalCluster(1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        for written, here in (
            ("tcp://scheduler:8786", cluster.scheduler_address),
            ("rows=10**7", "rows=10_000"),
        ):
            assert written in code
            code = code.replace(written, here)
        exec(code, names)
        with Client.current() as client:
            assert content(of_gradients(executor=client.get_executor())) == expected
    again = sampling.sample(Normal(), 512, rows.gradient, rows=10_000, seed=0)
    assert names["result"].mean() == again.mean()


def test_mean_and_quantiles_are_those_of_the_values():
    # At an offset of 10⁸ only central moments keep their digits.
    def statistic(s):
        return three_numbers(s) + np.array([0.0, 1e8, 0.0])

    sample = sampling.sample(Normal(), N, statistic, rows=ROWS, seed=3)
    assert sample.values.shape == (ROWS, 3)
    mean, error = sample.mean()
    exactly = np.array([math.fsum(column) / ROWS for column in sample.values.T])
    np.testing.assert_allclose(mean, exactly, rtol=1e-12, atol=1e-15)
    squares = [math.fsum((x - m) ** 2) for x, m in zip(sample.values.T, exactly, strict=True)]
    np.testing.assert_allclose(error**2, np.array(squares) / (ROWS - 1) / ROWS, rtol=1e-8)
    quantiles = sample.quantile(np.array([0.001, 0.25, 0.5, 0.999]))
    assert quantiles.value.shape == quantiles.standard_error.shape == (4, 3)
    for level, value in zip((100, 25_000, 50_000, 99_900), quantiles.value, strict=True):
        np.testing.assert_array_equal(np.sort(sample.values, axis=0)[level - 1], value)


def test_quantiles_are_order_statistics():
    sample = sampling.sample(Normal(), 1, lambda s: s[:, 0], rows=100, seed=1)
    values = np.sort(sample.values)
    # √(0.02 · 0.98/100) is 0.014: from rank 0.6, rounded up, to 3.4
    quantile = sample.quantile(0.02)
    assert quantile.value == values[1]
    assert quantile.standard_error == pytest.approx((values[3] - values[0]) / 2.0)
    law = sampling.sample(Normal(), 3, lambda s: s[:, 0], rows=400_000, seed=0)
    for level in (0.01, 0.5, 0.9):
        value, error = law.quantile(level)
        exact = np.sqrt(level * (1 - level) / 400_000) / stats.norm.pdf(stats.norm.ppf(level))
        assert error == pytest.approx(exact, rel=0.2)
        assert abs(value - stats.norm.ppf(level)) < 4.5 * error


@pytest.mark.parametrize(
    ("statistic", "shown"),
    [
        (lambda s: s.mean(), r"shape \(\)"),
        (lambda s: s[:-1, 0], r"shape \(9,\)"),
        (lambda s: np.empty((len(s), 0)), r"\(10, 0\)"),
        (lambda s: s[:, 0] * np.nan, "nan"),
        (lambda s: np.full(len(s), -1e151), r"-1e\+151"),
        (lambda s: s[:, 0] > 0, "bool"),
        (lambda s: None, "object"),
    ],
)
def test_bad_results_of_a_statistic_are_named(statistic, shown):
    with pytest.raises((ValueError, TypeError), match=rf"^statistic must.*{shown}"):
        sampling.sample(**{**GOOD, "statistic": statistic})

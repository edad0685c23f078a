"""Streaming Monte Carlo: the same bytes on any executor, honest errors, constant memory, kills."""

import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import tracemalloc
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnlib import rows, sampling, scores
from attnlib.scores import Normal
from tests.books import ROOT
from tests.library.killed import three_numbers, three_numbers_after_a_death

N, ROWS = 64, 100_000  # 13 batches of at most 8192 rows, each in 8 chunks
kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
SPAWN = multiprocessing.get_context("spawn")


class Inline(Executor):
    """Runs each call as it is submitted, so that as many results wait as are allowed to."""

    def __init__(self):
        self.open = self.most = 0

    def submit(self, function, /, *arguments):
        self.open += 1
        self.most = max(self.most, self.open)
        future = Future()
        future.set_result(function(*arguments))
        return Counted(future, self)


class Counted:
    def __init__(self, future, executor):
        self.future, self.executor = future, executor

    def result(self):
        self.executor.open -= 1
        return self.future.result()

    def cancel(self):
        return False


class Backwards(Executor):
    """Runs the calls only when a result is asked for, and the last submitted first."""

    def __init__(self):
        self.tasks = []

    def submit(self, function, /, *arguments):
        task = Later(self, function, arguments)
        self.tasks.append(task)
        return task


class Later:
    def __init__(self, executor, function, arguments):
        self.executor, self.call = executor, partial(function, *arguments)

    def result(self):
        while self.executor.tasks:
            task = self.executor.tasks.pop()
            task.found = task.call()
        return self.found

    def cancel(self):
        return True


class Lazy(Executor):
    """Runs a call when its result is asked for."""

    def submit(self, function, /, *arguments):
        executor = Backwards()
        return executor.submit(function, *arguments)


class Failing(Executor):
    """Breaks on submission number `after`."""

    def __init__(self, after, error):
        self.left, self.error = after, error

    def submit(self, function, /, *arguments):
        self.left -= 1
        if self.left < 0:
            raise self.error
        future = Future()
        future.set_result(function(*arguments))
        return future


def of_three(statistic=three_numbers, **others):
    return sampling.sample(Normal(), N, statistic, **{"rows": ROWS, "seed": 3, **others})


def content(sample):
    """Return everything that a sample says, as bytes."""
    estimates = (sample.mean(), sample.variance(), sample.quantile([0.01, 0.5, 0.9]))
    return b"".join(np.asarray(part).tobytes() for estimate in estimates for part in estimate)


@pytest.fixture(scope="module")
def expected():
    return content(of_three(executor=Inline()))


# --- the same bytes ------------------------------------------------------------------------------


def test_threads_give_the_same_bytes(expected):
    assert content(of_three()) == expected
    for workers in (1, 2, 5):
        with ThreadPoolExecutor(workers) as executor:
            assert content(of_three(executor=executor)) == expected


def test_processes_give_the_same_bytes(expected):
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        assert content(of_three(executor=executor)) == expected


def test_the_order_in_which_batches_finish_does_not_matter(expected):
    assert content(of_three(executor=Backwards())) == expected


def test_other_seeds_give_other_rows(expected):
    assert content(of_three(seed=4)) != expected


def test_batches_have_the_spawned_children_of_the_seed():
    found = sampling.draws(Normal(), 2**18, lambda s: s[:, :3], rows=5, seed=9)
    children = np.random.SeedSequence(9).spawn(3)
    assert len(found) == 5
    for index, child in enumerate(children):
        batch = np.random.default_rng(child).standard_normal((2, 2**18))[:, :3]
        np.testing.assert_array_equal(found[2 * index : 2 * index + 2], batch[: 5 - 2 * index])


def test_draws_are_the_rows_of_the_sample():
    values = sampling.draws(Normal(), N, three_numbers, rows=ROWS, seed=3)
    assert values.shape == (ROWS, 3)
    sample = of_three()
    np.testing.assert_allclose(sample.mean().value, values.mean(axis=0), rtol=1e-12, atol=1e-15)
    error = values.std(axis=0, ddof=1) / np.sqrt(ROWS)
    np.testing.assert_allclose(sample.mean().standard_error, error, rtol=1e-12)
    np.testing.assert_allclose(sample.variance().value, values.var(axis=0, ddof=1), rtol=1e-12)
    fourth = stats.moment(values, 4) - values.var(axis=0) ** 2 * ((ROWS - 3) / (ROWS - 1))
    found = sample.variance().standard_error
    np.testing.assert_allclose(found, np.sqrt(fourth / ROWS), rtol=1e-11)
    levels = np.array([0.001, 0.25, 0.5, 0.999])
    exact = np.quantile(values, levels, axis=0, method="inverted_cdf")
    found = sample.quantile(levels)
    assert found.value.shape == found.standard_error.shape == (4, 3)
    np.testing.assert_allclose(found.value, exact, rtol=2.0**-15)


# --- what the numbers are worth ------------------------------------------------------------------


def test_a_normal_score_has_the_moments_and_quantiles_of_its_law():
    sample = sampling.sample(Normal(), 3, lambda s: s[:, 0], rows=400_000, seed=0)
    for estimate, exact in (
        (sample.mean(), 0.0),
        (sample.variance(), 1.0),
        (sample.quantile(0.5), 0.0),
        (sample.quantile(0.01), stats.norm.ppf(0.01)),
        (sample.quantile(0.9), stats.norm.ppf(0.9)),
    ):
        assert estimate.value.shape == ()
        assert abs(estimate.value - exact) < 4.5 * estimate.standard_error
    assert sample.mean().standard_error == pytest.approx(1 / np.sqrt(400_000), rel=0.01)
    assert sample.variance().standard_error == pytest.approx(np.sqrt(2 / 400_000), rel=0.02)
    density = stats.norm.pdf(stats.norm.ppf(0.9))
    exact = np.sqrt(0.9 * 0.1 / 400_000) / density
    assert sample.quantile(0.9).standard_error == pytest.approx(exact, rel=0.1)


def test_the_mean_of_a_skewed_statistic_of_any_offset():
    # The log-normal law; at an offset of 10⁸ only central moments keep their digits.
    def shifted(s):
        return np.exp(s[:, :1] / 2) + np.array([0.0, 1e8])

    sample = sampling.sample(Normal(), 2, shifted, rows=300_000, seed=1)
    law = stats.lognorm(0.5)
    mean, variance = sample.mean(), sample.variance()
    assert (np.abs(mean.value - [law.mean(), law.mean() + 1e8]) < 4.5 * mean.standard_error).all()
    assert (np.abs(variance.value - law.var()) < 4.5 * variance.standard_error).all()
    assert variance.value[1] == pytest.approx(variance.value[0], rel=1e-8)
    assert variance.standard_error[1] == pytest.approx(variance.standard_error[0], rel=1e-6)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -3.0, 0.75, 1e-310, 2.0**60])
def test_a_constant_statistic_is_that_number(number):
    sample = sampling.sample(Normal(), 100, lambda s: np.full(len(s), number), rows=20_000, seed=0)
    assert sample.mean() == (number, 0.0)
    assert sample.variance() == (0.0, 0.0)
    value, error = sample.quantile(0.5)
    assert value == number or abs(value - number) <= 2.0**-14 * 2.0**-1022
    assert error <= 2e-5 * abs(number)


def test_standard_errors_are_honest_over_repeated_runs():
    # 250 runs of 2000 exponential-like values: z-scores of mean, variance, quartile and median.
    exact = [1.0, 1.0, -np.log(0.75), np.log(2.0)]
    z = []
    for seed in range(250):
        sample = sampling.sample(Normal(), 2, exponential, rows=2000, seed=seed)
        quantiles = sample.quantile([0.25, 0.5])
        values = [sample.mean().value, sample.variance().value, *quantiles.value]
        errors = [sample.mean().standard_error, sample.variance().standard_error]
        z.append((np.array(values) - exact) / [*errors, *quantiles.standard_error])
    spread = np.std(z, axis=0)
    # The standard deviation of 250 standard normal numbers is 1 ± 0.045, with heavier tails of the
    # variance's own error and the noise of half the distance of two order statistics on top.
    assert (spread > 0.85).all()
    assert (spread < 1.2).all()
    assert (np.abs(np.mean(z, axis=0)) < 4.5 / np.sqrt(250)).all()


def exponential(s):
    return (s**2).sum(axis=-1) / 2.0


@given(st.lists(st.floats(-1e70, 1e70), min_size=1, max_size=40))
@settings(max_examples=200)
def test_quantiles_keep_fifteen_bits_and_the_order(numbers):
    values = np.array(numbers)
    keys = sampling._keys(values)
    rounded = sampling._values(keys)
    tolerance = np.maximum(2.0**-15 * np.abs(values), 2.0**-1037)
    assert (np.abs(rounded - values) <= tolerance).all()
    order = np.argsort(values)
    assert (np.diff(keys[order]) >= 0).all()


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    # Values within an octave, so that the histogram soon has all of its 3300; small batches, so
    # that as many as may wait do so in both runs.
    monkeypatch.setattr(sampling, "BATCH_ROWS", 2**11)
    monkeypatch.setattr(sampling, "IN_FLIGHT", 16)

    def peak(count):
        executor = Inline()
        tracemalloc.start()
        sampling.sample(
            *(Normal(), 4, lambda s: 1.5 + 0.1 * np.tanh(s[:, 0])),
            rows=count,
            seed=0,
            executor=executor,
        )
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert executor.most == 16
        return most

    assert peak(2**20) < 1.05 * peak(2**17)


def test_batches_stay_small_however_long_the_rows():
    shapes = []
    for n in (1, 4, 1000, 2**18, 2**20):
        sampling.sample(Normal(), n, lambda s: shapes.append(s.shape) or s[:, 0], rows=2, seed=0)
        job = sampling._job(Normal(), n, three_numbers, 10**6, 0)
        assert 1 <= job.batch_rows <= sampling.BATCH_ROWS
        assert job.batch_rows == 1 or job.batch_rows * n <= sampling.BATCH_NUMBERS
    assert shapes[-2:] == [(1, 2**20)] * 2
    assert shapes[-3:-2] == [(1, 2**18)]


# --- interruptions -------------------------------------------------------------------------------


class Losing(Inline):
    """An executor that loses some results, as a cluster does with the worker that holds them."""

    def __init__(self, lost):
        super().__init__()
        self.lost, self.calls = lost, 0

    def submit(self, function, *arguments):
        self.calls += 1
        if self.calls not in self.lost:
            return super().submit(function, *arguments)
        future = Future()
        future.set_exception(ValueError("not enough values to unpack (expected 3, got 2)"))
        return future


def test_a_result_that_is_lost_is_computed_once_more(expected):
    assert content(of_three(executor=Losing({3, 9}))) == expected
    with pytest.raises(sampling.SamplingInterrupted, match="not enough values"):
        of_three(executor=Losing(range(3, 99)))


@kill_9
def test_a_killed_process_is_one_clear_error_and_the_rest_can_be_resumed(tmp_path, expected):
    statistic = partial(three_numbers_after_a_death, folder=str(tmp_path), call=5 * 8 + 3)
    with (
        ProcessPoolExecutor(1, mp_context=SPAWN) as executor,
        pytest.raises(sampling.SamplingInterrupted, match="BrokenProcessPool") as caught,
    ):
        of_three(statistic, executor=executor)
    assert (tmp_path / "killed").exists()
    rest = pickle.loads(pickle.dumps(caught.value.partial))  # as if on another day
    assert rest.count == 5 * 8192
    assert "failed after 40960 of 100000 rows" in str(caught.value)
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        assert content(of_three(statistic, executor=executor, resume=rest)) == expected
    assert content(of_three(statistic, resume=caught.value.partial)) == expected


@kill_9
def test_one_of_two_processes_killed(tmp_path, expected):
    # How many batches were folded then depends on how fast each process started.
    statistic = partial(three_numbers_after_a_death, folder=str(tmp_path), call=5 * 8 + 3)
    with (
        ProcessPoolExecutor(2, mp_context=SPAWN) as executor,
        pytest.raises(sampling.SamplingInterrupted) as caught,
    ):
        of_three(statistic, executor=executor)
    assert caught.value.partial.count < ROWS
    assert content(of_three(statistic, resume=caught.value.partial)) == expected


@pytest.mark.parametrize("after", [0, 1, 7, 12])
def test_what_was_finished_before_a_failure_is_kept(after, expected):
    with pytest.raises(sampling.SamplingInterrupted, match="OSError: no network") as caught:
        of_three(executor=Failing(after, OSError("no network")))
    assert isinstance(caught.value.__cause__, OSError)
    partial_sample = caught.value.partial
    assert partial_sample.batches == after
    assert content(of_three(resume=partial_sample)) == expected
    assert content(of_three(resume=partial_sample)) == expected  # it is not used up


def test_ctrl_c_keeps_what_was_finished(expected):
    calls = []

    def interrupted(s):
        calls.append(len(s))
        if len(calls) == 4 * 8 + 3:
            raise KeyboardInterrupt
        return three_numbers(s)

    with pytest.raises(KeyboardInterrupt, match="stopped after 32768 of 100000 rows") as caught:
        of_three(interrupted, executor=Lazy())
    assert isinstance(caught.value, sampling.SamplingStopped)
    assert content(of_three(interrupted, resume=caught.value.partial)) == expected


def test_a_finished_sample_resumes_to_itself(expected):
    assert content(of_three(resume=of_three())) == expected


def test_an_error_of_the_statistic_is_its_own():
    def wrong(s):
        raise ZeroDivisionError("of the statistic")

    for executor in (None, Inline()):
        with pytest.raises(ZeroDivisionError, match="of the statistic"):
            of_three(wrong, executor=executor)


def test_draws_say_that_the_executor_failed():
    with pytest.raises(sampling.SamplingInterrupted, match="OSError: gone") as caught:
        sampling.draws(
            Normal(), N, three_numbers, rows=ROWS, seed=0, executor=Failing(2, OSError("gone"))
        )
    assert caught.value.partial is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("law", {"law": scores.Cosine(8)}),
        ("n", {"n": N + 1}),
        ("statistic", {"statistic": partial(rows.gradient, alpha=[2.0, 3.0])}),
        ("statistic", {"statistic": lambda s: s[:, 0]}),
        ("rows", {"rows": ROWS + 1}),
        ("seed", {"seed": 4}),
    ],
)
def test_a_sample_of_another_call_is_not_resumed(name, change):
    call = {
        "law": Normal(),
        "n": N,
        "statistic": partial(rows.gradient, alpha=2.0),
        "rows": ROWS,
        "seed": 3,
    }
    with pytest.raises(sampling.SamplingInterrupted) as caught:
        sampling.sample(**call, executor=Failing(1, OSError("gone")))
    again = {**call, "law": Normal(), "statistic": partial(rows.gradient, alpha=2.0)}
    sampling.sample(**again, resume=caught.value.partial)  # an equal call
    with pytest.raises(ValueError, match=rf"^{name} must be that of the call"):
        sampling.sample(**{**call, **change}, resume=caught.value.partial)
    with pytest.raises(TypeError, match="resume"):
        sampling.sample(**call, resume=caught.value)


# --- a cluster -----------------------------------------------------------------------------------


class Cluster:
    """A Dask scheduler and workers, each a process on the loopback interface."""

    def __init__(self, folder):
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.processes = []

    def start(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        log = self.folder / f"{len(self.processes)}.log"
        with log.open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    cwd=self.folder,
                )
            )

    def stop(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start(
            "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(cluster.file)
        )
        for _ in range(2):
            cluster.start(
                *("worker", "--scheduler-file", str(cluster.file), "--nthreads", "1"),
                *("--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path)),
            )
        yield cluster


@kill_9
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(cluster, tmp_path, expected):
    statistic = partial(three_numbers_after_a_death, folder=str(tmp_path), call=3 * 8 + 3)
    with Client(scheduler_file=str(cluster.file), timeout=120) as client:
        client.wait_for_workers(2, timeout=120)
        found = of_three(statistic, executor=client.get_executor())
        assert content(found) == expected
        killed = (tmp_path / "killed").read_text()
        (dead,) = [process for process in cluster.processes if str(process.pid) == killed]
        assert dead.wait(timeout=60) == -signal.SIGKILL
        address = client.scheduler.address
    the_readme_runs(address)  # on the worker that is left


def the_readme_runs(address):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tcp:" in code
    )
    assert len([line for line in code.splitlines() if line]) == 3
    for written, here in (("tcp://scheduler:8786", address), ("rows=10**7", "rows=10_000")):
        assert written in code
        code = code.replace(written, here)
    names = {"rows": rows, "scores": scores, "sampling": sampling}
    exec(code, names)
    Client.current().close()
    again = sampling.sample(Normal(), 512, rows.gradient, rows=10_000, seed=0)
    assert names["result"].mean() == again.mean()


# --- bad input -----------------------------------------------------------------------------------

GOOD = {"law": Normal(), "n": 4, "statistic": three_numbers, "rows": 10, "seed": 0}


@pytest.mark.parametrize(
    ("statistic", "shown"),
    [
        (lambda s: s.mean(), r"shape \(\)"),
        (lambda s: s[:-1, 0], r"shape \(9,\)"),
        (lambda s: s.T, r"shape \(4, 10\)"),
        (lambda s: np.empty((len(s), 0)), r"\(10, 0\)"),
        (lambda s: s[:, 0] * np.nan, "nan"),
        (lambda s: np.where(np.arange(len(s)) == 3, np.inf, 0.0), "inf"),
        (lambda s: np.full(len(s), -1e71), "-1e.71"),
        (lambda s: s[:, 0] > 0, "bool"),
        (lambda s: s[:, 0] * 1j, "complex"),
        (lambda s: [None] * len(s), "object"),
        (lambda s: None, "object"),
    ],
)
def test_bad_results_of_a_statistic_are_named(statistic, shown):
    with pytest.raises((ValueError, TypeError), match=rf"^statistic must.*{shown}"):
        sampling.sample(**{**GOOD, "statistic": statistic})


@pytest.mark.parametrize("n", [2**17, 2**19])  # within a batch, and from one to the next
def test_a_statistic_of_changing_shape_is_refused(n):
    calls = []
    with pytest.raises(ValueError, match="statistic must return one shape"):
        sampling.sample(
            *(Normal(), n, lambda s: calls.append(0) or s[:, : len(calls)]),
            rows=2,
            seed=0,
            executor=Inline(),
        )


def test_a_law_of_the_wrong_shape_is_named():
    class Wrong:
        def sample(self, rng, rows, n):
            return rng.standard_normal((n, rows))

    with pytest.raises(ValueError, match=r"^law must return.*\(4, 10\)"):
        sampling.sample(**{**GOOD, "law": Wrong()})


any_number = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(),
    st.sampled_from([None, "0.5", 1j, True, [], [0.5, np.nan], [[0.5], [0.5, 0.1]]]),
)


@pytest.fixture(scope="module")
def small_sample():
    return sampling.sample(**{**GOOD, "rows": 1000})


@given(q=any_number)
@settings(max_examples=300)
def test_a_quantile_is_refused_or_a_number(small_sample, q):
    estimate, message = None, ""
    try:
        estimate = small_sample.quantile(q)
    except (ValueError, TypeError) as error:
        message = str(error)
    if estimate is None:
        assert message.startswith("q must")
        assert len(message) < 200
    else:
        assert np.isfinite(estimate.value).all()
        assert (estimate.standard_error >= 0.0).all()


@pytest.mark.parametrize(
    ("q", "good"), [(0.0, 0), (1.0, 0), (0.0009, 0), (0.0011, 1), (0.9989, 1), (0.9991, 0)]
)
def test_a_quantile_needs_rows_on_both_sides(small_sample, q, good):
    if good:
        assert np.isfinite(small_sample.quantile(q).value).all()
    else:
        with pytest.raises(ValueError, match=r"q must be between 0.001 and 1 - 0.001"):
            small_sample.quantile(q)


def test_a_sample_without_rows_says_so():
    with pytest.raises(sampling.SamplingInterrupted) as caught:
        of_three(executor=Failing(0, OSError("gone")))
    empty = caught.value.partial
    assert empty.count == 0
    for estimate in (empty.mean, empty.variance, partial(empty.quantile, 0.5)):
        with pytest.raises(ValueError, match="needs rows"):
            estimate()


# --- the bar -------------------------------------------------------------------------------------


def test_the_bar_counts_rows_and_can_be_left_out(capsys):
    of_three()
    assert capsys.readouterr() == ("", "")
    of_three(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "100k/100k" in err


def test_the_mean_and_error_of_values_at_hand_are_their_definitions():
    values = np.random.default_rng(0).exponential(size=(40, 25)).astype(np.float32)
    mean, error = sampling.mean_and_error(values)
    exactly = [float(x) for x in values.ravel()]
    assert mean == pytest.approx(sum(exactly) / 1000, rel=1e-14)
    spread = sum((x - mean) ** 2 for x in exactly) / 999
    assert error == pytest.approx((spread / 1000) ** 0.5, rel=1e-13)
    assert isinstance(sampling.mean_and_error([0, 1]), sampling.Estimate)


def test_the_mean_of_truth_values_is_the_share_that_is_true():
    mean, error = sampling.mean_and_error(np.arange(10) < 3)
    assert mean == pytest.approx(0.3, rel=1e-15)
    assert error == pytest.approx((0.3 * 0.7 / 9) ** 0.5, rel=1e-14)


def test_the_lowest_rank_is_that_of_the_lowest_value():
    sample = sampling.sample(Normal(), 1, lambda s: s[:, 0], rows=100, seed=1)
    values = np.sort(sampling.draws(Normal(), 1, lambda s: s[:, 0], rows=100, seed=1))
    # √(0.02 · 0.98/100) is 0.014: from rank 0.6, rounded up, to 3.4
    found = sample.quantile(0.02)
    assert found.value == pytest.approx(values[1], rel=2.0**-14)
    assert found.standard_error == pytest.approx((values[3] - values[0]) / 2.0, rel=1e-3)

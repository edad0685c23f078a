"""One row of attention, against mpmath, explicit matrices and cases worked by hand."""

import functools

import mpmath as mp
import numpy as np
import pytest

from attnlib import rows
from tests.library import reference
from tests.library.reference import DIGITS, relative_error

NORMS = [rows.gradient, rows.frobenius_norm, rows.largest_entry]
SHAPED = [rows.softmax, rows.jacobian, *NORMS]


def rows_of_scores():
    """Yield (name, s, α): from uniform to one-hot within 1e-300, tied and not, small n and larger.

    `gap` is α(s₁ − s₂), the lead of the top score, up to log 1e300 = 690.8.
    """
    rng = np.random.default_rng(20)
    for n, alpha in ((2, 1e-5), (3, 5.0), (6, 1e9), (40, 5.0)):
        for gap in (0.0, 1e-13, 1.0, 40.0, 685.0):
            behind = np.append(0.0, np.minimum(gap + rng.exponential(3.0, size=n - 1), 690.0))
            if n > 2:
                behind[2] = behind[1]  # a tie for the second place
            yield f"n={n} alpha={alpha:g} gap={gap:g}", rng.permutation(-behind / alpha), alpha
    yield "one key", np.array([-1e308]), 1e308
    yield "an offset", -1e12 + np.array([0.0, 0.25, -3.0, 0.125]), 100.0
    yield "normal scores", rng.standard_normal(30), 1.0
    yield "tiny alpha, scores near the largest float", np.array([0.0, -3e201, -9e201]), 1e-200
    yield "alpha zero", np.array([1.0, 2.0, 5.0]), 0.0
    yield "masked keys", np.array([-np.inf, 1.0, -np.inf, 0.5, -300.0]), 2.0


ROWS = [pytest.param(s, alpha, id=name) for name, s, alpha in rows_of_scores()]
SMALL_ROWS = [case for case in ROWS if len(case.values[0]) <= 6]


@functools.cache
def cached_softmax(s, alpha):
    return reference.softmax(s, alpha)


def exact_softmax(s, alpha):
    """Return p as mpf; call it within `mp.workdps`."""
    return cached_softmax(tuple(s.tolist()), alpha)


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_weights_and_norms_agree_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        exact = exact_softmax(s, alpha)
        for value, true, score in zip(rows.softmax(s, alpha), exact, s, strict=True):
            behind = alpha * (s.max() - score) if np.isfinite(score) else 0.0
            if true == 0 or true > 1e-300:
                assert relative_error(value, true) <= 4e-16 * (1.0 + behind)
        for name in ("gradient", "frobenius_norm", "largest_entry"):
            value = getattr(rows, name)(s, alpha)
            assert relative_error(value, getattr(reference, name)(exact, alpha)) < 1e-12, name


@pytest.mark.parametrize(("s", "alpha"), SMALL_ROWS)
def test_the_matrix_agrees_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        p = exact_softmax(s, alpha)
        exact = reference.jacobian(p, alpha)
        entries = [entry for row in exact for entry in row]
        for computed, true in zip(rows.jacobian(s, alpha).flat, entries, strict=True):
            # Off the diagonal p_i p_j may lie below the smallest float.
            if true == 0 or abs(true) > 1e-300:
                assert relative_error(computed, true) < 1e-12


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_entropies_agree_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        exact = exact_softmax(s, alpha)
        p = np.array([float(x) for x in exact])
        assert relative_error(rows.collision_probability(p), mp.fsum(x**2 for x in exact)) < 1e-14
        entropy = float(reference.shannon_entropy(exact))
        assert rows.shannon_entropy(p) == pytest.approx(entropy, rel=1e-13, abs=1e-15)


def test_the_ends_of_the_range():
    s = [-1.7e308, 1.7e308, 1.7e308]
    np.testing.assert_array_equal(rows.softmax(s), [0.0, 0.5, 0.5])
    assert rows.gradient(s) == rows.frobenius_norm(s) == 0.5
    # The difference 2e308 is no float, α times it is 2.
    weight = rows.softmax([-1e308, 1e308], 1e-308)[0]
    assert weight == pytest.approx(1.0 / (1.0 + np.exp(2.0)), rel=1e-15)
    for scores, alpha in (([0.25, 0.5, -1e300], np.finfo(float).max), ([1.0, -5.0, 1e308], 0.0)):
        np.testing.assert_array_equal(rows.jacobian(scores, alpha), 0.0)
        assert all(norm(scores, alpha) == 0.0 for norm in NORMS)


@pytest.mark.parametrize("function", SHAPED)
def test_shifts_factors_and_masked_keys(function):
    s = np.array([0.5, -1.25, 3.0, 2.875])  # with these, s + 1024 is exact
    np.testing.assert_array_equal(function(s, 1.7), function(s + 1024.0, 1.7))
    unit = 1.0 if function is rows.softmax else 4.0
    np.testing.assert_array_equal(function(s, 6.8), unit * function(4.0 * s, 1.7))
    for alpha in (0.0, 1.0, 1e308):
        masked, plain = function([*s, -np.inf], alpha), function(s, alpha)
        if masked.ndim:
            assert not masked[-1].any()
            assert not masked[..., -1].any()
            masked = masked[:4, :4] if masked.ndim == 2 else masked[:4]
        np.testing.assert_allclose(masked, plain, rtol=1e-14)


BATCH = np.random.default_rng(11).standard_normal((3, 4, 5))


@pytest.mark.parametrize("function", SHAPED)
def test_what_is_given_is_read_as_float64_and_left_as_it_was(function):
    s = BATCH.copy()
    function(s, 2.0)
    np.testing.assert_array_equal(s, BATCH)
    for given_ in ([3, 1, 2], np.array([3, 1, 2], np.float16), np.array([3, 1, 2], np.uint64)):
        values = function(given_)
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, function([3.0, 1.0, 2.0]))
    assert function(np.zeros((0, 3))).shape == (0, *function(np.zeros((2, 3))).shape[1:])


def test_probabilities_in_single_precision_are_taken_as_such():
    p = rows.softmax(np.random.default_rng(13).standard_normal(100_000))
    assert rows.shannon_entropy(p.astype(np.float32)) == pytest.approx(rows.shannon_entropy(p))

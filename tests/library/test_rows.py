"""One row of attention, against mpmath, explicit matrices, autograd and cases worked by hand."""

import functools
import itertools
import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlib import rows
from tests.library import reference
from tests.library.reference import DIGITS, relative_error

NORMS = [rows.gradient, rows.frobenius_norm, rows.largest_entry, rows.spectral_norm]
SHAPED = [rows.softmax, rows.jacobian, *NORMS]
ENTROPIES = [rows.collision_probability, rows.shannon_entropy]
ORDERS = [0.0, 1e-300, 1e-10, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 1.5, 1.9, 2.0, 2.1, 7.0, 1000.0, np.inf]


def rows_of_scores():
    """Yield (name, s, α): from uniform to one-hot within 1e-300, tied and not, small n and larger.

    `gap` is α(s₁ − s₂), the lead of the top score, up to log 1e300 = 690.8.
    """
    rng = np.random.default_rng(20)
    for n in (1, 2, 3, 6, 40):
        for alpha in (1e-5, 5.0, 1e9):
            for gap in (0.0, 1e-13, 1e-3, 1.0, 40.0, 685.0):
                behind = np.append(0.0, np.minimum(gap + rng.exponential(3.0, size=n - 1), 690.0))
                if n > 2:
                    behind[2] = behind[1]  # a tie for the second place
                yield f"n={n} alpha={alpha:g} gap={gap:g}", rng.permutation(-behind / alpha), alpha
    # An offset that is large against the differences, and more rows like those of attention.
    yield "offset", 1e6 + np.array([0.0, 0.25, -3.0, 0.125]), 1.5
    yield "negative offset", -1e12 + np.array([0.0, 0.25, -3.0, 0.125]), 100.0
    for n in (4, 30):
        yield f"normal scores, n={n}", rng.standard_normal(n), 1.0
        yield f"normal scores, cold, n={n}", rng.standard_normal(n), 30.0
    yield "tiny alpha, scores near the largest float", np.array([0.0, -3e201, -9e201]), 1e-200
    yield "alpha zero", np.array([1.0, 2.0, 5.0]), 0.0
    yield "masked keys", np.array([-np.inf, 1.0, -np.inf, 0.5, -300.0]), 2.0


ROWS = [pytest.param(s, alpha, id=name) for name, s, alpha in rows_of_scores()]
SMALL_ROWS = [case for case in ROWS if len(case.values[0]) <= 6]


@pytest.fixture(scope="module")
def torch():
    import torch  # takes longer than all else here, and few tests need it

    return torch


@functools.cache
def cached_softmax(s, alpha):
    with mp.workdps(DIGITS):
        return reference.softmax(s, alpha)


def exact_softmax(s, alpha):
    return cached_softmax(tuple(s.tolist()), alpha)


def probabilities(s, alpha):
    """Return p as mpf to 700 digits and the same p rounded to float64."""
    exact = exact_softmax(s, alpha)
    return exact, np.array([float(x) for x in exact])


# --- against mpmath -----------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_softmax_is_within_its_documented_error(s, alpha):
    p = rows.softmax(s, alpha)
    with mp.workdps(DIGITS):
        exact = exact_softmax(s, alpha)
        for value, true, score in zip(p, exact, s, strict=True):
            behind = alpha * (s.max() - score) if np.isfinite(score) else 0.0
            if true == 0 or true > 1e-300:
                assert relative_error(value, true) <= 4e-16 * (1.0 + behind)


@pytest.mark.parametrize(("s", "alpha"), ROWS)
@pytest.mark.parametrize("name", ["gradient", "frobenius_norm", "largest_entry"])
def test_norm_agrees_with_mpmath(name, s, alpha):
    value = getattr(rows, name)(s, alpha)
    with mp.workdps(DIGITS):
        exact = getattr(reference, name)(exact_softmax(s, alpha), alpha)
        assert relative_error(value, exact) < 1e-12


def exact_log_gradient(s, alpha):
    """Return log[α Σ_{i≠j} e^{α(s_i + s_j)} / Z²], which subtracts nothing, to 30 digits."""
    with mp.workdps(30):
        scores = [mp.mpf(float(x)) - mp.mpf(float(s.max())) for x in s if np.isfinite(x)]
        pairs = mp.fsum(
            mp.exp(mp.mpf(alpha) * (x + y)) for x, y in itertools.permutations(scores, 2)
        )
        total = mp.fsum(mp.exp(mp.mpf(alpha) * x) for x in scores)
        return mp.log(alpha) + mp.log(pairs) - 2 * mp.log(total) if pairs and alpha else mp.ninf


@pytest.mark.parametrize(("s", "alpha"), ROWS)
@pytest.mark.parametrize("colder", [1.0, 1000.0])
def test_log_gradient_agrees_with_mpmath(s, alpha, colder):
    alpha = colder * alpha
    found = rows.log_gradient(s, alpha)
    exact = exact_log_gradient(s, alpha)
    if exact == mp.ninf:
        assert np.isneginf(found)
    else:
        lead = alpha * (np.sort(s)[-1] - np.sort(s)[-2])
        assert abs(float(found - exact)) <= 1e-14 * (30.0 + lead)


@pytest.mark.parametrize("alpha", [0.05, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_the_slopes_of_the_log_gradient_agree_with_mpmath(n, alpha):
    s = np.random.default_rng(n).standard_normal(n)
    found = rows.top_two(s).log_gradient_slopes(np.array(alpha))
    with mp.workdps(60):
        scores = [mp.mpf(x) for x in s.tolist()]

        def log_gradient(a):
            weights = [mp.exp(a * x) for x in scores]
            total = mp.fsum(weights)
            return mp.log(a) + mp.log(1 - mp.fsum((w / total) ** 2 for w in weights))

        for value, order in zip(found, (1, 2), strict=True):
            exact = mp.diff(log_gradient, mp.mpf(alpha), order)
            assert abs(value - float(exact)) <= 1e-12 * (1.0 + alpha**-order)


def test_the_two_largest_scores_may_stand_anywhere():
    for s in itertools.permutations([4.0, 1.0, 3.5, -2.0]):
        gap, others = rows.top_two(s)
        assert gap == 0.5
        assert sorted(others.tolist()) == [-5.5, -2.5, 0.0]
    gap, others = rows.top_two([[2.0, 2.0], [0.0, 1.0], [-np.inf, 3.0]])
    np.testing.assert_array_equal(gap, [0.0, 1.0, rows.LARGEST])
    np.testing.assert_array_equal(others, [[0.0], [0.0], [-rows.LARGEST]])
    assert rows.top_two(np.arange(6.0).reshape(3, 2), axis=0).gap.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("s", [[1.0], [[1.0], [2.0]]])
def test_one_score_has_no_second(s):
    with pytest.raises(ValueError, match="s must have at least two scores"):
        rows.top_two(s)


@pytest.mark.parametrize(("s", "alpha"), SMALL_ROWS)
def test_spectral_norm_agrees_with_the_eigenvalues_in_mpmath(s, alpha):
    value = rows.spectral_norm(s, alpha)
    with mp.workdps(DIGITS):
        exact = reference.spectral_norm(exact_softmax(s, alpha), alpha) if alpha else 0
        assert relative_error(value, exact) < 1e-12


@pytest.mark.parametrize(("s", "alpha"), SMALL_ROWS)
def test_jacobian_agrees_with_mpmath(s, alpha):
    matrix = rows.jacobian(s, alpha)
    with mp.workdps(DIGITS):
        exact = reference.jacobian(exact_softmax(s, alpha), alpha)
        entries = [entry for row in exact for entry in row]
        for computed, true in zip(matrix.flat, entries, strict=True):
            # Off the diagonal p_i p_j may lie below the smallest float.
            if true == 0 or abs(true) > 1e-300:
                assert relative_error(computed, true) < 1e-12


@pytest.mark.parametrize(("s", "alpha"), SMALL_ROWS)
def test_jacobian_vector_product_agrees_with_mpmath(s, alpha):
    v = np.random.default_rng(3).standard_normal(len(s))
    product = rows.jacobian_vector_product(s, v, alpha)
    with mp.workdps(DIGITS):
        exact = reference.jacobian_vector_product(exact_softmax(s, alpha), v, alpha)
        largest = max(map(abs, exact))
        for value, true in zip(product, exact, strict=True):
            # v_i − p·v may cancel in one entry, by bad luck: then only the whole vector is sharp.
            assert abs(mp.mpf(float(value)) - true) <= 1e-12 * largest


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_collision_probability_agrees_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        exact, p = probabilities(s, alpha)
        collision = mp.fsum(x**2 for x in exact)
        assert relative_error(rows.collision_probability(p), collision) < 1e-14


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_shannon_entropy_agrees_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        exact, p = probabilities(s, alpha)
        value, true = rows.shannon_entropy(p), reference.renyi_entropy(exact, 1.0)
        assert relative_error(value, true) < 1e-13


@pytest.mark.parametrize(("s", "alpha"), ROWS)
def test_renyi_entropy_agrees_with_mpmath(s, alpha):
    with mp.workdps(DIGITS):
        exact, p = probabilities(s, alpha)
        for order in ORDERS:
            true = reference.renyi_entropy(exact, order)
            assert relative_error(rows.renyi_entropy(p, order), true) < 1e-12, order


# --- against explicit matrices, autograd and closed forms ----------------------------------------


def normal_rows():
    rng = np.random.default_rng(8)
    return [(rng.standard_normal(n), alpha) for n in (2, 3, 8, 25) for alpha in (0.2, 1.0, 4.0)]


@pytest.mark.parametrize(("s", "alpha"), normal_rows())
def test_norms_are_those_of_the_explicit_matrix(s, alpha):
    matrix = rows.jacobian(s, alpha)
    close = {"rtol": 1e-13, "strict": True}
    np.testing.assert_allclose(rows.gradient(s, alpha), np.abs(matrix).sum() / 2.0, **close)
    np.testing.assert_allclose(rows.frobenius_norm(s, alpha), np.linalg.norm(matrix), **close)
    np.testing.assert_allclose(rows.largest_entry(s, alpha), np.abs(matrix).max(), **close)
    np.testing.assert_allclose(rows.spectral_norm(s, alpha), np.linalg.norm(matrix, 2), **close)


@pytest.mark.parametrize(("s", "alpha"), normal_rows())
def test_jacobian_is_what_autograd_finds(torch, s, alpha):
    found = torch.autograd.functional.jacobian(
        lambda scores: torch.softmax(alpha * scores, dim=-1), torch.from_numpy(s)
    )
    np.testing.assert_allclose(rows.jacobian(s, alpha), found.numpy(), rtol=0.0, atol=1e-15 * alpha)


@pytest.mark.parametrize(("s", "alpha"), normal_rows())
def test_jacobian_vector_product_is_the_backward_pass_of_autograd(torch, s, alpha):
    v = np.random.default_rng(1).standard_normal(len(s))
    scores = torch.from_numpy(s).requires_grad_()
    torch.softmax(alpha * scores, dim=-1).backward(torch.from_numpy(v))
    product = rows.jacobian_vector_product(s, v, alpha)
    np.testing.assert_allclose(product, scores.grad.numpy(), rtol=0.0, atol=2e-15 * alpha)


@pytest.mark.parametrize(("s", "alpha"), normal_rows())
def test_jacobian_vector_product_is_the_matrix_times_the_vector(s, alpha):
    v = np.random.default_rng(2).standard_normal(len(s))
    expected = rows.jacobian(s, alpha) @ v
    product = rows.jacobian_vector_product(s, v, alpha)
    np.testing.assert_allclose(product, expected, rtol=0.0, atol=2e-15 * alpha)


@pytest.mark.parametrize(("s", "alpha"), normal_rows())
def test_jacobian_is_symmetric_semidefinite_of_rank_n_minus_1_with_rows_that_sum_to_zero(s, alpha):
    matrix = rows.jacobian(s, alpha)
    eigenvalues = np.linalg.eigvalsh(matrix)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.abs(matrix.sum(axis=-1)).max() < 1e-15 * alpha
    assert abs(eigenvalues[0]) < 1e-15 * alpha
    assert eigenvalues[1] > 1e-8 * alpha


@pytest.mark.parametrize("gap", [0.0, 1e-9, 0.3, 1.0, 5.0, 80.0, 690.0])
def test_two_keys_follow_the_closed_forms(gap):
    alpha, s = 0.5, [3.0, 3.0 - 2.0 * gap]
    variance = np.exp(-gap) / (1.0 + np.exp(-gap)) ** 2  # p(1 − p), the logistic density
    assert rows.softmax(s, alpha)[0] == pytest.approx(1.0 / (1.0 + np.exp(-gap)), rel=1e-15)
    assert rows.largest_entry(s, alpha) == pytest.approx(alpha * variance, rel=1e-12)
    for norm in (rows.gradient, rows.frobenius_norm, rows.spectral_norm):
        assert norm(s, alpha) == pytest.approx(2.0 * alpha * variance, rel=1e-12)


@pytest.mark.parametrize("score", [0.0, -1e308, 7.5])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e308])
def test_a_single_key_takes_everything_and_has_no_gradient(score, alpha):
    np.testing.assert_array_equal(rows.softmax([score], alpha), [1.0])
    np.testing.assert_array_equal(rows.jacobian([score], alpha), [[0.0]])
    np.testing.assert_array_equal(rows.jacobian_vector_product([score], [5.0], alpha), [0.0])
    for norm in NORMS:
        assert norm([score], alpha) == 0.0


@pytest.mark.parametrize("ties", [2, 3, 10])
def test_a_tie_for_the_top_gives_a_gradient_that_grows_with_alpha(ties):
    s, alpha = [1.0] * ties + [0.0, -1.0], 1e6
    np.testing.assert_array_equal(rows.softmax(s, alpha), [1.0 / ties] * ties + [0.0, 0.0])
    assert rows.gradient(s, alpha) == pytest.approx(alpha * (1.0 - 1.0 / ties), rel=1e-15)
    assert rows.frobenius_norm(s, alpha) == pytest.approx(alpha * np.sqrt(ties - 1) / ties)
    assert rows.largest_entry(s, alpha) == pytest.approx(alpha * (ties - 1) / ties**2, rel=1e-15)
    assert rows.spectral_norm(s, alpha) == pytest.approx(alpha / ties, rel=1e-15)


@pytest.mark.parametrize("lead", [1e-9, 1.0, 20.0])
def test_one_key_ahead_of_many_tied_keys_follows_the_closed_forms(lead):
    others = 999
    s = np.append(np.zeros(others), lead)
    rest = others * np.exp(-lead)
    top, left = 1.0 / (1.0 + rest), rest / (1.0 + rest)
    gradient = left * (1.0 + top) - left**2 / others
    assert rows.gradient(s) == pytest.approx(gradient, rel=1e-13)
    # One eigenvector sets the top key against all others; its eigenvalue is the trace of J on the
    # plane they span. The other eigenvectors live among the tied keys: left/others each.
    spectral = max(top * left * (1.0 + 1.0 / others), left / others)
    squares = (top * left * (1.0 + 1.0 / others)) ** 2 + (others - 1) * (left / others) ** 2
    assert rows.spectral_norm(s) == pytest.approx(spectral, rel=1e-12)
    assert rows.frobenius_norm(s) == pytest.approx(np.sqrt(squares), rel=1e-12)


# --- invariances ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", SHAPED)
def test_adding_a_number_to_all_scores_changes_nothing(function):
    s = np.array([0.5, -1.25, 3.0, 2.875])  # with these, s + 1024 is exact
    np.testing.assert_array_equal(function(s, 1.7), function(s + 1024.0, 1.7))


@pytest.mark.parametrize("function", SHAPED)
def test_multiplying_scores_by_a_power_of_two_is_the_same_as_multiplying_alpha(function):
    s = np.random.default_rng(5).standard_normal(9)
    scale_of_jacobian = 1.0 if function is rows.softmax else 4.0
    expected = scale_of_jacobian * function(4.0 * s, 0.3)
    np.testing.assert_array_equal(function(s, 4.0 * 0.3), expected)


@pytest.mark.parametrize("norm", NORMS)
def test_the_order_of_the_keys_changes_no_norm(norm):
    rng = np.random.default_rng(6)
    s = rng.standard_normal(50)
    np.testing.assert_allclose(norm(rng.permutation(s), 2.0), norm(s, 2.0), rtol=1e-14)


def test_softmax_and_its_jacobian_permute_with_the_keys():
    rng = np.random.default_rng(7)
    s, order = rng.standard_normal(12), rng.permutation(12)
    np.testing.assert_allclose(rows.softmax(s[order]), rows.softmax(s)[order], rtol=1e-15)
    expected = rows.jacobian(s)[order][:, order]
    np.testing.assert_allclose(rows.jacobian(s[order]), expected, rtol=2e-15)


MASK = np.array([True, False, False, True, True, False, True])


def masked_scores():
    s = np.random.default_rng(9).standard_normal(MASK.size)
    return np.where(MASK, s, -np.inf), s[MASK]


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e308])
@pytest.mark.parametrize("norm", NORMS)
def test_a_masked_key_is_a_key_left_out_of_every_norm(norm, alpha):
    masked, kept = masked_scores()
    np.testing.assert_allclose(norm(masked, alpha), norm(kept, alpha), rtol=1e-14)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e308])
def test_a_masked_key_has_probability_and_derivatives_zero(alpha):
    masked, kept = masked_scores()
    p, matrix = rows.softmax(masked, alpha), rows.jacobian(masked, alpha)
    np.testing.assert_array_equal(p[~MASK], 0.0)
    np.testing.assert_allclose(p[MASK], rows.softmax(kept, alpha), rtol=1e-15)
    np.testing.assert_array_equal(matrix[~MASK], 0.0)
    np.testing.assert_array_equal(matrix[:, ~MASK], 0.0)
    expected = rows.jacobian(kept, alpha)
    np.testing.assert_allclose(matrix[MASK][:, MASK], expected, rtol=1e-14, atol=0.0)


def test_a_vector_constant_over_the_keys_has_no_image():
    s = np.random.default_rng(10).standard_normal((4, 30))
    np.testing.assert_array_equal(rows.jacobian_vector_product(s, np.full(s.shape, 0.1)), 0.0)


# --- axes and batches ----------------------------------------------------------------------------


BATCH = np.random.default_rng(11).standard_normal((3, 4, 5))


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("norm", NORMS)
def test_norm_along_any_axis_is_that_of_the_rows_moved_to_the_end(norm, axis):
    expected = norm(np.moveaxis(BATCH, axis, -1), 1.5)
    np.testing.assert_array_equal(norm(BATCH, 1.5, axis=axis), expected)


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("measure", [*ENTROPIES, lambda p, axis: rows.renyi_entropy(p, 3.0, axis)])
def test_entropy_along_any_axis_is_that_of_the_rows_moved_to_the_end(measure, axis):
    p = rows.softmax(BATCH, axis=axis)
    expected = measure(np.moveaxis(p, axis, -1), axis=-1)
    np.testing.assert_array_equal(measure(p, axis=axis), expected)


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_softmax_and_products_keep_the_axis_where_it_was(axis):
    v = np.random.default_rng(12).standard_normal(BATCH.shape)
    moved, moved_v = np.moveaxis(BATCH, axis, -1), np.moveaxis(v, axis, -1)
    p = np.moveaxis(rows.softmax(moved, 1.5), -1, axis)
    product = np.moveaxis(rows.jacobian_vector_product(moved, moved_v, 1.5), -1, axis)
    np.testing.assert_array_equal(rows.softmax(BATCH, 1.5, axis=axis), p)
    np.testing.assert_array_equal(
        rows.jacobian_vector_product(BATCH, v, 1.5, axis=axis), product, strict=True
    )


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_jacobian_of_a_batch_ends_with_the_matrices(axis):
    moved = np.moveaxis(BATCH, axis, -1)
    matrices = rows.jacobian(BATCH, 1.5, axis=axis)
    assert matrices.shape == (*moved.shape, moved.shape[-1])
    for index in np.ndindex(moved.shape[:-1]):
        np.testing.assert_array_equal(matrices[index], rows.jacobian(moved[index], 1.5))


@pytest.mark.parametrize("function", SHAPED)
def test_alpha_broadcasts_against_the_batch(function):
    alpha = np.array([[0.0], [0.5], [20.0]])  # against the batch shape (3, 4)
    values = function(BATCH, alpha)
    for i, j in np.ndindex(3, 4):
        np.testing.assert_allclose(values[i, j], function(BATCH[i, j], alpha[i, 0]), rtol=1e-15)


@pytest.mark.parametrize("function", SHAPED)
def test_one_row_can_be_seen_at_many_alphas(function):
    alpha = np.array([[0.0, 0.5], [2.0, 700.0]])
    values = function(BATCH[0, 0], alpha)
    for index in np.ndindex(alpha.shape):
        np.testing.assert_allclose(values[index], function(BATCH[0, 0], alpha[index]), rtol=1e-15)


def test_one_vector_can_be_multiplied_at_many_alphas():
    s, v, alpha = BATCH[0, 0], BATCH[0, 1], np.array([0.0, 0.5, 2.0])
    products = rows.jacobian_vector_product(s, v, alpha)
    for product, a in zip(products, alpha, strict=True):
        np.testing.assert_array_equal(product, rows.jacobian_vector_product(s, v, a))


@pytest.mark.parametrize("function", SHAPED)
def test_an_empty_batch_gives_an_empty_result(function):
    full = function(np.zeros((2, 3)))
    assert function(np.zeros((0, 3))).shape == (0, *full.shape[1:])


@pytest.mark.parametrize("function", SHAPED)
def test_scores_are_left_as_they_were(function):
    s = BATCH.copy()
    function(s, 2.0, axis=1)
    np.testing.assert_array_equal(s, BATCH)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.uint64, list])
@pytest.mark.parametrize("function", SHAPED)
def test_any_real_numbers_are_read_as_float64(function, kind):
    values = [3, 1, 2]
    s = values if kind is list else np.array(values, dtype=kind)
    result = function(s)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, function(np.array(values, dtype=np.float64)))


# --- the ends of the range -----------------------------------------------------------------------


def test_scores_at_both_ends_of_the_floats_do_not_overflow():
    s = [-1.7e308, 1.7e308, 1.7e308]
    np.testing.assert_array_equal(rows.softmax(s), [0.0, 0.5, 0.5])
    assert rows.gradient(s) == rows.frobenius_norm(s) == rows.spectral_norm(s) == 0.5
    assert rows.largest_entry(s) == 0.25


def test_a_tiny_alpha_brings_huge_scores_back_into_range():
    s, alpha = [-1e308, 1e308], 1e-308  # the difference 2e308 is no float, α times it is 2
    assert rows.softmax(s, alpha)[0] == pytest.approx(1.0 / (1.0 + np.exp(2.0)), rel=1e-15)


def test_alpha_zero_makes_a_row_uniform_and_its_gradient_zero():
    s = np.array([1.0, -5.0, 1e308, -1e308])
    np.testing.assert_array_equal(rows.softmax(s, 0.0), 0.25)
    np.testing.assert_array_equal(rows.jacobian(s, 0.0), 0.0)
    for norm in NORMS:
        assert norm(s, 0.0) == 0.0


def test_a_huge_alpha_makes_a_row_one_hot_and_its_gradient_zero():
    s, alpha = [0.25, 0.5, -1e300], np.finfo(float).max
    np.testing.assert_array_equal(rows.softmax(s, alpha), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(rows.jacobian(s, alpha), 0.0)
    for norm in NORMS:
        assert norm(s, alpha) == 0.0


def test_a_product_with_a_huge_vector_is_finite_where_its_value_is():
    # J = ½ (¼, −¼; −¼, ¼), so J v = (0.25e308, −0.25e308), though v₁ − v₂ is no float.
    product = rows.jacobian_vector_product([0.0, 0.0], [1e308, -1e308], alpha=0.5)
    np.testing.assert_allclose(product, [0.25e308, -0.25e308], rtol=1e-15)


# --- long rows -----------------------------------------------------------------------------------


LONG = 2_000_000


@pytest.fixture(scope="module")
def long_scores():
    return np.random.default_rng(13).standard_normal(LONG)


def test_norms_of_two_million_scores_agree_with_the_plain_formulas(long_scores):
    # Here no p is near 1, so the plain sums lose nothing.
    p = np.exp(long_scores) / np.exp(long_scores).sum()
    squares, cubes = (p**2).sum(), (p**3).sum()
    np.testing.assert_allclose(rows.softmax(long_scores), p, rtol=1e-13)
    assert rows.gradient(long_scores) == pytest.approx(1.0 - squares, rel=1e-12)
    frobenius = np.sqrt(squares - 2.0 * cubes + squares**2)
    assert rows.frobenius_norm(long_scores) == pytest.approx(frobenius, rel=1e-12)
    assert rows.largest_entry(long_scores) == pytest.approx((p * (1.0 - p)).max(), rel=1e-12)
    assert rows.shannon_entropy(p) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-13)
    for order in (0.5, 1.9, 2.0, 3.0):
        expected = np.log((p**order).sum()) / (1.0 - order)
        assert rows.renyi_entropy(p, order) == pytest.approx(expected, rel=1e-12)


def test_spectral_norm_of_two_million_scores_lies_where_the_secular_equation_changes_sign(
    long_scores,
):
    # An eigenvector solves (p_i − λ)x_i = p_i (p·x), hence Σ p_i²/(p_i − λ) = 1; the left side
    # increases with λ up to its pole at max p.
    p = np.exp(long_scores) / np.exp(long_scores).sum()
    value = rows.spectral_norm(long_scores)
    assert np.sort(p)[-2] < value < p.max()
    assert (p**2 / (p - value * (1.0 - 1e-12))).sum() < 1.0
    assert (p**2 / (p - value * (1.0 + 1e-12))).sum() > 1.0


@pytest.mark.parametrize(
    "function",
    [
        rows.softmax,
        *NORMS,
        lambda s: rows.jacobian_vector_product(s, s),
        lambda s: rows.shannon_entropy(np.full(LONG, 1.0 / LONG)),
        lambda s: rows.collision_probability(np.full(LONG, 1.0 / LONG)),
        lambda s: rows.renyi_entropy(np.full(LONG, 1.0 / LONG), 1.5),
        lambda s: rows.renyi_entropy(np.full(LONG, 1.0 / LONG), 5.0),
    ],
)
def test_memory_grows_only_linearly_with_the_row(function, long_scores):
    tracemalloc.start()
    function(long_scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 8 * LONG


# --- entropies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 10**6])
@pytest.mark.parametrize("order", ORDERS)
def test_every_entropy_of_a_uniform_row_is_log_n(order, n):
    p = np.full(n, 1.0 / n)
    assert rows.renyi_entropy(p, order) == pytest.approx(np.log(n), rel=1e-12)
    assert rows.shannon_entropy(p) == pytest.approx(np.log(n), rel=1e-13)
    assert rows.collision_probability(p) == pytest.approx(1.0 / n, rel=1e-13)


@pytest.mark.parametrize("order", ORDERS)
def test_every_entropy_of_a_one_hot_row_is_zero(order):
    for p in ([1.0], [0.0, 1.0, 0.0], [1, 0]):
        assert rows.renyi_entropy(p, order) == 0.0
        assert rows.shannon_entropy(p) == 0.0
        assert rows.collision_probability(p) == 1.0


@pytest.mark.parametrize("order", ORDERS)
def test_keys_with_probability_zero_change_no_entropy(order):
    p = [0.5, 0.3, 0.2]
    with_zeros = [0.0, 0.5, 0.0, 0.3, 0.2]
    expected = rows.renyi_entropy(p, order)
    assert rows.renyi_entropy(with_zeros, order) == pytest.approx(expected, rel=1e-15)


def test_entropies_of_a_half_and_two_quarters_by_hand():
    p = [0.25, 0.5, 0.25]
    assert rows.renyi_entropy(p, 0) == pytest.approx(np.log(3.0), rel=1e-15)
    # Σ√p = √½ + 1, so H_½ = 2 log(1 + √½).
    assert rows.renyi_entropy(p, 0.5) == pytest.approx(2.0 * np.log(1.0 + np.sqrt(0.5)), rel=1e-15)
    assert rows.renyi_entropy(p, 1) == pytest.approx(1.5 * np.log(2.0), rel=1e-15)
    assert rows.renyi_entropy(p, 2) == pytest.approx(np.log(8.0 / 3.0), rel=1e-15)
    assert rows.renyi_entropy(p, 3) == pytest.approx(np.log(32.0 / 5.0) / 2.0, rel=1e-15)
    assert rows.renyi_entropy(p, np.inf) == pytest.approx(np.log(2.0), rel=1e-15)
    assert rows.collision_probability(p) == 0.375


@pytest.mark.parametrize("order", [1e300, 1e308, np.finfo(float).max])
def test_a_huge_order_gives_the_entropy_of_order_infinity(order):
    p = np.full(10**5, 1e-5)
    assert rows.renyi_entropy(p, order) == pytest.approx(5.0 * np.log(10.0), rel=1e-14)


@pytest.mark.parametrize("order", [5e-324, 1e-10, 0.01])
def test_a_small_order_takes_the_smallest_probabilities(order):
    p = [1.0, 5e-324, 1e-310, 0.0]
    with mp.workdps(60):
        exact = mp.log(mp.fsum(mp.mpf(x) ** mp.mpf(order) for x in p[:3])) / (1 - mp.mpf(order))
    assert rows.renyi_entropy(p, order) == pytest.approx(float(exact), rel=1e-12)


def test_float32_rows_of_a_million_entries_are_taken_as_probabilities(torch):
    s = np.random.default_rng(14).standard_normal(10**6).astype(np.float32)
    p = torch.softmax(torch.from_numpy(s), dim=-1).numpy()
    assert rows.shannon_entropy(p) == pytest.approx(rows.shannon_entropy(rows.softmax(s)), rel=1e-4)


# --- what holds for every row --------------------------------------------------------------------


any_scores = arrays(np.float64, st.integers(1, 12), elements=st.floats(-50.0, 50.0))
any_alpha = st.floats(1e-3, 1e3)
# Inequalities between computed numbers, each exact to 1e-12.
ABOVE, BELOW = 1.0 + 2e-12, 1.0 - 2e-12


@settings(max_examples=200)
@given(s=any_scores, alpha=any_alpha)
def test_norms_keep_their_bounds(s, alpha):
    gradient, frobenius = rows.gradient(s, alpha), rows.frobenius_norm(s, alpha)
    entry, spectral = rows.largest_entry(s, alpha), rows.spectral_norm(s, alpha)
    assert 0.0 <= entry <= alpha / 4.0 * ABOVE
    assert spectral <= alpha / 2.0 * ABOVE
    # A diagonal entry, the largest eigenvalue, the root of the sum of their squares, and the trace.
    assert entry * BELOW <= spectral <= frobenius * ABOVE
    assert frobenius <= gradient * ABOVE
    assert gradient <= (s.size - 1) * spectral * ABOVE
    assert gradient <= alpha * (1.0 - 1.0 / s.size) * ABOVE


@settings(max_examples=200)
@given(s=any_scores, alpha=any_alpha)
def test_gradient_is_half_the_sum_of_the_absolute_derivatives(s, alpha):
    half = np.abs(rows.jacobian(s, alpha)).sum() / 2.0
    assert rows.gradient(s, alpha) == pytest.approx(half, rel=1e-12)


@settings(max_examples=200)
@given(s=any_scores, alpha=any_alpha)
def test_probabilities_are_those_of_a_row(s, alpha):
    p = rows.softmax(s, alpha)
    assert (p >= 0.0).all()
    assert p.sum() == pytest.approx(1.0, rel=1e-15)
    assert p[s.argmax()] == p.max()
    assert (np.diff(p[np.argsort(s)]) >= 0.0).all()


@pytest.mark.parametrize("order", [0.5 + 1e-9, 1 - 1e-9, 1 + 1e-15, 1 + 1e-9, 1.4, 1.5, 2.0])
@pytest.mark.parametrize("small", [1e-300, 7.093182468e-313, 5e-322])
def test_renyi_entropy_keeps_its_digits_down_to_the_subnormal_numbers(order, small):
    found = rows.renyi_entropy([small, 1.0], order)
    with mp.workdps(DIGITS):
        exact = float(reference.renyi_entropy([mp.mpf(small), 1 - mp.mpf(small)], order))
    assert abs(found - exact) <= 1e-12 * exact + 4 * 5e-324


@settings(max_examples=200)
@given(s=any_scores, alpha=any_alpha)
def test_renyi_entropy_falls_with_the_order_from_log_n_to_zero_or_more(s, alpha):
    p = rows.softmax(s, alpha)
    entropies = [float(rows.renyi_entropy(p, order)) for order in ORDERS]
    assert entropies[0] <= np.log(s.size) * ABOVE
    assert entropies[-1] >= 0.0
    for larger, smaller in itertools.pairwise(entropies):
        assert smaller <= larger * ABOVE


@settings(max_examples=200)
@given(s=any_scores, alpha=any_alpha)
def test_shannon_and_collision_are_the_renyi_entropies_of_order_1_and_2(s, alpha):
    p = rows.softmax(s, alpha)
    assert rows.shannon_entropy(p) == rows.renyi_entropy(p, 1.0)
    expected = -np.log(rows.collision_probability(p))
    assert rows.renyi_entropy(p, 2.0) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_new_axes_of_alpha_come_before_those_of_the_scores(axis):
    s, alpha = BATCH[0, :, :], np.array([[0.5], [2.0], [20.0]])
    v = BATCH[1, :, :]
    for found, function in (
        (rows.softmax(s, alpha, axis), rows.softmax),
        (
            rows.jacobian_vector_product(s, v, alpha, axis),
            lambda s, a, axis: rows.jacobian_vector_product(s, v, a, axis),
        ),
    ):
        expected = np.stack([function(s, a, axis) for a in alpha[:, 0]])
        np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("measure", [*ENTROPIES, lambda p: rows.renyi_entropy(p, 2.0)])
def test_a_negative_probability_is_none_though_the_sum_is_1(measure):
    with pytest.raises(ValueError, match=r"p must be finite and at least 0, got p=-0\.25"):
        measure([1.0, -0.25, 0.25])


# Shannon's sum is used where it is small and the factored one where it is not: both at each order.
@pytest.mark.parametrize("order", [0.45, 0.55, 0.9, 0.999, 1.001, 1.1, 1.45, 1.55])
@pytest.mark.parametrize("n", [2, 3, 300])
def test_both_forms_of_the_renyi_entropy_keep_their_digits(order, n):
    p = 1.0 / np.arange(1.0, n + 1.0) ** 1.5
    p /= p.sum()
    with mp.workdps(40):
        total = mp.fsum(mp.mpf(x) for x in p)
        exact = mp.log(mp.fsum((mp.mpf(x) / total) ** order for x in p)) / (1 - mp.mpf(order))
        assert abs(rows.renyi_entropy(p, order) / exact - 1) < 1e-13


@pytest.mark.parametrize("measure", [*ENTROPIES, lambda p: rows.renyi_entropy(p, 2.0)])
def test_one_row_without_sum_1_is_enough(measure):
    with pytest.raises(ValueError, match=r"p must sum to 1 within 1e-05 .* got a sum of 0\.9"):
        measure([[0.5, 0.5], [0.5, 0.4]])

"""Bad input is refused with a message that names it; what is accepted never turns into NaN."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attnlib import rows, scores
from attnlib.scores import Cosine, DotProduct, Normal

NORMS = [rows.gradient, rows.frobenius_norm, rows.largest_entry, rows.spectral_norm]
SHAPED = [rows.softmax, rows.jacobian, *NORMS]
LAWS = [Normal(), DotProduct(8), Cosine(8)]
GENERATING = [
    getattr(law, method)
    for law in (Normal(), DotProduct(8))
    for method in ("log_mgf", "log_mgf_ratio")
]
SCORES = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
HALVES = [[0.5, 0.5], [1.0, 0.0]]


def jacobian_vector_product_of_any(s, alpha=1.0, axis=-1):
    """Return J v with a v that is right whatever s is, so that only s, α and axis are at fault."""
    return rows.jacobian_vector_product(s, 1.0, alpha, axis)


def renyi(p, axis=-1):
    return rows.renyi_entropy(p, 2.0, axis)


OF_SCORES = [*SHAPED, rows.log_gradient, jacobian_vector_product_of_any]
OF_PROBABILITIES = [rows.collision_probability, rows.shannon_entropy, renyi]


def assert_refused(name, shown, function, *arguments, **named):
    """Assert that the call is refused, in a line that has the argument's name and `shown` in it."""
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **named)
    message = str(caught.value)
    assert re.search(rf"\b{name}\b", message), message
    assert shown in message, message
    assert len(message) < 300, message
    assert "\n" not in message, message


# (value, what the message must show of it)
NOT_REAL_NUMBERS = [
    ("abc", "'abc'"),
    (["1.5", "2"], "['1.5', '2']"),
    (1j, "1j"),
    ([1.0, 2j], "2j"),
    (True, "True"),
    ([True, False], "[True, False]"),
    (None, "None"),
    ([1.0, None], "[1.0, None]"),
    ({"a": 1}, "{'a': 1}"),
    (np.array([1.0, 2.0], dtype=object), "object"),
    (np.array(["2020-01-01"], dtype="datetime64[D]"), "2020-01-01"),
    (b"7", "b'7'"),
    ([10**400], "1000"),
    (10**400, "1329 bits"),
    ([10**5000], "object"),
    (10**5000, "bits"),
]
RAGGED = [([[1.0], [1.0, 2.0]], "[[1.0], [1.0, 2.0]]"), ([[1.0] * 1000, [2.0]], "[[1.0, 1.0, ")]
NAN = [(np.nan, "nan"), ([0.0, np.nan], "nan"), ([np.nan] * 10**5, "nan")]
NOT_NUMBERS = NOT_REAL_NUMBERS + RAGGED + NAN
INFINITE = [(np.inf, "inf"), ([0.0, -np.inf], "-inf")]
NEGATIVE = [(-1.0, "-1"), ([0.0, -5e-324], "-4.94066e-324"), (-7, "-7")]


def named(cases):
    return [pytest.param(*case, id=f"{number}-{case[1][:20]}") for number, case in enumerate(cases)]


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", OF_SCORES)
@pytest.mark.parametrize(
    ("s", "shown"),
    named(
        [
            *NOT_NUMBERS,
            ([0.0, np.inf], "inf"),
            ([-np.inf, -np.inf], "-inf"),
            ([[0.0, 1.0], [-np.inf, -np.inf]], "-inf"),
            (2.5, "2.5"),
            ([], "(0,)"),
            (np.zeros((3, 0)), "(3, 0)"),
        ]
    ),
)
def test_bad_scores_are_refused(function, s, shown):
    assert_refused("s", shown, function, s)


@pytest.mark.parametrize("function", OF_SCORES)
@pytest.mark.parametrize(
    ("alpha", "shown"),
    named(
        [*NOT_NUMBERS, *INFINITE, *NEGATIVE, ([1.0, 2.0, 3.0], "(3,)"), (np.ones((4, 5)), "(4, 5)")]
    ),
)
def test_a_bad_alpha_is_refused(function, alpha, shown):
    assert_refused("alpha", shown, function, SCORES, alpha)


AXES = named([(2, "2"), (-3, "-3"), (10**6, "1000000"), (-(10**400), "bits"), (10**5000, "bits")])
NOT_AXES = named([(1.0, "1.0"), (None, "None"), ("0", "'0'"), ([0], "[0]"), ((0, 1), "(0, 1)")])


@pytest.mark.parametrize("function", OF_SCORES)
@pytest.mark.parametrize(("axis", "shown"), AXES + NOT_AXES)
def test_a_bad_axis_of_scores_is_refused(function, axis, shown):
    assert_refused("axis", shown, function, SCORES, 1.0, axis)


@pytest.mark.parametrize("function", OF_PROBABILITIES)
@pytest.mark.parametrize(("axis", "shown"), AXES + NOT_AXES)
def test_a_bad_axis_of_probabilities_is_refused(function, axis, shown):
    assert_refused("axis", shown, function, HALVES, axis=axis)


@pytest.mark.parametrize(
    ("v", "shown"),
    named(
        [
            *NOT_NUMBERS,
            *INFINITE,
            (1.0, "()"),
            ([1.0, 2.0, 3.0], "(3,)"),
            (np.ones((3, 2)), "(3, 2)"),
            (np.ones((1, 3)), "(1, 3)"),
        ]
    ),
)
def test_a_bad_vector_is_refused(v, shown):
    assert_refused("v", shown, rows.jacobian_vector_product, SCORES, v)


@pytest.mark.parametrize("function", OF_PROBABILITIES)
@pytest.mark.parametrize(
    ("p", "shown"),
    named(
        [
            *NOT_NUMBERS,
            *INFINITE,
            *NEGATIVE,
            ([1.5, -0.5], "-0.5"),
            ([0.25, 0.25], "0.5"),
            ([1.0, 1e-4], "1.0001"),
            ([[0.5, 0.5], [0.5, 0.75]], "1.25"),
            ([1e308, 1e308], "inf"),
            ([0.0, 0.0], "0"),
            (1.0, "1"),
            ([], "(0,)"),
            (np.zeros((3, 0)), "(3, 0)"),
        ]
    ),
)
def test_bad_probabilities_are_refused(function, p, shown):
    assert_refused("p", shown, function, p)


@pytest.mark.parametrize(
    ("order", "shown"),
    named(
        [
            *NOT_NUMBERS,
            (-1.0, "-1"),
            (-5e-324, "-4.94066e-324"),
            (-np.inf, "-inf"),
            ([1.0, 2.0], "[1.0, 2.0]"),
            ([2.0], "[2.0]"),
        ]
    ),
)
def test_a_bad_order_is_refused(order, shown):
    assert_refused("order", shown, rows.renyi_entropy, HALVES, order)


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(("s", "shown"), named(NOT_NUMBERS))
def test_a_density_refuses_bad_scores(law, s, shown):
    assert_refused("s", shown, law.logpdf, s)


@pytest.mark.parametrize("function", GENERATING)
@pytest.mark.parametrize(("alpha", "shown"), named([*NOT_NUMBERS, *INFINITE, *NEGATIVE]))
def test_a_generating_function_refuses_a_bad_alpha(function, alpha, shown):
    assert_refused("alpha", shown, function, alpha)


NOT_INTEGERS = [
    (64.0, "64.0"),
    (np.float64(64.0), "64.0"),
    (np.nan, "nan"),
    (np.inf, "inf"),
    (True, "True"),
    (np.True_, "True"),
    ("64", "'64'"),
    (None, "None"),
    ([64], "[64]"),
    (64 + 0j, "64"),
]
TOO_LARGE = [
    (2**53 + 1, "54 bits"),
    (10**400, "1329 bits"),
    (10**5000, "16610 bits"),
    (-(10**5000), "16610 bits"),
]


@pytest.mark.parametrize("law", [DotProduct, Cosine])
@pytest.mark.parametrize(
    ("d", "shown"), named([*NOT_INTEGERS, *TOO_LARGE, (0, "0"), (-1, "-1"), (-(2**60), "61 bits")])
)
def test_a_bad_dimension_is_refused(law, d, shown):
    assert_refused("d", shown, law, d)


@pytest.mark.parametrize("d", [1, 2])
def test_cosines_need_three_dimensions(d):
    assert_refused("d", f"d={d}", Cosine, d)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("name", ["rows", "n"])
@pytest.mark.parametrize(
    ("value", "shown"), named([*NOT_INTEGERS, *TOO_LARGE, (0, "0"), (-1, "-1")])
)
def test_a_bad_size_of_a_sample_is_refused(law, name, value, shown):
    sizes = {"rows": 2, "n": 3, name: value}
    assert_refused(name, shown, law.sample, np.random.default_rng(0), **sizes)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(
    ("rng", "shown"),
    named(
        [
            (0, "0"),
            (None, "None"),
            (np.random.RandomState(0), "RandomState"),
            (np.random.PCG64(0), "PCG64"),
            (np.random.default_rng, "default_rng"),
        ]
    ),
)
def test_a_sample_wants_a_generator(law, rng, shown):
    assert_refused("rng", shown, law.sample, rng, 2, 3)


MOMENTS = {"mean_q": 0.0, "variance_q": 1.0, "mean_k": 0.0, "variance_k": 1.0}


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize(("value", "shown"), named([*NOT_NUMBERS, *INFINITE]))
def test_a_bad_moment_is_refused(name, value, shown):
    assert_refused(name, shown, scores.product_moments, **{**MOMENTS, name: value})


@pytest.mark.parametrize("name", ["variance_q", "variance_k"])
@pytest.mark.parametrize(("value", "shown"), named(NEGATIVE))
def test_a_negative_variance_is_refused(name, value, shown):
    assert_refused(name, shown, scores.product_moments, **{**MOMENTS, name: value})


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_that_do_not_broadcast_are_refused(name):
    others = dict.fromkeys(MOMENTS, np.ones((2, 3)))
    assert_refused(name, "(4,)", scores.product_moments, **{**others, name: np.ones(4)})


# --- whatever is accepted ------------------------------------------------------------------------

any_float = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
finite_float = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
edge_float = st.sampled_from(
    [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        2.2e-308,
        1e-300,
        1e-16,
        1.0,
        745.0,
        -745.1,
        1e300,
        -1.7e308,
        1.7e308,
    ]
)
# Values as they come, which are mostly refused, and finite ones, which are all accepted.
any_element = st.one_of(any_float, edge_float)
finite_element = st.one_of(finite_float, edge_float, st.floats(-800.0, 800.0))
alphas = st.one_of(finite_element.map(abs), any_float)
shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
row_shapes = array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=6)
any_array = st.one_of(
    arrays(np.float64, shapes, elements=any_element),
    arrays(np.float64, row_shapes, elements=finite_element),
    arrays(np.float64, row_shapes, elements=st.one_of(finite_element, st.just(-np.inf))),
)
any_order = st.one_of(finite_element.map(abs), st.floats(0.0, 3.0), st.just(np.inf), any_float)
many = settings(max_examples=150)


def result_or_refusal(function, *arguments):
    """Return the result, or None when the input is refused; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return function(*arguments)
        except (ValueError, TypeError):
            return None


@pytest.mark.parametrize("function", SHAPED)
@many
@given(s=any_array, alpha=alphas, axis=st.integers(-4, 4))
def test_functions_of_scores_refuse_or_return_finite_numbers(function, s, alpha, axis):
    result = result_or_refusal(function, s, alpha, axis)
    assert result is None or np.isfinite(result).all()


@pytest.mark.parametrize("function", SHAPED)
@many
@given(s=arrays(np.float64, row_shapes, elements=finite_element), alpha=finite_element.map(abs))
def test_functions_of_scores_accept_all_finite_scores(function, s, alpha):
    assert result_or_refusal(function, s, alpha) is not None


def assert_product_is_finite(s, v, alpha):
    # |α p_i (v_i − p·v)| ≤ ½ α max |v|: beyond this the result itself may be no float.
    if alpha * float(np.abs(v).max(initial=0.0) / 1e308) >= 1.0:
        return
    result = result_or_refusal(rows.jacobian_vector_product, s, v, alpha)
    assert result is None or np.isfinite(result).all()


@many
@given(s=any_array, alpha=alphas, axis=st.integers(-4, 4))
def test_the_log_gradient_is_refused_or_the_logarithm_of_the_gradient(s, alpha, axis):
    result = result_or_refusal(rows.log_gradient, s, alpha, axis)
    plain = result_or_refusal(rows.gradient, s, alpha, axis)
    assert (result is None) == (plain is None)
    if result is not None:
        assert not np.isnan(result).any()
        with np.errstate(divide="ignore"):
            expected = np.log(plain)
        representable = plain > 1e-290
        np.testing.assert_allclose(result[representable], expected[representable], atol=1e-11)
        assert (result[~representable] < np.log(2e-290)).all()


@many
@given(data=st.data(), s=any_array, alpha=alphas)
def test_jacobian_vector_product_refuses_or_returns_finite_numbers(data, s, alpha):
    v = data.draw(arrays(np.float64, s.shape, elements=any_element))
    assert_product_is_finite(s, v, alpha)


@many
@given(data=st.data(), alpha=finite_element.map(abs), n=st.integers(1, 6))
def test_jacobian_vector_product_of_finite_numbers_is_finite(data, alpha, n):
    s = data.draw(arrays(np.float64, n, elements=finite_element))
    v = data.draw(arrays(np.float64, n, elements=finite_element))
    assert_product_is_finite(s, v, alpha)


@pytest.mark.parametrize("measure", OF_PROBABILITIES)
@many
@given(p=any_array, axis=st.integers(-4, 4))
def test_functions_of_probabilities_refuse_or_return_finite_numbers(measure, p, axis):
    result = result_or_refusal(measure, p, axis)
    assert result is None or np.isfinite(result).all()


@many
@given(
    s=arrays(np.float64, row_shapes, elements=st.one_of(st.floats(-800.0, 800.0), finite_element)),
    order=any_order,
)
def test_entropies_of_any_softmax_row_are_finite_and_not_negative(s, order):
    p = rows.softmax(s)
    entropy = result_or_refusal(rows.renyi_entropy, p, order)
    assert (entropy is None) == (not order >= 0.0)
    if entropy is not None:
        assert np.isfinite(entropy).all()
        assert (entropy >= 0.0).all()
        assert (entropy <= np.log(p.shape[-1]) * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("law", [Normal(), *map(DotProduct, (1, 2, 50, 51, 2**53)), Cosine(3)])
@many
@given(s=arrays(np.float64, shapes, elements=any_element))
def test_densities_refuse_or_return_numbers(law, s):
    result = result_or_refusal(law.logpdf, s)
    assert (result is None) == np.isnan(s).any()
    assert result is None or not np.isnan(result).any()


@given(d=st.integers(3, 2**53), s=finite_element)
@many
def test_densities_are_numbers_in_any_dimension(d, s):
    for law in (DotProduct(d), Cosine(d)):
        assert not np.isnan(result_or_refusal(law.logpdf, s))


@given(d=st.integers(1, 2**53), alpha=alphas)
@many
def test_generating_functions_refuse_or_return_numbers_from_zero_to_infinity(d, alpha):
    for law in (Normal(), DotProduct(d)):
        for function in (law.log_mgf, law.log_mgf_ratio):
            result = result_or_refusal(function, alpha)
            assert (result is None) == (not 0.0 <= alpha < np.inf)
            assert result is None or result >= 0.0


@given(moments=st.tuples(*[any_element] * 4))
@many
def test_moments_of_a_product_refuse_or_return_numbers(moments):
    result = result_or_refusal(scores.product_moments, *moments)
    assert result is None or not np.isnan([result.mean, result.variance]).any()


@given(moments=st.tuples(*[finite_element] * 4))
@many
def test_moments_of_a_product_of_finite_moments_are_numbers(moments):
    mean_q, variance_q, mean_k, variance_k = moments
    result = result_or_refusal(
        scores.product_moments, mean_q, abs(variance_q), mean_k, abs(variance_k)
    )
    assert not np.isnan(result.mean)
    assert result.variance >= 0.0

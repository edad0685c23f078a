"""Bad input is refused with a message that names it; what is accepted never turns into NaN.

`test_checking.py` shows what each shared check refuses. Here every argument of every public
function is seen to reach one.
"""

import importlib
import inspect
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attnlib import policies, retrieval, rows, sampling, scores
from attnlib.scores import Cosine, DotProduct, Normal

NORMS = [rows.gradient, rows.frobenius_norm, rows.largest_entry, rows.spectral_norm]
SHAPED = [rows.softmax, rows.jacobian, *NORMS]
SCORES = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
HALVES = [[0.5, 0.5], [1.0, 0.0]]
RNG = np.random.default_rng(0)


def renyi(p, axis=-1):
    return rows.renyi_entropy(p, 2.0, axis)


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


def assert_all_refused(name, cases, call):
    """Assert that `call` refuses each value; a case is the value and what the message shows."""
    for value, shown in cases:
        try:
            assert_refused(name, shown, call, value)
        except BaseException as error:
            error.add_note(f"with {name}={value!r:.80}")
            raise


# --- every argument of every public function -----------------------------------------------------

MODULES = (
    *("rows", "scores", "annealed", "exact", "freezing", "typical", "sampling", "policies"),
    *("criteria", "initialisation", "retrieval", "symbolic"),
)

# Of each argument one that is right, and (value, what the message shows) of some that are wrong: of
# another type, NaN, infinite, out of range. "function.argument" goes before "module.argument", and
# that before the argument alone.
NUMBER = [("2", "'2'"), (None, "None"), (True, "True"), (1j, "1j"), (np.nan, "nan")]
GIVEN = [case for case in NUMBER if case[0] is not None]
INFINITE = [(np.inf, "inf"), (-np.inf, "-inf")]
NEGATIVE = [(-1.0, "-1")]
RAGGED = [([[1.0], [1.0, 2.0]], "[[1.0], [1.0, 2.0]]")]
SINGLE = [([2.0], "[2.0]")]
COUNT = [("4", "'4'"), (None, "None"), (True, "True"), (4.0, "4.0"), (0, "0"), (2**60, "61 bits")]
STATISTIC = [(None, "None"), ("mode", "'mode'"), (3, "3")]
N = [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE, (0, "0"), ([4.0, 0.9], "0.9")]
WHOLE = ("scores", "typical", "sampling", "criteria", "initialisation", "symbolic")
ARGUMENTS = {
    "alpha": (1.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE]),
    "axis": (-1, [(2, "2"), (-3, "-3"), (1.0, "1.0"), (None, "None"), ([0], "[0]")]),
    "applied_to": ("cosine", [("product", "'product'"), (3, "3"), (None, "None")]),
    "bins": (2, [*NUMBER, *NEGATIVE, (np.inf, "inf"), (0, "0"), (1.5, "1.5"), ([0.5, 0.2], "0.5")]),
    "best_alpha.rows": (200, [*COUNT[:1], *COUNT[2:], (99, "99")]),
    "best_alpha.statistic": ("median", STATISTIC),
    "causal": (False, [(1, "1"), (None, "None"), ("yes", "'yes'")]),
    "count": (4, COUNT),
    "d": (8, COUNT),
    "policies.d": (8, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE, (0.9, "0.9")]),
    "cosine_mgf.d": (3, COUNT[:-1]),
    "critical_alpha.law": (Normal(), [("normal", "'normal'"), (64, "64"), (Normal, "Normal")]),
    "epsilon": (0.0, [*NUMBER, *INFINITE, *SINGLE, *NEGATIVE]),
    "sample_rows.exponent": (-0.5, [*NUMBER, *INFINITE, *SINGLE]),
    "exponent": (6.0, [*NUMBER, *INFINITE, *SINGLE, *NEGATIVE, (0.5, "0.5")]),
    "factor": (1.0, [*NUMBER, *INFINITE, *SINGLE]),
    "fit.n": ([40, 80], [*NUMBER, *INFINITE, *NEGATIVE, ([], "empty")]),
    "function": (np.add, [(3, "3"), (None, "None"), ("ssmax", "'ssmax'")]),
    "gradient.statistic": ("median", STATISTIC),
    "heads": (1, COUNT),
    "law": (Normal(), [(None, "None"), ("normal", "'normal'"), (64, "64"), (Normal, "Normal")]),
    "logpdf.s": (SCORES, [*NUMBER, *RAGGED]),
    "mean_k": (0.0, [*NUMBER, *RAGGED, *INFINITE]),
    "mean_q": (0.0, [*NUMBER, *RAGGED, *INFINITE]),
    "gap": (4.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE, (0.0, "0")]),
    "n": (5, N),
    "needle": (
        retrieval.Tilted(2.0),
        [(None, "None"), ("tilted", "'tilted'"), (4.0, "4.0"), (retrieval.Fixed, "Fixed")],
    ),
    "calibration.needle": (0, [*COUNT[:4], (-1, "-1"), (3, "3")]),
    "criteria.needle": (None, [("tilted", "'tilted'"), (4.0, "4.0"), (retrieval.Fixed, "Fixed")]),
    "needles": (2, COUNT),
    "critical_alpha.n": (5, N),
    **{f"{module}.n": (5, COUNT) for module in (*WHOLE, "sample")},
    "order": (2.0, [*NUMBER, *NEGATIVE, ([1.0, 2.0], "[1.0, 2.0]")]),
    "p": (
        HALVES,
        [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE, ([0.25, 0.25], "0.5"), (1.0, "1"), ([], "(0,)")],
    ),
    "peak_of_medians.values": (
        np.zeros((20, 9)),
        [*NUMBER, (np.zeros((19, 9)), "(19, 9)"), (np.zeros(9), "(9,)")],
    ),
    "peak_of_medians.x": (
        np.arange(9.0),
        [
            *NUMBER,
            ([0, 1, 2, 3, 4, 5, 6, 7, np.inf], "inf"),
            (np.zeros(9), "0."),
            (np.arange(6), "[0, 1"),
        ],
    ),
    "position": (3, [*GIVEN, *INFINITE, *NEGATIVE]),
    "power_softmax.x": ([0.5, 2.0], [*NUMBER, *INFINITE, ([0.0], "zeros"), ([], "(0,)")]),
    "power_softmax_jacobian.x": ([0.5, 2.0], [*NUMBER, *INFINITE, ([0.0], "zeros"), ([], "(0,)")]),
    "q": (0.5, [*NUMBER, (0.0, "0"), (1.0, "1"), (1e-9, "1e-09")]),
    "rng": (RNG, [(0, "0"), (None, "None"), (np.random.RandomState(0), "RandomState")]),
    "rows": (200, COUNT),
    "rows.alpha": (1.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE, (np.ones((4, 5)), "(4, 5)")]),
    "sampling.rows": (200, [*COUNT, (1, "1")]),
    "s": (SCORES, [*NUMBER, *RAGGED, ([0.0, np.inf], "inf"), (2.5, "2.5"), ([], "(0,)")]),
    "seed": (0, [("4", "'4'"), (None, "None"), (True, "True"), (1.0, "1.0"), (-1, "-1")]),
    "sinks": (1.0, [*NUMBER, *RAGGED, *INFINITE]),
    "shape": (
        np.log,
        [(lambda n: -n, "-40"), (lambda n: n[:1], "40"), (lambda n: n * np.nan, "nan")],
    ),
    "statistic": (rows.gradient, [(None, "None"), ("mean", "'mean'"), (3.0, "3.0")]),
    "train_length": (4.0, [*NUMBER, *INFINITE, *SINGLE, *NEGATIVE, (0.9, "0.9")]),
    "v": (
        SCORES,
        [
            *NUMBER,
            *RAGGED,
            *INFINITE,
            (1.0, "()"),
            (np.ones((3, 2)), "(3, 2)"),
            ([[1, 2, 3]], "(1, 3)"),
        ],
    ),
    "values": ([1.0, 2.0], [*NUMBER, *RAGGED, ([0.0, np.inf], "inf"), ([1.0], "1")]),
    "variance_k": (1.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE]),
    "variance_q": (1.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE]),
    "vectors": (4, COUNT),
    "x": (2.0, [*NUMBER, *RAGGED, *INFINITE, *NEGATIVE]),
}
FOR_MODULES = {"annealed_alpha", "annealed_exponent", "gap_density", "mixture", "ranks", "rule"}
FOR_MODULES |= {"tilted_ranks", "tilted_rule"}
"""Methods of a law: `exact` and `annealed` call them, and have checked what they pass."""

UNCHECKED = {"executor"}
"""What any object may be."""

INSTANCES = [
    *(Normal(), DotProduct(8), Cosine(8)),
    *(policies.POLICIES[name] for name in ("transformer", "qwen", "gradient_cosine")),
    sampling.sample(Normal(), 4, rows.gradient, rows=1000, seed=0),
]
"""Their methods are called as well."""

ON_THEIR_OWN = {
    "scores.check_law",  # is a check
    "policies.Policy.with_constants",  # in test_policies
    "retrieval.reach",  # with arguments that exclude each other: in test_retrieval
}


def public_functions():
    """Return every public function, class and method that takes arguments, by its name."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"attnlib.{name}")
        for member, value in vars(module).items():
            ours = getattr(value, "__module__", "") == module.__name__
            if ours and not member.startswith("_") and inspect.isfunction(value):
                found[f"{name}.{member}"] = value
    found |= {f"scores.{law.__name__}": law for law in (DotProduct, Cosine)}
    for instance in INSTANCES:
        for member, value in inspect.getmembers(instance, inspect.ismethod):
            if not member.startswith("_") and member not in FOR_MODULES:
                of = type(instance)
                label = f" of {instance.name}" if isinstance(instance, policies.Policy) else ""
                owner = f"{of.__module__.removeprefix('attnlib.')}.{of.__name__}"
                found[f"{owner}.{member}{label}"] = value
    return {
        name: value
        for name, value in found.items()
        if name.split(" ")[0] not in ON_THEIR_OWN and inspect.signature(value).parameters
    }


PUBLIC = public_functions()


def described(name, argument):
    """Return the entry of an argument of a public function."""
    module, *_, function = name.split(" ")[0].split(".")
    keys = (f"{function}.{argument}", f"{module}.{argument}", argument)
    return next(ARGUMENTS[key] for key in keys if key in ARGUMENTS)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_checked_and_named(name):
    function = PUBLIC[name]
    names = [a for a in inspect.signature(function).parameters if a not in UNCHECKED]
    right = {argument: described(name, argument)[0] for argument in names}
    for argument in names:
        _, wrong = described(name, argument)
        assert_all_refused(argument, wrong, lambda v, a=argument: function(**{**right, a: v}))


def test_the_public_functions_are_found():
    assert {"rows.softmax", "exact.moment", "scores.Cosine", "scores.Cosine.logpdf"} <= set(PUBLIC)
    assert {"policies.Policy.alpha of qwen", "sampling.Sample.quantile"} <= set(PUBLIC)


def test_scales_and_keys_that_do_not_broadcast_are_refused():
    modules = ("annealed", "exact", "freezing")  # retrieval broadcasts a third: in its test
    called = 0
    for name, function in PUBLIC.items():
        names = inspect.signature(function).parameters
        if name.split(".")[0] in modules and {"alpha", "n"} <= set(names):
            called += 1
            right = {argument: described(name, argument)[0] for argument in names}
            mismatched = {**right, "alpha": [1.0, 2.0], "n": [2, 3, 4]}
            assert_refused("alpha and n must broadcast", "(2,)", function, **mismatched)
    assert called > 12


def test_moments_that_do_not_broadcast_are_refused():
    moments = ("mean_q", "variance_q", "mean_k", "variance_k")
    for name in moments:
        others = dict.fromkeys(moments, np.ones((2, 3)))
        assert_refused(name, "(4,)", scores.product_moments, **{**others, name: np.ones(4)})


def test_what_memory_does_not_hold_is_refused():
    for law in (Normal(), DotProduct(4), Cosine(4)):
        assert_refused("rows and n", f"n={2**40}", law.sample, RNG, 2**10, 2**40)
    for function in (sampling.sample, sampling.draws):
        told = {"rows": 2, "seed": 0}
        assert_refused("n", f"n={2**52}", function, Normal(), 2**52, np.mean, **told)


@pytest.mark.parametrize("d", [1, 2])
def test_cosines_need_three_dimensions(d):
    assert_refused("d", f"d={d}", Cosine, d)


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

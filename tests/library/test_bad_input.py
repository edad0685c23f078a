"""Bad input is refused with a message that names it; what is accepted never turns into NaN.

`ARGUMENTS` says of each argument of the public functions a value that is right and the kind of its
wrong ones. One property test walks over all functions, and draws of each kind.
"""

import importlib
import inspect
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib import policies, retrieval, rows, sampling
from attnlib.scores import Cosine, DotProduct, Normal

SCORES = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def assert_refused(name, shown, function, *arguments, **named):
    """Assert that the call is refused, in a line that has the argument's name and `shown` in it."""
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **named)
    message = str(caught.value)
    assert re.search(rf"\b{name}\b", message), message
    assert shown in message, message
    assert len(message) < 300, message
    assert "\n" not in message, message


def any_of(*values):
    return st.sampled_from(values)


def but(kind, *values):
    return kind.filter(lambda value: not any(value is excluded for excluded in values))


NOT_REAL = any_of("2", None, True, 1j, b"7", {"a": 1}, Fraction(1, 2), 10**400, [1.0, 2j], [None])
RAGGED = any_of([[1.0], [1.0, 2.0]], [[1.0] * 1000, [2.0]])
NUMBERS = NOT_REAL | RAGGED | any_of(np.nan, [0.0, np.nan])
FINITE = NUMBERS | any_of(np.inf, -np.inf, [5.0, -np.inf])
NOT_SINGLE = any_of([2.0], [1.0, 2.0], [])
NUMBER = NUMBERS | NOT_SINGLE
FINITE_NUMBER = NUMBER | any_of(np.inf, -np.inf)


def below(least):
    return st.floats(-1e300, least, exclude_max=True) | any_of(least - 1, np.nextafter(least, -9))


KEYS = FINITE | below(1.0) | any_of([4.0, 0.9])
NOT_INTEGER = any_of("4", None, True, np.True_, 4.0, np.nan, [4], Fraction(4), 4 + 0j, 10**400)
WHOLE = KEYS | any_of(1.5, 2.0**53 + 2.0, [3, 1e300])
COUNT = NOT_INTEGER | any_of(0, -1, 2**53 + 1)
NOT_LAW = any_of(None, "normal", 64, Normal)
NOT_NEEDLE = any_of(None, "tilted", 4.0, retrieval.Fixed)
SCORE_ROWS = NUMBERS | any_of([0.0, np.inf], 2.5, [])
PROBABILITIES = FINITE | any_of([-0.5, 1.5], [0.25, 0.25], 1.0, [])
GENERATOR = any_of(0, None, np.random.RandomState(0), np.random.PCG64(0))
WEIGHTS = FINITE | any_of(1.0, np.ones((3, 2)), [[1, 2, 3]])
FORMS = any_of(lambda n: -n, lambda n: n[:1], lambda n: n * np.nan)

# Of each argument what is right, and what is wrong. "function.argument" goes before
# "module.argument", and that before the argument alone.
ARGUMENTS = {
    "alpha": (1.0, FINITE | below(0.0)),
    "applied_to": ("cosine", any_of("product", 3, None)),
    "best_alpha.rows": (200, but(COUNT, None) | any_of(99)),
    "causal": (False, any_of(1, 0, None, "yes", np.True_)),
    "all_criteria.entropy": (False, any_of(1, 0, None, "yes", np.True_)),
    "count": (4, COUNT),
    "critical_alpha.law": (Normal(), but(NOT_LAW, None)),
    "critical_alpha.n": (5, KEYS),
    "cosine_mgf.d": (3, any_of("4", None, True, 4.0, 0, -1)),
    "Cosine.d": (8, COUNT | any_of(1, 2)),
    "d": (8, COUNT),
    "epsilon": (0.0, FINITE_NUMBER | below(0.0)),
    "exponent": (6.0, FINITE_NUMBER | below(1.0)),
    "factor": (1.0, FINITE_NUMBER),
    "fit.n": ([40, 80], KEYS | any_of([])),
    "function": (np.add, any_of(3, None, "ssmax")),
    "gap": (4.0, FINITE | below(0.0) | any_of(0.0)),
    "heads": (1, COUNT),
    "law": (Normal(), NOT_LAW),
    "logpdf.s": (SCORES, NUMBERS),
    "tail.s": (SCORES, NUMBERS),
    "mean_k": (0.0, FINITE),
    "mean_q": (0.0, FINITE),
    "n": (5, KEYS),
    "exact.n": (5, WHOLE),
    "retrieval.n": (5, WHOLE),
    "least_alpha.n": (5, KEYS),
    **{
        f"{owner}.n": (5, COUNT)
        for owner in ("scores", "typical", "sampling", "criteria", "initialisation")
    },
    "inner": (8, but(COUNT, None)),
    "initialiser": ("linear", any_of(None, "xavierr", 3)),
    "logits": (SCORES, FINITE | any_of(2.5, [], [1.0, 2.0], [[1.0], [2.0]])),
    "needle_calibration.needle": (0, NOT_INTEGER | any_of(-1, 3)),
    "needle": (retrieval.Tilted(2.0), NOT_NEEDLE),
    "moment.order": (2.0, NUMBER | below(1.0) | any_of(16.1, np.inf)),
    "p": ([[0.5, 0.5], [1.0, 0.0]], PROBABILITIES),
    "policies.d": (8, KEYS),
    "position": (3, but(FINITE, None) | below(0.0)),
    "q": (0.5, NUMBERS | any_of(0.0, 1.0, 1e-9)),
    "resume": (None, any_of(3, "yesterday")),
    "rng": (np.random.default_rng(0), GENERATOR),
    "rows": (200, COUNT),
    "rows.alpha": (1.0, FINITE | below(0.0) | any_of(np.ones((4, 5)))),
    "s": (SCORES, SCORE_ROWS),
    "sampling.rows": (200, COUNT | any_of(1)),
    "seed": (0, NOT_INTEGER | any_of(-1)),
    "shape": (np.log, FORMS),
    "sinks": (1.0, FINITE),
    "statistic": (rows.gradient, any_of(None, "mean", 3.0)),
    "std": (0.02, FINITE_NUMBER | below(0.0) | any_of(0.0)),
    "self_attention_variance.d": (8, but(COUNT, None)),
    "self_attention_variance.n": (5, WHOLE),
    "width": (8, COUNT),
    "train_length": (4.0, FINITE_NUMBER | below(1.0)),
    "v": (SCORES, WEIGHTS),
    "values": ([1.0, 2.0], NUMBERS | any_of([0.0, np.inf], [1.0])),
    "variance_k": (1.0, FINITE | below(0.0)),
    "variance_q": (1.0, FINITE | below(0.0)),
    "vectors": (4, COUNT),
    "x": (2.0, FINITE | below(0.0)),
}
MODULES = (
    *("rows", "scores", "annealed", "exact", "freezing", "typical", "sampling", "policies"),
    *("criteria", "initialisation", "needle_rows", "retrieval"),
)
FOR_MODULES = {"mixture", "panels", "quadrature_nodes"}
"""Methods of a law: `exact` and `retrieval` call them, and have checked what they pass."""

UNCHECKED = {"executor", "report"}
"""What any object may be."""

INSTANCES = [
    *(Normal(), DotProduct(8), Cosine(8)),
    *(policies.POLICIES[name] for name in ("transformer", "gradient_cosine")),
    sampling.sample(Normal(), 4, rows.gradient, rows=1000, seed=0),
]
"""Their methods are called as well."""

ON_THEIR_OWN = {
    *("scores.check_law", "policies.find_policy"),  # are checks
    "sampling.make_estimate",  # takes what is computed
    "policies.Policy.with_constants",  # in test_policies
    "retrieval.reach",  # with arguments that exclude each other: in test_retrieval
}


def public_functions():
    """Return every public function, class and method that takes arguments, by its name."""
    functions = {}
    for name in MODULES:
        module = importlib.import_module(f"attnlib.{name}")
        for member, value in vars(module).items():
            ours = getattr(value, "__module__", "") == module.__name__
            if ours and not member.startswith("_") and inspect.isfunction(value):
                functions[f"{name}.{member}"] = value
    functions |= {f"scores.{law.__name__}": law for law in (DotProduct, Cosine)}
    for instance in INSTANCES:
        for member, value in inspect.getmembers(instance, inspect.ismethod):
            if not member.startswith("_") and member not in FOR_MODULES:
                of = type(instance)
                label = f" of {instance.name}" if isinstance(instance, policies.Policy) else ""
                owner = f"{of.__module__.removeprefix('attnlib.')}.{of.__name__}"
                functions[f"{owner}.{member}{label}"] = value
    return {
        name: value
        for name, value in functions.items()
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
        refuses(function, right, argument, described(name, argument)[1])


def refuses(function, right, argument, kind):
    @settings(max_examples=15)
    @given(kind)
    def check(wrong):
        assert_refused(argument, "got ", lambda: function(**{**right, argument: wrong}))

    check()


def test_scales_and_keys_that_do_not_broadcast_are_refused():
    for name, function in PUBLIC.items():
        names = inspect.signature(function).parameters
        # retrieval broadcasts a third: in its test
        if name.startswith(("annealed", "exact", "freezing")) and {"alpha", "n"} <= set(names):
            right = {argument: described(name, argument)[0] for argument in names}
            mismatched = {**right, "alpha": [1.0, 2.0], "n": [2, 3, 4]}
            assert_refused("alpha and n must broadcast", "(2,)", function, **mismatched)

"""The checks that all functions share: what each refuses, in what words, and what it lets pass."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attnlib import checking
from tests.library.test_bad_input import assert_all_refused, result_or_refusal

# (value, what the message must show of it)
NOT_REAL_NUMBERS = [
    *(("abc", "'abc'"), (["1.5", "2"], "['1.5', '2']"), (b"7", "b'7'")),
    *((1j, "1j"), ([1.0, 2j], "2j"), (True, "True"), ([True, False], "[True, False]")),
    *((None, "None"), ([1.0, None], "[1.0, None]"), ({"a": 1}, "{'a': 1}")),
    *((Fraction(1, 2), "Fraction(1, 2)"), (np.array([1.0, 2.0], dtype=object), "object")),
    (np.array(["2020-01-01"], dtype="datetime64[D]"), "2020-01-01"),
    *(([10**400], "1000"), (10**400, "1329 bits"), ([10**5000], "object"), (10**5000, "bits")),
]
RAGGED = [([[1.0], [1.0, 2.0]], "[[1.0], [1.0, 2.0]]"), ([[1.0] * 1000, [2.0]], "[[1.0, 1.0, ")]
NAN = [(np.nan, "nan"), ([0.0, np.nan], "nan"), ([np.nan] * 10**5, "nan")]
NOT_NUMBERS = NOT_REAL_NUMBERS + RAGGED + NAN
INFINITE = [(np.inf, "inf"), ([5.0, -np.inf], "-inf")]
NEGATIVE = [(-1.0, "-1"), ([0.0, -5e-324], "-4.94066e-324"), (-7, "-7")]
NOT_SINGLE = [([1.0, 2.0], "[1.0, 2.0]"), ([2.0], "[2.0]"), ([], "[]")]
NOT_INTEGERS = [
    *((64.0, "64.0"), (np.float64(64.0), "64.0"), (np.nan, "nan"), (np.inf, "inf")),
    *((True, "True"), (np.True_, "True"), ("64", "'64'"), (None, "None"), ([64], "[64]")),
    *((64 + 0j, "64"), (Fraction(64), "Fraction(64, 1)")),
]
TOO_LARGE = [(2**53 + 1, "54 bits"), (10**400, "1329 bits"), (10**5000, "16610 bits")]

any_float = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
any_array = arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0), elements=any_float)


def test_real_refuses_what_is_no_number_or_nan():
    assert_all_refused("s", NOT_NUMBERS, lambda v: checking.real("s", v))


@given(any_array)
def test_real_lets_all_but_nan_pass_unchanged(array):
    found = result_or_refusal(checking.real, "s", array)
    assert (found is None) == np.isnan(array).any()
    if found is not None:
        np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g", "i1", "i8", "u8"])
def test_real_reads_every_kind_of_real_number_as_float64(kind):
    found = checking.real("s", np.array([0, 1, 100], dtype=kind))
    np.testing.assert_array_equal(found, np.array([0.0, 1.0, 100.0]), strict=True)


def test_finite_refuses_what_is_infinite_or_too_small():
    cases = [*NOT_NUMBERS, *INFINITE]
    assert_all_refused("v", cases, lambda v: checking.finite("v", v))
    below = [(1.999, "1.999"), ([[2.0], [-3.0]], "-3")]
    assert_all_refused("v", [*cases, *below], lambda v: checking.finite("v", v, minimum=2.0))
    with pytest.raises(ValueError, match=r"^v must be finite and at least 2, got v=1\.999$"):
        checking.finite("v", 1.999, minimum=2.0)


@given(any_array, any_float)
def test_finite_lets_pass_what_is_within(array, minimum):
    found = result_or_refusal(lambda: checking.finite("v", array, minimum=minimum))
    assert (found is None) == (not np.isfinite(array).all() or bool((array < minimum).any()))


def test_alpha_and_keys_are_finite_numbers_from_0_and_from_1_on():
    cases, small = [*NOT_NUMBERS, *INFINITE], [(0, "0"), (0.999, "0.999"), ([4, -7], "-7")]
    assert_all_refused("alpha", [*cases, *NEGATIVE], checking.alpha)
    assert_all_refused("n", [*cases, *small], checking.keys)
    assert checking.alpha([0.0, 1e308]).tolist() == [0.0, 1e308]
    assert checking.keys([1, 1.5, 1e300]).tolist() == [1.0, 1.5, 1e300]


def test_number_refuses_what_is_not_single():
    cases = [*NOT_NUMBERS, *NOT_SINGLE]
    assert_all_refused("order", cases, lambda v: checking.number("order", v))
    assert [checking.number("order", v) for v in (2, np.float32(0.5), np.inf)] == [2.0, 0.5, np.inf]


def test_positive_refuses_zero_and_less_and_infinity():
    cases = [*NOT_NUMBERS, *NOT_SINGLE, (0.0, "0"), (-5e-324, "-4.94066e-324"), (np.inf, "inf")]
    assert_all_refused("rate", cases, lambda v: checking.positive("rate", v))
    assert checking.positive("rate", 5e-324) == 5e-324


def test_flag_refuses_all_but_true_and_false():
    cases = [(1, "1"), (0, "0"), (None, "None"), ("yes", "'yes'"), (np.True_, "True"), ([], "[]")]
    assert_all_refused("causal", cases, lambda v: checking.flag("causal", v))
    assert checking.flag("causal", True) is True
    assert checking.flag("causal", False) is False


def test_choice_refuses_other_words_and_names_those_allowed():
    cases = [("Causal", "'Causal'"), ("", "''"), (None, "None"), (0, "0"), (["none"], "['none']")]
    assert_all_refused("mask", cases, lambda v: checking.choice("mask", v, ("causal", "none")))
    with pytest.raises(ValueError, match=r"^mask must be one of 'causal', 'none', got mask='x'$"):
        checking.choice("mask", "x", ("causal", "none"))


def test_integer_refuses_what_is_no_integer_and_what_is_out_of_range():
    cases = [*NOT_INTEGERS, *TOO_LARGE, (-(10**5000), "16610 bits"), (2, "2"), (-1, "-1")]
    assert_all_refused("d", cases, lambda v: checking.integer("d", v, minimum=3))
    assert_all_refused("d", [(8, "8")], lambda v: checking.integer("d", v, minimum=3, maximum=7))
    for value in (3, np.int8(3), np.uint64(3), 2**53):
        found = checking.integer("d", value, minimum=3)
        assert type(found) is int
        assert found == value


def test_generator_refuses_seeds_and_older_kinds():
    cases = [
        *((0, "0"), (None, "None"), (np.random.RandomState(0), "RandomState")),
        *((np.random.PCG64(0), "PCG64"), (np.random.default_rng, "default_rng")),
    ]
    assert_all_refused("rng", cases, lambda v: checking.generator("rng", v))


def test_last_axis_refuses_axes_that_are_not_there_or_empty():
    def of_axis(axis):
        return checking.last_axis("s", np.zeros((2, 3)), axis)

    outside = [(2, "2"), (-3, "-3"), (10**6, "1000000"), (-(10**400), "bits"), (10**5000, "bits")]
    assert_all_refused("axis", outside, of_axis)
    assert_all_refused("axis", [*NOT_INTEGERS, ((0, 1), "(0, 1)")], of_axis)
    empty = [(np.zeros(0), "(0,)"), (np.zeros((3, 0)), "(3, 0)"), (np.array(2.5), "2.5")]
    assert_all_refused("s", empty, lambda v: checking.last_axis("s", v, -1))
    assert of_axis(0).shape == (3, 2)


def test_broadcast_refuses_shapes_that_do_not_and_names_all():
    with pytest.raises(
        ValueError, match=r"^alpha and n must broadcast, got shapes \(2,\) and \(3,"
    ):
        checking.broadcast(alpha=np.zeros(2), n=np.zeros(3))


@pytest.mark.parametrize("axis", [-3, 2, 3])
def test_an_axis_that_is_not_there_is_named_with_those_that_are(axis):
    with pytest.raises(ValueError, match=rf"^axis must be from -2 to 1, got axis={axis}$"):
        checking.last_axis("p", np.zeros((2, 2)), axis)


@pytest.mark.parametrize("length", [79, 80, 81, 200])
def test_a_value_is_shown_in_eighty_characters(length):
    text = "x" * (length - 2)  # and two quotes
    with pytest.raises(TypeError) as caught:
        checking.flag("f", text)
    shown = str(caught.value).split("got f=")[1]
    assert shown == (repr(text) if length <= 80 else repr(text)[:77] + "...")

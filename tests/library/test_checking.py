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
NOT_NUMBERS = [
    *(("abc", "'abc'"), (["1.5", "2"], "['1.5', '2']"), (b"7", "b'7'"), (1j, "1j")),
    *((True, "True"), ([1.0, None], "[1.0, None]"), ({"a": 1}, "{'a': 1}")),
    *((Fraction(1, 2), "Fraction(1, 2)"), (np.array([1.0, 2.0], dtype=object), "object")),
    *((10**400, "1329 bits"), ([10**5000], "object"), (10**5000, "bits")),
    *(([[1.0], [1.0, 2.0]], "[[1.0], [1.0, 2.0]]"), ([[1.0] * 1000, [2.0]], "[[1.0, 1.0, ")),
    *((np.nan, "nan"), ([0.0, np.nan], "nan"), ([np.nan] * 10**5, "nan")),
]
INFINITE = [(np.inf, "inf"), ([5.0, -np.inf], "-inf")]
NOT_SINGLE = [([1.0, 2.0], "[1.0, 2.0]"), ([2.0], "[2.0]"), ([], "[]")]
NOT_INTEGERS = [
    *((64.0, "64.0"), (np.nan, "nan"), (True, "True"), (np.True_, "True"), ("64", "'64'")),
    *((None, "None"), ([64], "[64]"), (64 + 0j, "64"), (Fraction(64), "Fraction(64, 1)")),
]

any_float = st.floats()
any_array = arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0), elements=any_float)


@given(any_array, any_float)
def test_numbers_pass_unchanged_and_what_is_out_of_range_is_refused(array, minimum):
    found = result_or_refusal(checking.real, "s", array)
    assert (found is None) == np.isnan(array).any()
    if found is not None:
        np.testing.assert_array_equal(found, array, strict=True)
    found = result_or_refusal(lambda: checking.finite("v", array, minimum=minimum))
    assert (found is None) == (not np.isfinite(array).all() or bool((array < minimum).any()))


@pytest.mark.parametrize("kind", ["f2", "g", "i1", "u8"])
def test_every_kind_of_real_number_is_read_as_float64(kind):
    found = checking.real("s", np.array([0, 1, 100], dtype=kind))
    np.testing.assert_array_equal(found, np.array([0.0, 1.0, 100.0]), strict=True)


def test_what_each_check_refuses_and_shows():
    numbers = [*NOT_NUMBERS, *INFINITE]
    small = [(0, "0"), (0.999, "0.999"), ([4, -7], "-7")]
    negative = [(-1.0, "-1"), ([0.0, -5e-324], "-4.94066e-324")]
    assert_all_refused("s", NOT_NUMBERS, lambda v: checking.real("s", v))
    assert_all_refused("v", numbers, lambda v: checking.finite("v", v))
    assert_all_refused("alpha", [*numbers, *negative], checking.alpha)
    assert_all_refused("n", [*numbers, *small], checking.keys)
    assert_all_refused("n", [(1.5, "1.5"), (2.0**53 + 2.0, "9.0072e+15")], checking.whole_keys)
    single = [*NOT_NUMBERS, *NOT_SINGLE]
    assert_all_refused("order", single, lambda v: checking.number("order", v))
    for case in ((0.0, "0"), (-5e-324, "-4.94066e-324"), (np.inf, "inf")):
        assert_all_refused("rate", [*single, case], lambda v: checking.positive("rate", v))
    flags = [(1, "1"), (0, "0"), (None, "None"), ("yes", "'yes'"), (np.True_, "True"), ([], "[]")]
    assert_all_refused("causal", flags, lambda v: checking.flag("causal", v))
    large = [
        (2**53 + 1, "54 bits"),
        (10**5000, "bits"),
        (-(10**5000), "bits"),
        (2, "2"),
        (-1, "-1"),
    ]
    integers = [*NOT_INTEGERS, *large]
    assert_all_refused("d", integers, lambda v: checking.integer("d", v, minimum=3))
    assert_all_refused("d", [(8, "8")], lambda v: checking.integer("d", v, minimum=3, maximum=7))
    generators = [(0, "0"), (None, "None"), (np.random.PCG64(0), "PCG64")]
    assert_all_refused("rng", generators, lambda v: checking.generator("rng", v))
    words = [("Causal", "'Causal'"), ("", "''"), (None, "None"), (["none"], "['none']")]
    assert_all_refused("mask", words, lambda v: checking.choice("mask", v, ("causal", "none")))


def test_what_is_allowed_passes():
    assert checking.alpha([0.0, 1e308]).tolist() == [0.0, 1e308]
    assert checking.keys([1, 1.5, 1e300]).tolist() == [1.0, 1.5, 1e300]
    assert checking.whole_keys([1, 2**53]).tolist() == [1.0, 2.0**53]
    assert [checking.number("order", v) for v in (2, np.float32(0.5), np.inf)] == [2.0, 0.5, np.inf]
    assert checking.positive("rate", 5e-324) == 5e-324
    assert [checking.flag("causal", value) for value in (True, False)] == [True, False]
    for value in (3, np.int8(3), np.uint64(3), 2**53):
        found = checking.integer("d", value, minimum=3)
        assert type(found) is int
        assert found == value


def test_the_words_say_what_is_allowed():
    with pytest.raises(ValueError, match=r"^v must be finite and at least 2, got v=1\.999$"):
        checking.finite("v", 1.999, minimum=2.0)
    with pytest.raises(ValueError, match=r"^mask must be one of 'causal', 'none', got mask='x'$"):
        checking.choice("mask", "x", ("causal", "none"))
    with pytest.raises(ValueError, match=r"^axis must be from -2 to 1, got axis=2$"):
        checking.last_axis("p", np.zeros((2, 2)), 2)
    with pytest.raises(ValueError, match=r"^alpha and n must broadcast, got shapes \(2,\) and"):
        checking.broadcast(alpha=np.zeros(2), n=np.zeros(3))


def test_the_last_axis_is_there_and_not_empty():
    def of_axis(axis):
        return checking.last_axis("s", np.zeros((2, 3)), axis)

    outside = [(2, "2"), (-3, "-3"), (-(10**400), "bits"), ((0, 1), "(0, 1)")]
    assert_all_refused("axis", [*outside, *NOT_INTEGERS], of_axis)
    empty = [(np.zeros((3, 0)), "(3, 0)"), (np.array(2.5), "2.5")]
    assert_all_refused("s", empty, lambda v: checking.last_axis("s", v, -1))
    assert of_axis(0).shape == (3, 2)


@pytest.mark.parametrize("length", [80, 81])
def test_a_value_is_shown_in_eighty_characters(length):
    text = "x" * (length - 2)  # and two quotes
    with pytest.raises(TypeError) as caught:
        checking.flag("f", text)
    shown = str(caught.value).split("got f=")[1]
    assert shown == (repr(text) if length <= 80 else repr(text)[:77] + "...")

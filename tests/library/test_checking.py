"""The checks that all functions share, beyond what test_bad_input tries of each function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attnlib import _checking
from tests.library.test_bad_input import assert_all_refused, result_or_refusal

any_float = st.floats()
any_array = arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0), elements=any_float)


@given(any_array, any_float)
def test_numbers_pass_unchanged_and_what_is_out_of_range_is_refused(array, minimum):
    found = result_or_refusal(_checking.real, "s", array)
    assert (found is None) == np.isnan(array).any()
    if found is not None:
        np.testing.assert_array_equal(found, array, strict=True)
    found = result_or_refusal(lambda: _checking.finite("v", array, minimum=minimum))
    assert (found is None) == (not np.isfinite(array).all() or bool((array < minimum).any()))


def test_what_is_out_of_range_is_shown():
    assert_all_refused(
        "v", [([4, -7], "got v=-7")], lambda v: _checking.finite("v", v, minimum=1.0)
    )
    assert_all_refused("rate", [(0.0, "0")], lambda v: _checking.positive("rate", v))
    assert _checking.positive("rate", 5e-324) == 5e-324
    integers = [(2, "2"), (8, "8"), (10**5000, "bits"), (np.True_, "True"), (3.0, "3.0")]
    assert_all_refused("d", integers, lambda v: _checking.integer("d", v, minimum=3, maximum=7))
    assert type(_checking.integer("d", np.uint64(2**53), minimum=3)) is int
    words = [("Causal", "'Causal'"), (None, "None"), (["none"], "['none']")]
    assert_all_refused("mask", words, lambda v: _checking.choice("mask", v, ("causal", "none")))


@pytest.mark.parametrize("length", [80, 81])
def test_a_value_is_shown_in_eighty_characters(length):
    text = "x" * (length - 2)  # and two quotes
    with pytest.raises(TypeError) as caught:
        _checking.flag("f", text)
    shown = str(caught.value).split("got f=")[1]
    assert shown == (repr(text) if length <= 80 else repr(text)[:77] + "...")

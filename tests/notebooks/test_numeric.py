"""What is rounding in an output, and what is a difference; planted faults show the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from tests.notebooks.numeric import EXCERPT, first_difference, text_difference, values

PATH = '<svg><path clip-path="url(#p0123456789)" d="M 10.5 {} L 20 30.25"/></svg>'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1e-05", "1.0000001e-05"),
        ("at -1.5", "at −1.50000001"),
        ("[0.5        0.33333333]", "[0.50000001 0.33333333]"),
        ("law    mean\nsign   0.50\n", "law     mean\nsign   0.500\n"),
        (PATH.format("0.0001"), PATH.format("-0.01")),  # a hundredth of a pixel
    ],
)
def test_rounding_is_no_difference(old, new):
    assert text_difference(old, new) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.0", "-0.0"),
        ("0.5", "nan"),
        ("a b", "ab"),
        ("100000", "100001"),
        ("x1", "x2"),
        ("3-5", "3+5"),
        ("#1e5000", "#1e5001"),
        ("first 0.5\nsecond 0.5", "first 0.5000001 second 0.5"),
        ("law   mean\nsign  0.50", "  law mean\nsign  0.50"),
        (PATH.format("40.25"), PATH.format("40.27")),
        *(
            (PATH.format(0) + label.format("0.0004"), PATH.format(0) + label.format("0.0005"))
            for label in ("{}", "<svg><!-- {} --></svg>", "<svg><text>{}</text></svg>")
        ),
    ],
)
def test_anything_else_is_a_difference(old, new):
    assert text_difference(old, new) is not None


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([-1, 1]))
def test_tolerance_is_relative_at_every_magnitude(size, sign):
    value = sign * size
    assert text_difference(repr(value), repr(value * (1 + 1e-7))) is None
    assert text_difference(repr(value), repr(value * (1 + 3e-5))) is not None


def test_hashed_ids_are_compared_by_order_of_appearance():
    old = '<svg><use href="#m0123456789"/><use href="#mabcdefabcd"/></svg>'
    assert text_difference(old, old.replace("#m0123456789", "#m1111111111")) is None
    assert text_difference(old, old.replace("#mabcdefabcd", "#m0123456789")) is not None


def test_difference_tells_where_and_what():
    told = text_difference("slope 1, gradient 0.5 here", "slope 1, gradient 0.6 here")
    assert told == "number 2, after 'slope 1 , gradient'\n  old: 0.5\n  new: 0.6"


def test_outputs_are_compared_in_order_and_reported_briefly():
    text, figure = ("stdout", "0.5"), ("image/svg+xml", "<svg>" + "x" * 9999 + "</svg>")
    assert first_difference([text, figure], [text, figure]) is None
    for other in ([text], [figure, text], [text, figure, figure]):
        difference = first_difference([text, figure], other)
        assert difference is not None
        assert len(difference) < 3 * EXCERPT


def test_metadata_are_compared_the_names_of_glued_values_among_them():
    one, other = (
        new_output(
            "display_data", data={"text/plain": "0.5"}, metadata={"scrapbook": {"name": name}}
        )
        for name in ("variance", "error")
    )
    assert first_difference(values([one]), values([one])) is None
    assert "error" in first_difference(values([one]), values([other])).split("new: ")[1]

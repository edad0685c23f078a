"""What is rounding in an output of a notebook, and what is a difference."""

import pytest

from tests.nbval_compare import text_difference

PATH = '<svg><path clip-path="url(#p0123456789)" d="M 10.5 {} L 20 30.25"/></svg>'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.0", "-0.0"),
        ("0.5", "nan"),
        ("a b", "ab"),
        ("100000", "100001"),
        ("x1", "x2"),
        ("first 0.5\nsecond 0.5", "first 0.5000001 second 0.5"),
        (PATH.format("40.25"), PATH.format("40.27")),
        ("https://x.org/abs/1706.03762", "https://x.org/abs/1706.03763"),
        *(
            (PATH.format(0) + label.format("0.0004"), PATH.format(0) + label.format("0.0005"))
            for label in ("{}", "<svg><!-- {} --></svg>", "<svg><text>{}</text></svg>")
        ),
    ],
)
def test_anything_else_is_a_difference(old, new):
    assert text_difference(old, new) is not None

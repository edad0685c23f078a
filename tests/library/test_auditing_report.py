"""How a report is printed, and as JSON."""

import json

import numpy as np
import pytest

from attnlib.auditing.report import Report, Scale, shown
from attnlib.auditing.response import Interval


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [
        (0.125, 0.001, "0.125 ± 0.001"),
        (0.125, 0.0021, "0.12 ± 0.01"),
        (0.125, 0.0, "0.125 ± 1e-05"),
        (0.0, 0.01, "0 ± 0.01"),
        (0.0, 0.0, "0"),
        (2.5, np.inf, "2.5"),
    ],
)
def test_a_number_is_printed_as_far_as_its_error_lets(value, half, expected):
    assert shown(Interval(value, value - half, value + half)) == expected


def scale(applied_to, *values):
    value = np.array(values)
    keys = np.arange(1.0, 1.0 + value.size)
    return Scale(applied_to, keys, keys - 1.0, value, value - 0.01, value + 0.01, "of n")


def test_a_report_is_printed_in_lines():
    report = Report(scale("cosine", 7.0, 8.0), {"cap": "none"})
    assert str(report) == "scale: 8 ± 0.01 times cos(q, k), of n\ncap: none\n\nnothing found"
    report.parts = {"layer": Report(scale("dot product", 0.25))}
    report.add("scale", "1", "8", "a row", where="head 2")
    assert str(report).splitlines()[2:] == [
        "layer: 0.25 ± 0.01 times q·k, of n",
        "",
        "1 finding:",
        "- scale: head 2: expected 1, found 8 (a row)",
    ]
    assert str(Report()) == "\nnothing found"


def test_a_report_as_json_has_null_for_what_is_not_finite():
    told = json.loads(Report(scale("cosine", 7.0, np.nan)).to_json())
    assert told["passed"]
    assert told["scale"]["value"] == [7.0, None]

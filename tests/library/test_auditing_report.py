"""How a report is printed, and as JSON."""

import json

import numpy as np

from attnlib.auditing.report import Report, Scale


def scale(applied_to, *values):
    value = np.array(values)
    keys = np.arange(1.0, 1.0 + value.size)
    return Scale(applied_to, keys, keys - 1.0, value, value - 0.01, value + 0.01, "of n")


def test_a_report_is_printed_in_lines():
    report = Report(scale("cosine", 7.0, 8.0), {"cap": "none"})
    line = "scale: 8 ± 0.01 times cos(q, k), of n"
    report.facts["a mask"] = "not taken"
    head_lines = ["passed: nothing found; 1 fact with verbose=True or --facts", "not asked: a mask"]
    assert str(report).splitlines() == [*head_lines, line]
    del report.facts["a mask"]
    report.verbose = True
    assert str(report).splitlines() == ["passed: nothing found", line, "cap: none"]
    report.parts = {name: Report(scale("dot product", 0.25)) for name in "ab"}
    report.add("scale", "1", "8", "a row", where="head 2")
    assert str(report).splitlines() == [
        "1 finding:",
        "- scale: head 2: expected 1, found 8 (a row)",
        f"{line}, in itself",
        "scale: 0.25 ± 0.01 times q·k, of n, in a, b",
        "cap: none",
    ]
    assert str(Report()) == "passed: nothing found"


def test_a_report_as_json_has_null_for_what_is_not_finite():
    table = json.loads(Report(scale("cosine", 7.0, np.nan)).to_json())
    assert table["passed"]
    assert table["scale"]["value"] == [7.0, None]

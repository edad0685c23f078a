"""Which number multiplies the scores of an attention, and is it the one that was meant?

    report = audit(my_attention, d=128, expected="yarn")
    report.passed, report.findings, report.scale

`response` chooses queries, keys and values that make the output tell, `questions` asks for one
thing each, `callables` holds the answers against what was meant, and `report` says it.

Chapter: audit.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from attnlib import checking
from attnlib.attention.options import named_policy
from attnlib.auditing.callables import Meant, audit_callable
from attnlib.auditing.report import CODES, Finding, Report, Scale
from attnlib.auditing.response import Size, Subject
from attnlib.policies import Policy

__all__ = ["CODES", "Finding", "Report", "Scale", "assert_scale", "audit"]


def audit(
    attention: Callable[..., Any],
    *,
    d: int,
    expected: float | str | Policy | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    cap: float | None = None,
    window: int | None = None,
    sink: bool | None = None,
    factor: float = 1.0,
    length: int = 1024,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Report:
    size = Size(
        checking.integer("heads", heads, minimum=1),
        checking.integer("key_heads", heads if key_heads is None else key_heads, minimum=1),
        checking.integer("d", d, minimum=4),
    )
    subject = Subject(attention, size, dtype, device)
    scale = named_policy("expected", expected) if isinstance(expected, str | Policy) else expected
    return audit_callable(subject, Meant(scale, cap, window, sink, factor), length)


def assert_scale(attention: Callable[..., Any], **arguments: Any) -> None:
    """Raise AssertionError with the report unless the audit passes."""
    report = audit(attention, **arguments)
    assert report.passed, f"\n{report}"

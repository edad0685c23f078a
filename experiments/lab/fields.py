"""Configurations that check themselves: each field says beside its default what it may be.

A configuration is a frozen dataclass that inherits `Checked` and declares its fields by `checked`.
What is written into a record, and what a run is known by, is only what differs from the defaults:
so a new field, whose default is what was done before, changes no recorded run.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attnlib import _checking


def checked(default: Any, check: Callable[..., Any], **allowed: Any) -> Any:
    """Declare a field: its default, and the function of `attnlib._checking` that its value passes.

    `check` gets the field's name, the value and `allowed`, and returns the value that is kept.
    """
    return dataclasses.field(default=default, metadata={"check": partial(check, **allowed)})


def amount(name: str, value: Any, *, words: Sequence[str]) -> float | str:
    """Return a number above 0, or one of `words`."""
    return (
        _checking.choice(name, value, words)
        if isinstance(value, str)
        else _checking.positive(name, value)
    )


def from_zero(name: str, value: Any) -> float:
    """Return a number that is 0 or above."""
    return float(_checking.finite(name, _checking.number(name, value), minimum=0.0))


def lengths(name: str, value: Any) -> tuple[int, ...]:
    """Return whole numbers of keys or tokens, from 2 on."""
    return tuple(_checking.integer(name, n, minimum=2, maximum=2**20) for n in value)


class Checked:
    """Gives a dataclass the check of its fields."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields}
        return {f.name: values[f.name] for f in fields if values[f.name] != f.default}


def names(configuration: type[Checked]) -> tuple[str, ...]:
    """Return the names of the fields."""
    return tuple(field.name for field in dataclasses.fields(configuration))  # type: ignore[arg-type]

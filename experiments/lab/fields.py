"""Configurations that check themselves: each field has its check beside its default.

A configuration is a frozen dataclass that inherits `Checked` and declares its fields by `checked`.
Records and the identities of runs have only what differs from the defaults: so a new field, whose
default is what was done before, changes no recorded run.
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


def positive_or_word(name: str, value: Any, *, words: Sequence[str]) -> float | str:
    """Return the value, a number above 0 or one of `words`; ValueError or TypeError for others."""
    return (
        _checking.choice(name, value, words)
        if isinstance(value, str)
        else _checking.positive(name, value)
    )


def not_negative(name: str, value: Any) -> float:
    """Return the value, a number from 0 on."""
    return float(_checking.finite(name, _checking.number(name, value), minimum=0.0))


def checked_lengths(name: str, value: Any) -> tuple[int, ...]:
    """Return the values, numbers of keys or tokens: whole, from 2 to 2²⁰."""
    return tuple(_checking.integer(name, n, minimum=2, maximum=2**20) for n in value)


class Checked:
    """A dataclass whose fields are checked when it is made."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields}
        return {f.name: values[f.name] for f in fields if values[f.name] != f.default}


def field_names(configuration: type[Checked]) -> tuple[str, ...]:
    """Return the names of a configuration's fields."""
    return tuple(field.name for field in dataclasses.fields(configuration))  # type: ignore[arg-type]

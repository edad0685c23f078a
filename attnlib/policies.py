"""List the attention scales in use: formula, source and value at any n, d and position.

`POLICIES` holds them by name, as policies.toml lists them, in three families:

- dimension: a function of the head dimension d alone;
- normalised: for unit vectors, whose dot product is a cosine;
- length: a function of the number of keys n or of the query's position.

`Policy.alpha` makes them comparable. It is the α of the book: the standard deviation of the logits
when the entries of q and k have variance 1, or when the cosine is that of random directions.
Chapter: scaling_rules.
"""

import difflib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking, rules
from attnlib._checking import FloatArray
from attnlib.rules import ScaleInputs

ScaleFunction = Callable[..., Any]
"""From `ScaleInputs` and the constants by name to the scale: a number, or an array."""


class Constant(NamedTuple):
    """Hold a constant of a formula, which users may change: name, value, meaning, least value."""

    name: str
    value: float
    meaning: str
    minimum: float = 0.0
    beyond: float | None = None
    """If the rule grows beyond this length: the length less n where it begins at n; else None."""


@dataclass(frozen=True)
class Policy:
    """Hold a rule for the scale and its source. The rules in use are in `POLICIES`.

    - `name`, `title`: its key in `POLICIES`, and its name in prose;
    - `family`: "dimension", "normalised" or "length", its group in the catalogue;
    - `applied_to`: what the scale multiplies, "dot product" or "cosine";
    - `formula`: the scale in LaTeX, with n keys, dimension d, position i = 0, 1, …;
    - `source`: a key of the book's bibliography, or a URL;
    - `verified_in`: where its formula was read;
    - `meaning`: one sentence;
    - `rule`: a function of `attnlib.rules.ScaleInputs` and of the constants by name;
    - `settings`: the constants of the formula, each with what it means;
    - `learned`: whether training changes the scale; here it is at its initial value;
    - `unverified`: what could not be read at its source; empty for nearly all.

    Chapter: scaling_rules.

    >>> yarn = POLICIES["yarn"]
    >>> yarn.constants
    {'coefficient': 0.1, 'train_length': 4096.0}
    >>> float(yarn.scale(n=131072, d=128) * np.sqrt(128))  # (0.1 log 32 + 1)²
    1.8132...
    """

    name: str
    title: str
    family: Literal["dimension", "normalised", "length"]
    applied_to: Literal["dot product", "cosine"]
    formula: str
    source: str
    verified_in: str
    meaning: str
    rule: ScaleFunction = field(repr=False)
    settings: tuple[Constant, ...] = ()
    learned: bool = False
    unverified: str = ""

    @property
    def constants(self) -> dict[str, float]:
        """Return the constants of the formula, a dictionary from name to value."""
        return {setting.name: setting.value for setting in self.settings}

    @property
    def depends_on_n(self) -> bool:
        """Return whether the scale depends on the number of keys n or on the query's position."""
        return self.rule not in rules.OF_DIMENSION

    def with_constants(self, **constants: float) -> "Policy":
        """Return a policy with other values for some of the constants; this one stays as it is.

        - `constants`: values by name.

        Raises ValueError for a name that is not in the formula, ValueError or TypeError for a value
        that is not a number, not finite, or below what the constant allows.

        >>> POLICIES["qwen"].with_constants(train_length=8192).constants
        {'train_length': 8192.0}
        """
        for name in constants:
            if name not in self.constants:
                allowed = ", ".join(self.constants) or "none"
                raise ValueError(f"the constants of {self.name} are: {allowed}; got {name!r:.80}")
        settings = []
        for setting in self.settings:
            value = constants.get(setting.name, setting.value)
            value = _checking.finite_number(setting.name, value, setting.minimum)
            settings.append(setting._replace(value=value))
        return replace(self, settings=tuple(settings))

    def scale(self, n: ArrayLike, d: ArrayLike, position: ArrayLike | None = None) -> FloatArray:
        """Return the number that multiplies q·k, or cos(q, k), for n keys and dimension d.

        - `n`: the number of keys that the query sees, from 1 on (of classes or candidates, where
          the policy comes from a loss).
        - `d`: the dimension of q and k, from 1 on.
        - `position`: that of the query, from 0, by default the last, n − 1. Few policies depend on
          it; the others only check it.

        They broadcast, and an array of float64 is returned. It is exact to rounding, for the
        policies "gradient" and "gradient_cosine" as exact as `annealed.best_alpha`. It is infinite
        where it exceeds the largest float.

        Raises ValueError or TypeError for n or d below 1, for a negative position, for NaN,
        infinity and anything but numbers, and for shapes that do not broadcast; "gradient_cosine"
        also for a d that is not a whole number from 3 on.

        >>> float(POLICIES["transformer"].scale(n=4096, d=64))
        0.125
        >>> POLICIES["llama_4"].scale(n=16384, d=64, position=[0, 8191, 16383]) * 8
        array([1.        , 1.0693..., 1.1098...])
        """
        keys = _checking.keys(n)
        dimension = _checking.finite("d", d, minimum=1.0)
        given = {"n": keys, "d": dimension}
        if position is not None:
            given["position"] = _checking.finite("position", position, minimum=0.0)
        keys, dimension, *places = _checking.broadcast(**given)
        place = places[0] if places else keys - 1.0
        with np.errstate(over="ignore"):
            scale = self.rule(ScaleInputs(keys, dimension, place), **self.constants)
        return np.array(np.broadcast_to(scale, keys.shape))

    def alpha(self, n: ArrayLike, d: ArrayLike, position: ArrayLike | None = None) -> FloatArray:
        """Return the effective α, the standard deviation of a logit: scale·√d or scale/√d.

        For dot products it is scale·√d: q·k has variance d where the entries of q and k have mean 0
        and variance 1. For cosines it is scale/√d: those of random directions have variance 1/d.
        The Transformer has α = 1 in every dimension. Arguments, shape and errors are those of
        `scale`. Chapter: scaling_rules.

        >>> float(POLICIES["mup"].alpha(n=4096, d=256)), float(POLICIES["swin_v2"].alpha(64, 100))
        (0.5, 1.0)
        """
        scale = self.scale(n, d, position)
        root = np.sqrt(np.asarray(d, dtype=np.float64))
        with np.errstate(over="ignore"):
            return np.asarray(scale / root if self.applied_to == "cosine" else scale * root)

    def relative(self, train_length: float) -> "Policy":
        """Return the policy whose scale is this one's divided by its value at `train_length`.

        - `train_length`: the number of keys at which the new scale is 1, a number from 1 on. Use it
          to multiply the scale that a model was trained with.

        If the rule grows only beyond a length, that length is set to `train_length`, and the scale
        is 1 below it; a rule such as log n is below 1 there. Raises ValueError or TypeError for a
        length below 1, or below what the constant allows. Where this scale is 0 at that length, the
        new policy raises ValueError when it is used. Chapter: scaling_rules.

        >>> POLICIES["ssmax"].relative(1024).scale(n=[32, 1024, 1048576], d=64)
        array([0.5, 1. , 2. ])
        >>> POLICIES["qwen"].relative(8192).scale(n=[1024, 8192, 131072], d=64)
        array([1.        , 1.        , 1.30769231])
        """
        length = _checking.finite_number("train_length", train_length, minimum=1.0)
        begins = {s.name: s.beyond for s in self.settings if s.beyond is not None}
        policy = self.with_constants(**{name: length + more for name, more in begins.items()})
        return replace(
            policy,
            name=f"{self.name} over that at {length:g} keys",
            family="length",
            rule=_RelativeRule(self.rule, length),
        )


@dataclass(frozen=True)
class _RelativeRule:
    """Divide a rule by its value at `length`; hashable, as keys of the tables in `attention`."""

    rule: ScaleFunction
    length: float

    def __call__(self, case: ScaleInputs, **constants: float) -> Any:
        length = np.full(np.shape(case.d), self.length)  # rules get arrays of one shape
        reference = ScaleInputs(length, case.d, length - 1.0)
        unit = self.rule(reference, **constants)
        if not np.all(np.asarray(unit) > 0.0):
            raise ValueError(
                f"train_length must be one at which the scale is positive, "
                f"got train_length={self.length:g}"
            )
        return self.rule(case, **constants) / unit


@dataclass(frozen=True)
class _UserRule:
    """Call a user's function of n, d and position as a rule."""

    function: Callable[..., ArrayLike]

    def __call__(self, case: ScaleInputs) -> Any:
        return _checking.finite("the policy's scale", self.function(*case), minimum=0.0)


def own(
    function: Callable[..., ArrayLike],
    applied_to: Literal["dot product", "cosine"] = "dot product",
) -> Policy:
    """Return a policy whose scale is a function of your own.

    - `function`: a function of (n, d, position), which gets arrays of one shape: the number of keys
      that a query sees, the dimension, and the query's position from 0. It returns the number that
      multiplies q·k (or the cosine): one, or an array of that shape, from 0 on.
    - `applied_to`: "dot product" (the default) or "cosine".

    Returns a `Policy`, for every function that takes one. Raises TypeError for a `function` that
    cannot be called, ValueError or TypeError for another `applied_to`. Where the policy is used,
    any other result of the function is a ValueError or TypeError. Chapter: scaling_rules.

    >>> mine = own(lambda n, d, position: np.log(n) / np.sqrt(d))
    >>> attended = mine.alpha(n=[2, 8], d=64)
    >>> attended / np.log(2)
    array([1., 3.])
    """
    if not callable(function):
        raise TypeError(f"function must be one of n, d and position, got {function!r:.80}")
    _checking.choice("applied_to", applied_to, ("dot product", "cosine"))
    name = getattr(function, "__name__", type(function).__name__)
    return Policy(
        name=name,
        title=name,
        family="length",
        applied_to=applied_to,
        formula=name,
        source="",
        verified_in="",
        meaning="a rule of one's own",
        rule=_UserRule(function),
    )


# --- the catalogue --------------------------------------------------------------------------------


def _policy_from_table(name: str, table: dict[str, Any]) -> Policy:
    """Return the policy in a table of `policies.toml`.

    The table's "settings" and "rule" are removed from it.
    """
    settings = tuple(Constant(**setting) for setting in table.pop("settings", ()))
    rule = getattr(rules, table.pop("rule"))
    return Policy(name=name, rule=rule, settings=settings, **table)


POLICIES = MappingProxyType(
    {
        name: _policy_from_table(name, table)
        for name, table in tomllib.loads(
            files("attnlib").joinpath("policies.toml").read_text("utf-8")
        ).items()
    }
)
"""All policies by name: first by dimension, then for normalised q and k, then by length."""


def find_policy(name: str, argument: str = "policy") -> Policy:
    """Return the policy of that name in `POLICIES`.

    Raises ValueError for another name, with the names most like it; `argument` is what the message
    calls the name.

    >>> find_policy("llama")
    Traceback (most recent call last):
    ...
    ValueError: policy must be a name in attnlib.policies.POLICIES, got policy='llama'; similar ...
    """
    if name in POLICIES:
        return POLICIES[name]
    similar = ", ".join(difflib.get_close_matches(name, POLICIES, n=3, cutoff=0.0))
    raise ValueError(
        f"{argument} must be a name in attnlib.policies.POLICIES, got {argument}={name!r:.80}; "
        f"similar names: {similar}"
    )

"""What a tool does with a family in a situation: right, refused in a line, or wrong."""

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlib.attention import register, rescale
from attnlib.probing import probe
from attnlib.probing.report import Report
from experiments import compatibility
from experiments.compatibility import FAMILIES, MORE, POLICY, by_hand, given, mask, supports, tiny
from experiments.records import Work

IN_PART = ("LongT5",)
"""Families that ask transformers' registry for some of their attention only."""

IMPLEMENTATIONS = ("sdpa", "eager", "flex_attention")
PADDED = ("padding", "right padding")
SITUATIONS = (*PADDED, "generation", "compile")
COLUMNS = (*IMPLEMENTATIONS, *SITUATIONS)
FEWER = ("as it is", *PADDED)
"""The columns of the families that are not tried in all of them."""


def whole(model: Any, family: str, padded: bool | str = False) -> Tensor:
    """Return the output of the tokens that are there."""
    output: Tensor = model(**given(family, padded))[0]
    return output[mask(padded).bool()] if padded and family not in compatibility.BOTH else output


def generated(model: Any, family: str, use_cache: bool = True) -> Tensor:
    """Return the logits of a text that is continued, with padding where there can be some."""
    inputs = given(family, True)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}
    options |= {"output_logits": True, "return_dict_in_generate": True, "use_cache": use_cache}
    output = model.generate(**inputs, **options)
    return torch.stack(output.logits, 1)


def compiled(model: Any, family: str) -> Tensor:
    """Return the output of the model as one that is compiled computes it."""
    torch._dynamo.reset()
    return whole(torch.compile(model, backend="aot_eager"), family, supports(family, "padding"))


Run = Callable[[Any, str], Tensor]

RUNS: dict[str, tuple[Run, Run]] = {
    **dict.fromkeys((*IMPLEMENTATIONS, FEWER[0]), (whole, whole)),
    "padding": (partial(whole, padded=True),) * 2,
    "right padding": (partial(whole, padded="right"),) * 2,
    "generation": (generated, partial(generated, use_cache=False)),
    "compile": (compiled, lambda model, family: whole(model, family, supports(family, "padding"))),
}
"""How a column is run with a tool, and how by hand."""

TOLERANCE = 2e-3
"""Of the size of the change that the tool makes, and relative, of what the probe finds."""

REFUSED, RIGHT, WRONG, NONE = "refused", "right", "wrong", "not there"

REFUSALS = re.compile("has changed nothing|not measured|their scale stays|does not support setting")
"""In the lines in which the tools, and transformers, say what they do not do."""


def cell(family: str, column: str, tool: str) -> dict[str, str]:
    """Return what a tool does with a family in a column, and the line in which it refuses."""
    if not supports(family, column):
        return {"is": NONE}
    stance = "force_eager" if column == "flex_attention" else "default"  # or it compiles
    case = Case(family, column)
    with (
        collect_messages() as messages,
        torch.compiler.set_stance(stance),
        torch.no_grad(),
    ):
        try:
            case.model  # noqa: B018
            if column != "compile":  # which takes long
                case.run()
        except Exception as error:  # what fails without a tool, however, is not there
            return {"is": NONE, "line": one_line(error)}
        messages.clear()
        try:
            distance = CHECKS[tool](case)
        except RuntimeError as error:
            return {"is": REFUSED, "line": one_line(error)}
    if np.isnan(distance):
        return {"is": NONE}
    if distance <= TOLERANCE:
        return {"is": RIGHT}
    lines = [line for line in messages if REFUSALS.search(line)]
    if lines:
        return {"is": REFUSED, "line": lines[0]}
    return {"is": WRONG, "line": f"{distance:.2g} away from what is computed by hand"}


@dataclass
class Case:
    """A family in a column: a situation, or an implementation of attention."""

    family: str
    column: str

    @cached_property
    def model(self) -> Any:
        """The model."""
        attention = self.column if self.column in IMPLEMENTATIONS else implementation(self.family)
        return tiny(self.family, attention, head=self.column == "generation")

    def run(self) -> Tensor:
        """Run the model as the column has it."""
        return RUNS[self.column][0](self.model, self.family)

    def relative_distance(self, output: Tensor, rule: str) -> float:
        """Return how far a result is from that by hand, in units of the change that was wanted."""
        run = RUNS[self.column][1]
        own = run(self.model, self.family)
        with by_hand(self.model, rule):
            wanted = run(self.model, self.family)
        change = (wanted - own).double().norm().item()
        return (output - wanted).double().norm().item() / change if change else np.inf


def one_line(message: object) -> str:
    """Return a message as a line."""
    return " ".join(str(message).split())


@contextmanager
def collect_messages() -> Iterator[list[str]]:
    """Note the lines of warnings, and of transformers' log."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(one_line(record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)  # whoever opened a model before may have silenced it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: messages.append(one_line(message))
            yield messages
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def probe_is_right(case: Case) -> float:
    """Return how far the report is from the rows by hand, and the output from that without."""
    model, column = case.model, case.column
    with probe(model, theory=False) as report:
        watched = case.run()
    if not torch.equal(watched, case.run()):
        return np.inf
    with by_hand(model, "own") as hand:
        RUNS[column][1](model, case.family)
    if not hand.calls:  # the model does not let its attention be set
        return np.nan if column in SITUATIONS else _from_own_weights(case, report)
    if column == "generation":  # the longest text has the rows of its beginnings
        last = dict(hand.calls.keys())
        hand.calls = {(module, 0): hand.calls[module, call] for module, call in last.items()}
    present = mask("right") if column == "right padding" else None
    padded = column in ("padding", "compile", "generation")
    if padded and supports(case.family, "padding"):  # what is generated is after the padding
        after = torch.ones(2, compatibility.SMALL["max_position_embeddings"], dtype=torch.long)
        present = torch.cat([mask(True), after], 1)
    lines = hand.table(model, present)
    table = report.table().set_index(["layer", "call", "head"])
    in_part = case.family in IN_PART and set(lines) < set(table.index)
    if not in_part and set(table.index) != set(lines):
        return np.inf
    return max(
        float(abs(table.loc[place, name] - value) / max(abs(value), 1.0))
        for place, line in lines.items()
        for name, value in line.items()
    )


def _from_own_weights(case: Case, report: Report) -> float:
    """Return how far entropies and collision probabilities are from the model's own weights."""
    output = case.model(**given(case.family, False), output_attentions=True)
    weights = torch.cat([layer.double() for layer in output.attentions], 1)
    rows = (weights > 0.0).sum(-1) >= 2
    table = report.table()
    distances = []
    for name, of_row in (
        ("collision_probability", weights.square().sum(-1)),
        ("entropy", torch.special.entr(weights).sum(-1)),
    ):
        expected = torch.where(rows, of_row, 0.0).sum((0, 2)) / rows.sum((0, 2))
        if len(table) != len(expected):
            return np.inf
        distances.append(np.abs(table[name].to_numpy() - expected.numpy()).max())
    return float(max(distances))


def rescale_is_right(case: Case) -> float:
    """Return how far the output at another scale is from that by hand."""
    distance = 0.0
    if case.column != "compile":  # which takes long
        with rescale(factor=compatibility.FACTOR):
            output = case.run()
        distance = case.relative_distance(output, "factor")
    try:
        with rescale(POLICY):
            output = case.run()
    except RuntimeError as error:
        if 0.0 < distance <= TOLERANCE:
            raise RuntimeError(f"a factor is exact; {error}") from error
        raise
    return max(distance, case.relative_distance(output, "policy"))


def register_is_right(case: Case) -> float:
    """Return how far the output under a registered policy is from that by hand.

    By hand is what the model asks the registry for: it must ask for all of its attention.
    """
    model = case.model
    own_name = model.config._attn_implementation
    model.set_attn_implementation(register(POLICY))
    try:
        output = case.run()
    finally:
        model.set_attn_implementation(own_name)
    return np.inf if case.family in IN_PART else case.relative_distance(output, "policy")


CHECKS: dict[str, Callable[[Case], float]] = {
    "probe": probe_is_right,
    "rescale": rescale_is_right,
    "register": register_is_right,
}
TOOLS = tuple(CHECKS)


def entries_to_compute() -> Work:
    """Yield the families, and what fills their cells."""
    for family in (*FAMILIES, *MORE):
        yield {"family": family}, partial(cells, family)


def cells(family: str) -> list[dict[str, Any]]:
    """Return each answer of the tools once, with the columns and tools that it is of."""
    answers: dict[str, dict[str, Any]] = {}
    for column, tool in product(FEWER if family in MORE else COLUMNS, TOOLS):
        answer = cell(family, column, tool)
        answers.setdefault(repr(answer), {**answer, "of": []})["of"].append(f"{column} {tool}")
    return list(answers.values())


@cache
def implementation(family: str) -> str:
    """Return the implementation that transformers takes for the family."""
    try:
        tiny(family, "sdpa")
    except ValueError:
        return "eager"
    return "sdpa"

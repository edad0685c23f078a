"""A cell of the table: a tool on a family in a situation is right, refused in a line, or wrong."""

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


def outputs(model: Any, family: str, padded: bool | str = False) -> Tensor:
    """Return the output at the tokens that are present."""
    output: Tensor = model(**given(family, padded))[0]
    return output[mask(padded).bool()] if padded and family not in compatibility.BOTH else output


def generated_logits(model: Any, family: str, use_cache: bool = True) -> Tensor:
    """Return the logits of a text that is continued, with padding."""
    inputs = given(family, True)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}
    options |= {"output_logits": True, "return_dict_in_generate": True, "use_cache": use_cache}
    output = model.generate(**inputs, **options)
    return torch.stack(output.logits, 1)


def compiled_output(model: Any, family: str) -> Tensor:
    """Return the output of the compiled model."""
    torch._dynamo.reset()
    return outputs(torch.compile(model, backend="aot_eager"), family, supports(family, "padding"))


Run = Callable[[Any, str], Tensor]

RUNS: dict[str, tuple[Run, Run]] = {
    **dict.fromkeys((*IMPLEMENTATIONS, FEWER[0]), (outputs, outputs)),
    "padding": (partial(outputs, padded=True),) * 2,
    "right padding": (partial(outputs, padded="right"),) * 2,
    "generation": (generated_logits, partial(generated_logits, use_cache=False)),
    "compile": (
        compiled_output,
        lambda model, family: outputs(model, family, supports(family, "padding")),
    ),
}
"""The run of a column with a tool, and by hand."""

TOLERANCE = 2e-3
"""Relative: to the change that the tool makes, or to the numbers of the probe."""

REFUSED, RIGHT, WRONG, NONE = "refused", "right", "wrong", "not there"

REFUSALS = re.compile("has changed nothing|not measured|their scale stays|does not support setting")
"""Words in which the tools, and transformers, refuse."""


def cell(family: str, column: str, tool: str) -> dict[str, str]:
    """Try a tool on a family in a column; return the answer, with the line if it refuses."""
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
        """Return the model, with the implementation of attention of the column."""
        attention = self.column if self.column in IMPLEMENTATIONS else implementation(self.family)
        return tiny(self.family, attention, head=self.column == "generation")

    def run(self) -> Tensor:
        """Run the model in the situation of the column, and return its output."""
        return RUNS[self.column][0](self.model, self.family)

    def relative_distance(self, output: Tensor, rule: str) -> float:
        """Return the distance of an output from that by hand, over the change by the rule."""
        run = RUNS[self.column][1]
        unchanged = run(self.model, self.family)
        with by_hand(self.model, rule):
            expected = run(self.model, self.family)
        change = (expected - unchanged).double().norm().item()
        return (output - expected).double().norm().item() / change if change else np.inf


def one_line(message: object) -> str:
    """Return a message as one line."""
    return " ".join(str(message).split())


@contextmanager
def collect_messages() -> Iterator[list[str]]:
    """Yield a list that gets the lines of warnings, and of transformers' log."""
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


def probe_error(case: Case) -> float:
    """Return the largest error of the report against the rows by hand; ∞ if the output changes."""
    model, column = case.model, case.column
    with probe(model, theory=False) as report:
        watched = case.run()
    if not torch.equal(watched, case.run()):
        return np.inf
    with by_hand(model, "own") as hand:
        RUNS[column][1](model, case.family)
    if not hand.calls:  # the model does not let its attention be set
        return np.nan if column in SITUATIONS else _error_from_weights(case, report)
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


def _error_from_weights(case: Case, report: Report) -> float:
    """Return the error of entropies and collision probabilities against the model's own weights."""
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


def rescale_error(case: Case) -> float:
    """Return the distance of the output at another scale from that by hand."""
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


def register_error(case: Case) -> float:
    """Return the distance of the output under a registered policy from that by hand.

    The model must ask the registry for all of its attention, else it is ∞.
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
    "probe": probe_error,
    "rescale": rescale_error,
    "register": register_error,
}
TOOLS = tuple(CHECKS)


def entries_to_compute() -> Work:
    """Yield the families, with the function that fills their cells."""
    for family in (*FAMILIES, *MORE):
        yield {"family": family}, partial(family_cells, family)


def family_cells(family: str) -> list[dict[str, Any]]:
    """Return the different answers of a family's cells, each with its columns and tools."""
    answers: dict[str, dict[str, Any]] = {}
    for column, tool in product(FEWER if family in MORE else COLUMNS, TOOLS):
        answer = cell(family, column, tool)
        answers.setdefault(repr(answer), {**answer, "of": []})["of"].append(f"{column} {tool}")
    return list(answers.values())


@cache
def implementation(family: str) -> str:
    """Return the implementation of attention that transformers takes for the family."""
    try:
        tiny(family, "sdpa")
    except ValueError:
        return "eager"
    return "sdpa"

"""`attnlib policies`: the rules for the scale, with formula, constants, source and numbers."""

import json
from contextlib import suppress
from textwrap import fill
from typing import Annotated, Any

import typer

from attnlib.cli.application import WIDTH, AsJson, one_line

LENGTHS = (1024, 8192, 131_072)
"""Keys for which `attnlib policies` shows a rule."""

UNITS = {"dot product": "q·k", "cosine": "cos(q, k)"}


def policies(
    name: Annotated[
        str, typer.Argument(help="A rule by name, such as ssmax or yarn; without, all are listed.")
    ] = "",
    d: Annotated[int, typer.Option("--d", min=1, max=2**20, help="Dimension of a head.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Print a rule for the scale: formula, constants, source, numbers; or all rules' formulas."""
    from attnlib.policies import POLICIES, find_policy

    if not name:
        formulas = {key: policy.formula for key, policy in POLICIES.items()}
        lines = [f"{key:<21}{formula}" for key, formula in formulas.items()]
        typer.echo(json.dumps(formulas, ensure_ascii=False) if as_json else "\n".join(lines))
        return
    with one_line(ValueError):
        policy = find_policy(name, "name")
    lengths = [{"n": n, **policy_numbers(name, n, d)} for n in LENGTHS]
    numbers = [{key: line[key] for key in ("n", "scale", "alpha")} for line in lengths]
    if as_json:
        fields = ("applied_to", "formula", "meaning", "learned", "source", "constants")
        answer = {"name": name, **{field: getattr(policy, field) for field in fields}}
        answer |= {"d": d, "numbers": numbers}
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    learned = ", learned; here its first value" if policy.learned else ""
    typer.echo(f"{name}: {policy.formula}, times {UNITS[policy.applied_to]}{learned}")
    for text in (policy.meaning, f"Source: {policy.source}"):
        typer.echo(fill(text, WIDTH, initial_indent="    ", subsequent_indent="    "))
    for setting in policy.settings:
        typer.echo(fill(f"{setting.name} = {setting.value:g}: {setting.meaning}", WIDTH))
    typer.echo(f"\n{'n':>10}{'scale':>14}{'α':>10}   for d = {d}")
    for line in numbers:
        values = ["none" if line[key] is None else f"{line[key]:.4g}" for key in ("scale", "alpha")]
        typer.echo(f"{line['n']:>10}{values[0]:>14}{values[1]:>10}")


def policy_numbers(name: str, n: int, d: int) -> dict[str, Any]:
    """Return a policy's name, scale and α at n keys and dimension d; None for numbers it lacks."""
    from attnlib.policies import POLICIES

    policy = POLICIES[name]
    line: dict[str, Any] = {"name": name, "applied_to": policy.applied_to}
    line |= {"scale": None, "alpha": None, "learned": policy.learned}
    with suppress(ValueError):
        line["scale"], line["alpha"] = float(policy.scale(n, d)), float(policy.alpha(n, d))
    return {**line, "meaning": policy.meaning}

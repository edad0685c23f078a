"""`attnlib policies`: the rules for the scale, with formula, constants, source and numbers."""

import json
from contextlib import suppress
from textwrap import fill
from typing import Annotated, Any

import typer

from attnlib.cli.application import WIDTH, AsJson, as_command_error

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
    with as_command_error(ValueError):
        policy = find_policy(name, "name")
    rows = [{"n": n, **policy_numbers(name, n, d)} for n in LENGTHS]
    values = [{key: row[key] for key in ("n", "scale", "alpha")} for row in rows]
    if as_json:
        fields = ("applied_to", "formula", "meaning", "learned", "source", "constants")
        result = {"name": name, **{field: getattr(policy, field) for field in fields}}
        result |= {"d": d, "numbers": values}
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
        return
    learned = ", learned; here its first value" if policy.learned else ""
    typer.echo(f"{name}: {policy.formula}, times {UNITS[policy.applied_to]}{learned}")
    for text in (policy.meaning, f"Source: {policy.source}"):
        typer.echo(fill(text, WIDTH, initial_indent="    ", subsequent_indent="    "))
    for setting in policy.settings:
        typer.echo(fill(f"{setting.name} = {setting.value:g}: {setting.meaning}", WIDTH))
    typer.echo(f"\n{'n':>10}{'scale':>14}{'α':>10}   for d = {d}")
    for row in values:
        cells = ["none" if row[key] is None else f"{row[key]:.4g}" for key in ("scale", "alpha")]
        typer.echo(f"{row['n']:>10}{cells[0]:>14}{cells[1]:>10}")


def policy_numbers(name: str, n: int, d: int) -> dict[str, Any]:
    """Return a policy's name, scale and α at n keys and dimension d; None for numbers it lacks."""
    from attnlib.policies import POLICIES

    policy = POLICIES[name]
    row: dict[str, Any] = {"name": name, "applied_to": policy.applied_to}
    row |= {"scale": None, "alpha": None, "learned": policy.learned}
    with suppress(ValueError):
        row["scale"], row["alpha"] = float(policy.scale(n, d)), float(policy.alpha(n, d))
    return {**row, "meaning": policy.meaning}

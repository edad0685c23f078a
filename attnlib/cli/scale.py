"""`attnlib scale`: the scale by some criteria and policies in use."""

import json
from enum import StrEnum
from textwrap import fill
from typing import Annotated, Any

import typer

from attnlib.cli.application import WIDTH, AsJson, as_command_error
from attnlib.cli.policies import policy_numbers

COMMON = ("transformer", "mup", "qk_norm", "qwen", "ssmax", "yarn", "llama_4")
"""The policies that `attnlib scale` shows without --all: one of each kind."""


LawName = StrEnum("LawName", {"NORMAL": "normal", "COSINE": "cosine", "DOT_PRODUCT": "dot-product"})
"""The distributions that scores may have."""


def scale(
    n: Annotated[int, typer.Option("--n", help="Keys that a query sees: the context length.")],
    d: Annotated[int, typer.Option("--d", help="Dimension of a head, not of the model.")],
    law: Annotated[
        LawName,
        typer.Option(
            help="What the scores are: dot products of random vectors, cosines (q and k "
            "normalised), or normal numbers (dot products in very many dimensions)."
        ),
    ] = LawName.DOT_PRODUCT,
    causal: Annotated[
        bool, typer.Option("--causal", help="Queries see 1, 2, …, n keys; one scale for all.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All policies, and the criterion that takes a second: entropy."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the scale by some criteria and policies in use, or by all.

    "scale" is the number that multiplies q·k (or the cosine of q and k): the argument of that name
    in PyTorch's scaled_dot_product_attention. "α" is the standard deviation of the logits it gives
    random q and k, so that all rules can be compared; 1/√d has α = 1.
    """
    from attnlib import criteria
    from attnlib.policies import POLICIES

    with as_command_error(ValueError):
        effective_keys = criteria.effective_keys(n, causal=causal)
        by_criterion = _criterion_numbers(n, d, law, causal, everything)
    policies = [policy_numbers(name, n, d) for name in (POLICIES if everything else COMMON)]
    if as_json:
        case = {"n": n, "d": d, "law": str(law), "causal": causal, "effective_keys": effective_keys}
        result = {**case, "criteria": by_criterion, "policies": policies}
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
        return
    of_cosines = law is LawName.COSINE
    start_scale = d**0.5 if of_cosines else d**-0.5
    typer.echo(
        f"Start with {'√d on the cosine' if of_cosines else '1/√d'} = {start_scale:.4g} (α = 1). "
        "What a trained model\nwants is measured:\n    attnlib calibrate MODEL --text FILE"
    )
    key_count = f"1 to {n} keys (as {effective_keys:.0f})" if causal else f"{n} keys"
    _print_table(f"By criterion, for {key_count} and {d} dimensions", by_criterion)
    position = ", at the last query" if causal else ""
    _print_table(f"Policies in use{position} (* learned; here its first value)", policies)
    if not everything:
        typer.echo(f"\nWith --all, all {len(POLICIES)} policies and one more criterion.")
    if not of_cosines:
        typer.echo("\nIn PyTorch, where 1/√d is what it does without a scale:")
        typer.echo(f"    functional.scaled_dot_product_attention(q, k, v, scale={start_scale:.4g})")
    typer.echo("\nWith attnlib, for any policy, also one that depends on the position:")
    typer.echo('    attention.attend(q, k, v, policy="ssmax", is_causal=True)')
    typer.echo(f"\nA model of transformers that was trained at {n} keys keeps its own scale there:")
    typer.echo(f'    rule = attention.register(factor="ssmax", train_length={n})')
    typer.echo("    model.set_attn_implementation(rule)")


def _criterion_numbers(
    n: int, d: int, law_name: LawName, causal: bool, everything: bool
) -> list[dict[str, Any]]:
    """Return the row of each criterion; with `everything` that of entropy, which takes a second."""
    from attnlib import criteria, scores

    law: scores.Law = scores.Cosine(d) if law_name is LawName.COSINE else scores.DotProduct(d)
    if law_name is LawName.NORMAL:
        law = scores.Normal()
    unit = float(law.variance) ** 0.5
    factor = 1.0 if law_name is LawName.COSINE else d**-0.5
    return [
        {
            "name": criterion.name,
            "applied_to": law.applied_to,
            "scale": None if criterion.alpha is None else criterion.alpha * factor,
            "alpha": None if criterion.alpha is None else criterion.alpha * unit,
            "meaning": criterion.meaning,
        }
        for criterion in criteria.all_criteria(law, n, causal=causal, entropy=everything)
    ]


def _print_table(title: str, lines: list[dict[str, Any]]) -> None:
    """Print the scale and α of each line, with its meaning in words below.

    A line has "name", "scale", "alpha" (with None both print "none"), "applied_to" and "meaning";
    "learned" adds a star.
    """
    typer.echo(f"\n{title}\n{'scale':>39}{'α':>16}")
    for line in lines:
        name = line["name"] + ("*" if line.get("learned") else "")
        unit = "cos" if line["applied_to"] == "cosine" else "qk"
        numbers = ["none", "none"]
        if line["alpha"] is not None:
            numbers = [f"{line['scale']:.4g} · {unit}", f"{line['alpha']:.3g}"]
        typer.echo(f"{name:<21}{numbers[0]:>18}{numbers[1]:>16}")
        typer.echo(fill(line["meaning"], WIDTH, initial_indent="    ", subsequent_indent="    "))

"""The command line: `attnlib`, or `python -m attnlib`."""

import io
import json
import warnings
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import attnlib
from attnlib import checking, files
from attnlib.commands import AsJson, CommandError, application
from attnlib.extras import brought_by

if TYPE_CHECKING:  # what loads slowly is loaded by the command that needs it
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from attnlib.policies import Policy
    from attnlib.probing import OneHead, Report
    from attnlib.scores import Law

app = application("What attention scores should be divided by.")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attnlib {attnlib.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What attention scores should be divided by."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


class LawName(StrEnum):
    """What is assumed of the scores."""

    NORMAL = "normal"
    COSINE = "cosine"
    DOT_PRODUCT = "dot-product"


@app.command("scale")
def scale_command(
    n: Annotated[int, typer.Option("--n", help="Keys that a query sees: the context length.")],
    d: Annotated[int, typer.Option("--d", help="Dimension of a head, not of the model.")],
    law: Annotated[
        LawName | None,
        typer.Option(
            help="What the scores are: dot products of random vectors (what is meant without it), "
            "cosines (q and k normalised), or normal numbers (dot products in very many "
            "dimensions)."
        ),
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Queries see 1, 2, …, n keys; one scale for all.")
    ] = False,
    gap: Annotated[
        float | None,
        typer.Option(help="One key is meant: its score is so many standard deviations above 0."),
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="One key is meant: its score has a density e^(θs) times the others'. For dot "
            "products it is θ standard deviations above 0 in the mean, and varies as they do.",
        ),
    ] = None,
    cosine: Annotated[
        float | None,
        typer.Option(
            min=-1.0, max=1.0, help="One key is meant: at this cosine; the law is then cosine."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the scale by each criterion and each policy.

    "scale" is the number that multiplies q·k (or the cosine of q and k): the argument of that name
    in PyTorch's scaled_dot_product_attention. "α" is the standard deviation of the logits it gives
    random q and k, so that all rules can be compared; 1/√d has α = 1.

    With --gap, --theta or --cosine one key is meant. "reaches" is then the largest number of keys
    among which it keeps half of the weight in the mean: by a criterion with this α, by a policy
    with its α for that many. Two criteria are added: "finding" has the least mean loss, which with
    --theta is α = θ for every n, and "least" is where the key begins to outweigh all others.
    """
    from attnlib import criteria, retrieval
    from attnlib.policies import POLICIES, own

    law = law or (LawName.DOT_PRODUCT if cosine is None else LawName.COSINE)
    if sum(one is not None for one in (gap, theta, cosine)) > 1:
        raise CommandError("of --gap, --theta and --cosine only one can be given")
    if cosine is not None and law is not LawName.COSINE:
        raise CommandError(f"--cosine is for --law cosine, got --law {law}")
    chosen = _law(law, d)
    unit = float(chosen.variance) ** 0.5
    times: Any = chosen.applied_to
    needle: retrieval.Needle | None = None
    try:
        if theta is not None:
            needle = retrieval.Tilted(theta / unit)
        elif gap is not None or cosine is not None:
            needle = retrieval.Fixed(gap * unit if gap is not None else cosine or 0.0)
        found = criteria.alphas(chosen, n, causal=causal, needle=needle)
        keys = criteria.effective_keys(n, causal=causal)
    except ValueError as error:
        raise CommandError(str(error)) from error
    policies = [
        {
            "name": policy.name,
            "applied_to": policy.applied_to,
            **_numbers(policy, n, d),
            "learned": policy.learned,
            "meaning": policy.meaning,
        }
        for policy in POLICIES.values()
    ]
    by_criterion = [
        {
            "name": one.name,
            "applied_to": times,
            "scale": _times(one.alpha, d**-0.5 if times == "dot product" else 1.0),
            "alpha": _times(one.alpha, unit),
            "standard_error": one.standard_error * unit,
            "meaning": one.meaning,
        }
        for one in found
    ]
    if needle is not None:
        constants = [own(_always(line["scale"]), times) for line in by_criterion]
        both = zip([*by_criterion, *policies], [*constants, *POLICIES.values()], strict=True)
        known = [(line, rule) for line, rule in both if line["alpha"] is not None]
        rules = [rule for _, rule in known]
        reached = retrieval.reach(chosen, needle, policy=rules, d=d)
        for (line, _), most in zip(known, reached.tolist(), strict=True):
            line["reach"] = int(min(most, checking.LARGEST_INTEGER))
    if as_json:
        answer = {
            "n": n,
            "d": d,
            "law": str(law),
            "causal": causal,
            "effective_keys": keys,
            **({} if needle is None else {"gap": gap, "theta": theta, "cosine": cosine}),
            "criteria": by_criterion,
            "policies": policies,
        }
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    seen = f"1 to {n} keys (as {keys:.0f})" if causal else f"{n} keys"
    _print(f"By criterion, for {seen} and {d} dimensions", by_criterion)
    last = ", at the last query" if causal else ""
    _print(f"Policies in use{last} (* learned; here its first value)", policies)
    if times == "dot product":
        number = f"{by_criterion[1]['scale']:.4g}"
        typer.echo("In PyTorch, for the scale of the second line:")
        typer.echo(f"    functional.scaled_dot_product_attention(q, k, v, scale={number})")
    typer.echo("With attnlib, for any policy, also one that depends on the position:")
    typer.echo('    attention.attend(q, k, v, policy="ssmax", is_causal=True)')


def _law(name: LawName, d: int) -> "Law":
    from attnlib import scores

    try:
        law = scores.Cosine(d) if name is LawName.COSINE else scores.DotProduct(d)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return scores.Normal() if name is LawName.NORMAL else law


def _numbers(policy: "Policy", n: int, d: int) -> dict[str, float | None]:
    """Return a policy's scale and α; none where it needs more dimensions, as a cosine does."""
    try:
        return {"scale": float(policy.scale(n, d)), "alpha": float(policy.alpha(n, d))}
    except ValueError:
        return {"scale": None, "alpha": None}


def _always(scale: float) -> "Callable[..., float]":
    return lambda n, d, position: scale


def _times(alpha: float | None, factor: float) -> float | None:
    return None if alpha is None else alpha * factor


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    table.add_column("", overflow="fold")
    table.add_column("scale", justify="right", no_wrap=True)
    table.add_column("α", justify="right", no_wrap=True)
    needle = any("reach" in row for row in rows)
    if needle:
        table.add_column("reaches", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for row in rows:
        name = row["name"] + ("*" if row.get("learned") else "")
        error = row.get("standard_error", 0.0)
        unit = " · cos" if row["applied_to"] == "cosine" else " · qk"
        if row["alpha"] is None:
            cells = [name, "none", "none"]
        else:
            alpha = f"{row['alpha']:.3g}" + (f" ± {error:.1g}" if error else "")
            cells = [name, f"{row['scale']:.4g}{unit}", alpha]
        reach = [_keys(row.get("reach"))] if needle else []
        table.add_row(*map(Text, [*cells, *reach, row["meaning"]]))
    Console().print(table)


def _keys(reach: int | None) -> str:
    if reach is None:
        return "none"
    if reach == checking.LARGEST_INTEGER:
        return "over 2⁵³"
    return f"{reach:.3g}" if reach >= 1e6 else f"{float(f'{reach:.3g}'):.0f}"


class Device(StrEnum):
    """Where a model runs or trains."""

    CPU = "cpu"
    CUDA = "cuda"


@app.command("probe")
def probe_command(
    model: Annotated[str, typer.Argument(help="A model's name on Hugging Face, or its folder.")],
    text: Annotated[Path, typer.Option(help="What it reads: a text file in UTF-8.")],
    tokens: Annotated[int, typer.Option(min=2, help="It reads at most so many tokens.")] = 512,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(help="Measure it under this rule for the scale.")
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Print a line for each head.")] = False,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER:HEAD", help="Print, and draw, this head; LAYER by name or 0, 1…"
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw all heads beside random scores, into this file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the table of all heads to this CSV file.")
    ] = None,
    device: Annotated[Device, typer.Option(help="Where the model runs.")] = Device.CPU,
    as_json: AsJson = False,
) -> None:
    """Measure the attention of a model while it reads a text.

    Each layer (each head in JSON, with --heads or --out) beside what random scores of the same size
    would give: how many keys share the weight, how many rows are wide, entropy and gradient; and
    which heads stand out. With --head all that is measured of one.

    A model is opened as data: no code of its own runs, unless you trust it, and weights are read as
    numbers only.
    """
    probing = _needed("probing", "probe")
    with brought_by("probe"):
        import torch
        import transformers  # noqa: F401 - said here what to install

        from attnlib import opening
    try:
        content = text.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{text} cannot be read: {error}") from error
    changed: AbstractContextManager[Any] = nullcontext()
    if policy is not None:
        from attnlib.attention import rescale
        from attnlib.policies import POLICIES

        cosines = policy in POLICIES and POLICIES[policy].applied_to == "cosine"
        try:
            changed = rescale(policy, normalize_qk=cosines)
        except ValueError as error:
            raise CommandError(str(error)) from error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            tokenizer, network = opening.open_model(model, trust_remote_code=trust_remote_code)
        except ValueError as error:
            raise CommandError(str(error)) from error
        longest = getattr(network.config, "max_position_embeddings", None) or tokens
        length = min(tokens, longest)
        given = tokenizer(content, return_tensors="pt", truncation=True, max_length=length)
        ids = given["input_ids"]
        if ids.shape[-1] < 2:
            raise CommandError(f"{text} must have at least 2 tokens, got {ids.shape[-1]}")
        inputs = {"input_ids": ids}
        if network.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids
        try:
            network.to(device)
            inputs = {name: given.to(device) for name, given in inputs.items()}
            with torch.no_grad(), probing.probe(network) as report, changed:
                outputs = network(**inputs)
        except Exception as error:  # a model raises what its parts raise
            kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            raise CommandError(f"{kind}{error}", 1) from error
    broken = report.not_finite or ([] if opening.is_finite(outputs) else ["its output"])
    if broken:
        raise CommandError(f"{model} computes NaN or infinity, first in {broken[0]}", 1)
    for warning in caught:
        typer.echo(f"Warning: {' '.join(str(warning.message).split())}", err=True)
    chosen = None if head is None else _one_head(report, head)
    if plot is not None:
        draw = partial(report.plot, "heads") if chosen is None else chosen.plot
        _save(plot, _drawing(draw, plot.suffix.removeprefix(".") or "svg"))
    if out is not None:
        _save(out, report.table().to_csv(index=False).encode())
    if as_json:
        typer.echo(report.to_json())
        return
    typer.echo(f"{ids.shape[-1]} tokens of {text}\n\n{report if chosen is None else chosen}")
    if heads:
        table = report.table()[list(HEAD_COLUMNS)].round(3)
        typer.echo(f"\n{table.to_string(index=False)}")


HEAD_COLUMNS = (
    *("layer", "call", "head", "keys", "scale", "alpha", "critical_alpha", "wide"),
    *("effective_keys", "random_effective_keys", "entropy", "random_entropy"),
    *("largest_logit", "largest_weight", "first_weight"),
)
"""What `attnlib probe --heads` prints of each head; --out and --json have all columns."""


def _one_head(report: "Report", place: str) -> "OneHead":
    """Return the head that LAYER:HEAD names."""
    layer, _, head = place.rpartition(":")
    try:
        return report.head(int(layer) if layer.isdecimal() else layer, int(head))
    except ValueError as error:
        raise CommandError(f"--head must be LAYER:HEAD, got {place!r}: {error}") from error


def _drawing(draw: "Callable[[], Figure]", kind: str) -> bytes:
    """Return a figure as a file of that kind."""
    with brought_by("book"):
        import matplotlib
    matplotlib.use("agg")
    drawn = io.BytesIO()
    try:
        draw().savefig(drawn, format=kind)
    except ValueError as error:
        raise CommandError(f"--plot cannot be drawn as {kind!r}: {error}") from error
    return drawn.getvalue()


def _save(path: Path, content: bytes) -> None:
    try:
        files.replace(path, content)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error}", 1) from error


@app.command("audit")
def audit_command(
    model: Annotated[str, typer.Argument(help="A model's name on Hugging Face, or its folder.")],
    expected: Annotated[
        float | None,
        typer.Option(help="What is meant to multiply q·k; by default what its configuration says."),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find which number multiplies the scores in a model, and whether it is the one that was meant.

    Every attention layer, eager and fused, from its outputs alone, beside the model's
    configuration; then the implementations beside one another. The exit status is 1 where there is
    a finding.
    """
    auditing = _needed("auditing", "probe")
    with brought_by("probe"):
        import torch
        import transformers  # noqa: F401 - said here what to install

        from attnlib import opening
    try:
        _, network = opening.open_model(model, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise CommandError(str(error)) from error
    ids = torch.arange(AUDITED)[None] % network.config.get_text_config().vocab_size
    inputs = {"input_ids": ids}
    if network.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    try:
        report = auditing.audit(network, inputs, expected=expected)
    except (ValueError, RuntimeError) as error:
        raise CommandError(f"{model}: {error}", 1) from error
    typer.echo(report.to_json() if as_json else str(report))
    if not report.passed:
        raise typer.Exit(1)


AUDITED = 16
"""Tokens that a model is shown while its attention is noted."""


def _needed(module: str, extra: str) -> Any:
    """Return a module of attnlib that needs what an extra brings."""
    with brought_by(extra):
        return import_module(f"attnlib.{module}")

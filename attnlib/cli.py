"""The command line: `attnlib`, or `python -m attnlib`."""

import io
import json
import sys
import warnings
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict
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
from typer.core import TyperGroup

import attnlib
from attnlib import checking, files
from attnlib.extras import MissingExtraError, brought_by

if TYPE_CHECKING:  # what loads slowly is loaded by the command that needs it
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from attnlib.policies import Policy
    from attnlib.probing import OneHead, Report
    from attnlib.scores import Law

ParsingError: Any = typer.BadParameter.__mro__[2]
"""The base of all errors of typer and click, which newer versions of typer do not name."""


class CommandError(Exception):
    """An error of a command: what is printed, in one line, and the exit status."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


class OneLineErrors(TyperGroup):
    """Commands whose errors are one line each, without the usage around it."""

    def main(self, *arguments: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run the command of the arguments and end the process."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A pipe on Windows has no √ and no α, and a file's name may be no text.
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            status = super().main(*arguments, **{**options, "standalone_mode": False})
        except CommandError as error:
            typer.echo(f"Error: {error}", err=True)
            status = error.status
        except MissingExtraError as error:
            typer.echo(f"Error: {error}", err=True)
            status = 1
        except ParsingError as error:
            typer.echo(f"Error: {' '.join(error.format_message().split())}", err=True)
            status = error.exit_code
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


app = typer.Typer(
    cls=OneLineErrors,
    help="What attention scores should be divided by.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


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
        reached = retrieval.reach(chosen, needle, policy=rules, d=d, roughly=True)
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


@app.command("claims")
def claims_command(
    identifiers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Claims; without one, all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the claims of the book's sources."""
    claims = _needed("claims", "claims")
    for identifier in identifiers or []:
        if identifier not in claims.CLAIMS:
            raise CommandError(
                f"{identifier!r} is not a claim; the ledger has {', '.join(sorted(claims.CLAIMS))}"
            )
    outcomes = [claims.check(i) for i in identifiers] if identifiers else claims.check_all()
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in outcomes], ensure_ascii=False, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, expand=True)
    table.add_column("claim", overflow="fold", width=max(len(one.id) for one in outcomes))
    for heading in ("statement", "evidence"):
        table.add_column(heading, overflow="fold", ratio=1)
    for one in outcomes:
        claim = f"{one.id}\n{one.verdict}\n{one.source}, {one.place}"
        translation = f" ({one.translation})" if one.translation else ""
        words = f"\n“{one.quote}”{translation}" if one.quote else ""
        table.add_row(*(Text(cell) for cell in (claim, one.statement + words, one.evidence)))
    Console().print(table)


@app.command("sweep")
def sweep_command(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the runs.")],
    text: Annotated[Path | None, typer.Option(help="A copy of the sweep's corpus.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a core.")
    ] = None,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.CPU,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask scheduler, whose workers train instead."),
    ] = None,
) -> None:
    """Train the models that a TOML file describes.

    Only what is missing is run. It can be stopped at any moment: the same command goes on where it
    was.
    """
    if scheduler is not None and workers is not None:
        raise CommandError("--workers are processes of this machine: not with --scheduler")
    sweep = _lab("sweep")
    try:
        with warnings.catch_warnings(), ExitStack() as stack:
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            described = sweep.read(file, text)
            executor = None if scheduler is None else _cluster(scheduler, stack)
            options = {"executor": executor, "workers": workers, "device": str(device)}
            found = sweep.run(described, **options, progress=True)
    except sweep.SweepError as error:
        raise CommandError(str(error)) from error
    except sweep.UnfinishedError as error:
        raise CommandError(str(error), 1) from error
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    diverged = sum(outcome.run.diverged_at is not None for outcome in found)
    typer.echo(f"{len(found)} runs finished, {diverged} of them diverged")


def _cluster(address: str, stack: ExitStack) -> Any:
    """Return the executor of a Dask scheduler, connected until the stack ends."""
    with brought_by("cluster"):
        from distributed import Client
    connect: Any = Client  # without types
    try:
        return stack.enter_context(connect(address)).get_executor()
    except (OSError, ValueError) as error:
        raise CommandError(f"no Dask scheduler answers at {address}: {error}") from error


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)


@app.command("data")
def data_command(
    name: Annotated[str | None, typer.Argument(help="A text; without one, list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the text to this file.")] = None,
) -> None:
    """List the texts to train on, or fetch one."""
    data = _lab("data")
    if name is None:
        if out is not None:
            raise CommandError(f"--out needs the NAME of a text: {' or '.join(data.NAMES)}")
        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("name", "what it is"):
            table.add_column(heading, overflow="fold")
        for corpus in data.NAMES:
            table.add_row(corpus, data.MEANINGS[corpus])
        Console().print(table)
        return
    try:
        if name not in data.NAMES:
            raise ValueError(f"NAME must be {' or '.join(data.NAMES)}, got {name!r}")
        text = data.load(name)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    if out is not None:
        try:
            out.write_bytes(text.tobytes())
        except OSError as error:
            raise CommandError(f"{out} cannot be written: {error.strerror}") from error
    typer.echo(f"{name}: {text.size} bytes" + (f", written to {out}" if out else ""))


def _lab(module: str) -> Any:
    """Return a module of the laboratory."""
    return _needed(f"lab.{module}", "lab")


def _needed(module: str, extra: str) -> Any:
    """Return a module of attnlib that needs what an extra brings."""
    with brought_by(extra):
        return import_module(f"attnlib.{module}")

"""The command line: `attnlib`, or `python -m attnlib`."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

import attnlib
from attnlib.commands import AsJson, CommandError, application
from attnlib.extras import brought_by

if TYPE_CHECKING:  # what loads slowly is loaded by the command that needs it
    from attnlib.calibration.answer import Answer
    from attnlib.calibration.fit import ScaleFit
    from attnlib.probing import Report

app = application("What attention scores should be divided by.")

LENGTHS = (1024, 8192, 131_072)
"""Keys for which `attnlib policies` shows a rule."""

UNITS = {"dot product": "q·k", "cosine": "cos(q, k)"}

ModelName = Annotated[
    str, typer.Argument(help="A model's name on Hugging Face, its folder or GGUF file.")
]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")
]


class Dtype(StrEnum):
    """What a model may compute in."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


Device = Annotated[str, typer.Option(help="Where the model runs: cpu, cuda.")]
DtypeGiven = Annotated[
    Dtype | None, typer.Option(help="What the model computes in; by default as it is saved.")
]


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


@contextmanager
def _in_one_line(*errors: type[Exception], status: int = 2, about: str = "") -> Iterator[None]:
    """Turn errors of these classes into a line and an exit status."""
    try:
        yield
    except errors as error:
        raise CommandError(f"{about}{error}", status) from error


# --- attnlib scale --------------------------------------------------------------------------------


COMMON = ("transformer", "mup", "qk_norm", "qwen", "ssmax", "yarn", "llama_4")
"""The policies that `attnlib scale` shows without --all: one of each kind."""

WIDTH = 80
"""Columns of a terminal."""

UNKNOWN = 0.1
"""A text with more tokens that the tokenizer does not know is warned of, as a share."""


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

    with _in_one_line(ValueError):
        keys = criteria.effective_keys(n, causal=causal)
        by_criterion = _by_criterion(n, d, law, causal, everything)
    policies = [_by_policy(name, n, d) for name in (POLICIES if everything else COMMON)]
    if as_json:
        asked = {"n": n, "d": d, "law": str(law), "causal": causal, "effective_keys": keys}
        answer = {**asked, "criteria": by_criterion, "policies": policies}
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    of_cosines = law is LawName.COSINE
    start = d**0.5 if of_cosines else d**-0.5
    typer.echo(
        f"Start with {'√d on the cosine' if of_cosines else '1/√d'} = {start:.4g} (α = 1). What a "
        "trained model\nwants is measured:\n    attnlib calibrate MODEL --text FILE"
    )
    seen = f"1 to {n} keys (as {keys:.0f})" if causal else f"{n} keys"
    _print(f"By criterion, for {seen} and {d} dimensions", by_criterion)
    last = ", at the last query" if causal else ""
    _print(f"Policies in use{last} (* learned; here its first value)", policies)
    if not everything:
        typer.echo(f"\nWith --all, all {len(POLICIES)} policies and one more criterion.")
    if not of_cosines:
        typer.echo("\nIn PyTorch, where 1/√d is what it does without a scale:")
        typer.echo(f"    functional.scaled_dot_product_attention(q, k, v, scale={start:.4g})")
    typer.echo("\nWith attnlib, for any policy, also one that depends on the position:")
    typer.echo('    attention.attend(q, k, v, policy="ssmax", is_causal=True)')
    typer.echo(f"\nA model of transformers that was trained at {n} keys keeps its own scale there:")
    typer.echo(f'    rule = attention.register(factor="ssmax", train_length={n})')
    typer.echo("    model.set_attn_implementation(rule)")


def _by_criterion(
    n: int, d: int, name: LawName, causal: bool, everything: bool
) -> list[dict[str, Any]]:
    """Return a line for each criterion; without `everything`, for those that take no time."""
    from attnlib import criteria, scores

    law: scores.Law = scores.Cosine(d) if name is LawName.COSINE else scores.DotProduct(d)
    if name is LawName.NORMAL:
        law = scores.Normal()
    unit = float(law.variance) ** 0.5
    factor = 1.0 if name is LawName.COSINE else d**-0.5
    return [
        {
            "name": criterion.name,
            "applied_to": law.applied_to,
            "scale": None if criterion.alpha is None else criterion.alpha * factor,
            "alpha": None if criterion.alpha is None else criterion.alpha * unit,
            "meaning": criterion.meaning,
        }
        for criterion in criteria.alphas(law, n, causal=causal, entropy=everything)
    ]


def _by_policy(name: str, n: int, d: int) -> dict[str, Any]:
    """Return a policy's line; without numbers where it needs more dimensions."""
    from attnlib.policies import POLICIES

    policy = POLICIES[name]
    line: dict[str, Any] = {"name": name, "applied_to": policy.applied_to}
    line |= {"scale": None, "alpha": None, "learned": policy.learned}
    with suppress(ValueError):
        line["scale"], line["alpha"] = float(policy.scale(n, d)), float(policy.alpha(n, d))
    return {**line, "meaning": policy.meaning}


def _print(title: str, lines: list[dict[str, Any]]) -> None:
    """Print the numbers of each rule under one another, and its meaning beneath."""
    typer.echo(f"\n{title}\n{'scale':>39}{'α':>16}")
    for line in lines:
        name = line["name"] + ("*" if line.get("learned") else "")
        unit = "cos" if line["applied_to"] == "cosine" else "qk"
        numbers = ["none", "none"]
        if line["alpha"] is not None:
            numbers = [f"{line['scale']:.4g} · {unit}", f"{line['alpha']:.3g}"]
        typer.echo(f"{name:<21}{numbers[0]:>18}{numbers[1]:>16}")
        typer.echo(fill(line["meaning"], WIDTH, initial_indent="    ", subsequent_indent="    "))


# --- attnlib policies -----------------------------------------------------------------------------


@app.command("policies")
def policies_command(
    name: Annotated[
        str, typer.Argument(help="A rule by name, such as ssmax or yarn; without, all are listed.")
    ] = "",
    d: Annotated[int, typer.Option("--d", min=1, max=2**20, help="Dimension of a head.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Print one rule for the scale: its formula, its constants, its source, and its numbers."""
    from attnlib import checking
    from attnlib.policies import POLICIES

    if not name:
        formulas = {known: policy.formula for known, policy in POLICIES.items()}
        lines = [f"{known:<21}{formula}" for known, formula in formulas.items()]
        typer.echo(json.dumps(formulas, ensure_ascii=False) if as_json else "\n".join(lines))
        return
    with _in_one_line(ValueError, TypeError):
        policy = POLICIES[checking.choice("name", name, tuple(POLICIES))]
    shown_at = [{"n": n, **_by_policy(name, n, d)} for n in LENGTHS]
    numbers = [{key: line[key] for key in ("n", "scale", "alpha")} for line in shown_at]
    if as_json:
        told: dict[str, Any] = {"name": name, "applied_to": policy.applied_to}
        told["formula"] = policy.formula
        told |= {"meaning": policy.meaning, "learned": policy.learned, "source": policy.source}
        answer = {**told, "constants": policy.constants, "d": d, "numbers": numbers}
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    first = ", learned; here its first value" if policy.learned else ""
    typer.echo(f"{name}: {policy.formula}, times {UNITS[policy.applied_to]}{first}")
    for text in (policy.meaning, f"Source: {policy.source}"):
        typer.echo(fill(text, WIDTH, initial_indent="    ", subsequent_indent="    "))
    for setting in policy.settings:
        typer.echo(fill(f"{setting.name} = {setting.value:g}: {setting.meaning}", WIDTH))
    typer.echo(f"\n{'n':>10}{'scale':>14}{'α':>10}   for d = {d}")
    for line in numbers:
        shown = ["none" if line[key] is None else f"{line[key]:.4g}" for key in ("scale", "alpha")]
        typer.echo(f"{line['n']:>10}{shown[0]:>14}{shown[1]:>10}")


# --- attnlib probe --------------------------------------------------------------------------------


@app.command("probe")
def probe_command(
    model: ModelName,
    text: Annotated[Path, typer.Option(help="What it reads: a text file in UTF-8.")],
    tokens: Annotated[int, typer.Option(min=2, help="It reads at most so many tokens.")] = 512,
    trust_remote_code: Trust = False,
    device: Device = "cpu",
    dtype: DtypeGiven = None,
    as_json: AsJson = False,
) -> None:
    """Measure the attention of a model while it reads a text.

    Each layer (each head in JSON) beside what random scores of the same size would give: how many
    keys share the weight, how many rows are wide, entropy and gradient; and which heads stand out.

    A model is opened as data: no code of its own runs, unless you trust it, and weights are read as
    numbers only.
    """
    _say_what_to_install()
    with _in_one_line(OSError, UnicodeDecodeError, about=f"{text} cannot be read: "):
        content = text.read_text("utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        tokenizer, network = _opened(model, trust_remote_code, device, dtype)
        longest = getattr(network.config, "max_position_embeddings", None) or tokens
        options = {"truncation": True, "max_length": min(tokens, longest)}
        ids = tokenizer(content, return_tensors="pt", **options)["input_ids"]
        if ids.shape[-1] < 2:
            raise CommandError(f"{text} must have at least 2 tokens, got {ids.shape[-1]}")
        unknown = ids.flatten().tolist().count(tokenizer.unk_token_id) / ids.numel()
        if unknown > UNKNOWN:
            said = f"{unknown:.0%} of the tokens of {text} are {tokenizer.unk_token}"
            warnings.warn(f"{said}: the tokenizer does not know them", stacklevel=1)
        report = _probed(model, network, ids.to(device))
    for warning in caught:
        typer.echo(f"Warning: {' '.join(str(warning.message).split())}", err=True)
    if as_json:
        typer.echo(report.to_json())
    else:
        typer.echo(f"{ids.shape[-1]} tokens of {text}\n\n{report}")


def _say_what_to_install() -> None:
    with brought_by("probe"):
        import torch  # noqa: F401
        import transformers  # noqa: F401


@contextmanager
def _shown(what: str) -> Iterator[Any]:
    """Show what is done, in a terminal; it can be updated."""
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status


def _opened(
    model: str, trust_remote_code: bool, device: str, dtype: Dtype | None, **options: bool
) -> tuple[Any, Any]:
    """Return a model's tokenizer and the model, on a device; see `open_model`."""
    import torch

    from attnlib import opening

    options["trust_remote_code"] = trust_remote_code
    with _in_one_line(ValueError), _shown(f"opening {model}"):
        tokenizer, network = opening.open_model(model, **options)
    with _in_one_line(RuntimeError, AssertionError, status=1):
        network.to(device=device, dtype=None if dtype is None else getattr(torch, dtype))
    return tokenizer, network


def _inputs(network: Any, ids: Any) -> dict[str, Any]:
    both = (
        ("input_ids", "decoder_input_ids") if network.config.is_encoder_decoder else ("input_ids",)
    )
    return dict.fromkeys(both, ids)


def _probed(model: str, network: Any, ids: Any) -> "Report":
    """Return what the probe sees of a model that reads these tokens."""
    import torch

    from attnlib.probing import probe

    try:
        told = _shown(f"{model} reads {ids.shape[-1]} tokens")
        with told, torch.no_grad(), probe(network) as report:
            network(**_inputs(network, ids))
    except Exception as error:  # a model raises what its parts raise
        kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
        raise CommandError(f"{kind}{error}", 1) from error
    if report.not_finite:
        raise CommandError(f"{model} computes NaN or infinity, first in {report.not_finite[0]}", 1)
    return report


# --- attnlib audit --------------------------------------------------------------------------------

AUDITED = 16
"""Tokens that a model is shown while its attention is noted."""
NOT_KNOWN = 3
"""The exit status where it is not known what is meant."""


UNANSWERED = 4
"""The exit status where an engine has questions to answer first."""
ASKED_OF = {
    "MODEL": {"expected", "trust_remote_code", "dtype"},
    "--write": {"expected", "cap", "window", "sink", "d", "heads", "kv_heads", "length", "dtype"}
    | {"causal"},
    "--read": {"expected", "cap", "window", "sink", "causal"},
    "--tensors": {"expected", "dtype", "cap", "window", "sink"},
}
"""Which options each kind of audit takes."""


@app.command("audit")
def audit_command(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="A model's name on Hugging Face, its folder or GGUF file.")
    ] = "",
    write: Annotated[
        Path | None, typer.Option(help="Write questions to an engine into this new folder.")
    ] = None,
    read: Annotated[
        Path | None, typer.Option(help="Judge the engine's answers in this folder.")
    ] = None,
    tensors: Annotated[
        Path | None,
        typer.Option(help="Find the softmax that explains q, k, v and output in this safetensors."),
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(
            help="What is meant to multiply q·k, a number or a policy; by default what a model's "
            "configuration or family says."
        ),
    ] = None,
    d: Annotated[int, typer.Option("--d", help="Dimension of a head, for --write.")] = 128,
    heads: Annotated[int, typer.Option(help="Heads of queries, for --write.")] = 8,
    kv_heads: Annotated[
        int | None, typer.Option(help="Heads of keys, for --write; by default as of queries.")
    ] = None,
    length: Annotated[int, typer.Option(help="Keys at most, for --write.")] = 256,
    cap: Annotated[float | None, typer.Option(help="The soft cap that an engine has.")] = None,
    window: Annotated[int | None, typer.Option(help="Keys that its queries see at most.")] = None,
    sink: Annotated[float | None, typer.Option(help="The logit of its sink.")] = None,
    causal: Annotated[
        bool | None, typer.Option(help="Whether its queries see keys up to their own, by default.")
    ] = None,
    facts: Annotated[bool, typer.Option("--facts", help="Print what else was found.")] = False,
    trust_remote_code: Trust = False,
    device: Device = "cpu",
    dtype: DtypeGiven = None,
    as_json: AsJson = False,
) -> None:
    """Find which number multiplies the scores, and whether it is the one that was meant.

    Of a MODEL: every attention layer, eager and fused, from its outputs alone, beside the model's
    configuration; then the implementations beside one another. Of an engine in any language:
    --write asks it in files, for its scale, cap, sink, window and heads, and --read judges what it
    wrote beside them. Of tensors that were recorded: --tensors.

    The exit status is 1 where there is a finding, 3 where there is none and it is not known what is
    meant, and 4 where --read has added questions.
    """
    _say_what_to_install()
    every = {"MODEL": model, "--write": write, "--read": read, "--tensors": tensors}
    ways = {way: str(given) for way, given in every.items() if given}
    if len(ways) != 1:
        raise CommandError(f"give one of {', '.join(ASKED_OF)}, got {' and '.join(ways) or 'none'}")
    ((way, place),) = ways.items()
    for name in set.union(*ASKED_OF.values()) - ASKED_OF[way]:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise CommandError(f"--{name.replace('_', '-')} does not go with {way}")
    meant: dict[str, Any] = {"expected": _meant(expected)}
    more = {"cap": cap, "window": window, "sink": sink, "causal": causal}
    meant |= {name: number for name, number in more.items() if number is not None}
    if way == "MODEL":
        report = _audited(model, trust_remote_code, device, dtype, meant["expected"])
    else:
        sizes = {"d": d, "heads": heads, "key_heads": kv_heads, "length": length}
        report = _by_files(way, Path(place), sizes, dtype, meant)
    report.verbose = report.verbose or facts
    typer.echo(report.to_json() if as_json else str(report))
    for name in ("not asked", "not answered"):
        if name in report.facts and not as_json and not report.verbose:
            typer.echo(f"{name}: {report.facts[name]}")
    if not report.passed:
        raise typer.Exit(NOT_KNOWN if report.passed is None else 1)


def _meant(expected: str | None) -> float | str | None:
    """Return the number that a text is, or the text: a policy's name."""
    with suppress(TypeError, ValueError):
        return float(expected or "")
    return expected


def _audited(
    model: str, trust_remote_code: bool, device: str, dtype: Dtype | None, expected: Any
) -> Any:
    """Return the report on a model."""
    import torch

    from attnlib import auditing

    _, network = _opened(model, trust_remote_code, device, dtype, words=False)
    ids = torch.arange(AUDITED, device=device)[None] % network.config.get_text_config().vocab_size
    errors = _in_one_line(ValueError, RuntimeError, status=1, about=f"{model}: ")
    with errors, _shown(f"asking the attention of {model}, layer by layer"):
        inputs = _inputs(network, ids)
        return auditing.audit(network, inputs, expected=expected)


def _by_files(
    way: str, place: Path, sizes: dict[str, Any], dtype: Dtype | None, meant: dict[str, Any]
) -> Any:
    """Return the report on an engine's answers or recorded tensors; questions end the command."""
    import torch

    from attnlib.auditing import recorded

    kind = None if dtype is None else getattr(torch, dtype)
    with _in_one_line(ValueError, TypeError, OSError):
        if way == "--tensors":
            return recorded.recorded(place, dtype=kind, **meant)
        if way == "--read":
            with _in_one_line(recorded.UnansweredError, status=UNANSWERED):
                return recorded.read(place, **meant)
        with _shown("asking"):
            number = recorded.write(place, **sizes, dtype=kind or torch.float32, **meant)
    typer.echo(f"{number} questions are in {place}; its README.md says how to answer them")
    raise typer.Exit


# --- attnlib calibrate ----------------------------------------------------------------------------


class Per(StrEnum):
    """What has a factor of its own."""

    MODEL = "model"
    LAYER = "layer"
    HEAD = "head"


@app.command("calibrate")
def calibrate_command(
    model: ModelName,
    text: Annotated[Path, typer.Option(help="What it reads: a text file in UTF-8.")],
    lengths: Annotated[str, typer.Option(help="Lengths in tokens, with commas between.")] = "512",
    per: Annotated[Per, typer.Option(help="What has a factor of its own.")] = Per.MODEL,
    law: Annotated[
        str, typer.Option(help="How factors depend on n: constant, log, or the name of a policy.")
    ] = "constant",
    texts: Annotated[int, typer.Option(min=4, help="Windows of the text, at most.")] = 16,
    apply: Annotated[
        Path | None,
        typer.Option(help="Save the model here with the factors of the last length, if they gain."),
    ] = None,
    memory: Annotated[
        Path | None, typer.Option(help="Keep finished passes here, and go on from them.")
    ] = None,
    trust_remote_code: Trust = False,
    device: Device = "cpu",
    dtype: DtypeGiven = None,
    as_json: AsJson = False,
) -> None:
    """Measure which scale a language model wants: its logits larger or smaller, at each length.

    At each length the text is cut into windows. The model's own loss on every second one says how
    much larger its logits should be, and the others say what that gains. Then come the heads that
    want a change by themselves. A run that was stopped goes on where it was.
    """
    _say_what_to_install()
    from attnlib.calibration.answer import answer
    from attnlib.calibration.memory import Memory, digest

    with _in_one_line(ValueError, about="--lengths must be numbers with commas between: "):
        counts = [int(length) for length in lengths.split(",")]
    with _in_one_line(OSError, UnicodeDecodeError, about=f"{text} cannot be read: "):
        content = text.read_text("utf-8")
    tokenizer, network = _opened(model, trust_remote_code, device, dtype, language=True)
    ids = tokenizer(content, return_tensors="pt", verbose=False)["input_ids"]
    kept = memory or _cache() / f"calibrate-{digest(model, ids, *filter(None, [dtype]))}.jsonl"
    answers = []
    with _shown("reading") as status:
        for length in counts:
            passes = count(1)

            def report(what: str, loss: float, length: int = length, at: Any = passes) -> None:
                status.update(f"{length} tokens, pass {next(at)}: {what}, loss {loss:.4f}")

            options: Any = {"per": str(per), "law": law, "texts": texts, "report": report}
            with _in_one_line(ValueError, RuntimeError, OSError, status=1, about=f"{model}: "):
                found = answer(network, ids.to(device), length, memory=Memory(kept), **options)
            answers.append(found)
            if not as_json:
                typer.echo(str(found))
    if as_json:
        typer.echo(json.dumps([found.to_dict() for found in answers], indent=2))
    else:
        _print_wanting(answers[-1])
    if apply is not None:
        _apply(answers[-1].fit, network, tokenizer, apply)


def _cache() -> Path:
    folder = Path(os.environ.get("ATTNLIB_CACHE") or Path.home() / ".cache" / "attnlib")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SHOWN = 10
"""Heads that are printed."""


def _print_wanting(found: "Answer") -> None:
    """Print the heads significantly different from 0, the largest gradients first."""
    larger, smaller = found.gradient.wanting()
    heads = found.gradient.p_values().size
    typer.echo(
        f"\nOf {heads} heads {len(larger)} want larger logits at {found.length} tokens, and "
        f"{len(smaller)} smaller ones (95 %, corrected for {heads} heads)."
    )
    lines = [line for line in found.gradient.rows() if line["p_value"] < 0.05]
    lines.sort(key=lambda line: -abs(line["gradient"]))
    if not lines:
        return
    typer.echo(f"\n{'head':>6}{'∂L/∂log t':>12}{'±':>8}{'wants':>9}  layer")
    for line in lines[:SHOWN]:
        wants = "larger" if line["gradient"] < 0.0 else "smaller"
        numbers = f"{line['gradient']:>+12.2e}{line['standard_error']:>8.0e}{wants:>9}"
        typer.echo(f"{line['head']:>6}{numbers}  {line['layer']}")


def _apply(fit: "ScaleFit", network: Any, tokenizer: Any, folder: Path) -> None:
    """Save the model with its factors, where they gain and its weights can hold them."""
    if not fit.recommended:
        reason = "the gain is not significantly different from 0"
        raise CommandError(f"{folder} is not written: {reason}", 1)
    done = fit.apply(network)
    if done.registered is not None:
        done.undo()
        raise CommandError(
            f"{folder} is not written: these factors do not fit into the weights; in Python "
            "ScaleFit.apply puts them into the model while it runs",
            1,
        )
    with _in_one_line(OSError, status=1, about=f"{folder} cannot be written: "):
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    typer.echo(f"saved in {folder}, with {len(done.folded)} layers changed")

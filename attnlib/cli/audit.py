"""`attnlib audit`: which number multiplies the scores, and whether it is the intended one."""

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlib.cli import model as models
from attnlib.cli.application import AsJson, CommandError, as_command_error

AUDITED_TOKENS = 16
"""Number of tokens of the input on which a model's attention is audited."""
NOT_KNOWN = 3
"""The exit status where the intended scale is not known."""
UNANSWERED = 4
"""The exit status where an engine has questions to answer first."""
OPTIONS = {
    "MODEL": {"expected", "trust_remote_code", "dtype"},
    "--write": {"expected", "cap", "window", "sink", "d", "heads", "kv_heads", "length", "dtype"}
    | {"causal", "kv_dtype"},
    "--read": {"expected", "cap", "window", "sink", "causal"},
    "--tensors": {"expected", "dtype", "cap", "window", "sink"},
}
"""The options of each kind of audit."""


CacheType = StrEnum(
    "CacheType", ["float8_e4m3fn", "float8_e5m2", "int8", "int4", "float16", "bfloat16"]
)
"""The types in which an engine may keep keys and values."""


def audit(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=models.MODEL_HELP)] = "",
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
    trust_remote_code: models.Trust = False,
    device: models.Device = "cpu",
    dtype: models.Dtype = None,
    kv_dtype: Annotated[
        CacheType | None,
        typer.Option(help="A coarser type in which an engine keeps keys and values, for --write."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure which number multiplies the scores, and whether it is the intended one.

    Of a MODEL: every attention layer, eager and fused, from its outputs alone, beside the model's
    configuration; then the implementations beside one another. Of an engine in any language:
    --write asks it in files, for its scale, cap, sink, window and heads, and --read judges its
    answers beside them. Of tensors that were recorded: --tensors.

    The exit status is 1 where there is a finding, 2 where the audit cannot run, 3 where there is no
    finding and the intended scale is not known, and 4 where --read has added questions.
    """
    models.require_packages()
    subjects = {"MODEL": model, "--write": write, "--read": read, "--tensors": tensors}
    chosen = {mode: str(subject) for mode, subject in subjects.items() if subject}
    if len(chosen) != 1:
        got = " and ".join(chosen) or "none"
        raise CommandError(f"give one of {', '.join(OPTIONS)}, got {got}")
    ((mode, subject),) = chosen.items()
    for name in set.union(*OPTIONS.values()) - OPTIONS[mode]:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise CommandError(f"--{name.replace('_', '-')} does not go with {mode}")
    import torch

    from attnlib.auditing import audit as audit_model
    from attnlib.auditing import engine_files, recorded_tensors

    settings = {"cap": cap, "window": window, "sink": sink, "causal": causal}
    arguments: dict[str, Any] = {name: x for name, x in settings.items() if x is not None}
    arguments["expected"] = expected
    with suppress(TypeError, ValueError):  # where it is no number
        arguments["expected"] = float(expected or "")
    torch_dtype = models.torch_dtype(dtype)
    with as_command_error(ValueError, TypeError, OSError):
        if mode == "--write":
            arguments |= {"d": d, "heads": heads, "key_heads": kv_heads, "length": length}
            arguments["dtype"] = torch_dtype or torch.float32
            arguments["kv_dtype"] = models.torch_dtype(kv_dtype)
            with models.progress("asking"):
                count = engine_files.write_questions(subject, **arguments)
            typer.echo(f"{count} questions are in {subject}; its README.md says how to answer them")
            return
        if mode == "--tensors":
            report = recorded_tensors.audit_tensors(subject, dtype=torch_dtype, **arguments)
        elif mode == "--read":
            with as_command_error(engine_files.UnansweredError, status=UNANSWERED):
                report = engine_files.audit_answers(subject, **arguments)
    if mode == "MODEL":
        _, network = models.load_model(model, trust_remote_code, device, dtype, words=False)
        size = network.config.get_text_config().vocab_size
        ids = torch.arange(AUDITED_TOKENS, device=device)[None] % size
        inputs = models.model_inputs(network, ids)
        errors = as_command_error(ValueError, RuntimeError, prefix=f"{model}: ")
        with errors, models.progress(f"asking the attention of {model}, layer by layer"):
            report = audit_model(network, inputs, expected=arguments["expected"])
    report.verbose = report.verbose or facts
    typer.echo(report.to_json() if as_json else str(report))
    if not report.passed:
        raise typer.Exit(NOT_KNOWN if report.passed is None else 1)

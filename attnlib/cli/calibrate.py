"""`attnlib calibrate`: the scale at which a language model's own loss is least."""

import json
import os
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlib.cli import model as models
from attnlib.cli.application import AsJson, CommandError, as_command_error

if TYPE_CHECKING:  # what loads slowly is loaded by the command that needs it
    from attnlib.calibration.recommendation import Recommendation


Per = StrEnum("Per", ["model", "layer", "head"])
"""What may have a logit factor of its own."""


def calibrate(
    model: models.ModelName,
    text: models.TextFile,
    lengths: Annotated[str, typer.Option(help="Lengths in tokens, with commas between.")] = "512",
    per: Annotated[Per, typer.Option(help="What has a factor of its own.")] = Per.model,
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
    trust_remote_code: models.Trust = False,
    device: models.Device = "cpu",
    dtype: models.Dtype = None,
    as_json: AsJson = False,
) -> None:
    """Measure whether larger or smaller logits lower a language model's loss, at each length.

    At each length the text is cut into windows. The model's own loss on every second one gives the
    factor of its logits, and the others measure what that gains. Then come the heads for which a
    factor of their own lowers the loss. A run that was stopped goes on where it was.
    """
    models.require_packages()
    if apply is not None and apply.exists() and not apply.is_dir():
        raise CommandError(f"--apply must be a folder or not be there, got the file {apply}")
    from attnlib.calibration.pass_cache import Cache, digest
    from attnlib.calibration.recommendation import recommend

    with as_command_error(ValueError, prefix="--lengths must be numbers with commas between: "):
        token_counts = [int(length) for length in lengths.split(",")]
    content = models.read_text(text)
    tokenizer, network = models.load_model(model, trust_remote_code, device, dtype, language=True)
    ids = tokenizer(content, return_tensors="pt", verbose=False)["input_ids"]
    key = digest(model, ids, *filter(None, [dtype]))
    cache = memory or _cache_folder() / f"calibrate-{key}.jsonl"
    results = []
    with models.progress("reading") as status:
        for length in token_counts:
            pass_numbers = count(1)

            def report(
                what: str, loss: float, length: int = length, counter: Any = pass_numbers
            ) -> None:
                status.update(f"{length} tokens, pass {next(counter)}: {what}, loss {loss:.4f}")

            options: Any = {"per": str(per), "law": law, "texts": texts, "report": report}
            with as_command_error(ValueError, RuntimeError, OSError, status=1, prefix=f"{model}: "):
                result = recommend(network, ids.to(device), length, memory=Cache(cache), **options)
            results.append(result)
            if not as_json:
                typer.echo(str(result))
    if as_json:
        typer.echo(json.dumps([result.to_dict() for result in results], indent=2))
    else:
        _print_heads(results[-1])
    if apply is None:
        return
    fit = results[-1].fit
    if not fit.recommended:
        reason = "the gain is not significantly different from 0"
        raise CommandError(f"{apply} is not written: {reason}", 1)
    applied = fit.apply(network)
    if applied.registered is not None:
        applied.undo()
        raise CommandError(
            f"{apply} is not written: these factors do not fit into the weights; in Python "
            "ScaleFit.apply puts them into the model while it runs",
            1,
        )
    with as_command_error(OSError, status=1, prefix=f"{apply} cannot be written: "):
        network.save_pretrained(apply)
        tokenizer.save_pretrained(apply)
    typer.echo(f"saved in {apply}, with {len(applied.folded)} layers changed")


def _cache_folder() -> Path:
    """Return the folder of the cache, $ATTNLIB_CACHE or in the home folder, and create it."""
    folder = Path(os.environ.get("ATTNLIB_CACHE") or Path.home() / ".cache" / "attnlib")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


HEADS_SHOWN = 10
"""Heads that are printed."""


def _print_heads(result: "Recommendation") -> None:
    """Print the heads whose gradient differs significantly from 0, the largest gradients first."""
    larger, smaller = result.gradient.wanting()
    heads = result.gradient.p_values().size
    typer.echo(
        f"\nOf {heads} heads {len(larger)} want larger logits at {result.length} tokens, and "
        f"{len(smaller)} smaller ones (95 %, corrected for {heads} heads)."
    )
    lines = [line for line in result.gradient.rows() if line["p_value"] < 0.05]
    lines.sort(key=lambda line: -abs(line["gradient"]))
    if not lines:
        return
    typer.echo(f"\n{'head':>6}{'∂L/∂log t':>12}{'±':>8}{'wants':>9}  layer")
    for line in lines[:HEADS_SHOWN]:
        wants = "larger" if line["gradient"] < 0.0 else "smaller"
        numbers = f"{line['gradient']:>+12.2e}{line['standard_error']:>8.0e}{wants:>9}"
        typer.echo(f"{line['head']:>6}{numbers}  {line['layer']}")

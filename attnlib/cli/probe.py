"""`attnlib probe`: the attention of a model while it reads a text."""

import warnings
from typing import Annotated

import typer

from attnlib.cli import model as models
from attnlib.cli.application import AsJson, CommandError

UNKNOWN_SHARE = 0.1
"""Share of tokens that the tokenizer does not know, above which a text is warned of."""


def probe(
    model: models.ModelName,
    text: models.TextFile,
    tokens: Annotated[int, typer.Option(min=2, help="It reads at most so many tokens.")] = 512,
    trust_remote_code: models.Trust = False,
    device: models.Device = "cpu",
    dtype: models.Dtype = None,
    as_json: AsJson = False,
) -> None:
    """Measure the attention of a model while it reads a text.

    For each layer (each head in JSON) it prints how many keys share the weight, how many rows are
    wide, entropy and gradient, beside those of random scores, and which heads stand out.

    A model is opened as data: no code of its own runs, unless you trust it, and weights are read as
    numbers only.
    """
    models.require_packages()
    import torch  # what loads slowly is loaded by the command that needs it

    from attnlib import probing

    content = models.read_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        tokenizer, network = models.load_model(model, trust_remote_code, device, dtype)
        max_length = getattr(network.config, "max_position_embeddings", None) or tokens
        options = {"truncation": True, "max_length": min(tokens, max_length)}
        ids = tokenizer(content, return_tensors="pt", **options)["input_ids"]
        if ids.shape[-1] < 2:
            raise CommandError(f"{text} must have at least 2 tokens, got {ids.shape[-1]}")
        unknown = ids.flatten().tolist().count(tokenizer.unk_token_id) / ids.numel()
        if unknown > UNKNOWN_SHARE:
            notice = f"{unknown:.0%} of the tokens of {text} are {tokenizer.unk_token}"
            warnings.warn(f"{notice}: the tokenizer does not know them", stacklevel=1)
        progress = models.progress(f"{model} reads {ids.shape[-1]} tokens")
        try:
            with progress, torch.no_grad(), probing.probe(network) as report:
                network(**models.model_inputs(network, ids.to(device)))
        except Exception as error:  # a model raises what its parts raise
            error_type = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            raise CommandError(f"{error_type}{error}", 1) from error
        if report.not_finite:
            location = f"first in {report.not_finite[0]}"
            raise CommandError(f"{model} computes NaN or infinity, {location}", 1)
    for warning in caught:
        typer.echo(f"Warning: {' '.join(str(warning.message).split())}", err=True)
    if as_json:
        typer.echo(report.to_json())
    else:
        typer.echo(f"{ids.shape[-1]} tokens of {text}\n\n{report}")

"""Open the model of a command, by the command's options."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlib.cli.application import as_command_error
from attnlib.extras import extra_packages

MODEL_HELP = "A model's name on Hugging Face, its folder or GGUF file."
ModelName = Annotated[str, typer.Argument(help=MODEL_HELP)]
TextFile = Annotated[Path, typer.Option(help="What it reads: a text file in UTF-8.")]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code that the model brings.")
]
Device = Annotated[str, typer.Option(help="Where the model runs: cpu, cuda.")]


FloatType = StrEnum("FloatType", ["float16", "bfloat16", "float32", "float64"])
"""The types in which a model can compute."""

Dtype = Annotated[
    FloatType | None, typer.Option(help="What the model computes in; by default as it is saved.")
]


def require_packages() -> None:
    """Raise MissingExtraError, which names the extra, if torch or transformers is missing."""
    with extra_packages("probe"):
        import torch  # noqa: F401
        import transformers  # noqa: F401


def load_model(
    name: str, trust_remote_code: bool, device: str, dtype: FloatType | None, **options: bool
) -> tuple[Any, Any]:
    """Return the tokenizer and model of `open_model`, on `device` in `dtype`.

    `options` are those of `open_model`. Raises CommandError if it fails.
    """
    from attnlib.models import opening

    options["trust_remote_code"] = trust_remote_code
    with as_command_error(ValueError), progress(f"opening {name}"):
        tokenizer, network = opening.open_model(name, **options)
    with as_command_error(RuntimeError, AssertionError):
        network.to(device=device, dtype=torch_dtype(dtype))
    return tokenizer, network


def torch_dtype(dtype: str | None) -> Any:
    """Return the dtype of torch with this name, or None for None."""
    import torch

    return None if dtype is None else getattr(torch, dtype)


def model_inputs(network: Any, ids: Any) -> dict[str, Any]:
    """Return the keyword arguments with which a model is called on token ids."""
    names = ["input_ids", "decoder_input_ids"]
    decodes = names[1] in signature(network.forward).parameters  # configurations may not say
    return dict.fromkeys(names if decodes else names[:1], ids)


def read_text(file: Path) -> str:
    """Return the UTF-8 text of a file; CommandError where it cannot be read."""
    with as_command_error(OSError, UnicodeDecodeError, prefix=f"{file} cannot be read: "):
        return file.read_text("utf-8")


@contextmanager
def progress(task: str) -> Iterator[Any]:
    """Show `task` in the terminal inside the context; yield a status whose `update` replaces it."""
    from rich.console import Console

    with Console(stderr=True).status(task) as status:
        yield status

"""Which scale SmolLM2's own loss wants: gradients, fits and needles, one line a finished piece.

    python -m experiments.calibrate [--text tinyshakespeare.txt] [--longest 2048]

Each line of recorded/calibrate.jsonl is one piece, of some seconds to some minutes. The command
goes on where it was stopped; a line that was cut off is made again. Predicted before the first run:
calibrate_predictions.md, beside this file.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from tqdm import tqdm

from attnlib.calibration import fit_scales, needles, repeated_tokens
from attnlib.calibration.gradient import by_head
from attnlib.calibration.multiplied import Place
from attnlib.calibration.passes import own_loss, read
from attnlib.checking import FloatArray
from experiments.lab import data
from experiments.real_heads import inputs, parts
from experiments.real_heads.rows import short

OUT = Path(__file__).parent / "recorded" / "calibrate.jsonl"
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
TEXTS = 16
SHIFTS = (-0.2, -0.1, 0.0, 0.1, 0.2)
"""log t of the whole model at which losses and their slopes are taken."""
FIT_LENGTHS = {"head": 512, "log": 2048}
NEEDLE_LENGTHS = (512, 2048)

Fields = dict[str, Any]


def pieces(longest: int) -> Iterator[tuple[Fields, Callable[[], Fields]]]:
    """Yield where each piece is, and what computes it; short lengths first."""
    for length in (n for n in LENGTHS if n <= longest):
        for text in range(TEXTS):
            yield (
                {"what": "gradient", "length": length, "text": text},
                partial(gradient, length, text),
            )
        for text in range(TEXTS):
            for shift in SHIFTS:
                if shift:
                    at = {"what": "shift", "length": length, "text": text, "log_t": shift}
                    yield at, partial(shifted, length, text, shift)
        if length in NEEDLE_LENGTHS:
            for kind in ("previous", "repeat"):
                for text in range(TEXTS):
                    at = {"what": "needles", "kind": kind, "length": length, "text": text}
                    yield at, partial(needle, kind, length, text)
        for what, at_length in FIT_LENGTHS.items():
            if at_length == length:
                yield {"what": f"fit {what}", "length": length}, partial(fitted, what, length)


def tokens(length: int, text: int) -> torch.Tensor:
    """Return the tokens of a text, (1, length)."""
    return torch.tensor([parts.window(inputs.smollm2(), text, length)])


def gradient(length: int, text: int) -> Fields:
    """Return the loss and ∂L/∂log t of each head."""
    found = read(inputs.smollm2().module, tokens(length, text), own_loss)
    layers = list(dict.fromkeys(part.place.layer for part in found.parts))
    return {"loss": found.loss, "gradient": short(by_head(found, layers))}


def shifted(length: int, text: int, shift: float) -> Fields:
    """Return the loss and its slope with all logits times e^shift."""

    def log_factor(place: Place, keys: FloatArray) -> FloatArray:
        return np.full((place.heads, 1), shift)

    found = read(inputs.smollm2().module, tokens(length, text), own_loss, log_factor)
    slope = sum(float(part.gradient.sum()) for part in found.parts)
    return {"loss": found.loss, "slope": slope}


def needle(kind: str, length: int, text: int) -> Fields:
    """Return the sums of each head's rows with a target."""
    if kind == "repeat":
        [ids] = repeated_tokens(49152, length, 1, seed=text)
    else:
        ids = tokens(length, text)
    found = needles(inputs.smollm2().module, [ids], kind)
    names = ("rows", "weight", "gap", "slope", "reach", "derivatives")
    return {name: short(getattr(found, name)[0]) for name in names}


def fitted(what: str, length: int) -> Fields:
    """Return a fit to the texts with even numbers, judged on the others."""
    texts = [tokens(length, text) for text in range(TEXTS)]
    model = inputs.smollm2().module
    if what == "head":
        fit = fit_scales(model, texts[0::2], texts[1::2], per="head")
    else:
        fit = fit_scales(model, texts[0::2], texts[1::2], law="log")
    return {
        "fit": json.loads(fit.to_json()),
        "before": fit.before.tolist(),
        "after": fit.after.tolist(),
    }


def finished(path: Path = OUT) -> list[Fields]:
    """Return the pieces that a record has; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def main(
    text: Annotated[Path | None, typer.Option(help="A copy of tiny-shakespeare.")] = None,
    longest: Annotated[int, typer.Option(help="Tokens of the longest texts.")] = LENGTHS[-1],
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
    out: Annotated[Path, typer.Option(help="The record.")] = OUT,
) -> None:
    """Measure what is missing in the record."""
    torch.set_num_threads(threads)
    if text is not None:
        inputs.COPY[data.SHAKESPEARE] = text
    done = finished(out)
    if out.exists():  # a line that was cut off goes
        whole = "".join(json.dumps(one) + "\n" for one in done)
        part = out.with_suffix(".part")
        part.write_text(whole, "utf-8")
        part.replace(out)
    known = [one["at"] for one in done]
    todo = [(at, compute) for at, compute in pieces(longest) if at not in known]
    for at, compute in tqdm(todo):
        line = json.dumps({"at": at, **compute()}) + "\n"
        with out.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    typer.run(main)

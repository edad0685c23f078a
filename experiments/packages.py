"""Record the errors of attnlib in public packages of PyTorch other than transformers.

They are installed, at the versions of packages.toml, into a folder of their own that is deleted at
the end. Each model is small, with random weights, in double precision but for what its code rounds.
`rescale` is compared with the package's own code at another scale, `scale_gradient` with a
difference of the losses of that, `probe` with the weights of attention that a hook sees.
"""

import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from attnlib.probing import probe
from experiments.lab.comparison import SUPERSCRIPTS
from experiments.records import Record, compute_missing

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PACKAGES: dict[str, str] = TABLE["packages"]
"""Their versions by name."""

FACTOR, STEP = 1.5, 0.01
TOLERANCE = 1e-4
"""The largest relative error: some softmaxes are in float32, where differences of losses have
fewer digits."""


class Case(NamedTuple):
    """A model, its input, the module that attends, and the scale there."""

    model: nn.Module
    inputs: tuple[Any, ...]
    attends: nn.Module
    scale: str | list[Tensor]  # an attribute, or weights and biases that make the queries
    weights: str = ""  # its method that returns the weights, where they go through no dropout


def _first_module(model: nn.Module, class_name: str) -> Any:
    """Return the first module of a class."""
    return next(part for part in model.modules() if type(part).__name__ == class_name)


def x_transformers() -> Case:
    """Return a decoder with rotary positions."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=50, max_seq_len=24, attn_layers=layers)
    part = _first_module(model, "Attend")
    part.scale = 8**-0.5
    return Case(model, (torch.randint(50, (2, 12)),), part, "scale")


def vit_pytorch() -> Case:
    """Return a vision transformer."""
    from vit_pytorch import ViT

    model = ViT(
        image_size=16, patch_size=4, num_classes=5, dim=32, depth=2, heads=4, mlp_dim=32, dim_head=8
    )
    part = _first_module(model, "Attention")
    return Case(model, (torch.randn(2, 3, 16, 16),), part, "scale")


def timm() -> Case:
    """Return a vision transformer with a norm of queries, not fused."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(16, 4, embed_dim=32, depth=2, num_heads=4, qk_norm=True)
    for block in model.blocks:
        block.attn.fused_attn = False
    part = model.blocks[0].attn
    return Case(model, (torch.randn(2, 3, 16, 16),), part, "scale")


def timm_swin() -> Case:
    """Return a Swin transformer: shifted windows, a bias by position."""
    from timm.models.swin_transformer import SwinTransformer

    model = SwinTransformer(
        img_size=16, patch_size=2, embed_dim=16, depths=(2,), num_heads=(2,), window_size=4
    )
    for block in model.layers[0].blocks:
        block.attn.fused_attn = False
    part = model.layers[0].blocks[1].attn
    return Case(model, (torch.randn(2, 3, 16, 16),), part, "scale")


def torchvision() -> Case:
    """Return a Swin transformer whose scale stands in a function."""
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([2, 2], 16, [2], [2], [4, 4], stochastic_depth_prob=0.0)
    part = model.features[1][1].attn
    queries = [part.qkv.weight[:16], part.qkv.bias[:16]]
    return Case(model, (torch.randn(2, 3, 16, 16),), part, queries)


def diffusers() -> Case:
    """Return cross attention of the processor that writes it out."""
    from diffusers.models.attention_processor import Attention, AttnProcessor

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Attention(32, 24, heads=4, dim_head=8, processor=AttnProcessor())

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return self.attn(x, encoder_hidden_states=y)

    model = Block()
    return Case(
        model,
        (torch.randn(2, 9, 32), torch.randn(2, 7, 24)),
        model.attn,
        "scale",
        "get_attention_scores",
    )


def fair_esm() -> Case:
    """Return ESM-2, with rotary positions."""
    from esm.model.esm2 import ESM2

    model = ESM2(num_layers=2, embed_dim=32, attention_heads=4)
    part = model.layers[0].self_attn
    return Case(model, (torch.randint(4, 24, (2, 12)),), part, "scaling")


def open_clip() -> Case:
    """Return the text encoder of CLIP."""
    from open_clip.transformer import TextTransformer

    model = TextTransformer(
        context_length=12, vocab_size=50, width=32, heads=4, layers=2, output_dim=16
    )
    part = model.transformer.resblocks[0].attn
    queries = [part.in_proj_weight[:32], part.in_proj_bias[:32]]
    return Case(model, (torch.randint(50, (2, 12)),), part, queries)


def perceiver() -> Case:
    """Return a Perceiver: latent queries of an array."""
    from perceiver_pytorch import PerceiverIO

    model = PerceiverIO(
        dim=16, queries_dim=16, depth=1, num_latents=6, latent_dim=16, latent_heads=2,
        latent_dim_head=8, cross_heads=2, cross_dim_head=8, logits_dim=5,
    )  # fmt: skip
    part = _first_module(model, "Attention")
    return Case(model, (torch.randn(2, 9, 16),), part, "scale")


def local_attention() -> Case:
    """Return a transformer with attention in windows."""
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=50, dim=32, depth=2, heads=4, dim_head=8, max_seq_len=32,
        local_attn_window_size=8, causal=True,
    )  # fmt: skip
    part = _first_module(model, "LocalAttention")
    part.scale = 8**-0.5
    return Case(model, (torch.randint(50, (2, 16)),), part, "scale")


CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "decoder": ("x-transformers", x_transformers),
    "ViT": ("vit-pytorch", vit_pytorch),
    "ViT, not fused": ("timm", timm),
    "Swin, not fused": ("timm", timm_swin),
    "Swin": ("torchvision", torchvision),
    "AttnProcessor": ("diffusers", diffusers),
    "ESM-2": ("fair-esm", fair_esm),
    "CLIP, text": ("open_clip_torch", open_clip),
    "Perceiver IO": ("perceiver-pytorch", perceiver),
    "windows": ("local-attention", local_attention),
}


@contextmanager
def scale_scores(case: Case, t: float) -> Iterator[None]:
    """Multiply the scores of the module that attends by t, in the package's own code."""
    if isinstance(case.scale, str):
        before = getattr(case.attends, case.scale)
        setattr(case.attends, case.scale, before * t)
        yield
        setattr(case.attends, case.scale, before)
    else:
        with torch.no_grad():
            kept = [tensor.clone() for tensor in case.scale]
            for tensor in case.scale:
                tensor.mul_(t)
            yield
            for tensor, values in zip(case.scale, kept, strict=True):
                tensor.copy_(values)


def output_loss(model: nn.Module, inputs: Any) -> Tensor:
    """Return the mean sine of a model's output, a loss."""
    output = model(*inputs)
    if isinstance(output, dict):
        output = output["logits"]
    mean: Tensor = output.sin().mean()
    return mean


@contextmanager
def record_weights(case: Case) -> Iterator[list[Tensor]]:
    """Yield a list that gets the weights of the module that attends.

    They are the input of its dropout, or the result of its method `Case.weights`.
    """
    part: Any = case.attends
    kept: list[Tensor] = []
    inside: list[bool] = []

    def dropped(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if inside:
            kept.append(x.detach())
        return dropout(x, *args, **kwargs)

    def returned(*args: Any) -> Any:
        kept.append(method(*args).detach())
        return kept[-1]

    dropout, method = functional.dropout, getattr(part, case.weights or "forward")
    with (
        part.register_forward_pre_hook(lambda *_: inside.append(True)),
        part.register_forward_hook(lambda *_: inside.clear()),
        mock.patch.object(functional, "dropout", dropped),
        mock.patch.object(part, case.weights or "_", returned, create=True),
    ):
        yield kept


def probe_error(case: Case) -> float | None:
    """Return the largest relative error of the heads' collision probabilities; None in a kernel."""
    with torch.no_grad(), record_weights(case) as kept:
        case.model(*case.inputs)
    if not kept:
        return None
    with torch.no_grad(), probe(case.model) as report:
        case.model(*case.inputs)
    table = report.table()
    name = module_name(case)
    lines = [i for i, layer in enumerate(table["layer"]) if layer == name]
    probed_heads = np.asarray(table["collision_probability"])[lines]
    heads_inside = -1, len(probed_heads), *kept[0].shape[-2:]
    weights = kept[0].reshape(heads_inside)
    rows = (weights > 0.0).sum(-1) >= 2
    squares = torch.where(rows, weights.square().sum(-1), 0.0)
    expected = (squares.sum((0, 2)) / rows.sum((0, 2))).numpy()
    return float(np.abs(probed_heads - expected).max() / expected.max())


def module_name(case: Case) -> str:
    """Return the name of the module that attends."""
    names: dict[nn.Module, str] = {part: name for name, part in case.model.named_modules()}
    return names[case.attends]


def rescale_error(case: Case) -> float:
    """Return the error of a loss under `rescale`, over the change of the loss."""
    with torch.no_grad():
        own = output_loss(case.model, case.inputs)
        with scale_scores(case, FACTOR):
            expected = output_loss(case.model, case.inputs)
        with rescale(factor=FACTOR, layers=[module_name(case)]):
            rescaled_loss = output_loss(case.model, case.inputs)
    return float(abs(rescaled_loss - expected) / abs(expected - own))


def gradient_error(case: Case) -> float:
    """Return the relative error of ∂L/∂log t of the module, against differences of losses."""
    gradient = scale_gradient(case.model, [case.inputs], output_loss)
    slope = np.nansum(gradient.value[gradient.layers.index(module_name(case))])
    with torch.no_grad():
        values = []
        for step in (-2.0, -1.0, 1.0, 2.0):
            with scale_scores(case, math.exp(step * STEP)):
                values.append(float(output_loss(case.model, case.inputs)))
    expected = float(np.dot(values, [1.0, -8.0, 8.0, -1.0])) / (12.0 * STEP)
    return float(abs(slope - expected) / abs(expected))


TOOLS = {"probe": probe_error, "rescale": rescale_error, "scale_gradient": gradient_error}


def run_tools(name: str) -> dict[str, Any]:
    """Return each tool's error in a case, or its message where it refuses."""
    by_tool: dict[str, Any] = {}
    for tool, check in TOOLS.items():
        torch.manual_seed(0)
        try:
            by_tool[tool] = check(CASES[name][1]())
        except (RuntimeError, ValueError) as error:
            by_tool[tool] = str(error)
    return by_tool


def declare_operators() -> None:
    """Declare operators of torchvision's compiled part, which is built for another torch.

    None of the models calls them, but its import registers shapes for them.
    """
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


def table_lines(record: Record) -> Iterator[str]:
    """Yield the lines of a table of the record, in Markdown."""
    yield f"| package | model | {' | '.join(f'`{tool}`' for tool in TOOLS)} |\n"
    yield f"|---|---|{'---|' * len(TOOLS)}\n"
    for entry in record.entries:
        package = f"{entry.key['package']} {PACKAGES[entry.key['package']]}"
        marks = [cell_text(entry.result[tool]) for tool in TOOLS]
        yield f"| {package} | {entry.key['model']} | {' | '.join(marks)} |\n"


def cell_text(answer: float | str | None) -> str:
    """Return the text of a cell of the table."""
    if answer is None:
        return "–"
    if isinstance(answer, str):
        return answer
    digit, power = f"{answer:.0e}".split("e")
    error = f"{digit}·10{str(int(power)).translate(SUPERSCRIPTS)}" if answer else "0"
    return f"{'✓' if answer < TOLERANCE else '✗'}\u00a0{error}"


def main() -> None:
    """Install the packages, compute the entries that the record lacks, and delete them."""
    torch.set_default_dtype(torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        pins = [f"{name}=={version}" for name, version in PACKAGES.items()]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
        subprocess.run([*command, *pins, *TABLE["imported"]], check=True)
        sys.path.append(folder)
        declare_operators()
        work = (
            ({"package": CASES[name][0], "model": name}, partial(run_tools, name)) for name in CASES
        )
        settings = {"packages": PACKAGES, "factor": FACTOR, "step": STEP}
        compute_missing("packages", work, settings, "torch")


if __name__ == "__main__":
    main()

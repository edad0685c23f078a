"""The variants of the Transformer: what they compute, at the start and against one another."""

import math
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnlib import annealed, exact, typical
from attnlib.scores import Cosine, DotProduct
from experiments.lab.model import Config, Transformer, written_out

SMALL = Config(width=16, head_size=8, depth=2, sequence=12)
VARIANTS = {
    "baseline": {},
    "exact": {"post_scale": "exact"},
    "number": {"post_scale": 3.0, "residual_weight": "inverse", "projection_gain": "constant"},
    "exact encoder": {"causal": False, "post_scale": "exact"},
    "cosine": {"cosine": True, "alpha": 5.0, "post_scale": "exact"},
    "typical": {"alpha": "typical", "post_scale": "exact"},
    "annealed cosine": {"cosine": True, "alpha": "annealed", "causal": False},
    "policy": {"policy": "ssmax", "post_scale": "exact"},
    "policy of cosines": {"cosine": True, "policy": "adacos"},
    "source 002": {"initialisation": "pytorch", "input_norm": True},
    "learned cosine": {"learned_scale": True, "cosine": True, "alpha": 2.0},
    "skip": {"skip_weight": 3.0, "residual_weight": 0.5, "weighted_bias": True},
    "both branches": {"skip_weight": 3.0, "hidden_weight": 0.25, "post_scale": "constant"},
    "half rotary": {"positions": "rotary", "rotary_share": 0.5},
    "preceding": {"positions": "preceding", "law": "log"},
    "a law": {"law": "root_log", "positions": "none"},
    "a learned law": {"law": "log", "learned_scale": True, "causal": False},
    "a law of its own": {"law": "own", "cosine": True, "alpha": 3.0},
}
POLICY = {
    "ssmax": lambda n: 0.168 * math.log(n) / math.sqrt(8),
    "adacos": lambda n: math.sqrt(2) * math.log(max(n, 2) - 1),
}


def variant(name):
    return replace(SMALL, **VARIANTS[name])


def tokens(config):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, config.sequence), generator=generator)


@cache
def best_alpha(word, law):
    if word == "annealed":
        return annealed.best_alpha(law, 12)
    return typical.best_alpha(law, 12, rows=100_000).value


def scale(config, n):
    """Return what multiplies q·k, or the cosine, where a query of SMALL's size sees n keys."""
    if config.policy:
        return POLICY[config.policy](n)
    alpha = config.alpha
    if isinstance(alpha, str):
        alpha = best_alpha(alpha, Cosine(8) if config.cosine else DotProduct(8))
    return alpha if config.cosine else alpha / math.sqrt(8)


def output_scale(config, n):
    """Return c where a query of SMALL's size sees n keys."""
    if config.post_scale == "exact":
        law, unit = (Cosine(8), 1.0) if config.cosine else (DotProduct(8), math.sqrt(8))
        return float(exact.post_scale(law, unit * scale(config, n), n))
    factors = {"none": 1.0, "constant": math.sqrt(12 / math.e)}
    return factors.get(config.post_scale, config.post_scale)


def law(config, a, b, n):
    """Return what multiplies the logits of a head that has learned a and b."""
    growth = math.log(n) / math.log(12)
    return {
        "none": a,
        "root_log": math.sqrt(growth) * a,
        "log": growth * a,
        "own": a + b * growth,
    }[config.law]


def turned(x, share):
    """Return x with the plane of entries i and i + size/2 turned by the position, as a number."""
    half = x.shape[1] // 2
    speed = 10000.0 ** (-np.arange(half) / half) * (np.arange(half) < share * half)
    angle = np.outer(np.arange(len(x)), speed)
    plane = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate([plane.real, plane.imag], axis=1)


def row_by_row(model):
    """Return logits of the first row and branch ratios, by NumPy one position at a time."""
    config = model.config
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return unit * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0.0)

    ids = tokens(config)[0].numpy()
    x = weights["token.weight"][ids] + weights.get("position.weight", 0.0)
    for back in range(1, 4) if config.positions == "preceding" else ():
        before = np.concatenate([np.zeros(back, dtype=int), ids[:-back]])
        x = x + weights["preceding.weight"][256 * (back - 1) + before]
    if config.input_norm:
        x = norm("input_norm", x)
    ratios = []
    n, d, width = config.sequence, config.head_size, config.width
    for number in range(config.depth):
        block = f"blocks.{number}"
        inner = linear(f"{block}.attention.input", norm(f"{block}.attention_norm", x))
        z = np.zeros((n, width))
        for head in range(width // d):
            q, k, v = (inner[:, part * width + head * d :][:, :d] for part in range(3))
            if config.positions == "rotary":
                q, k = turned(q, config.rotary_share), turned(k, config.rotary_share)
            if config.cosine:
                q, k = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (q, k))
            a = weights.get(f"{block}.attention.scale", np.ones(config.heads))[head]
            b = weights.get(f"{block}.attention.slope", np.zeros(config.heads))[head]
            for i in range(n):
                seen = i + 1 if config.causal else n
                s = law(config, a, b, seen) * scale(config, seen) * k[:seen] @ q[i]
                p = np.exp(s - s.max())
                c = output_scale(config, seen)
                z[i, head * d : (head + 1) * d] = c * p @ v[:seen] / p.sum()
        weighted = z @ weights[f"{block}.attention.output.weight"].T
        bias = weights.get(f"{block}.attention.output.bias", 0.0)
        r, skip = config.factor(config.residual_weight), config.factor(config.skip_weight) * x
        branch = r * weighted + (r * bias if config.weighted_bias else bias)
        ratios.append(np.sqrt((branch**2).mean() / (skip**2).mean()))
        x = skip + branch
        hidden = linear(f"{block}.hidden", norm(f"{block}.hidden_norm", x))
        erf = np.vectorize(math.erf)(hidden / math.sqrt(2.0))
        hidden = linear(f"{block}.output", hidden * (1.0 + erf) / 2.0)
        x = x + config.factor(config.hidden_weight) * hidden
    return linear("output", norm("norm", x)), ratios


QUICK = ("baseline", "exact", "learned cosine", "half rotary", "a law of its own")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in VARIANTS],
)
def test_a_model_is_what_numpy_computes_position_by_position(name):
    config = variant(name)
    model = Transformer(config, 0, torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains too, which start as 0 and 1
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        logits = model(tokens(config)[:1], ratios := [])[0].numpy()
    expected, of_branches = row_by_row(model)
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ratios, of_branches, rtol=1e-9)
    names = [name for name, _ in model.named_parameters()]
    assert ("position.weight" in names) == (config.positions == "learned")
    learned = 2 if config.law == "own" else int(config.learned_scale)
    assert [[gain.shape for gain in block] for block in model.gains()] == [[(2,)] * learned] * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 20}, "width must be a multiple of head_size=8, got width=20"),
        ({"policy": "yarm"}, "policy must be a name in .*policy='yarm'; similar names: yarn"),
        ({"policy": "mup", "alpha": 2.0}, "policy and alpha both .* policy='mup' and alpha=2.0"),
        ({"law": "log", "policy": "ssmax"}, "got law='log', sequence=12 and policy='ssmax'"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(SMALL, **fields)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_written_out_stands_in_for_the_kernel(causal):
    model = Transformer(Config(width=16, depth=1, head_size=8, sequence=6, causal=causal), 0)
    tokens = torch.arange(6)[None]
    fused = model(tokens)
    with mock.patch.object(functional, "scaled_dot_product_attention", written_out):
        torch.testing.assert_close(model(tokens), fused)

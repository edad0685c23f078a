"""The variants of the Transformer: what they compute, at the start and against one another."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from attnlib import annealed, exact, typical
from attnlib.attention import rescale
from attnlib.scores import Cosine, DotProduct
from experiments.lab.model import Config, Transformer, loss, rotated

SMALL = Config(width=16, head_size=8, depth=2, sequence=12)
VARIANTS = {
    "baseline": {},
    "constant": {"post_scale": "constant"},
    "exact": {"post_scale": "exact"},
    "number": {"post_scale": 3.0, "residual_weight": "inverse", "projection_gain": "constant"},
    "no biases": {"biases": False},
    "encoder": {"causal": False},
    "exact encoder": {"causal": False, "post_scale": "exact"},
    "cosine": {"cosine": True, "alpha": 5.0, "post_scale": "exact"},
    "annealed": {"alpha": "annealed"},
    "typical": {"alpha": "typical", "post_scale": "exact"},
    "annealed cosine": {"cosine": True, "alpha": "annealed", "causal": False},
    "policy": {"policy": "ssmax", "post_scale": "exact"},
    "policy of an encoder": {"policy": "ssmax", "causal": False},
    "policy of cosines": {"cosine": True, "policy": "adacos"},
    "source 002": {"initialisation": "pytorch", "input_norm": True},
}
POLICY = {
    "ssmax": lambda n: 0.168 * math.log(n) / math.sqrt(8),
    "adacos": lambda n: math.sqrt(2) * math.log(max(n, 2) - 1),
}


def variant(name):
    return replace(SMALL, **VARIANTS[name])


def tokens(config, rows=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, config.sequence), generator=generator)


def gradients(config, inputs, targets, dtype=torch.float32, seed=0):
    model = Transformer(config, seed, dtype)
    value = loss(model(inputs), targets)
    value.backward()
    return value, {name: p.grad for name, p in model.named_parameters()}


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


def row_by_row(model):
    """Return the logits of the first row of tokens, computed with NumPy one position at a time."""
    config = model.config
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return unit * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0.0)

    ids = tokens(config)[0].numpy()
    x = weights["token.weight"][ids] + weights["position.weight"]
    if config.input_norm:
        x = norm("input_norm", x)
    n, d, width = config.sequence, config.head_size, config.width
    for number in range(config.depth):
        block = f"blocks.{number}"
        inner = linear(f"{block}.attention.input", norm(f"{block}.attention_norm", x))
        z = np.zeros((n, width))
        for head in range(width // d):
            q, k, v = (inner[:, part * width + head * d :][:, :d] for part in range(3))
            if config.cosine:
                q, k = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (q, k))
            for i in range(n):
                seen = i + 1 if config.causal else n
                s = scale(config, seen) * k[:seen] @ q[i]
                p = np.exp(s - s.max())
                c = output_scale(config, seen)
                z[i, head * d : (head + 1) * d] = c * p @ v[:seen] / p.sum()
        weighted = z @ weights[f"{block}.attention.output.weight"].T
        bias = weights.get(f"{block}.attention.output.bias", 0.0)
        x = x + config.factor(config.residual_weight) * weighted + bias
        hidden = linear(f"{block}.hidden", norm(f"{block}.hidden_norm", x))
        erf = np.vectorize(math.erf)(hidden / math.sqrt(2.0))
        x = x + linear(f"{block}.output", hidden * (1.0 + erf) / 2.0)
    return linear("output", norm("norm", x))


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *((name, "fused") for name in VARIANTS),
        ("baseline", "written_out"),
        ("encoder", "written_out"),
        ("policy", "written_out"),
        ("cosine", "written_out"),
    ],
)
def test_a_model_is_what_numpy_computes_position_by_position(name, attention):
    config = replace(variant(name), attention=attention)
    model = Transformer(config, 0, torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains too, which start as 0 and 1
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        found = model(tokens(config))[0].numpy()
    np.testing.assert_allclose(found, row_by_row(model), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("factor", "dtype", "biases"), [(0.25, torch.float32, True), (8.0, torch.float64, False)]
)
def test_r_times_c_of_one_is_the_baseline_to_the_last_bit(factor, dtype, biases):
    baseline = replace(SMALL, biases=biases)
    weighted = replace(baseline, post_scale=factor, residual_weight=1.0 / factor)
    inputs, targets = tokens(SMALL), tokens(SMALL, seed=1)
    value, of_baseline = gradients(baseline, inputs, targets, dtype)
    other, of_weighted = gradients(weighted, inputs, targets, dtype)
    assert value == other
    for name, gradient in of_baseline.items():
        assert torch.equal(gradient, of_weighted[name]), name


def test_variants_start_from_the_same_numbers():
    start = dict(Transformer(SMALL, seed=3).named_parameters())
    for name in ("constant", "exact", "cosine", "no biases", "policy"):
        for key, parameter in Transformer(variant(name), seed=3).named_parameters():
            assert torch.equal(parameter, start[key]), key
    source = dict(Transformer(variant("source 002"), seed=3).named_parameters())
    for key, parameter in Transformer(
        replace(variant("source 002"), biases=False), seed=3
    ).named_parameters():
        assert torch.equal(parameter, source[key]), key
    gained = dict(Transformer(replace(SMALL, projection_gain=0.25), seed=3).named_parameters())
    for key, parameter in gained.items():
        gain = 0.25 if key.endswith("attention.output.weight") else 1.0
        assert torch.equal(parameter, gain * start[key]), key
    other = dict(Transformer(SMALL, seed=4).named_parameters())
    assert not torch.equal(other["token.weight"], start["token.weight"])


@pytest.mark.parametrize("initialisation", ["unit", "pytorch"])
def test_initial_numbers_have_the_laws_that_the_docstring_states(initialisation):
    config = Config(width=128, depth=1, sequence=128, initialisation=initialisation)
    unit = initialisation == "unit"
    for name, parameter in Transformer(config).named_parameters():
        values = parameter.detach().numpy().ravel()
        inputs = 512 if name.endswith("0.output.weight") else 128
        if name in ("token.weight", "position.weight"):
            law = stats.norm(scale=math.sqrt(0.5) if unit else 1.0)
        elif parameter.ndim == 2:
            bound = 1.0 / math.sqrt(inputs)
            law = stats.norm(scale=bound) if unit else stats.uniform(-bound, 2.0 * bound)
        elif unit or "norm" in name:
            assert (values == (0.0 if name.endswith("bias") else 1.0)).all(), name
            continue
        else:
            bound = 1.0 / math.sqrt(512 if name.endswith("0.output.bias") else 128)
            law = stats.uniform(-bound, 2.0 * bound)
        assert stats.kstest(values, law.cdf).pvalue > 1e-4, name


def test_branch_ratios_are_those_of_the_tensors():
    model = Transformer(replace(SMALL, depth=1))
    inputs, ratios = tokens(SMALL), []
    model(inputs, ratios)
    x = model.token(inputs) + model.position.weight
    branch = model.blocks[0].attention(model.blocks[0].attention_norm(x))
    expected = branch.square().mean().sqrt() / x.square().mean().sqrt()
    torch.testing.assert_close(ratios[0], expected)


def test_the_skip_is_multiplied_where_the_branch_is_added():
    config = replace(SMALL, depth=1, skip_weight=3.0)
    model, inputs, ratios = Transformer(config), tokens(SMALL), []
    output = model(inputs, ratios)
    block = model.blocks[0]
    x = model.token(inputs) + model.position.weight
    branch = block.attention(block.attention_norm(x))
    y = 3.0 * x + branch
    hidden = block.output(torch.nn.functional.gelu(block.hidden(block.hidden_norm(y))))
    torch.testing.assert_close(output, model.output(model.norm(y + hidden)))
    expected = branch.square().mean().sqrt() / (3.0 * x).square().mean().sqrt()
    torch.testing.assert_close(ratios[0], expected)


def test_a_learned_scale_is_one_at_the_start_and_multiplies_the_logits():
    config = replace(SMALL, learned_scale=True)
    plain, learned, inputs = Transformer(SMALL), Transformer(config), tokens(SMALL)
    torch.testing.assert_close(learned(inputs), plain(inputs), rtol=0.0, atol=0.0)
    for block in learned.blocks:
        assert block.attention.scale.shape == (config.heads,)
        block.attention.scale.data.fill_(1.7)
    other = Transformer(replace(SMALL, alpha=1.7))
    torch.testing.assert_close(learned(inputs), other(inputs))
    learned(inputs).square().sum().backward()
    assert all((block.attention.scale.grad != 0.0).all() for block in learned.blocks)


def test_a_gain_on_cosines_multiplies_them():
    config = replace(SMALL, cosine=True, alpha=2.0)
    plain, learned = Transformer(config), Transformer(replace(config, learned_scale=True))
    inputs = tokens(SMALL)
    torch.testing.assert_close(learned(inputs), plain(inputs))
    for block in learned.blocks:
        block.attention.scale.data.fill_(1.7)
    torch.testing.assert_close(learned(inputs), Transformer(replace(config, alpha=3.4))(inputs))
    with rescale(factor=2.0):
        doubled = learned(inputs)
    torch.testing.assert_close(doubled, Transformer(replace(config, alpha=6.8))(inputs))
    learned(inputs).square().sum().backward()
    assert all((block.attention.scale.grad != 0.0).all() for block in learned.blocks)


def test_rotary_positions_are_relative_and_turn_each_plane_at_its_speed():
    q, k = torch.randn(2, 1, 1, 8, dtype=torch.float64)
    scores = rotated(q.expand(1, 20, 8)) @ rotated(k.expand(1, 20, 8)).mT
    for offset in range(-19, 20):
        diagonal = scores[0].diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    by_hand = torch.view_as_complex(torch.stack([q[0, 0, :4], q[0, 0, 4:]], -1).contiguous())
    turned = by_hand * torch.exp(7j * 10000.0 ** (-torch.arange(4) / 4.0))
    found = rotated(q.expand(1, 20, 8))[0, 7]
    torch.testing.assert_close(torch.complex(found[:4], found[4:]), turned.to(torch.complex128))


@pytest.mark.parametrize("positions", ["rotary", "none"])
def test_without_learned_positions_any_length_is_read(positions):
    model = Transformer(replace(SMALL, positions=positions))
    longer = torch.cat([tokens(SMALL), tokens(SMALL, seed=1)], dim=1)
    torch.testing.assert_close(model(longer)[:, :12], model(longer[:, :12]))
    assert "position.weight" not in dict(model.named_parameters())
    if positions == "none":  # the last position sees a set
        first = replace(SMALL, positions=positions, depth=1)
        swapped = longer[:, [1, 0, *range(2, 24)]]
        one = Transformer(first)
        torch.testing.assert_close(one(longer)[:, 2:], one(swapped)[:, 2:])


def test_a_fitted_policy_has_the_length_of_the_windows():
    fitted = replace(SMALL, policy="qwen", fit_policy=True, positions="none")
    plain = replace(SMALL, positions="none")
    inputs = torch.cat([tokens(SMALL), tokens(SMALL, seed=1)], dim=1)
    ours, theirs = Transformer(fitted)(inputs), Transformer(plain)(inputs)
    torch.testing.assert_close(ours[:, :12], theirs[:, :12])
    assert not torch.allclose(ours[:, 13:], theirs[:, 13:])


def test_a_shorter_input_is_the_beginning_of_a_longer_one():
    for name in ("baseline", "exact", "policy"):
        model, whole = Transformer(variant(name)), tokens(SMALL)
        torch.testing.assert_close(model(whole[:, :5]), model(whole)[:, :5])
    with pytest.raises(ValueError, match=r"tokens must be at most sequence=12 long, got 13"):
        Transformer(SMALL)(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"width": 20}, "width must be a multiple of head_size=8, got width=20"),
        ({"depth": True}, "depth must be an integer"),
        ({"causal": 1}, "causal must be true or false, got causal=1"),
        ({"alpha": 1e5}, "alpha must be at most 10000, got alpha=100000"),
        ({"alpha": "high"}, "alpha must be one of 'annealed', 'typical', got alpha='high'"),
        ({"policy": "yarm"}, "policy must be a name in .*policy='yarm'; similar names: yarn"),
        ({"policy": "ngpt"}, "multiplies cosines, not q·k: pass cosine=True with it"),
        ({"policy": "mup", "alpha": 2.0}, "policy and alpha both .* policy='mup' and alpha=2.0"),
        ({"post_scale": "exakt"}, "post_scale must be one of 'none', 'constant', 'exact'"),
        ({"skip_weight": 0.0}, "skip_weight must be a finite number above 0, got skip_weight=0"),
        ({"positions": "rotary", "width": 15, "head_size": 5}, "head_size must be even for rotary"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(told, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(SMALL, **told)


def test_without_biases_there_are_none():
    model = Transformer(Config(width=64, depth=1, biases=False))
    assert [name for name, _ in model.named_parameters() if name.endswith("bias")] == []

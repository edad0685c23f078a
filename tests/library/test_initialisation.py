"""What real layers start with, against fresh layers and simulated tokens."""

import numpy as np
import pytest
import torch
from torch import nn

from attnlib import exact, initialisation, rows
from attnlib.scores import DotProduct, Normal


@pytest.mark.parametrize(("alpha", "n", "width"), [(1.0, 512, 32), (2.0, 256, 16)])
def test_the_output_of_self_attention_has_a_floor(alpha, n, width):
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(300):
        tokens = rng.normal(size=(n, width))
        weights = rows.softmax(alpha * tokens[:, 0])
        squares.append(np.square(weights @ tokens).sum() / width)
    predicted = initialisation.self_attention_variance(alpha, n, width)
    error = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(float(predicted), abs=3.0 * error + 0.02 * predicted)
    independent = exact.collision_probability(Normal(), alpha, n)
    assert np.mean(squares) > independent + 3.0 * error


def test_rotary_positions_take_a_part_of_what_keys_and_values_share():
    rng, alpha, n, width, d, base = np.random.default_rng(1), 1.5, 256, 64, 16, 100.0
    turns = np.exp(1j * np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d))
    squares = []
    for _ in range(400):
        tokens = rng.normal(size=(n, width))
        keys = (tokens @ rng.normal(size=(width, d)) / width**0.5).view(complex) * turns
        query = rng.normal(size=d).view(complex)
        weights = rows.softmax(alpha / d**0.5 * (keys * query.conj()).real.sum(axis=1))
        squares.append(np.square(weights @ tokens).sum() / width)
    predicted = float(initialisation.self_attention_variance(alpha, n, width, d, rotary=base))
    unturned = float(initialisation.self_attention_variance(alpha, n, width, d))
    error = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(predicted, abs=3.0 * error + 0.04 * predicted)
    assert unturned > np.mean(squares) + 3.0 * error
    kept = np.square(np.abs(turns.mean(axis=0))).mean()
    along = exact.mean_score(DotProduct(d), alpha, n) ** 2 / width
    assert unturned - predicted == pytest.approx(float((1.0 - kept) * along))


@pytest.mark.parametrize(("d", "base"), [(None, 1e4), (15, 1e4), (16, 1.0)])
def test_rotary_positions_want_a_base_and_an_even_dimension(d, base):
    with pytest.raises(ValueError, match="rotary must be"):
        initialisation.self_attention_variance(1.0, 8, 8, d, rotary=base)


@pytest.mark.parametrize(
    ("initialiser", "layer"),
    [
        ("linear", lambda w: [nn.Linear(w, w, bias=False).weight for _ in range(2)]),
        ("packed", lambda w: nn.MultiheadAttention(w, 4).in_proj_weight[: 2 * w].chunk(2)),
        ("xavier", lambda w: [nn.init.xavier_uniform_(torch.empty(w, w)) for _ in range(2)]),
        ("normal", lambda w: [nn.init.normal_(torch.empty(w, w), std=0.02) for _ in range(2)]),
    ],
)
def test_alpha_at_the_start_is_that_of_fresh_layers(initialiser, layer):
    width, heads, found = 256, 4, []
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(20):
            q, k = (torch.randn(200, width) @ weight.T for weight in layer(width))
            q, k = (x.view(200, heads, -1).transpose(0, 1) for x in (q, k))
            logits = q @ k.mT / (width / heads) ** 0.5
            found.append(float(logits.std()))
    error = np.std(found) / np.sqrt(len(found))
    predicted = initialisation.alpha_at_start(width, initialiser)
    assert np.mean(found) == pytest.approx(predicted, abs=3.0 * error + 0.01 * predicted)

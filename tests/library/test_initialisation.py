"""What real layers start with, against fresh layers and simulated tokens."""

import numpy as np
import pytest
import torch
from torch import nn

from attnlib import exact, initialisation, rows
from attnlib.scores import Normal


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
    width, heads, alphas = 256, 4, []
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(20):
            q, k = (torch.randn(200, width) @ weight.T for weight in layer(width))
            q, k = (x.view(200, heads, -1).transpose(0, 1) for x in (q, k))
            logits = q @ k.mT / (width / heads) ** 0.5
            alphas.append(float(logits.std()))
    error = np.std(alphas) / np.sqrt(len(alphas))
    predicted = initialisation.alpha_at_start(width, initialiser)
    assert np.mean(alphas) == pytest.approx(predicted, abs=3.0 * error + 0.01 * predicted)

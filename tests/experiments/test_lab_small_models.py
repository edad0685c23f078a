"""Small models against derivatives by hand and by PyTorch."""

import math

import numpy as np
import pytest
import torch

from experiments.lab import small_models


@pytest.mark.parametrize("normaliser", ["softmax", "power"])
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_heads_side_by_side_are_trained_as_pytorch_trains_each(normaliser, optimiser):
    task, rates, alphas, steps = small_models.retrieval(2), (0.1, 1.0), ([1.3], [4.0]), 30
    features, values, wanted, first = map(torch.from_numpy, task)
    name = "descent" if optimiser is torch.optim.SGD else "adam"
    options = {"normaliser": normaliser, "optimiser": name, "steps": steps}
    losses = small_models.train_retrieval(2, rates, alpha=alphas, size=0.7, **options)
    assert losses.shape == (steps + 1, 2, 2)
    for (i, j), last in np.ndenumerate(losses[-1]):
        weights = (0.7 * first).requires_grad_()
        step = optimiser([weights], lr=rates[j])
        for _ in range(steps + 1):
            scores = alphas[i][0] * (features @ weights)
            powers = scores**6
            p = scores.softmax(-1)
            if normaliser == "power":
                p = powers / (1e-6 + powers.sum(-1, keepdim=True))
            loss = ((p * values).sum(-1) - wanted).square().mean()
            [gradient] = torch.autograd.grad(loss, weights)
            mantissa, power = torch.frexp(gradient)
            weights.grad = torch.ldexp((mantissa * 1024.0).round() / 1024.0, power)
            step.step()
        assert last == pytest.approx(loss.item(), rel=1e-9)


def layer(h, matrices, path, gain, normalised):
    query, key, value, out = matrices
    d = h.shape[-1]
    centred = h - h.mean(dim=1, keepdim=True)
    u = centred / (centred**2).mean(dim=1, keepdim=True).sqrt() if normalised else h
    p = torch.softmax((u @ query) @ (u @ key).T / math.sqrt(d), dim=1)
    branch = gain * p @ (u.detach() if path == "scores" else u) @ value @ out
    skip = {"residual": h, "no residual": 0.0 * h, "scores": h.detach()}[path]
    return skip + branch


@pytest.mark.parametrize("path", ["residual", "no residual", "scores"])
@pytest.mark.parametrize("which", [{}, {"gain": 0.7, "normalised": False}])
def test_gradients_through_a_stack_are_those_of_pytorch(path, which):
    n, d, depth = 4, 6, 5
    norms = small_models.stack_gradients(7, path, depth=depth, n=n, d=d, **which)
    rest = (path, which.get("gain", 1.0), which.get("normalised", True))
    rng = np.random.default_rng(7)
    v = torch.from_numpy(rng.standard_normal((n, d)))
    h = torch.from_numpy(rng.standard_normal((n, d)))
    direction = v
    for value in norms:
        matrices = torch.from_numpy(rng.standard_normal((4, d, d)) / math.sqrt(d))
        whole = torch.autograd.functional.jacobian(lambda x, m=matrices: layer(x, m, *rest), h)
        direction = torch.einsum("ijkl,kl->ij", whole, direction)
        h = layer(h, matrices, *rest)
        assert value == pytest.approx((direction.norm() / v.norm()).item(), rel=1e-9)

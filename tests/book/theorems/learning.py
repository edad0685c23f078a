"""Checks of the chapter on how a head learns its scale: flows of small matrices, step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from scipy.special import softmax

from tests.book.formulas import Place
from tests.book.theorems.registry import tied

INPUT, KEYS = np.array([0.7, -1.2]), np.array([[1.0, 0.3], [-0.4, 0.8], [0.2, -1.5]])
QUERY = np.array([[0.5, -0.3], [0.9, 0.4], [-0.6, 0.2]])
KEY = np.array([[0.2, 0.7], [-0.5, 0.1], [0.3, -0.8]])
Loss = Callable[..., float]


def loss(query: np.ndarray, key: np.ndarray, log_t: float = 0.0) -> float:
    return loss_of_products(np.exp(log_t) * (KEYS @ key.T) @ (query @ INPUT))


def loss_of_products(products: np.ndarray) -> float:
    """Return −log P of the first of three keys, whose logits a cap and a bias change."""
    return -float(np.log(softmax(np.tanh(products) + np.array([0.1, 0.0, -0.4]))[0]))


def gradients(of: Loss, *matrices: np.ndarray) -> list[np.ndarray]:
    """Return the gradient for each matrix by differences."""
    slopes = []
    for at, matrix in enumerate(matrices):
        gradient = np.zeros_like(matrix)
        for place in np.ndindex(matrix.shape):
            step = np.zeros_like(matrix)
            step[place] = 1e-5
            up, down = ([*matrices[:at], matrix + s, *matrices[at + 1 :]] for s in (step, -step))
            gradient[place] = (of(*up) - of(*down)) / 2e-5
        slopes.append(gradient)
    return slopes


def square(matrix: np.ndarray) -> float:
    return float((matrix**2).sum())


SLOPE = (loss(QUERY, KEY, 1e-5) - loss(QUERY, KEY, -1e-5)) / 2e-5


@tied("thm-learn-size")
def sizes_follow(at: Place) -> None:
    rises, step = [], 1e-4
    for matrix, gradient in zip((QUERY, KEY), gradients(loss, QUERY, KEY), strict=True):
        rises.append((square(matrix - step * gradient) - square(matrix + step * gradient)) / 2e-4)
    names = {
        r"\frac{d}{d\tau}\lVert W_q\rVert^2": "x",
        r"\frac{\partial\mathcal L}{\partial\log t}": "y",
        r"\frac{d}{d\tau}\lVert W_k\rVert^2": "z",
    }
    at.display().holds(names, x=rises[0], y=SLOPE, z=rises[1], relative=1e-7)


@tied("prop-learn-direction")
def direction_first(at: Place) -> None:
    """Follow the linear flow of two matrices that begin at a right angle, of one norm."""
    size, n, d, cosine = 6, 9, 25, 0.4
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, size, size))
    key -= (key * query).sum() / square(query) * query
    key *= np.sqrt(square(query) / square(key))
    gamma = float(at.formula(r"\gamma =").value(varrho=cosine, n=n, d=d))
    # The pull at uniform weights: the needle less the mean of all keys, along the query, over √d.
    pull = (cosine - cosine / n) / 5.0

    def flow(_: float, both: np.ndarray) -> np.ndarray:
        return pull * np.roll(both.reshape(2, -1), 1, axis=0).ravel()

    start, tau = np.stack([query, key]).ravel(), 9.0
    end = solve_ivp(flow, (0.0, tau), start, rtol=1e-11, atol=1e-12).y[:, -1]
    q, k = end.reshape(2, -1)
    length = float(np.linalg.norm(q) * np.linalg.norm(k))
    names = {r"\cos\phi": "x", r"\lVert W_q\rVert\,\lVert W_k\rVert": "y", r", \qquad ": r"\\ "}
    known: dict[str, Any] = {"x": float(q @ k) / length, "y": length, "S_0": square(query)}
    at.display().holds(names, gamma=gamma, tau=tau, relative=1e-7, **known)
    sine = float(np.sqrt(1.0 - (float(q @ k) / length) ** 2))
    bound = at.formula(r"\lVert W_q\rVert\,\lVert W_k\rVert = S_0/\sin\phi")
    named = {r"\lVert W_q\rVert\,\lVert W_k\rVert": "y", r"\sin\phi": "z"}
    bound.holds(named, y=length, z=sine, S_0=square(query), relative=1e-6)


@tied("prop-learn-decay")
def at_rest(at: Place) -> None:
    decay = 0.03
    rng = np.random.default_rng(1)
    first = np.concatenate([QUERY.ravel(), KEY.ravel()]) + rng.standard_normal(12)

    def whole(both: np.ndarray) -> float:
        query, key = both.reshape(2, 3, 2)
        return loss(query, key) + decay / 2 * (square(query) + square(key))

    minimum = minimize(whole, first, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}).x
    query, key = minimum.reshape(2, 3, 2)
    assert square(query) > 0.1
    slope = (loss(query, key, 1e-4) - loss(query, key, -1e-4)) / 2e-4
    names = {
        r"\frac{\partial\mathcal L}{\partial\log t}": "x",
        r"\lVert W_q\rVert": "y",
        r"\lVert W_k\rVert": "z",
    }
    sizes = {"y": square(query) ** 0.5, "z": square(key) ** 0.5}
    at.display().holds(names, x=slope, relative=1e-3, **sizes, **{r"\lambda": decay})

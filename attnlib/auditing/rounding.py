"""Ask how many binary digits of keys, values, logits and weights count."""

import math

import numpy as np
import torch
from torch import Tensor

from attnlib._checking import FloatArray
from attnlib.auditing.response import (
    Subject,
    equal_keys,
    keys_of_product,
    log_odds,
    log_spaced,
)


@np.errstate(divide="ignore", invalid="ignore")
def digits_of_keys(subject: Subject, length: int) -> float | None:
    """Measure how many binary digits of keys and weights count; None where that is not visible.

    Keys of one length have components from 1 to 2 along the query, in one order and in the other.
    A polynomial follows their logits through a cap, a sigmoid or another kernel; what it leaves,
    alike in both orders, is rounding.
    """
    q, k = equal_keys(subject, length, length)
    q, k, keys = torch.zeros_like(q), torch.zeros_like(k), torch.arange(length)
    equal = subject.weights(q, k, keys)[:, -1]
    seen = torch.from_numpy((equal > 0.0).all(axis=0))
    if seen.sum() < 8:
        return None
    components = log_spaced(int(seen.sum())).to(subject.dtype).double()

    def logits(order: Tensor) -> FloatArray:
        k[:, seen, 0], k[:, seen, 2] = order, (4.25 - order**2).sqrt()
        weights = subject.weights(q, k.to(subject.dtype).double(), keys)[:, -1]
        return np.asarray(np.log(weights / equal)[:, seen.numpy()].T)

    for gain in 2.0 ** np.arange(-6.0, 10.0):
        q[..., 0] = gain
        rising, falling = logits(components), logits(components.flip(0))[::-1]
        if not np.isfinite([rising, falling]).all():
            return None
        if np.ptp(rising, axis=0).min() > 1.0:
            break
    else:
        return None
    x = components.numpy()
    powers = np.vander(x - 1.5, 6)
    residual, residual_falling = (
        y - powers @ np.linalg.lstsq(powers, y, rcond=None)[0] for y in (rising, falling)
    )
    differs = np.abs(residual - residual_falling).max()
    if differs > 0.5 * np.abs(residual).max() > 16.0 * subject.eps:
        return None  # it depends on the place
    error = np.abs(residual).max(axis=-1) / (np.ptp(rising, axis=0).max() / np.ptp(x) * x)
    return float(-np.log2(max(error.max(), 2.0**-53)))


def digits_of_values(subject: Subject, unit: float, length: int) -> float | None:
    """Measure how many binary digits of values count; None where weights are not finite.

    One key has most of the weight, and values differ from key to key. Weights, measured with
    values of 0 and 1, give the output that exact values would have, up to a factor.
    """
    x = 8.0 / (unit * math.sqrt(subject.size.dimension))
    q, k, _ = keys_of_product(subject, length, length, torch.tensor([length - 1]), x)
    weights = subject.weights(q, k, torch.arange(length))[:, -1]
    components = log_spaced(subject.value_size).to(subject.dtype).double()
    v = torch.stack([components.roll(key) for key in range(length)])
    output = subject.output(q, k, v.expand(subject.size.key_heads, -1, -1))[:, -1]
    factors = output / (weights @ v.numpy())
    if not np.isfinite(factors).all():
        return None
    error = np.abs(factors / factors.mean(axis=-1, keepdims=True) - 1.0).max()
    return float(-np.log2(max(error, 2.0**-53)))


def digits_of_logits(
    subject: Subject, unit: float, length: int, *, separate: bool
) -> tuple[float, bool]:
    """Measure how logits up to 1000 are rounded, from two keys whose logits differ by little.

    Returns how many binary digits of a logit are not rounded away, and whether weights are finite.
    A cubic in their product follows any scale and the bend of a cap; what it leaves is rounding.
    `separate` is for keys that are kept in few digits, as in `keys_of_product`.
    """
    d, worst, finite = subject.size.dimension, 0.0, True
    last = torch.tensor([length - 1])
    for logit in (100.0, 300.0, 1000.0):
        shift = logit / (unit * math.sqrt(d))
        odds, products = [], []
        for difference in np.linspace(-1.2, 1.2, 9):  # of the two logits
            x = difference / (abs(unit) * math.sqrt(d))
            q, k, _ = keys_of_product(
                subject, length, length, last, x, shift=shift, separate=separate
            )
            odds.append(log_odds(subject, q, k, last, last).ravel())
            product = k[0] @ q[0, 0]  # q·k, also where the scale is that of a cosine
            products.append(float(product[-1] - product[0]))
            if not np.isfinite(odds[-1]).all():  # weights of 0 are none of its faults
                total = subject.weights(q, k, torch.zeros(length, dtype=torch.long))
                finite = finite and bool(np.isfinite(total).all())
        answers, powers = np.array(odds), np.vander(np.array(products) * unit, 4)
        if np.isfinite(answers).all() and np.isfinite(powers).all():
            fit = np.linalg.lstsq(powers, answers, rcond=None)[0]
            worst = max(worst, float(np.abs(answers - powers @ fit).max()) / logit)
    return -math.log2(max(worst, 2.0**-53)), finite


def smallest_weight(subject: Subject, unit: float, length: int) -> float:
    """Measure the weight of a key whose logit is 20 below the others', the least of all heads."""
    x = -20.0 / (unit * math.sqrt(subject.size.dimension))
    q, k, _ = keys_of_product(subject, length, length, torch.tensor([length - 1]), x)
    groups = (torch.arange(length) == length - 1).long()
    return float(subject.weights(q, k, groups)[:, -1, 1].min())

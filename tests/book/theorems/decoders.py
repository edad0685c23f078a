"""Checks of rules in use and of trained models: policies, training, probe, typical.

What the page says of a model is compared with the laboratory's model, PyTorch's Adam and the probe.
"""

import math
from functools import cache

import numpy as np
import torch

from attnlib import freezing
from attnlib.policies import POLICIES
from attnlib.probing.measure import Call, measure
from experiments.lab.model import Attention, Config
from tests.book.formulas import Place
from tests.book.theorems.exact import gradient
from tests.book.theorems.freezing import MANY
from tests.book.theorems.numbers import itself
from tests.book.theorems.registry import UNTESTABLE, tied

UNTESTABLE["def-policies-alpha"] = "a definition: tests/library/test_policies.py simulates it"


@tied("prop-policies-alpha")
def alpha_of_rules(at: Place) -> None:
    dot, of_cosine = at.formula(r"\alpha = \sigma\sqrt d"), at.formula(r"\alpha = \sigma/\sqrt d")
    for policy in POLICIES.values():
        stated = of_cosine if policy.applied_to == "cosine" else dot
        alpha, sigma = float(policy.alpha(100, 64)), float(policy.scale(100, 64))
        stated.holds(d=64, alpha=alpha, sigma=sigma)


@tied("prop-policies-log")
def log_length_rules(at: Place) -> None:
    def factor(name: str, **constants: float) -> float:
        return 8 * float(POLICIES[name].with_constants(**constants).scale(n, 64))

    n, L, s = 50000.0, 4096.0, 0.3  # noqa: N806 - as the page has it
    first, second = at.beginning(r"\log_L n", 2)
    for rule in ("longrope", "qwen"):
        assert np.isclose(first.value(n=n, L=L), factor(rule, train_length=L))
    reference = float(at.formula("L = 512").value())
    assert np.isclose(first.value(n=n, L=reference), factor("entropy_invariance"))
    length = float(at.formula(r"L = e^{1/s}").value(s=s))
    assert np.isclose(second.value(n=n, L=length), factor("ssmax", s=s))


@tied("prop-policies-infoscale")
def infoscale(at: Place) -> None:
    n, L, d = 5e4, 4096.0, 1e4  # noqa: N806 - as the page has it
    policy = POLICIES["infoscale"].with_constants(train_length=L)
    stated = at.display().value(n=n, L=L, d=d)
    assert np.isclose(stated, policy.scale(n, d) * math.sqrt(d), rtol=1e-6)


@tied("def-probe-alpha")
def shown_of_a_row(at: Place) -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0, 0.7, -0.2]], dtype=torch.float64)
    n = logits.numel()
    # One query of dimension 1, so that the keys are the logits.
    query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key = logits.reshape(1, 1, n, 1)
    measured = measure(Call(query, key, key, scale=1.0), None)
    squares = float(((logits - logits.mean()) ** 2).sum())
    assert np.isclose(measured.rows.variance.item(), squares / float(at.same("n - 1").value(n=n)))
    assert np.isclose(at.same(r"\sqrt{2\log n}").value(n=n), freezing.critical_alpha(n))


def branch(c: float, r: float):
    """Return the laboratory's attention branch with c and r."""
    d, n = 4, 5
    size = {"width": d, "head_size": d, "sequence": n, "causal": False}
    attention = Attention(Config(**size, post_scale=c, residual_weight=r)).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        return attention(torch.randn(1, n, d, generator=generator, dtype=torch.float64))[0]


@cache
def adam_steps(factor: float, start: tuple[float, ...], rate: float, epsilon: float):
    """Return W after each of three steps for a small loss of W c z."""
    z = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    target = torch.tensor([0.1, 0.4, -0.3], dtype=torch.float64)
    weights = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=rate, eps=epsilon)
    steps = [np.array(start)]
    for _ in range(3):
        adam.zero_grad()
        ((weights * factor * z - target) ** 2).sum().backward()
        adam.step()
        steps.append(weights.detach().numpy().copy())
    return steps


@tied("prop-training-start-rate")
@tied("prop-undivided-start-rate")
def factor_is_a_start_and_a_rate(at: Place) -> None:
    """Compare two runs of Adam, of a matrix behind a factor and of one that starts times it."""
    factor, matrix = ("c", "W") if "training" in at.label else (r"\alpha ", "W_q")
    times, rate, epsilon = 3.0, 0.01, 0.05
    start = (0.2, -0.4, 0.7)
    letters = {factor.strip(): times, matrix: np.array(start), "eta": rate, "varepsilon": epsilon}
    first = adam_steps(times, start, rate, epsilon)
    second = adam_steps(
        1.0,
        tuple(at.same(factor + matrix).value(**letters).tolist()),
        float(at.same(factor + r"\eta").value(**letters)),
        float(at.same(r"\varepsilon/" + factor.strip()).value(**letters)),
    )
    for w, w2 in zip(first, second, strict=True):
        np.testing.assert_allclose(times * w, w2, rtol=1e-10)


@tied("prop-training-residual")
def residual_weight(at: Place) -> None:
    c, r = 3.0, 1 / 3.0
    at.formula(r"r\,c = 1").holds(r=r, c=c)
    torch.testing.assert_close(branch(c, r), branch(1.0, 1.0), rtol=0.0, atol=1e-12)


@tied("prop-training-weight")
def only_a_weight(at: Place) -> None:
    x = torch.tensor([0.5, -1.0, 2.0, 0.3])
    for c in (0.4, 3.0):
        at.formula("c > 0").holds(c=c)
        normed = [torch.nn.functional.layer_norm(t * x, x.shape, eps=0.0) for t in (1.0, c)]
        torch.testing.assert_close(*normed)


@tied("prop-typical-limit")
def geometric_mean_in_the_limit(at: Place) -> None:
    below = 0.4  # where g is nearly α in all rows, so that its logarithm is that of its mean
    critical = float(freezing.critical_alpha(MANY))
    mean = at.formula(r"\operatorname{E}\log(g/\sqrt{2\log n})")
    log_mean = mean.value(E=itself, g=gradient(below * critical, MANY), n=MANY)
    assert np.isclose(log_mean, at.same(r"\log x").value(x=below), atol=1e-6)
    above = at.formula(r"\log x + \operatorname{E}\log(1 - Y)")
    arrivals = np.random.default_rng(0).exponential(size=(4000, 400)).cumsum(axis=1)
    for x, low in ((1.05, -0.05), (3.0, -5.0)):
        rest = arrivals[:, -1] ** (1 - x) / (x - 1)  # the mean of all later ones
        powers = arrivals**-x
        y = (powers**2).sum(axis=1) / (powers.sum(axis=1) + rest) ** 2
        assert low < above.value(x=x, Y=y, E=np.mean) < 0.0

"""Checks of rules in use and of trained models: policies, training, probe, typical.

What the page says of a model is compared with the laboratory's model, PyTorch's Adam and the probe.
"""

import math
from functools import cache

import numpy as np
import torch
from scipy.integrate import quad
from scipy.special import gammaln

from attnlib import freezing, rows
from attnlib.policies import POLICIES
from attnlib.probing.measure import Call, measure
from experiments.lab.model import Attention, Config
from tests.book.formulas import Place
from tests.book.theorems.exact import gradient
from tests.book.theorems.freezing import MANY
from tests.book.theorems.numbers import COIN, cosine, independent, itself, variance
from tests.book.theorems.registry import tied


@tied("def-policies-alpha")
def effective_alpha(at: Place) -> None:
    assert at.formula(r"q\cdot k")
    d = 4
    entries, mean = independent(*[COIN] * (2 * d))
    dot = sum(a * b for a, b in zip(entries[:d], entries[d:], strict=True))
    (s,), over_cosines = independent(cosine(d))
    for policy in POLICIES.values():
        sigma, alpha = float(policy.scale(100, d)), float(policy.alpha(100, d))
        if policy.applied_to == "cosine":
            assert np.isclose(math.sqrt(variance(over_cosines)(sigma * s)), alpha)
        else:
            assert np.isclose(math.sqrt(variance(mean)(sigma * dot)), alpha)


@tied("prop-policies-alpha")
def alpha_of_rules(at: Place) -> None:
    dot, of_cosine = at.formula(r"\alpha = \sigma\sqrt d"), at.formula(r"\alpha = \sigma/\sqrt d")
    d = 64
    for policy in POLICIES.values():
        stated = of_cosine if policy.applied_to == "cosine" else dot
        known = {r"\alpha": float(policy.alpha(100, d)), r"\sigma": float(policy.scale(100, d))}
        stated.holds(d=d, **known)
    (s,), mean = independent(cosine(7))
    at.formula(r"\operatorname{E}\cos^2 =").holds(
        {r"\operatorname{E}\cos^2": "v"}, v=mean(s * s), d=7
    )
    entries, mean = independent(*[COIN] * 6)
    dots = sum(a * b for a, b in zip(entries[:3], entries[3:], strict=True))
    at.formula(r"\operatorname{Var}(q\cdot k) =").holds(
        {r"q\cdot k": "x"}, x=dots, Var=variance(mean), d=3
    )


@cache
def factor(name: str, n: float, **constants: float) -> float:
    policy = POLICIES[name].with_constants(**constants)
    return float(policy.scale(n, 64)) * 8


@tied("prop-policies-log")
def log_length_rules(at: Place) -> None:
    n, L = 50000.0, 4096.0  # noqa: N806 - as the page has it
    [first, _] = at.beginning(r"\log_L n", 2)
    for rule in ("longrope", "qwen"):
        assert np.isclose(first.value(n=n, L=L), factor(rule, n, train_length=L))
    reference = float(at.formula("L = 512").value({"L =": ""}))
    assert np.isclose(first.value(n=n, L=reference), factor("entropy_invariance", n))
    s = 0.3
    [_, second] = at.beginning(r"\log_L n", 2)
    length = float(at.formula(r"L = e^{1/s}").value({"L =": ""}, s=s))
    assert np.isclose(second.value(n=n, L=length), factor("ssmax", n, s=s))
    known = {"n": n, "L": L, "x": n / L, "s": s}
    at.formula("x = n/L").holds(**known)
    at.formula(r"(\log L + \log x)/\log L").holds(**known)
    at.formula(r"s\log n =").holds(**known)
    root = at.formula(r"\sqrt{1 + \log x/\log L}").value(**known)
    assert np.isclose(root**2, factor("longrope", n, train_length=L))


@tied("prop-policies-infoscale")
def infoscale(at: Place) -> None:
    n, L, d = 5e4, 4096.0, 1e4  # noqa: N806 - as the page has it
    policy = POLICIES["infoscale"].with_constants(train_length=L)
    stated = at.display().value(n=n, L=L, d=d)
    assert np.isclose(stated, policy.scale(n, d) * math.sqrt(d), rtol=1e-6)
    x = float(at.formula(r"x = \frac2d\log n").value({"x =": ""}, d=d, n=n))
    series = at.formula(r"1 - n^{-2/d} =")
    series.holds(relative=1e-6, n=n, d=d, x=x)
    left, right = series.values(n=n, d=d, x=x)[0]
    assert abs(left - right) < x**3
    square = at.formula(r"1 - \frac1d(\log n - \log L)").value(n=n, L=L, d=d)
    assert np.isclose(square, (stated / math.sqrt(math.log(n) / math.log(L))) ** 2, rtol=1e-6)


@tied("def-probe-alpha")
def shown_of_a_row(at: Place) -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0, 0.7, -0.2]], dtype=torch.float64)
    n = logits.numel()
    # One query of dimension 1, so that the keys are the logits.
    query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key = logits.reshape(1, 1, n, 1)
    found = measure(Call(query, key, key, scale=1.0), None)
    centred = logits - logits.mean()
    degrees = float(at.same("n - 1").value(n=n))
    assert np.isclose(found.rows.variance.item(), float((centred**2).sum()) / degrees)
    wide = at.same(r"\sqrt{2\log n}").value(n=n)
    assert np.isclose(wide, freezing.critical_alpha(n))


class Weights:
    """A matrix of weights: what stands behind it is averaged."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __mul__(self, values):
        return self.matrix @ values

    def __rmul__(self, one):
        assert one == 1.0
        return self


@cache
def branch(c: float = 1.7, r: float = 0.6):
    """Return the laboratory's attention branch with c and r, and the letters of its parts."""
    d, n = 4, 5
    size = {"width": d, "head_size": d, "sequence": n, "causal": False}
    attention = Attention(Config(**size, post_scale=c, residual_weight=r)).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        x = torch.randn(1, n, d, generator=generator, dtype=torch.float64)
        q, k, v = attention.input(x)[0].unflatten(-1, (3, d)).permute(1, 0, 2).numpy()
        output = attention(x)[0].numpy()
        weight, b = attention.output.weight.numpy(), attention.output.bias.numpy()
    assert np.abs(b).min() > 0.01
    letters = {"b": b, "r": r, "c": c, "d": d, "W": lambda z: z @ weight.T, "v": v}
    return output, {**letters, "S": q @ k.T, "softmax": lambda s: Weights(rows.softmax(s))}


@tied("eq-training-branch")
def attention_branch(at: Place) -> None:
    output, letters = branch()
    display = at.display()
    of_scores = {r"q\cdot k": "S"}
    p = rows.softmax(letters["S"] / 2.0)
    z = p @ letters["v"]
    [[found], [left, right]] = display.values(of_scores, z=z, **letters)
    np.testing.assert_allclose(found, output, atol=1e-10)
    np.testing.assert_allclose(left, right, atol=1e-12)


@cache
def adam_steps(factor: float, start: tuple[float, ...], rate: float, epsilon: float):
    """Return W after each of three steps, and the first gradient, for a small loss of W c z."""
    z = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    target = torch.tensor([0.1, 0.4, -0.3], dtype=torch.float64)
    weights = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=rate, eps=epsilon)
    found, gradients = [np.array(start)], []
    for _ in range(3):
        adam.zero_grad()
        ((weights * factor * z - target) ** 2).sum().backward()
        gradients.append(weights.grad.numpy().copy())
        adam.step()
        found.append(weights.detach().numpy().copy())
    return found, gradients[0]


@tied("prop-training-start-rate")
def output_factor(at: Place) -> None:
    factor_is_a_start_and_a_rate(at, "c", "W")


@tied("prop-undivided-start-rate")
def scale_of_the_logits(at: Place) -> None:
    factor_is_a_start_and_a_rate(at, r"\alpha ", "W_q")
    letters = {r"\alpha": 3.0, "W_q": np.array([0.2, -0.4]), "b_q": np.array([0.3, 0.5])}
    at.formula(r"\alpha(W_qx + b_q) =").holds(**letters, x=2.0)


def factor_is_a_start_and_a_rate(at: Place, factor: str, matrix: str) -> None:
    """Compare two runs of Adam, of a matrix behind a factor and of one that starts times it."""
    times, rate, epsilon = 3.0, 0.01, 0.05
    start = (0.2, -0.4, 0.7)
    c = {factor.strip(): times}
    letters = {**c, matrix: np.array(start), r"\eta": rate, r"\varepsilon": epsilon}
    first, own = adam_steps(times, start, rate, epsilon)
    second, other = adam_steps(
        1.0,
        tuple(at.same(factor + matrix).value(**letters).tolist()),
        float(at.same(factor + r"\eta").value(**letters)),
        float(at.same(r"\varepsilon/" + factor.strip()).value(**letters)),
    )
    for w, w2 in zip(first, second, strict=True):
        np.testing.assert_allclose(times * w, w2, rtol=1e-10)
        for equal in at.beginning(f"W' = {factor}{matrix}", 2):
            equal.holds(**{**c, matrix: w, "W'": w2})
    # After one step both averages, corrected for their start, are the gradient and its square.
    moments = {"m": own, "v": own**2, "m'": other, "v'": other**2}
    letters |= {**moments, "x": second[1] - second[0], "y": first[1] - first[0]}
    at.display().holds({r"\Delta W'": "x", rf"\Delta {matrix}": "y"}, **letters)
    gradient_of = r"\partial\mathcal L/\partial "
    at.formula(f"{gradient_of}{matrix} =").holds(
        {f"{gradient_of}W'": "h", f"{gradient_of}{matrix}": "g"}, **c, g=own, h=other
    )
    at.formula(f"m = {factor}m'").holds(**letters)
    at.formula(f"v = {factor.strip()}^2v'").holds(**letters)


@tied("prop-training-residual")
def residual_weight(at: Place) -> None:
    c = 3.0
    r = 1 / c
    weight = np.array([[0.2, 1.0], [-0.7, 0.4]])
    z = np.array([0.5, -1.0])
    product = at.formula(r"r\,c = 1")
    product.holds(r=r, c=c)
    np.testing.assert_allclose(branch(c, r)[0], branch(1.0, 1.0)[0], atol=1e-12)
    # W is a matrix: it is applied in one place, and stands before z in the other.
    at.formula(r"r\,W(c\,z) =").holds(
        {"Wz": "x"}, r=0.8, c=c, z=z, W=lambda z: weight @ z, x=weight @ z
    )
    at.formula(r"r\,W(c\,z) =").holds(
        {"rc": "", "Wz": "x"}, r=r, c=c, z=z, W=lambda z: weight @ z, x=weight @ z
    )


@tied("prop-training-weight")
def only_a_weight(at: Place) -> None:
    x = np.array([0.5, -1.0, 2.0, 0.3])

    def norm(sum_):
        return torch.nn.functional.layer_norm(torch.tensor(sum_), x.shape, eps=0.0).numpy()

    for c in (0.4, 3.0):
        at.formula("c > 0").holds(c=c)
        at.same("cx")
        at.formula(r"\operatorname{norm}(cx) =").holds(c=c, x=x, norm=norm)


@tied("prop-typical-limit")
def geometric_mean_in_the_limit(at: Place) -> None:
    x = 1 + 1e-6
    m = 1 / x
    critical = float(freezing.critical_alpha(1e6))

    def square(k):  # E Σ p^{2k} in the limit law, of which E Y^k is made to first order in 1 − m
        return math.exp(gammaln(2 * k - m) - gammaln(2 * k) - gammaln(1 - m))

    first = at.formula(r"\operatorname{E}\sum_i p_i^{2k} =")
    for k in (1, 2, 3):
        only = {r"\operatorname{E}\sum_i p_i^{2k}": "P"}
        first.holds(only, rough=1e-5, relative=1e-8, P=square(k), m=m, k=k)
    logarithm = quad(lambda p: math.log1p(-p * p) / p**2, 0, 1)[0] * (1 - m)
    second = at.formula(r"\operatorname{E}\log(1 - Y) &=")
    second.holds(
        {r"\operatorname{E}\log(1 - Y)": "t", r"\operatorname{E}Y^k": "y_k"},
        relative=1e-3,
        rough=1e-3,
        t=logarithm,
        y=square,
        m=m,
        **{"k in": range(1, 1000)},
    )
    jensen = at.formula(r"\operatorname{E}\log(1 - Y) <")
    known = {"x": x, "Y": 1 - m, "E": itself, "t": logarithm}
    jensen.holds({r"\operatorname{E}\log(1 - Y)": "t"}, relative=1e-8, **known)
    row = rows.softmax(np.array([0.9, 0.5, -8.0]), 1.0)
    known = {"Y": row @ row, "p": [0.0, *row], r"\alpha": 1.0, r"\Delta": 0.4}
    y, gap = float(row @ row), math.log(row[0] / row[1])
    sides = {
        "1 - Y \\ge 1 - p_1": [1 - y, row[1] + row[2], 1 / (1 + math.exp(gap))],
        r"-\log(1 - Y) \le": [math.log(1 / (1 - y)), math.log(2) + gap],
    }
    for beginning, expected in sides.items():
        at.formula(beginning).holds(**known)
        assert np.allclose(at.formula(beginning).values(**known)[0], expected)
    slope = at.formula(r"1 - 2\log 2 < 0")
    slope.holds()
    fall, level = slope.values()[0]
    assert np.isclose(fall, 1 + logarithm / (x - 1), rtol=1e-5)
    assert level == 0.0
    below = 0.4  # where g is nearly α in all rows, so that its logarithm is that of its mean
    gradient_ = gradient(below * float(freezing.critical_alpha(MANY)), MANY)
    logarithm_of_g = at.formula(r"\operatorname{E}\log(g/\sqrt{2\log n})").value(
        E=itself, g=gradient_, n=MANY
    )
    assert np.isclose(logarithm_of_g, at.same(r"\log x").value(x=below), atol=1e-6)
    ratio = at.formula(r"x = \alpha/\sqrt{2\log n}")
    ratio.holds(x=0.7, n=1e6, **{r"\alpha": 0.7 * critical})
    at.formula(r"1 - m \approx").holds(rough=1e-5, m=m, x=x)


@tied("eq-typical-frobenius")
def frobenius(at: Place) -> None:
    alpha = 1.3
    p = rows.softmax(np.array([0.3, 0.0]), alpha)
    of_row = at.formula(r"\|J\|_F^2 =")
    norm = float(rows.frobenius_norm(np.array([0.3, 0.0]), alpha))
    of_row.holds({r"\|J\|_F": "N"}, N=norm, p=float(p[0]), **{r"\alpha": alpha})
    alpha = 300.0
    integral = quad(lambda gap: _square(gap, alpha), 0, 1, limit=300, points=[1 / alpha])[0]
    assert np.isclose(integral, at.same(r"\alpha/3").value(**{r"\alpha": alpha}), rtol=1e-6)
    # Two normal scores differ by N(0, 2): the density of their gap at 0 is 1/√π.
    mean = quad(lambda gap: _square(gap, alpha) * _density(gap), 0, 1, limit=300, points=[0.01])[0]
    at.display().holds(
        {r"\operatorname{E}\|J\|_F^2": "m"},
        rough=1e-3,
        m=mean,
        **{r"\rho": 1 / math.sqrt(math.pi), r"\alpha": alpha},
    )


def _square(gap: float, alpha: float) -> float:
    p = 1 / (1 + math.exp(-alpha * gap))
    return 4 * (alpha * p * (1 - p)) ** 2


def _density(gap: float) -> float:
    return math.exp(-gap * gap / 4) / math.sqrt(math.pi)

"""The exact expectations against mpmath, tensor quadrature from the definition, and simulation."""

from itertools import product

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gamma
from scipy.stats import chi

from attnlib import exact
from attnlib.scores import Cosine, DotProduct, Normal
from tests.book.theorems.numbers import cosine, independent, normal
from tests.library.test_bad_input import assert_refused

QUANTITIES = {
    "collision_probability": exact.collision_probability,
    "gradient": exact.gradient,
    "free_energy": exact.free_energy,
    "entropy": exact.entropy,
    "mean_score": exact.mean_score,
    "cube": lambda law, alpha, n: exact.moment(law, alpha, n, order=3.0),
}
LAWS = [Normal(), Cosine(3), Cosine(6), Cosine(128), DotProduct(2), DotProduct(64)]


def of_rows(s, alpha):
    """Return every quantity of each row from its definition; s has shape (n, …)."""
    p = np.exp(alpha * s)
    total = p.sum(axis=0)
    p = p / total
    square = (p**2).sum(axis=0)
    return {
        "collision_probability": square,
        "gradient": alpha * (1.0 - square),
        "free_energy": np.log(total),
        "entropy": -(p * np.log(p)).sum(axis=0),
        "mean_score": (p * s).sum(axis=0),
        "cube": (p**3).sum(axis=0),
    }


def query_lengths(d):
    """Return a Gauss-Legendre rule for |q|/√d."""
    length = chi(d, scale=1.0 / np.sqrt(d))
    x, w = panels(np.linspace(0.0, 1.0 + 9.0 / np.sqrt(d), 9))
    return x, w * length.pdf(x)


def tensor(law, alpha, n, count):
    """Return the expectations by a Gauss rule in each of the n scores."""
    if isinstance(law, DotProduct):
        lengths, weights = query_lengths(law.d)
        parts = [tensor(Normal(), alpha * r, n, count) for r in lengths]
        scaled = {"mean_score": lengths, "gradient": 1.0 / lengths}
        return {
            name: weights @ (np.array([part[name] for part in parts]) * scaled.get(name, 1.0))
            for name in QUANTITIES
        }
    one_score = normal(count) if isinstance(law, Normal) else cosine(law.d, count)
    scores, mean = independent(*[one_score] * n)
    return {name: mean(value) for name, value in of_rows(np.array(scores), alpha).items()}


@pytest.mark.parametrize(
    ("law", "n", "count"),
    [*((law, 2, 120) for law in LAWS), (Normal(), 3, 60), (Cosine(3), 3, 60)],
    ids=str,
)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_few_keys_against_a_tensor_of_gauss_rules(law, n, count, alpha):
    scale = alpha if not isinstance(law, Cosine) else alpha * np.sqrt(law.d)
    expected = tensor(law, scale, n, count)
    for name, function in QUANTITIES.items():
        assert function(law, scale, n) == pytest.approx(expected[name], rel=1e-10), name


GAUSS_POINTS, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(12)


def panels(edges):
    """Return points and weights of the Gauss-Legendre rule on each interval between `edges`."""
    half = np.diff(edges)[:, None] / 2.0
    middle = edges[:-1, None] + half
    return (middle + half * GAUSS_POINTS).ravel(), (half * GAUSS_WEIGHTS).ravel()


class TestLimits:
    @pytest.mark.parametrize("law", LAWS, ids=str)
    def test_one_key_is_certain(self, law):
        alpha = [0.0, 1.0, 50.0]
        assert (exact.collision_probability(law, alpha, 1) == 1.0).all()
        assert (exact.moment(law, alpha, 1, order=3.0) == 1.0).all()
        assert (exact.output_std(law, alpha, 1) == 1.0).all()
        assert (exact.post_scale(law, alpha, 1) == 1.0).all()
        for function in (exact.gradient, exact.free_energy, exact.entropy, exact.mean_score):
            assert (function(law, alpha, 1) == 0.0).all()
        assert exact.gradient_limit(law, 1) == 0.0

    @pytest.mark.parametrize("law", LAWS, ids=str)
    @pytest.mark.parametrize("n", [2, 10**6, 2**53])
    def test_at_zero_scale_all_keys_are_alike(self, law, n):
        assert exact.collision_probability(law, 0.0, n) == pytest.approx(1.0 / n, rel=1e-12)
        assert exact.moment(law, 0.0, n, order=2.5) == pytest.approx(float(n) ** -1.5, rel=1e-12)
        assert exact.moment(law, 0.0, n, order=16.0) == pytest.approx(float(n) ** -15, rel=1e-12)
        assert exact.free_energy(law, 0.0, n) == pytest.approx(np.log(n), rel=1e-14)
        assert exact.entropy(law, 0.0, n) == pytest.approx(np.log(n), rel=1e-13)
        assert exact.gradient(law, 0.0, n) == 0.0
        assert exact.mean_score(law, 0.0, n) == pytest.approx(0.0, abs=1e-15)
        assert exact.post_scale(law, 0.0, n) == pytest.approx(np.sqrt(n), rel=1e-12)

    @pytest.mark.parametrize("n", [2, 512, 10**12])
    def test_the_limit_for_normal_scores_is_the_mean_of_the_largest(self, n):
        with mp.workdps(30):
            cdf = lambda s: mp.ncdf(s)  # noqa: E731
            largest = mp.quad(
                lambda s: n * s * mp.npdf(s) * mp.exp((n - 1) * mp.log1p(-cdf(-s))),
                [-9, -3, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13],
            )
        assert exact.gradient_limit(Normal(), n) == pytest.approx(float(largest), rel=1e-11)

    @pytest.mark.parametrize(("d", "n"), [(4, 100), (128, 10**6)])
    def test_the_limit_for_cosines_is_where_the_gradient_ends(self, d, n):
        largest = exact.gradient(Cosine(d), 1e4, n)
        assert exact.gradient_limit(Cosine(d), n) == pytest.approx(float(largest), rel=1e-4)

    @pytest.mark.parametrize("d", [2, 64])
    def test_the_limit_at_finite_d_has_the_mean_inverse_length(self, d):
        mean_inverse = chi(d).expect(lambda x: np.sqrt(d) / x) if d > 2 else np.sqrt(np.pi)
        expected = exact.gradient_limit(Normal(), 50) * mean_inverse
        assert exact.gradient_limit(DotProduct(d), 50) == pytest.approx(expected, rel=1e-8)

    def test_in_one_dimension_there_is_no_limit(self):
        assert exact.gradient_limit(DotProduct(1), 2) == np.inf


@pytest.mark.parametrize(
    ("alpha", "n", "order"),
    [(1.5, 10**12, 16.0), (0.5, 10**12, 4.0), (3.0, 50, 16.0), (9.0, 10**12, 2.0)],
)
def test_moments_of_many_keys_and_those_that_rare_rows_make(alpha, n, order):
    """n/Γ(k) ∫ A_k φ^{n−1} du on grids, where no score and no row is left out."""
    s, ds = np.linspace(-12.0, 45.0, 4561, retstep=True)
    u, du = np.linspace(-8.0 * alpha, 45.0 * alpha + 30.0, 1501, retstep=True)
    x = alpha * s - u[:, None]
    e, weights = np.exp(np.minimum(x, 7.0)), ds * np.exp(-s * s / 2.0) / np.sqrt(2.0 * np.pi)
    kernel = np.exp(order * np.minimum(x, 7.0) - e) @ weights
    others = np.exp((n - 1.0) * np.log1p(-np.minimum(-np.expm1(-e) @ weights, 1.0 - 1e-16)))
    expected = n * du * float(kernel @ others) / gamma(order)
    assert exact.moment(Normal(), alpha, n, order) == pytest.approx(expected, rel=1e-10)


@given(law=st.sampled_from(LAWS), alpha=st.floats(0.0, 30.0), n=st.integers(2, 10**6))
@settings(max_examples=5)
def test_moments_and_outputs_agree_with_the_collision_probability(law, alpha, n):
    scale = alpha / np.sqrt(law.variance)
    collision = exact.collision_probability(law, scale, n)
    assert exact.moment(law, scale, n, order=2.0) == pytest.approx(collision, rel=1e-10)
    assert exact.moment(law, scale, n, order=1.0) == pytest.approx(1.0, rel=1e-10)
    assert exact.output_std(law, scale, n) ** 2 == pytest.approx(collision, rel=1e-12)
    assert exact.post_scale(law, scale, n) ** -2 == pytest.approx(collision, rel=1e-12)
    complement = exact.gradient(law, scale, n)
    assert complement == pytest.approx(scale * (1.0 - collision), abs=1e-10 * scale)


class TestBackward:
    def test_automatic_differentiation_agrees_under_a_causal_mask(self):
        d, n, alpha, heads = 16, 48, 1.5, 300
        torch.manual_seed(0)
        given_ = torch.randn(4, heads, n, d, dtype=torch.float64)
        q, k, v = (tensor.requires_grad_() for tensor in given_[:3])
        s = alpha / np.sqrt(d) * (q @ k.mT)
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        (torch.softmax(s, dim=-1) @ v).backward(given_[3])
        measured = np.stack([tensor.grad.square().mean(dim=(1, 2)) for tensor in (q, k, v)])
        error = measured.std(axis=1, ddof=1) / np.sqrt(heads)
        rows_of = np.square(exact.backward_std(d, alpha, np.arange(1, n + 1)))
        assert (np.abs(measured.mean(axis=1) - rows_of.mean(axis=1)) < 4.5 * error).all()

    def test_one_key_has_a_value_only(self):
        stds = exact.backward_std(8, [0.0, 1.0, 100.0], 1)
        np.testing.assert_array_equal(stds, [[0.0] * 3, [0.0] * 3, [1.0] * 3])

    @pytest.mark.parametrize("n", [2, 10**6])
    def test_small_scales_have_uniform_weights(self, n):
        # ‖I/n − 11ᵀ/n²‖_F² = (n − 1)/n², and |Jx|² has that mean, for E x² = 1.
        stds = exact.backward_std(32, 1e-6, n)
        expected = [1e-6 * np.sqrt(n - 1.0) / n] * 2 + [n**-0.5]
        np.testing.assert_allclose(stds, expected, rtol=1e-9)

    def test_a_scale_too_large_is_refused(self):
        assert_refused("alpha", "20000", exact.backward_std, 8, 2e4, 5)


class TestShapes:
    @pytest.mark.parametrize(
        ("law", "name"),
        [
            *product([Normal(), Cosine(128)], ["gradient", "mean_score", "cube"]),
            (DotProduct(2), "gradient"),
        ],
        ids=str,
    )
    def test_a_grid_is_its_points(self, law, name):
        # Enough values of α that dot products are interpolated, n = 1 among the keys.
        alpha = np.append(0.0, np.geomspace(0.01, 90.0, 49)) / np.sqrt(law.variance)
        n = np.array([1, 2, 5000])
        grid = QUANTITIES[name](law, alpha[:, None], n)
        assert grid.shape == (50, 3)
        for i, j in [(0, 1), (3, 0), (30, 1), (49, 2)]:
            point = QUANTITIES[name](law, alpha[i], n[j])
            assert grid[i, j] == pytest.approx(point, rel=1e-11, abs=1e-14)


def test_what_is_beyond_the_range_is_refused():
    for law in LAWS:
        too_large = 1.01e4 / np.sqrt(law.variance)
        assert_refused("alpha", f"{too_large:g}", exact.gradient, law, too_large, 5)

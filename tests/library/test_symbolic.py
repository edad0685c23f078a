"""The proofs: true where they should be, able to fail, and in agreement with the numbers."""

import numpy as np
import pytest
import sympy

from attnlib import policies, rows, scores, symbolic

PROOFS = [
    symbolic.product_mean(),
    symbolic.product_variance(),
    symbolic.product_variance_of_any_law(),
    *(symbolic.jacobian(n) for n in (1, 2, 3, 4)),
    *(symbolic.jacobian_row_sums(n) for n in (1, 2, 3, 4)),
    *(symbolic.l1_identity(n) for n in (1, 2, 3, 4)),
    symbolic.normal_mgf(),
    symbolic.annealed_stationarity(),
    symbolic.lambert_solution(),
    symbolic.cosine_moment(),
    *(symbolic.cosine_mgf(d) for d in (3, 5, 7)),
    symbolic.integration_by_parts_step(),
    *(symbolic.softmax_integration_by_parts(n) for n in (1, 2, 3)),
    *(symbolic.log_partition_slope(n) for n in (1, 2, 3)),
    *(symbolic.log_partition_curvature(n) for n in (1, 2, 3)),
    symbolic.log_partition_curvature_of_any_row(),
    symbolic.near_tie_gradient(),
    symbolic.near_tie_frobenius(),
    symbolic.expected_maximum_step(),
    symbolic.longrope_is_a_log_length(),
    symbolic.entropy_invariance(),
    *(symbolic.factors_on_both_sides(d) for d in (1, 2, 3)),
    *(symbolic.power_of_the_length(n) for n in (1, 2, 3)),
    *(symbolic.shift_changes_nothing(n) for n in (1, 2, 3)),
    symbolic.infoscale_in_many_dimensions(),
    symbolic.infoscale_first_correction(),
    symbolic.t5_initialisation(),
    symbolic.mup_against_the_root(),
    *(symbolic.normalised_dot_product(d) for d in (1, 2, 3)),
]


@pytest.mark.parametrize("proof", PROOFS)
def test_it_is_proved(proof):
    assert proof.proved


@pytest.mark.parametrize(
    "proof",
    [
        *(symbolic.product_variance(), symbolic.jacobian(3), symbolic.l1_identity(3)),
        *(symbolic.normal_mgf(), symbolic.annealed_stationarity(), symbolic.lambert_solution()),
        *(symbolic.cosine_moment(), symbolic.cosine_mgf(3), symbolic.cosine_mgf(7)),
        *(symbolic.integration_by_parts_step(), symbolic.softmax_integration_by_parts(3)),
        *(symbolic.log_partition_slope(3), symbolic.log_partition_curvature(3)),
        symbolic.log_partition_curvature_of_any_row(),
        *(symbolic.near_tie_gradient(), symbolic.near_tie_frobenius()),
        symbolic.expected_maximum_step(),
        *(symbolic.longrope_is_a_log_length(), symbolic.entropy_invariance()),
        *(symbolic.factors_on_both_sides(2), symbolic.power_of_the_length(2)),
        *(symbolic.shift_changes_nothing(2), symbolic.infoscale_in_many_dimensions()),
        *(symbolic.infoscale_first_correction(), symbolic.t5_initialisation()),
        *(symbolic.mup_against_the_root(), symbolic.normalised_dot_product(2)),
    ],
)
@pytest.mark.parametrize("factor", [sympy.Rational(6, 5), -1])
def test_a_falsified_identity_is_not_proved(proof, factor):
    assert not symbolic.Identity(proof.left, factor * proof.right).proved


def test_the_jacobian_agrees_with_the_numbers():
    s, _ = symbolic.softmax(3)
    values = dict(zip(s, (0.3, -1.2, 0.7), strict=True)) | {symbolic.ALPHA: 1.5}
    derivative = np.array(symbolic.jacobian(3).left.subs(values), dtype=np.float64)
    np.testing.assert_allclose(derivative, rows.jacobian([0.3, -1.2, 0.7], 1.5), rtol=1e-13)


def test_the_l1_norm_agrees_with_the_numbers():
    identity = symbolic.l1_identity(3)
    weights = sorted(identity.left.free_symbols - {symbolic.ALPHA}, key=str)
    s = np.array([0.3, -1.2, 0.7])
    values = dict(zip(weights, np.exp(1.5 * s), strict=True)) | {symbolic.ALPHA: 1.5}
    assert float(identity.left.subs(values)) == pytest.approx(rows.gradient(s, 1.5), rel=1e-13)


def test_the_moments_agree_with_the_numbers():
    parameters = (symbolic.MU_Q, symbolic.SIGMA_Q, symbolic.MU_K, symbolic.SIGMA_K)
    values = dict(zip(parameters, (0.5, 2.0, -1.5, 0.7), strict=True))
    moments = scores.product_moments(0.5, 4.0, -1.5, 0.49)
    assert float(symbolic.product_mean().left.subs(values)) == pytest.approx(moments.mean)
    assert float(symbolic.product_variance().left.subs(values)) == pytest.approx(moments.variance)


@pytest.mark.parametrize("d", [3, 5, 7])
def test_the_elementary_cosine_forms_agree_with_the_numbers(d):
    form = symbolic.cosine_mgf(d).right.subs(symbolic.ALPHA, 2.5)
    assert float(form) == pytest.approx(np.exp(scores.Cosine(d).log_mgf(2.5)), rel=1e-12)


@pytest.mark.parametrize("d", [4, 9, 3.5, "3"])
def test_other_dimensions_have_no_form_here(d):
    with pytest.raises(ValueError, match=f"d must be 3, 5 or 7, got d={d!r}"):
        symbolic.cosine_mgf(d)


def test_the_identity_shows_itself_as_a_formula():
    assert r"\alpha" in symbolic.l1_identity(2)._repr_latex_()


def test_the_mgf_of_a_cosine_is_elementary_for_odd_d_only():
    assert [d for d in range(3, 13) if symbolic.cosine_mgf_is_elementary(d)] == [3, 5, 7, 9, 11]


S = sympy.Symbol("s", real=True)


@pytest.mark.parametrize(
    "error",
    [
        lambda left, right: (left, right.subs(symbolic.ALPHA, 2 * symbolic.ALPHA)),
        lambda left, right: (left.subs(symbolic.ALPHA, symbolic.ALPHA + 1), right),
    ],
)
@pytest.mark.parametrize(
    "proof",
    [
        symbolic.softmax_integration_by_parts(2),
        symbolic.log_partition_slope(2),
        symbolic.log_partition_curvature(2),
        symbolic.near_tie_frobenius(),
    ],
)
def test_another_scale_on_one_side_is_not_proved(proof, error):
    assert not symbolic.Identity(*error(proof.left, proof.right)).proved


def test_the_step_needs_the_normal_density():
    """With the density of variance 2 in the place of φ, s would have to be s/2."""
    proof = symbolic.integration_by_parts_step()
    density = sympy.exp(-(S**2) / 2)
    other = sympy.exp(-(S**2) / 4)
    f = sympy.Function("f")(S)
    assert not symbolic.Identity((f * other).diff(S), proof.right / density * other).proved


@pytest.mark.parametrize("n", [2, 3])
def test_integration_by_parts_agrees_with_simulation(n):
    s = scores.Normal().sample(np.random.default_rng(0), 200_000, n)
    p = rows.softmax(s, 1.5)
    difference = (s * p).sum(axis=1) - rows.gradient(s, 1.5)
    assert abs(difference.mean()) < 4.5 * difference.std() / np.sqrt(difference.size)


def test_the_slope_and_curvature_of_log_z_agree_with_the_numbers():
    values = np.array([0.3, -1.2, 0.7])
    s, _ = symbolic.softmax(3)
    at = dict(zip(s, values, strict=True)) | {symbolic.ALPHA: 1.5}
    p = rows.softmax(values, 1.5)
    mean = p @ values
    assert float(symbolic.log_partition_slope(3).left.subs(at)) == pytest.approx(mean, rel=1e-13)
    curvature = float(symbolic.log_partition_curvature(3).left.subs(at))
    assert curvature == pytest.approx(p @ (values - mean) ** 2, rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 16])
def test_near_ties_are_all_that_counts_at_a_large_scale(n):
    """E g → E max s and E‖J‖_F²/α → E max s/3: the gap of normal scores has density E max at 0.

    The gap's density changes away from 0, and three scores may tie: corrections of order 1/α,
    which the combination of α and 2α removes.
    """
    s = scores.Normal().sample(np.random.default_rng(1), 300_000, n)
    largest = s.max(axis=1)
    for limit in (
        lambda alpha: rows.gradient(s, alpha),
        lambda alpha: 3 * rows.frobenius_norm(s, alpha) ** 2 / alpha,
    ):
        difference = 2 * limit(80.0) - limit(40.0) - largest
        error = difference.std() / np.sqrt(difference.size)
        assert error < 0.05 * largest.mean()
        assert abs(difference.mean()) < 4.5 * error


def test_the_gap_of_two_normal_scores_gives_the_frobenius_slope():
    """δ = |s_1 − s_2| has the density e^{−δ²/4}/√π, so the slope is 1/(3√π), with no simulation."""
    alpha = 1000.0
    gap = np.linspace(0.0, 0.1, 200_001)
    p = rows.softmax(np.stack([gap, np.zeros_like(gap)]), alpha, axis=0)[0]
    integrand = 4 * (alpha * p * (1 - p)) ** 2 * np.exp(-(gap**2) / 4) / np.sqrt(np.pi)
    mean = np.trapezoid(integrand, gap)
    assert mean / alpha == pytest.approx(1 / (3 * np.sqrt(np.pi)), rel=1e-5)


def test_the_rules_in_disguise_agree_with_the_numbers():
    """Each right side is what `policies` computes, in units of 1/√d, at n = 10⁵ and d = 64."""
    extension, coefficient = sympy.symbols("s c", positive=True)
    at = {symbolic.KEYS: 1e5, symbolic.DIMENSION: 64, symbolic.LENGTH: 4096}
    at |= {extension: 1e5 / 4096, coefficient: 0.1}
    q, k = (sympy.Matrix(sympy.symbols(f"{name}1:2", real=True)) for name in "qk")
    at |= {q[0]: 1.0, k[0]: 1.0}
    for proof, name, unit in (
        (symbolic.longrope_is_a_log_length(), "longrope", 1.0),
        (symbolic.entropy_invariance(), "entropy_invariance", 8.0),
        (symbolic.factors_on_both_sides(1), "yarn", 1.0),
    ):
        found = float(policies.POLICIES[name].alpha(1e5, 64))
        assert float(proof.right.subs(at)) * unit == pytest.approx(found, rel=1e-13)


def test_yarn_with_one_factor_is_not_proved():
    proof = symbolic.factors_on_both_sides(2)
    factor = sympy.log(sympy.Symbol("s", positive=True)) * sympy.Symbol("c", positive=True) + 1
    assert not symbolic.Identity(proof.left, proof.right / factor).proved


def test_a_longer_text_of_training_is_not_proved():
    length = symbolic.LENGTH
    for proof in (symbolic.longrope_is_a_log_length(), symbolic.infoscale_in_many_dimensions()):
        assert not symbolic.Identity(proof.left, proof.right.subs(length, 2 * length)).proved


@pytest.mark.parametrize("n", [2, 3])
def test_integration_by_parts_is_weighted_by_the_density_of_a_row(n):
    values = np.array([0.3, -1.2, 0.7])[:n]
    s, _ = symbolic.softmax(n)
    at = dict(zip(s, values, strict=True)) | {symbolic.ALPHA: 1.5}
    p = rows.softmax(values, 1.5)
    difference = (values * p).sum() - rows.gradient(values, 1.5)
    expected = difference * np.exp(scores.Normal().logpdf(values).sum())
    found = symbolic.softmax_integration_by_parts(n)
    for side in (found.left, found.right):
        assert float(side.subs(at)) == pytest.approx(expected, rel=1e-12)

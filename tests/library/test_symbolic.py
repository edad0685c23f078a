"""The proofs: true where they should be, able to fail, and in agreement with the numbers."""

import numpy as np
import pytest
import sympy

from attnlib import rows, scores, symbolic

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


@pytest.mark.parametrize("n", [0, -1, 2.0, True])
def test_bad_sizes_are_named(n):
    with pytest.raises((TypeError, ValueError), match=f"n.*{n}"):
        symbolic.jacobian(n)


def test_the_mgf_of_a_cosine_is_elementary_for_odd_d_only():
    assert [d for d in range(3, 13) if symbolic.cosine_mgf_is_elementary(d)] == [3, 5, 7, 9, 11]

"""The proofs: true where they should be, and in agreement with the numbers."""

from functools import partial

import numpy as np
import pytest
import sympy

from attnlib import rows, scores
from claims import symbolic

OF_A_ROW = (symbolic.jacobian, symbolic.l1_identity)
DISGUISED = symbolic.rules_in_disguise()
PROOFS = {
    **{f"{proof.__name__}({n})": partial(proof, n) for proof in OF_A_ROW for n in (1, 2)},
    **{
        proof.__name__: proof
        for proof in (
            symbolic.product_mean,
            symbolic.product_variance,
            symbolic.product_variance_of_any_law,
            symbolic.normal_mgf,
        )
    },
    **{f"cosine_mgf({d})": partial(symbolic.cosine_mgf, d) for d in (3, 5, 7)},
    **{name: partial(DISGUISED.get, name) for name in DISGUISED},
}
VALUES = np.array([0.3, -1.2, 0.7])
WEIGHTS = rows.softmax(VALUES, 1.5)


def at(expression, n=3):
    """Return an expression in s_1, …, s_n and α at `VALUES` and 1.5."""
    s, _ = symbolic.softmax(n)
    numbers = dict(zip(s, VALUES[:n], strict=True)) | {symbolic.ALPHA: 1.5}
    return np.array(sympy.Matrix([expression]).subs(numbers), dtype=np.float64)


@pytest.mark.parametrize("name", PROOFS)
def test_it_is_proved(name):
    assert PROOFS[name]().proved


def test_the_matrix_and_its_norm_agree_with_the_numbers():
    derivative = at(symbolic.jacobian(3).left)
    np.testing.assert_allclose(derivative, rows.jacobian(VALUES, 1.5), rtol=1e-13)
    left = symbolic.l1_identity(3).left
    weights = sorted(left.free_symbols - {symbolic.ALPHA}, key=str)
    numbers = dict(zip(weights, np.exp(1.5 * VALUES), strict=True)) | {symbolic.ALPHA: 1.5}
    assert float(left.subs(numbers)) == pytest.approx(rows.gradient(VALUES, 1.5), rel=1e-13)


def test_the_moments_agree_with_the_numbers():
    parameters = (symbolic.MU_Q, symbolic.SIGMA_Q, symbolic.MU_K, symbolic.SIGMA_K)
    numbers = dict(zip(parameters, (-1.5, 1.0, -1.5, 1.0), strict=True))
    moments = symbolic.product_moments(-1.5)
    assert float(symbolic.product_mean().left.subs(numbers)) == pytest.approx(moments.mean)
    assert float(symbolic.product_variance().left.subs(numbers)) == pytest.approx(moments.variance)


def test_the_cosine_forms_are_those_of_the_law():
    for d in (3, 5, 7):
        form = symbolic.cosine_mgf(d).right.subs(symbolic.ALPHA, 2.5)
        assert float(form) == pytest.approx(np.exp(scores.Cosine(d).log_mgf(2.5)), rel=1e-12)
    for d in (4, 9, 3.5, "3"):
        with pytest.raises(ValueError, match=f"d must be 3, 5 or 7, got d={d!r}"):
            symbolic.cosine_mgf(d)
    assert [d for d in range(3, 13) if symbolic.cosine_mgf_is_elementary(d)] == [3, 5, 7, 9, 11]

"""The proofs: true where they should be, and in agreement with the numbers."""

from functools import partial

import pytest

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


@pytest.mark.parametrize("name", PROOFS)
def test_it_is_proved(name):
    assert PROOFS[name]().proved

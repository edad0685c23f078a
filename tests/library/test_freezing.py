"""The critical scale of many keys; its limits are checked with the theorems."""

import numpy as np
import pytest

from attnlib import freezing, scores


def test_the_critical_scale_of_normal_scores_and_dot_products():
    n = np.array([1, 2, 4096, 1e300])
    np.testing.assert_allclose(freezing.critical_alpha(n) ** 2, 2 * np.log(n), rtol=1e-15)
    for law in (scores.Normal(), scores.DotProduct(8)):
        np.testing.assert_array_equal(freezing.critical_alpha(n, law), freezing.critical_alpha(n))


def test_more_keys_than_a_scale_can_be_found_for_are_named():
    with pytest.raises(ValueError, match=r"n must be one whose α is at most .* got n=1e\+308"):
        freezing.critical_alpha(1e308, scores.Cosine(3))

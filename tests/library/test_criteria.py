"""The criteria side by side, each against its own definition."""

import math

import numpy as np
import pytest

from attnlib import annealed, criteria, exact, freezing
from attnlib.criteria import effective_keys
from attnlib.scores import Cosine, DotProduct, Normal
from tests.library.test_own_laws import Laplace

LAWS = (Normal(), DotProduct(64), Cosine(64))


def alphas(law, n, **options):
    return {
        criterion.name: criterion.alpha for criterion in criteria.all_criteria(law, n, **options)
    }


@pytest.mark.parametrize("law", LAWS)
def test_each_criterion_meets_its_definition(law):
    alpha = alphas(law, 600)
    unit = 1.0 / math.sqrt(law.variance)
    assert alpha["variance"] == pytest.approx(unit, rel=1e-15)
    # No other α within 20 % has a larger approximate gradient.
    near = alpha["annealed"] * np.linspace(0.8, 1.2, 401)
    assert abs(annealed.gradient(law, near, 600).argmax() - 200) <= 1
    entropies = exact.entropy(law, [unit, alpha["entropy"]], [512, 600])
    assert entropies[0] == pytest.approx(entropies[1], rel=1e-8)
    assert alpha["freezing"] == freezing.critical_alpha(600, law)
    for criterion in criteria.all_criteria(law, 600):
        assert criterion.meaning.endswith(".")


def test_a_causal_mask_is_as_so_many_keys():
    for n in (2, 10, 10_001):
        direct = n / math.fsum(1 / k for k in range(1, n + 1))
        assert effective_keys(n, causal=True) == pytest.approx(direct, rel=1e-12)
        assert effective_keys(n, causal=False) == n
    causal, plain = alphas(Normal(), 4096, causal=True), alphas(Normal(), 460)
    assert causal["entropy"] == plain["entropy"]
    assert causal["annealed"] == pytest.approx(plain["annealed"], rel=1e-3)


@pytest.mark.parametrize(
    ("law", "keys"),
    [(law, n) for law in LAWS for n in (320, 4096)]
    + [pytest.param(law, 2**40, marks=pytest.mark.slow) for law in LAWS]
    + [(Cosine(3), 10**6), (DotProduct(2), 10**5), (Laplace(), 4096)],
)
def test_the_entropy_is_held_to_the_last_digits(law, keys):
    def entropy(alpha, n):  # by the free energy and its slope, which `exact.entropy` does not use
        slope = exact.mean_score(law, alpha, n)
        return float(exact.free_energy(law, alpha, n) - alpha * slope)

    expected = entropy(1.0 / math.sqrt(law.variance), 512)
    held = entropy(criteria.same_entropy(law, keys), keys)
    assert held == pytest.approx(expected, abs=2e-9 * math.log(keys))


def test_too_few_keys_for_the_entropy_of_512_and_too_many():
    # Under 1/√d, 512 normal scores have an entropy near log 512 − ½, that of 310 equal weights.
    assert criteria.same_entropy(Normal(), 300) is None
    assert criteria.same_entropy(Normal(), 330) < 0.5
    assert criteria.same_entropy(Normal(), 512) == pytest.approx(1.0, rel=1e-8)
    # So many directions in three dimensions no scale makes sharp.
    assert criteria.same_entropy(Cosine(3), 10**7) is None
    assert criteria.same_entropy(Cosine(3), 10**4) > 0.0

"""The criteria side by side, each against its own definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlib import annealed, criteria, exact, freezing
from attnlib.criteria import effective_keys
from attnlib.sampling import Estimate
from attnlib.scores import Cosine, DotProduct, Normal

LAWS = (Normal(), DotProduct(64), Cosine(64))


def alphas(law, n, **options):
    return {criterion.name: criterion.alpha for criterion in criteria.alphas(law, n, **options)}


@pytest.mark.parametrize("law", LAWS)
def test_each_criterion_meets_its_definition(law):
    found = alphas(law, 600)
    unit = 1.0 / math.sqrt(law.variance)
    assert found["variance"] == pytest.approx(unit, rel=1e-15)
    # No other α within 20 % has a larger approximate gradient.
    near = found["annealed"] * np.linspace(0.8, 1.2, 401)
    assert abs(annealed.gradient(law, near, 600).argmax() - 200) <= 1
    entropies = exact.entropy(law, [unit, found["entropy"]], [512, 600])
    assert entropies[0] == pytest.approx(entropies[1], rel=1e-8)


@pytest.mark.parametrize("law", LAWS)
def test_the_freezing_scale_is_that_of_the_law(law):
    assert alphas(law, 200)["freezing"] == freezing.critical_alpha(200, law)


def test_the_typical_row_states_its_error_and_grows_with_freezing():
    value = next(c for c in criteria.alphas(Normal(), 1024) if c.name == "typical")
    assert 0.0 < value.standard_error < 0.1
    # 1.0274 √(2 log n) from a longer run, recorded by `typical_optima`
    reference = 1.0274 * math.sqrt(2 * math.log(1024))
    assert abs(value.alpha - reference) < 4.5 * value.standard_error
    some, many = (alphas(Normal(), n) for n in (2**16, 2**30))
    ratio = some["typical"] / some["freezing"]
    assert 0.85 < ratio < 1.2
    assert many["typical"] / many["freezing"] == pytest.approx(ratio, rel=1e-12)


def test_the_harmonic_mean_against_a_sum():
    for n in (2, 10, 9_999, 10_000, 10_001, 200_000):
        direct = n / math.fsum(1 / k for k in range(1, n + 1))
        assert effective_keys(n, causal=True) == pytest.approx(direct, rel=1e-12)
        assert effective_keys(n, causal=False) == n


def test_a_causal_mask_is_as_so_many_keys():
    causal, plain = alphas(Normal(), 4096, causal=True), alphas(Normal(), 460)
    assert effective_keys(4096, causal=True) == pytest.approx(460.478, abs=1e-3)
    assert causal["entropy"] == plain["entropy"]
    assert causal["annealed"] == pytest.approx(plain["annealed"], rel=1e-3)


def test_too_few_keys_for_the_entropy_of_512():
    # Under 1/√d, 512 normal scores have an entropy near log 512 − ½, that of 310 equal weights.
    assert alphas(Normal(), 300)["entropy"] is None
    assert alphas(Normal(), 330)["entropy"] < 0.5
    assert alphas(Normal(), 512)["entropy"] == pytest.approx(1.0, rel=1e-8)


@given(
    st.one_of(
        st.sampled_from([0, 1, -3, 2**40 + 1, 2.0, "4", None, math.nan, True, [4]]),
        st.integers(max_value=1),
    )
)
def test_a_wrong_n_is_named(n):
    with pytest.raises((ValueError, TypeError), match="n must be"):
        alphas(Normal(), n)


def test_a_wrong_law_and_a_wrong_flag_are_named():
    with pytest.raises(TypeError, match="law must be"):
        alphas("normal", 512)
    with pytest.raises(TypeError, match="causal must be"):
        alphas(Normal(), 512, causal=1)


def test_every_criterion_says_what_it_means():
    for criterion in criteria.alphas(Cosine(128), 400):
        assert criterion.meaning.endswith(".")
        assert criterion.alpha > 0
    assert criteria.REFERENCE_KEYS == 512


def test_the_entropy_names_what_is_wrong():
    with pytest.raises(TypeError, match="law must be"):
        criteria.same_entropy("normal", 512)
    for n in (0, -3, math.nan, "4"):
        with pytest.raises((ValueError, TypeError), match="n must"):
            criteria.same_entropy(Cosine(8), n)


def test_its_old_name_warns_of_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"criteria\.alphas"):
        found = criteria.scales(Normal(), 64)
    assert found == criteria.alphas(Normal(), 64)


def test_a_second_s_work_goes_into_the_typical_row(monkeypatch):
    asked = []

    def best_alpha(law, n, *, rows, seed):
        asked.append((n, rows, seed))
        return Estimate(2.0, 0.5)

    monkeypatch.setattr(criteria.typical, "best_alpha", best_alpha)
    for n in (2, 4096, 2**14, 2**16, 2**20):
        found = next(c for c in criteria.alphas(Normal(), n, seed=3) if c.name == "typical")
        # √(2 log n) grows by √(20/16) from 2¹⁶ to 2²⁰.
        beyond = math.sqrt(20 / 16) if n == 2**20 else 1.0
        assert found.alpha == pytest.approx(2.0 * beyond, rel=1e-14)
        assert found.standard_error == pytest.approx(0.5 * beyond, rel=1e-14)
    counts = [(2, 4000), (4096, 4000), (2**14, 1024), (2**16, 256), (2**16, 256)]
    assert asked == [(n, rows, 3) for n, rows in counts]


def test_what_is_not_simulated_has_no_error():
    errors = {c.name: c.standard_error for c in criteria.alphas(Normal(), 64)}
    assert errors.pop("typical") > 0.0
    assert set(errors.values()) == {0.0}


def test_no_scale_makes_so_many_directions_in_three_dimensions_sharp():
    assert criteria.same_entropy(Cosine(3), 10**7) is None
    assert criteria.same_entropy(Cosine(3), 10**4) > 0.0


def test_logits_of_variance_1_want_one_over_the_standard_deviation():
    assert alphas(Cosine(16), 8)["variance"] == 4.0


def test_the_old_name_passes_the_mask_on():
    with pytest.warns(DeprecationWarning, match=r"criteria\.alphas"):
        found = criteria.scales(Normal(), 64, causal=True)
    assert found == criteria.alphas(Normal(), 64, causal=True)

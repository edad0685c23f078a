"""The annealed objective and its maximum, against mpmath, closed forms and brute force."""

import mpmath as mp
import numpy as np
import pytest

from attnlib import annealed
from attnlib.scores import Cosine, DotProduct, Normal

LAWS = [Normal(), Cosine(3), Cosine(128), DotProduct(1), DotProduct(64)]


def exact_log_mgf(d, alpha):
    return mp.log(mp.hyp0f1(mp.mpf(d) / 2, mp.mpf(alpha) ** 2 / 4))


def stationarity(log_mgf, alpha, n):
    """R + log(1 + αR') − log n, differentiated by mpmath."""

    def ratio(a):
        return log_mgf(2 * a) - 2 * log_mgf(a)

    return ratio(alpha) + mp.log(1 + alpha * mp.diff(ratio, alpha)) - mp.log(n)


@pytest.mark.parametrize("n", [2, 7.5, 512, 1e15])
def test_normal_optimum_is_exact_to_1e_14(n):
    with mp.workdps(40):
        exact = mp.sqrt(mp.lambertw(mp.mpf(n) * mp.sqrt(mp.e) / 2) - mp.mpf(1) / 2)
        assert mp.fabs(annealed.best_alpha(Normal(), n) / exact - 1) < 1e-14


@pytest.mark.parametrize(
    ("d", "n"),
    [(3, 3), (3, 10**12), (5, 10**6), (128, 20000), (10**6, 3), (10**6, 10**12)],
)
def test_cosine_optimum_is_within_1e_10(d, n):
    best = annealed.best_alpha(Cosine(d), n)
    with mp.workdps(30):
        exact = mp.exp(
            mp.findroot(
                lambda u: stationarity(lambda a: exact_log_mgf(d, a), mp.exp(u), n),
                mp.log(float(best)),
            )
        )
        assert mp.fabs(best / exact - 1) < 1e-10


@pytest.mark.parametrize("d", [1, 64, 10**6])
@pytest.mark.parametrize("n", [2, 512, 1e12])
def test_dot_product_optimum_solves_its_equation(d, n):
    best = annealed.best_alpha(DotProduct(d), n)
    with mp.workdps(40):
        x = 2 * mp.mpf(float(best)) ** 2 / d
        value = -mp.mpf(d) / 2 * mp.log(1 - x) + mp.log(1 + d * x / (1 - x)) - mp.log(n)
        slope = d * x / (1 - x) + 2 * d * x / ((1 - x) * (1 - x + d * x))
        assert mp.fabs(value / slope) < 1e-12  # the relative error of α, to first order


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [1.0, 1.0 + 1e-9, 1e300])
def test_extreme_numbers_give_numbers_without_a_warning(law, n):
    best = annealed.best_alpha(law, n)
    assert np.isfinite(best)
    assert (best > 0.0) == (n > 1.0)
    value = annealed.gradient(law, [0.0, 5e-324, 1e-300, 1e-8, 1e300, 1e308], n)
    assert not np.isnan(value).any()
    assert value[0] == 0.0
    factor = annealed.post_scale(law, [0.0, 5e-324, 1e-300, 1e-8, 1e300, 1e308], n)
    assert (factor >= 0.0).all()
    assert factor[0] == pytest.approx(np.sqrt(n), rel=1e-12)

"""Rows with a needle against mpmath, sums over all rows, Gauss's rules, and simulation."""

import tracemalloc
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib import exact, policies, quadrature, retrieval, rows
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine, Discrete, DotProduct, Normal
from tests.library.test_bad_input import assert_refused
from tests.library.test_exact import panels
from tests.library.test_own_laws import Copy, Exponential, Laplace, TwoLevels, Uniform

QUANTITIES = {
    "weight": retrieval.weight,
    "missed": lambda law, needle, alpha, n: retrieval.gradient(law, needle, alpha, n) / alpha,
    "collision_probability": retrieval.collision_probability,
    "loss": retrieval.loss,
    "cube": partial(retrieval.moment, order=3.0),
}
LEVELS = Discrete([0.0, 1.0, 3.0], [0.6, 0.3, 0.1])
LAWS = [Normal(), Cosine(3), Cosine(128), DotProduct(64), LEVELS, Laplace()]
OWN = [Laplace(), Uniform(), Exponential(), TwoLevels()]


def name_of(value):
    return repr(value) if type(value).__module__.startswith("attnlib") else type(value).__name__


def spread(law):
    return float(np.sqrt(law.variance))


def assert_all_close(law, needle, alpha, n, expected, rel=1e-10):
    for name, value in expected.items():
        found = QUANTITIES[name](law, needle, alpha, n)
        assert found == pytest.approx(float(value), rel=rel, abs=0.0), name


# --- against what shares nothing with the library -------------------------------------------------


@pytest.mark.parametrize(
    ("needle", "alpha"),
    [
        *((Tilted(theta), alpha) for theta, alpha in [(0.0, 2.0), (1.0, 0.01), (3.0, 3.0)]),
        *((Tilted(theta), alpha) for theta, alpha in [(30.0, 1.0), (30.0, 30.0), (12.0, 100.0)]),
        *((Fixed(gap), alpha) for gap, alpha in [(0.0, 1.0), (4.0, 4.0), (9.0, 100.0)]),
        *((Fixed(gap), alpha) for gap, alpha in [(30.0, 2.0), (30.0, 30.0), (-2.0, 3.0)]),
    ],
    ids=repr,
)
def test_two_keys_are_one_integral_over_a_normal_difference(needle, alpha):
    """P = 1/(1 + e^{−αδ}), and δ = s_* − s is normal: with a variance of 2, or of 1."""
    tilted = isinstance(needle, Tilted)
    centre, width = (needle.theta, mp.sqrt(2)) if tilted else (needle.gap, mp.mpf(1))
    with mp.workdps(30):
        # Of the trapezoidal rule 1/(1 + e^{−αδ}), with its poles ±πj/α, leaves e^{−2π²/(α·step)}.
        step = 1 / (2 + mp.mpf(3 * alpha) / 2)
        reach = 13 + abs(mp.mpf(centre))
        sums = dict.fromkeys(QUANTITIES, mp.mpf(0))
        for k in range(int(-reach / step), int(reach / step) + 1):
            delta = step * k
            density = step * mp.npdf(delta, centre, width)
            small = mp.exp(-alpha * abs(delta))
            first, second = 1 / (1 + small), small / (1 + small)
            p, q = (first, second) if delta >= 0 else (second, first)
            sums["weight"] += density * p
            sums["missed"] += density * q
            sums["collision_probability"] += density * (p * p + q * q)
            sums["loss"] += density * (mp.log1p(small) + max(-alpha * delta, 0))
            sums["cube"] += density * p**3
    assert_all_close(Normal(), needle, alpha, 2, sums)


def uniform_transforms(alpha, needle):
    """Return φ, A₁, A₂ of cosines in three dimensions at t = e^{−u}, and of the needle A₃ too."""
    ends = mp.exp(-alpha), mp.exp(alpha)

    def others(t):
        low, high = t * ends[0], t * ends[1]
        first = (mp.exp(-low) - mp.exp(-high)) / (2 * alpha)
        second = first + (low * mp.exp(-low) - high * mp.exp(-high)) / (2 * alpha)
        return (mp.e1(low) - mp.e1(high)) / (2 * alpha), first, second

    def of_needle(t):
        if isinstance(needle, Fixed):
            x = t * mp.exp(alpha * needle.gap)
            return [x**k * mp.exp(-x) for k in range(4)]
        # Γ(θ/α; low, high), by steps of 1 from that of ½ or 1
        theta, (low, high) = mp.mpf(needle.theta), (t * end for end in ends)
        ratio = mp.mpf(1) / 2 if theta / alpha % 1 else mp.mpf(1)
        value = mp.exp(-low) - mp.exp(-high)
        if ratio != 1:
            error = (mp.erf, 1) if high < 1 else (mp.erfc, -1)
            value = mp.sqrt(mp.pi) * error[1] * (error[0](mp.sqrt(high)) - error[0](mp.sqrt(low)))
        values = []
        while ratio < theta / alpha + 4:
            values.append(value)
            value = ratio * value + low**ratio * mp.exp(-low) - high**ratio * mp.exp(-high)
            ratio += 1
        c = theta / (2 * mp.sinh(theta) * alpha) * t ** -(theta / alpha)
        return [c * value for value in values[-4:]]

    return others, of_needle


@pytest.mark.parametrize(
    ("needle", "alpha", "n"),
    [
        (Tilted(2.0), 4.0, 300),
        (Tilted(50.0), 20.0, 10**6),
        (Tilted(6.0), 6.0, 10**4),
        (Tilted(52.0), 104.0, 10**12),
        (Fixed(0.5), 3.0, 40),
        (Fixed(1.0), 60.0, 10**12),
    ],
    ids=repr,
)
def test_uniform_cosines_have_laplace_transforms_in_closed_form(needle, alpha, n):
    with mp.workdps(240):  # most digits cancel in those steps
        a = mp.mpf(alpha)
        others, of_needle = uniform_transforms(a, needle)
        step, sums = mp.mpf("0.2"), dict.fromkeys(QUANTITIES, mp.mpf(0))
        for k in range(int((-alpha - 4) / step), int((alpha + 75) / step)):
            t = mp.exp(-step * k)
            (phi, first, second), (own, one, two, three) = others(t), of_needle(t)
            rest, one_less = phi ** (n - 1), (n - 1) * phi ** (n - 2)
            sums["weight"] += step * one * rest
            sums["missed"] += step * first * own * one_less
            sums["collision_probability"] += step * (two * rest + second * own * one_less)
            sums["loss"] += step * own * (1 - rest)
            sums["cube"] += step * three * rest / 2
    assert_all_close(Cosine(3), needle, alpha, n, sums)


@pytest.mark.parametrize("alpha", [0.3, 2.0, 15.0])
@pytest.mark.parametrize("needle", [Tilted(1.5), Fixed(0.8), Fixed(-1.0)], ids=repr)
@pytest.mark.parametrize("sink", [None, 1.7])
def test_two_levels_are_sums_over_how_many_keys_are_high(needle, alpha, sink):
    law, n, k = Discrete([0.0, 1.0], [0.9, 0.1]), 25, 3
    x = mp.exp(alpha)
    sums = {"weight": 0, "missed": 0, "collision_probability": 0, "loss": 0, "cube": 0}
    joint = {"weight": 0, "loss": 0}
    first = 0
    with mp.workdps(30):
        p = mp.mpf(1) / 10
        high = p * mp.exp(1.5) / (1 - p + p * mp.exp(1.5))
        own = [(0, 1 - high), (1, high)] if isinstance(needle, Tilted) else [(needle.gap, 1)]
        beside = mp.exp(sink) if sink is not None else 0

        def chances(count):
            return [mp.binomial(count, j) * p**j * (1 - p) ** (count - j) for j in range(count + 1)]

        for s, share in own:
            w = mp.exp(mp.mpf(alpha) * s)
            for j, chance in enumerate(chances(n - 1)):
                rest, mass = j * x + (n - 1 - j), share * chance
                z = w + rest
                squares = (w**2 + j * x**2 + (n - 1 - j)) / z**2
                values = [w / z, rest / z, squares, mp.log1p(rest / w), (w / z) ** 3]
                for name, value in zip(sums, values, strict=True):
                    sums[name] += mass * value
                tied = 1 + j * (s == 1) + (n - 1 - j) * (s == 0)
                first += mass / tied if s >= (1 if j else 0) else 0
        for i in range(k + 1):
            weight = own[-1][1] ** i * own[0][1] ** (k - i) * mp.binomial(k, i)
            w = i * mp.exp(mp.mpf(alpha) * own[-1][0]) + (k - i) * mp.exp(mp.mpf(alpha) * own[0][0])
            if len(own) == 1:
                w, weight = k * mp.exp(mp.mpf(alpha) * own[0][0]), mp.mpf(i == 0)
            for j, chance in enumerate(chances(n - k)):
                rest = j * x + (n - k - j) + beside
                joint["weight"] += weight * chance * w / (w + rest)
                joint["loss"] += weight * chance * mp.log1p(rest / w)
    assert_all_close(law, needle, alpha, n, sums)
    assert retrieval.accuracy(law, needle, n) == pytest.approx(float(first), rel=1e-12)
    told = {"needles": k} if sink is None else {"needles": k, "sinks": sink}
    for name, value in joint.items():
        found = QUANTITIES[name](law, needle, alpha, n, **told)
        assert found == pytest.approx(float(value), rel=1e-10), name


def nested(law, needle, alpha, n):
    """Return the expectations from the formulas in u by Gauss's rules, scores inside."""
    unit, strength = spread(law), 9.0
    low, high = (max(-10.0, -1.0 / unit), min(strength + 9.0, 1.0 / unit))
    if isinstance(law, Normal):
        low, high = -10.0, strength + 9.0
    s, w = panels(unit * np.linspace(low, high, int((high - low) * (1.5 + 0.5 * alpha * unit))))
    with np.errstate(under="ignore"):
        density = w * np.exp(law.logpdf(s))
        tilt = needle.theta if isinstance(needle, Tilted) else 0.0
        own = w * np.exp(law.logpdf(s) + tilt * s - law.log_mgf(tilt))
    points, of_needle = (s, own) if isinstance(needle, Tilted) else ([needle.gap], np.ones(1))
    u, outer = panels(np.arange(low * alpha * unit - 4.0, high * alpha * unit + 60.0, 1.5))

    def averages(scores, weights):
        x = np.minimum(alpha * np.asarray(scores) - u[:, None], 6.5)
        e = np.exp(x)
        kept = np.exp(-e) @ weights
        lost = -np.expm1(-e) @ weights
        return kept, lost, *((e**k * np.exp(-e)) @ weights for k in (1, 2, 3))

    _, lost, first, second, _ = averages(s, density)
    kept, _, one, two, three = averages(points, of_needle)
    log_phi = np.log1p(-np.minimum(lost, 1.0 - 1e-16))
    rest, one_less = np.exp((n - 1.0) * log_phi), (n - 1.0) * np.exp((n - 2.0) * log_phi)
    integrands = {
        "weight": one * rest,
        "missed": first * kept * one_less,
        "collision_probability": two * rest + second * kept * one_less,
        "loss": -kept * np.expm1((n - 1.0) * log_phi),
        "cube": three * rest / 2.0,
    }
    return {name: outer @ values for name, values in integrands.items()}


@pytest.mark.parametrize("law", [Normal(), Cosine(128)], ids=repr)
@pytest.mark.parametrize(
    ("strength", "alpha", "n"),
    [(0.5, 0.2, 10**6), (4.0, 2.5, 10**9), (7.0, 5.0, 10**12), (9.0, 1.5, 3)],
)
def test_many_keys_against_gauss_rules(law, strength, alpha, n):
    unit = spread(law)
    for needle in (Tilted(strength / unit), Fixed(min(strength * unit, 0.9))):
        expected = nested(law, needle, alpha / unit, n)
        assert expected["weight"] + expected["missed"] == pytest.approx(1.0, rel=1e-12)
        assert_all_close(law, needle, alpha / unit, n, expected)


@pytest.mark.parametrize("d", [2, 64])
def test_dot_products_average_normal_rows_over_the_length_of_the_query(d):
    r, w = panels(np.linspace(1e-9, 1.0 + 9.0 / np.sqrt(d), 9))
    log_chi = (d - 1.0) * np.log(r) - d * r**2 / 2.0
    w = w * np.exp(log_chi - log_chi.max())
    w = w / w.sum()
    kept = np.flatnonzero(w > 1e-14)
    for needle, given_length in ((Tilted(3.0), lambda x: Tilted(3.0 * x)), (Fixed(3.0), None)):
        given_length = given_length or (lambda x: Fixed(3.0 / x))
        function = QUANTITIES["weight" if isinstance(needle, Tilted) else "loss"]
        parts = [w[i] * function(Normal(), given_length(r[i]), 2.0 * r[i], 50) for i in kept]
        assert function(DotProduct(d), needle, 2.0, 50) == pytest.approx(sum(parts), rel=1e-9)


# --- simulation -----------------------------------------------------------------------------------


def draw(law, theta, rng, count):
    """Return scores of the law tilted by θ, by taking what is drawn with the chance ∝ e^{θs}."""
    largest = {"Normal": 7.0, "DotProduct": 7.0}.get(type(law).__name__, 1.0)
    kept = []
    while sum(map(len, kept)) < count:
        s = law.sample(rng, 1, 200 * count)[0]
        kept.append(s[rng.random(s.size) < np.exp(theta * np.minimum(s - largest, 0.0))])
    return np.concatenate(kept)[:count]


def simulated(law, needle, alpha, n, count, rng, sink=None, needles=1):
    s = law.sample(rng, count, n)
    if isinstance(needle, Fixed):
        own = np.full((count, needles), needle.gap)
    elif isinstance(law, Cosine):
        own = draw(law, needle.theta, rng, count * needles).reshape(count, needles)
    else:  # DotProduct: given the query keys about it; the radius must be that of the row
        radius = np.ones((count, 1))
        if isinstance(law, DotProduct):
            radius = np.sqrt(rng.chisquare(law.d, (count, 1)) / law.d)
            s = radius * rng.standard_normal((count, n))
        own = radius * (needle.theta * radius + rng.standard_normal((count, needles)))
    s[:, :needles] = own
    logits = alpha * s if sink is None else np.c_[alpha * s, np.full(count, sink)]
    p = rows.softmax(logits)
    joint = p[:, :needles].sum(axis=1)
    return {
        "weight": joint,
        "missed": 1.0 - joint,
        "collision_probability": (p**2).sum(axis=1),
        "loss": -np.log(joint),
        "cube": joint**3,
        "accuracy": (s[:, :1] >= s).all(axis=1),
    }


@pytest.mark.parametrize("law", [Normal(), Cosine(4), DotProduct(8)], ids=repr)
@pytest.mark.parametrize("needle", [Tilted(2.0), Fixed(2.0)], ids=repr)
@pytest.mark.parametrize(("alpha", "n"), [(0.7, 10), (3.0, 200)])
def test_simulated_rows_agree_within_their_standard_error(law, needle, alpha, n):
    rng, unit, count = np.random.default_rng([n, len(repr(law))]), spread(law), 4000
    own = Tilted(2.0 / unit) if isinstance(needle, Tilted) else Fixed(min(2.0 * unit, 0.95))
    functions = {**QUANTITIES, "accuracy": lambda law, own, _, n: retrieval.accuracy(law, own, n)}
    for name, values in simulated(law, own, alpha / unit, n, count, rng).items():
        error = max(values.std(ddof=1) / np.sqrt(count), 1e-9)  # none was the first in 4000 rows
        expected = functions[name](law, own, alpha / unit, n)
        assert abs(values.mean() - expected) < 4.5 * error, name


@pytest.mark.parametrize("needle", [Tilted(2.0), Fixed(2.0)], ids=repr)
def test_simulated_rows_with_a_sink_and_more_needles(needle):
    rng, count = np.random.default_rng(4), 20000
    found = simulated(Normal(), needle, 1.5, 40, count, rng, sink=4.0, needles=3)
    for name in ("weight", "loss"):
        error = found[name].std(ddof=1) / np.sqrt(count)
        expected = QUANTITIES[name](Normal(), needle, 1.5, 40, sinks=4.0, needles=3)
        assert abs(found[name].mean() - expected) < 4.5 * error, name


# --- convergence, and laws of one's own -----------------------------------------------------------


@given(
    law=st.sampled_from([Normal(), Cosine(3), Cosine(20), Cosine(128), Cosine(10**6)]),
    tilted=st.booleans(),
    strength=st.floats(0.0, 30.0),
    log_scale=st.floats(-3.0, 2.0),
    log_keys=st.floats(0.31, 12.0),
)
@settings(max_examples=15)
def test_finer_steps_and_a_wider_range_change_nothing(law, tilted, strength, log_scale, log_keys):
    unit = spread(law)
    needle = Tilted(strength / unit) if tilted else Fixed(min(strength * unit, 1.0))
    alpha, n = 10.0**log_scale / unit, int(10.0**log_keys)
    quantities = {**QUANTITIES, "sixteenth": partial(retrieval.moment, order=16.0)}
    coarse = {name: float(f(law, needle, alpha, n)) for name, f in quantities.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STEP", "NORMAL_STEP"):
            patch.setattr(quadrature, name, 0.61 * getattr(quadrature, name))
        patch.setattr(quadrature, "DEPTH", 46.0)
        fine = {name: float(f(law, needle, alpha, n)) for name, f in quantities.items()}
    for name, value in fine.items():
        assert coarse[name] == pytest.approx(value, rel=1e-10, abs=1e-280), name


@pytest.mark.parametrize("law", [Normal(), Cosine(3), Cosine(64)], ids=repr)
def test_the_density_alone_gives_what_the_closed_forms_give(law):
    copy, unit = Copy(law), spread(law)
    alpha, n = np.array([[0.3], [20.0]]) / unit, np.array([2, 10**6])
    for strength in (1.0, 12.0):
        for needle in (Tilted(strength / unit), Fixed(min(strength * unit, 1.0))):
            for name in ("weight", "loss", "collision_probability"):
                found = QUANTITIES[name](copy, needle, alpha, n)
                expected = QUANTITIES[name](law, needle, alpha, n)
                np.testing.assert_allclose(found, expected, rtol=1e-8, err_msg=name)
            found, expected = (retrieval.accuracy(one, needle, n) for one in (copy, law))
            np.testing.assert_allclose(found, expected, rtol=1e-8)


# --- the theorem ----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [*LAWS, *OWN], ids=name_of)
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_at_the_needles_strength_the_weights_are_calibrated(law, share):
    """α = θ: E P = E Σp² for every law and n, and the loss has its minimum there."""
    theta = share * {"Laplace": 1.3, "Exponential": 0.9}.get(type(law).__name__, 6.0 / spread(law))
    n = np.array([1, 2, 30, 10**7])
    found = retrieval.weight(law, Tilted(theta), theta, n)
    np.testing.assert_allclose(
        found, retrieval.collision_probability(law, Tilted(theta), theta, n), rtol=1e-12
    )
    around = theta + 0.01 / spread(law) * np.array([[-1.0], [0.0], [1.0]])
    if theta > 0.0:
        losses = retrieval.loss(law, Tilted(theta), around, n[1:])
        assert (losses[1] < losses[[0, 2]]).all()
        slope, bend = losses[2] - losses[0], losses[2] - 2.0 * losses[1] + losses[0]
        assert (np.abs(slope) < 0.05 * bend).all()
        assert (retrieval.best_alpha(law, Tilted(theta), n) == theta).all()
    bits = retrieval.information(law, Tilted(theta), n)
    by_loss = np.log(n) - retrieval.loss(law, Tilted(theta), theta, n)
    np.testing.assert_allclose(bits, by_loss, atol=1e-12)
    slack = 1e-9 * np.log(n)
    assert (bits >= -slack).all()
    assert (bits <= np.log(n) + slack).all()


@pytest.mark.parametrize("law", [Normal(), Cosine(64), Laplace(), LEVELS], ids=name_of)
def test_information_is_below_the_divergence_and_comes_to_it(law):
    theta, step = 1.2 / spread(law), 1e-4 / spread(law)
    around = law.log_mgf(theta + step * np.array([-1.0, 1.0]))
    divergence = theta * (around[1] - around[0]) / (2.0 * step) - float(law.log_mgf(theta))
    bits = retrieval.information(law, Tilted(theta), np.array([2, 10, 100, 10**4, 10**12]))
    assert (np.diff(bits) > 0.0).all()
    assert bits[-1] == pytest.approx(divergence, rel=0.01)
    assert (bits < divergence * (1.0 + 1e-6)).all()


@pytest.mark.parametrize("needle", [Tilted(3.0), Fixed(3.0)], ids=repr)
def test_the_loss_is_convex_and_has_the_gradient_as_slope_of_the_score(needle):
    alpha = np.linspace(0.0, 12.0, 61)
    losses = retrieval.loss(Normal(), needle, alpha[:, None], [2, 500, 10**9])
    assert (np.diff(losses, n=2, axis=0) > 0.0).all()
    if isinstance(needle, Fixed):  # −∂L/∂gap = α E(1 − P)
        step = 1e-3
        low, high = (retrieval.loss(Normal(), Fixed(3.0 + x), 2.0, 500) for x in (-step, step))
        slope = retrieval.gradient(Normal(), needle, 2.0, 500)
        assert (low - high) / (2.0 * step) == pytest.approx(slope, rel=1e-5)


def test_a_needle_as_any_other_key_makes_a_random_row():
    for law in LAWS:
        alpha, n = 2.0 / spread(law), np.array([2, 50, 10**6])
        found = retrieval.collision_probability(law, Tilted(0.0), alpha, n)
        np.testing.assert_allclose(found, exact.collision_probability(law, alpha, n), rtol=1e-10)
        found = retrieval.loss(law, Tilted(0.0), alpha, n)
        expected = exact.free_energy(law, alpha, n) - alpha * law.mean
        np.testing.assert_allclose(found, expected, rtol=1e-9)


class TestLimits:
    @pytest.mark.parametrize("law", LAWS, ids=name_of)
    def test_one_key_is_found_and_at_zero_scale_all_are_alike(self, law):
        for needle in (Tilted(0.5), Fixed(0.5)):
            for name, certain in (("weight", 1.0), ("collision_probability", 1.0), ("loss", 0.0)):
                assert (QUANTITIES[name](law, needle, [0.0, 1.0, 30.0], 1) == certain).all()
            assert retrieval.accuracy(law, needle, 1) == pytest.approx(1.0, rel=1e-12)
            n = np.array([2, 7, 10**6, 10**12])
            for name in ("weight", "collision_probability"):
                np.testing.assert_allclose(
                    QUANTITIES[name](law, needle, 0.0, n), 1.0 / n, rtol=1e-11
                )
            np.testing.assert_allclose(retrieval.loss(law, needle, 0.0, n), np.log(n), rtol=1e-12)
            for order in (1.0, 2.5, 16.0):
                found = retrieval.moment(law, needle, 0.0, n, order)
                np.testing.assert_allclose(found, n.astype(float) ** -order, rtol=1e-10)

    @pytest.mark.parametrize("law", [*LAWS[:3], *LAWS[4:]], ids=name_of)
    def test_the_weight_tends_to_the_accuracy(self, law):
        unit = spread(law)
        for needle in (Tilted(1.0), Fixed(0.9 * unit)):
            n = np.array([2, 20, 1000])
            found = retrieval.weight(law, needle, 3e3 / unit, n)
            np.testing.assert_allclose(found, retrieval.accuracy(law, needle, n), rtol=0.02)

    @pytest.mark.parametrize("n", [2, 1000, 10**12])
    def test_the_largest_of_normal_scores_against_mpmath(self, n):
        for theta in (0.0, 5.0, 9.0):
            with mp.workdps(20):
                expected = mp.quad(
                    lambda s: mp.npdf(s, theta) * mp.exp((n - 1) * mp.log1p(-mp.ncdf(-s))),  # noqa: B023
                    [theta - 9, theta - 4, *(theta + x for x in (-1, 1, 3, 5, 7, 9)), theta + 14],
                )
            found = retrieval.accuracy(Normal(), Tilted(theta), n)
            assert found == pytest.approx(float(expected), rel=1e-10)

    def test_the_largest_of_uniform_cosines_by_hand(self):
        n, theta = 40, 3.0
        s, w = panels(np.linspace(-1.0, 1.0, 9))
        density = theta * np.exp(theta * s) / (2.0 * np.sinh(theta))
        expected = (w * density) @ ((1.0 + s) / 2.0) ** (n - 1)
        found = retrieval.accuracy(Cosine(3), Tilted(theta), n)
        assert found == pytest.approx(expected, rel=1e-11)
        found = retrieval.accuracy(Cosine(3), Fixed(0.9), n)
        assert found == pytest.approx(0.95**39, rel=1e-12)
        found = retrieval.accuracy(Exponential(), Fixed(3.0), n)
        assert found == pytest.approx((1.0 - np.exp(-3.0)) ** 39, rel=1e-10)

    def test_a_weak_sink_does_nothing_and_sinks_add(self):
        plain = retrieval.weight(Normal(), Tilted(3.0), 2.0, 100)
        beside = partial(retrieval.weight, Normal(), Tilted(3.0), 2.0, 100)
        assert beside(sinks=-60.0) == pytest.approx(plain, rel=1e-12)
        assert beside(sinks=[]) == plain
        assert beside(sinks=[2.0, 2.0]) == pytest.approx(beside(sinks=2.0 + np.log(2.0)), rel=1e-12)
        assert beside(sinks=300.0) == pytest.approx(0.0, abs=1e-100)
        alone = retrieval.weight(Normal(), Fixed(2.0), 1.0, 1, sinks=1.0)
        assert alone == pytest.approx(1.0 / (1.0 + np.exp(-1.0)), rel=1e-12)
        assert retrieval.loss(Normal(), Tilted(2.0), 1.0, 4, needles=4) == 0.0


class TestBestAlpha:
    @pytest.mark.parametrize(("gap", "n"), [(1.0, 2), (4.0, 512), (6.0, 10**5), (3.0, 10**12)])
    def test_no_scale_has_less_loss(self, gap, n):
        best = float(retrieval.best_alpha(Normal(), Fixed(gap), n))
        around = best + 0.02 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
        losses = retrieval.loss(Normal(), Fixed(gap), around, n)
        assert losses.argmin() == 2
        slope = losses[0] - 8.0 * losses[1] + 8.0 * losses[3] - losses[4]
        assert abs(slope / 0.24) < 1e-5 * losses[2]

    def test_for_very_many_keys_it_is_the_gap(self):
        found = retrieval.best_alpha(Normal(), Fixed([2.0, 3.0]), 10**12)
        np.testing.assert_allclose(found, [2.0, 3.0], rtol=1e-3)

    def test_limits(self):
        assert retrieval.best_alpha(Normal(), Fixed(0.0), 50) == 0.0
        assert retrieval.best_alpha(Normal(), Fixed(-1.0), 50) == 0.0
        assert retrieval.best_alpha(Normal(), Fixed(2.0), 1) == 0.0
        assert retrieval.best_alpha(Cosine(8), Fixed(1.0), 50) == np.inf
        assert retrieval.best_alpha(LEVELS, Fixed(3.0), 50) == np.inf
        assert retrieval.best_alpha(DotProduct(64), Fixed(3.0), 5) > 3.0

    def test_the_mean_gap_is_the_slope_of_the_cumulants(self):
        for law in (Normal(), Cosine(3), Cosine(128), LEVELS, Laplace()):
            theta, step = 0.5 / spread(law), 1e-4 / spread(law)
            low, high = law.log_mgf([theta - step, theta + step])
            expected = (high - low) / (2.0 * step) - law.mean
            assert retrieval.mean_gap(law, Tilted(theta)) == pytest.approx(expected, rel=1e-6)
        np.testing.assert_allclose(retrieval.mean_gap(DotProduct(5), Tilted([1.0, 3.0])), [1, 3])
        assert retrieval.mean_gap(LEVELS, Fixed(2.0)) == 2.0 - LEVELS.mean

    def test_the_least_scale_is_a_root(self):
        gap, n = np.array([[3.0], [8.0]]), np.array([1, 20, 90])
        found = retrieval.least_alpha(gap, n)
        np.testing.assert_allclose(found * gap, np.log(n) + found**2 / 2.0, rtol=1e-13)
        assert (found <= gap).all()
        assert retrieval.least_alpha(4.0, 10**4) == np.inf
        assert retrieval.least_alpha(1e9, 100) == pytest.approx(np.log(100.0) / 1e9, rel=1e-14)
        assert retrieval.least_alpha(2.0, np.exp(2.0)) == pytest.approx(2.0, rel=1e-6)


class TestReach:
    @pytest.mark.parametrize(
        ("law", "needle", "alpha"),
        [
            (Normal(), Tilted(4.0), 4.0),
            (Normal(), Fixed(3.0), 1.0),
            (Cosine(32), Fixed(0.7), 20.0),
            (LEVELS, Tilted(1.0), 2.0),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("told", [{}, {"sinks": 0.5}, {"needles": 2}], ids=repr)
    def test_it_is_the_last_with_half_of_the_weight(self, law, needle, alpha, told):
        n = float(retrieval.reach(law, needle, alpha, **told))
        kept, lost = retrieval.weight(law, needle, alpha, [n, n + 1], **told)
        assert lost < 0.5 <= kept

    def test_limits(self):
        assert retrieval.reach(Normal(), Tilted(5.0), 0.0) == 2.0
        assert retrieval.reach(Normal(), Tilted(5.0), 0.0, needles=7) == 14.0
        assert retrieval.reach(Normal(), Fixed(1.0), 1.0, sinks=3.0) == 0.0
        assert retrieval.reach(LEVELS, Fixed(10.0), 100.0) == np.inf
        # log n = αΔ − α²/2 to leading order, below freezing
        found = np.log(retrieval.reach(Normal(), Fixed(12.0), [1.0, 4.0, 8.0]))
        np.testing.assert_allclose(found, [11.5, 40.0, 64.0], atol=0.05)

    def test_by_a_rule_it_is_where_that_loses_the_needle(self):
        law, needle = Normal(), Tilted(5.0)
        for name in ("ssmax", "yarn"):
            n = float(retrieval.reach(law, needle, policy=name, d=64))
            around = np.array([n, n + 1.0])
            alpha = policies.POLICIES[name].alpha(around, 64)
            kept, lost = (
                float(retrieval.weight(law, needle, *at)) for at in zip(alpha, around, strict=True)
            )
            assert lost < 0.5 <= kept
        fixed = retrieval.reach(law, needle, 1.0)
        assert retrieval.reach(law, needle, policy="transformer", d=64) == fixed
        mine = policies.own(lambda n, d, position: 5.0 / np.sqrt(d))
        expected = retrieval.reach(law, Tilted([4.0, 5.0]), 5.0)
        found = retrieval.reach(law, Tilted([4.0, 5.0]), policy=mine, d=64)
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("law", [Normal(), Cosine(64), LEVELS], ids=repr)
    def test_several_rules_at_once_and_roughly(self, law):
        rules = ["ssmax", "simcse", "clip", policies.own(lambda n, d, position: 0.0)]
        needles = Fixed(np.array([3.0, 5.0]) * spread(law))
        exactly = retrieval.reach(law, needles, policy=rules, d=64)
        assert exactly.shape == (2, 4)
        np.testing.assert_array_equal(exactly[:, 3], 2.0)
        alone = retrieval.reach(law, needles, policy="ssmax", d=64)
        np.testing.assert_array_equal(exactly[:, 0], alone)
        roughly = retrieval.reach(law, needles, policy=rules, d=64, roughly=True)
        np.testing.assert_allclose(roughly, exactly, rtol=0.01)

    def test_roughly_for_dot_products(self):
        law, rules = DotProduct(32), ["transformer", "simcse"]
        exactly = retrieval.reach(law, Fixed(3.0), policy=rules)
        roughly = retrieval.reach(law, Fixed(3.0), policy=rules, roughly=True)
        np.testing.assert_allclose(roughly, exactly, rtol=0.01)

    def test_a_rule_that_loses_the_needle_and_regains_it(self):
        law, needle = Normal(), Fixed(8.0)
        n = float(retrieval.reach(law, needle, policy="yarn", d=128))
        between = np.exp(np.linspace(np.log(2.0), np.log(n), 40)).round()
        alpha = policies.POLICIES["yarn"].alpha(between, 128)
        kept = [
            float(retrieval.weight(law, needle, *at)) for at in zip(alpha, between, strict=True)
        ]
        assert kept[-1] > 0.5 - 1e-10
        assert min(kept) < 0.5

    def test_of_cosines_a_rule_is_taken_in_their_own_dimension(self):
        swin = policies.POLICIES["swin_v2"]
        expected = retrieval.reach(Cosine(100), Fixed(0.8), swin.scale(2, 100))
        assert retrieval.reach(Cosine(100), Fixed(0.8), policy=swin) == expected


# --- rows that are drawn --------------------------------------------------------------------------


class TestSample:
    @pytest.mark.parametrize("law", LAWS, ids=name_of)
    @pytest.mark.parametrize("kind", [Tilted, Fixed])
    def test_it_has_the_exact_means(self, law, kind):
        n, many = 12, 40_000
        needle = kind(0.8 * spread(law) if kind is Fixed else 0.8 / spread(law))
        s = retrieval.sample(law, needle, np.random.default_rng(3), many, n)
        assert s.shape == (many, n)
        for alpha in (0.5 / spread(law), 2.0 / spread(law)):
            p = rows.softmax(s, alpha)
            for drawn, exactly in (
                (p[:, 0], retrieval.weight(law, needle, alpha, n)),
                (-np.log(p[:, 0]), retrieval.loss(law, needle, alpha, n)),
                ((p**2).sum(axis=1), retrieval.collision_probability(law, needle, alpha, n)),
            ):
                error = drawn.std() / np.sqrt(many)
                assert abs(drawn.mean() - float(exactly)) < 5.0 * error

    def test_weights_are_calibrated_at_the_needle_s_strength_and_only_there(self):
        for law in (Normal(), DotProduct(16), LEVELS):
            s = retrieval.sample(law, Tilted(2.0), np.random.default_rng(4), 20_000, 30)
            right, twice = rows.calibration(s, 2.0), rows.calibration(s, 4.0)
            assert right.keys.sum() == s.size
            near = np.abs(right.share - right.weight) < 4.5 * right.standard_error
            assert near[right.keys > 1000].all()
            top = twice.weight > 0.6
            assert (twice.share[top] < (twice.weight - 5.0 * twice.standard_error)[top]).all()

    def test_calibration_by_hand(self):
        s = np.log([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0], [8.0, 1.0, 1.0]])
        found = rows.calibration(s, bins=[0.0, 0.2, 0.3, 0.6, 0.7, 1.0])
        np.testing.assert_allclose(found.keys, [2, 4, 2, 1])
        np.testing.assert_allclose(found.weight, [0.1, 0.25, 0.5, 0.8])
        np.testing.assert_allclose(found.share, [0.0, 0.5, 0.0, 1.0])
        # the second bin has a needle of two keys in two rows: no row differs from that
        np.testing.assert_allclose(found.standard_error, 0.0)
        last = rows.calibration(s, bins=[0.0, 0.2, 0.3, 0.6, 0.7, 1.0], needle=2)
        np.testing.assert_allclose(last.share, [0.5, 0.0, 1.0, 0.0])
        np.testing.assert_allclose(last.standard_error, 0.0)
        one = rows.calibration(s[[0, 2]], bins=1)
        np.testing.assert_allclose(one, [[6], [1 / 3], [1 / 3], [0]], atol=1e-15)
        certain = rows.calibration([[0.0, -np.inf]], bins=2)
        np.testing.assert_array_equal(certain.share, [0.0, 1.0])


# --- shapes, bad input ----------------------------------------------------------------------------


class TestShapes:
    @pytest.mark.parametrize("law", [Normal(), LEVELS, DotProduct(64)], ids=repr)
    def test_a_grid_is_its_points(self, law):
        alpha, n = np.array([[[0.0]], [[1.5]], [[9.0]]]), np.array([[1], [2], [900]])
        strength = np.array([0.0, 1.0, 2.5])
        for kind in (Tilted, Fixed):
            for name in ("weight", "loss") if law != DotProduct(64) else ("weight",):
                grid = QUANTITIES[name](law, kind(strength), alpha, n)
                assert grid.shape == (3, 3, 3)
                assert grid.dtype == np.float64
                for i, j, k in [(0, 1, 1), (1, 2, 0), (1, 0, 2), (2, 2, 2)]:
                    point = QUANTITIES[name](law, kind(strength[k]), alpha[i, 0, 0], n[j, 0])
                    assert point.shape == ()
                    assert grid[i, j, k] == pytest.approx(float(point), rel=1e-10)
            assert retrieval.accuracy(law, kind(strength), n).shape == (3, 3)
        assert retrieval.weight(law, Tilted([]), 1.0, 5).shape == (0,)
        assert retrieval.loss(law, Tilted(1.0), [], 5).shape == (0,)

    def test_memory_is_bounded(self):
        tracemalloc.start()
        retrieval.weight(Normal(), Tilted(3.0), 50.0, np.arange(1, 20001))
        retrieval.loss(Cosine(3), Fixed(0.5), 170.0, 10**12)
        retrieval.loss(Normal(), Fixed(3.0), 1e4, 10**12)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 300e6


class TestBadInput:
    @pytest.mark.parametrize("value", [-1.0, np.inf, np.nan, "4", None, True])
    def test_strengths(self, value):
        assert_refused("theta", str(value)[:2], Tilted, value)
        if value != -1.0:
            assert_refused("gap", str(value)[:2], Fixed, value)

    def test_needles_stronger_than_the_law_allows(self):
        for function in (retrieval.weight, retrieval.loss, retrieval.collision_probability):
            assert_refused("theta", "1.5", function, Laplace(), Tilted(1.5), 1.0, 5)
            assert_refused("theta", "1", function, Exponential(), Tilted([0.1, 1.0]), 1.0, 5)
            assert_refused("theta", "20000", function, Normal(), Tilted(2e4), 1.0, 5)
            assert_refused("gap", "1.5", function, Cosine(8), Fixed(1.5), 1.0, 5)
            assert_refused("gap", "-1.5", function, Cosine(8), Fixed(-1.5), 1.0, 5)
            assert_refused("gap", "1e+06", function, Normal(), Fixed(1e6), 1.0, 5)
        assert_refused("gap", "3", retrieval.accuracy, Cosine(8), Fixed(3.0), 5)
        assert_refused("gap", "3", retrieval.reach, Cosine(8), Fixed(3.0), 1.0)

    def test_numbers_of_keys_and_needles(self):
        for n in (0, 0.5, 1.5, 2.0**53 + 2.0):
            assert_refused("n", f"{n:g}", retrieval.weight, Normal(), Tilted(1.0), 1.0, n)
            assert_refused("n", f"{n:g}", retrieval.accuracy, Normal(), Tilted(1.0), n)
        for needles in (0, 6, 2.0, "2"):
            told = {"needles": needles}
            for function in (retrieval.weight, retrieval.loss):
                call = partial(function, Normal(), Tilted(1.0), 1.0, 5)
                assert_refused("needles", str(needles), call, **told)
        assert_refused(
            "sinks", "inf", retrieval.weight, Normal(), Tilted(1.0), 1.0, 5, sinks=np.inf
        )

    def test_what_does_not_broadcast(self):
        shapes = "(2,) and (3,) and (4,)"
        needle = Tilted([1.0, 2.0, 3.0, 4.0])
        assert_refused("needle", shapes, retrieval.loss, Normal(), needle, [1.0, 2.0], [2, 3, 4])

    def test_samples(self):
        call = partial(retrieval.sample, Normal(), rng=np.random.default_rng(0), rows=2, n=3)
        assert_refused("needle", "[1., 2.]", call, Tilted([1.0, 2.0]))

    def test_orders(self):
        for order in (0.5, 17.0, np.inf, np.nan):
            call = partial(retrieval.moment, Normal(), Tilted(1.0), 1.0, 5)
            assert_refused("order", f"{order:g}", call, order)

    def test_rules(self):
        reach = partial(retrieval.reach, Normal(), Tilted(1.0))
        assert_refused("policy", "alpha", reach)
        assert_refused("policy", "alpha", reach, 1.0, policy="yarn")
        assert_refused("policy", "'yar'", reach, policy="yar", d=64)
        assert_refused("policy", "3", reach, policy=3, d=64)
        assert_refused("d", "None", reach, policy="yarn")
        assert_refused("d", "0", reach, policy="yarn", d=0)
        assert_refused("d", "64", reach, 1.0, d=64)
        assert_refused("alpha", "-1", reach, -1.0)
        assert_refused("needle", "3", retrieval.reach, Normal(), 3, 1.0)

    @given(
        law=st.sampled_from([Normal(), LEVELS, Cosine(3), Cosine(2**53), Laplace()]),
        strength=st.floats(0.0, 100.0) | st.floats(0.0, 3.0),
        tilted=st.booleans(),
        alpha=st.floats(0.0, 100.0) | st.floats(0.0, 3.0),
        n=st.integers(1, 2**53),
    )
    @settings(max_examples=20)
    def test_everything_allowed_gives_numbers(self, law, strength, tilted, alpha, n):
        scale = alpha / spread(law)
        strength = min(strength, 1.3) if isinstance(law, Laplace) else strength
        needle = Fixed(min(strength * spread(law), 1.0))
        if tilted:
            needle = Tilted(strength / spread(law))
        values = [float(function(law, needle, scale or 1.0, n)) for function in QUANTITIES.values()]
        values.append(float(retrieval.accuracy(law, needle, n)))
        assert np.isfinite(values).all()
        assert all(-1e-12 <= value <= 1.0 + 1e-9 for value in (*values[:3], *values[4:]))
        assert values[3] >= 0.0


# --- large scales ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2.0, 16.0])
def test_many_n_at_once_are_each_alone_at_large_scales(order):
    """E P^k falls by up to 170 powers of ten over these n, and none hides another."""
    n = np.array([2, 50, 10**12])
    found = retrieval.moment(LEVELS, Tilted(1.0), 1e3, n, order)
    alone = [float(retrieval.moment(LEVELS, Tilted(1.0), 1e3, one, order)) for one in n]
    np.testing.assert_allclose(found, alone, rtol=1e-9)


@pytest.mark.parametrize(("d", "theta", "scale"), [(128, 0.0, 2.0), (3, 20.0, 100.0)])
def test_high_orders_have_their_digits(d, theta, scale):
    call = partial(retrieval.moment, Cosine(d), Tilted(theta), scale * d**0.5, [2, 50, 10**12])
    found = call(order=16.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quadrature, "STEP", 0.61 * quadrature.STEP)
        np.testing.assert_allclose(found, call(order=16.0), rtol=1e-11)


def test_levels_that_never_mix_are_sums_over_ties():
    n, tie = np.array([2, 10**9]), 0.6**2 + 0.3**2 + 0.1**2
    assert_all_close(LEVELS, Tilted(0.0), 1e3, 2, {"collision_probability": 1.0 - tie / 2.0})
    found = retrieval.moment(LEVELS, Tilted(0.0), 1e3, n, 16.0)
    assert found[0] == pytest.approx((1.0 - tie) / 2.0 + tie / 2.0**16, rel=1e-10)


@pytest.mark.parametrize("alpha", [100.0, 1e3, 8e3])
def test_a_needle_that_hardly_any_key_reaches_is_lost_as_rarely(alpha):
    """E log(1 + e^{αx}) = α E x⁺ + π²f(0)/6α + …, for x = s − 12 of density f."""
    with mp.workdps(30):
        density, above = mp.npdf(12), mp.ncdf(-12)
        expected = float(alpha * (density - 12 * above) + mp.pi**2 / 6 * density / alpha)
    for n in (2, 1001):
        found = retrieval.loss(Normal(), Fixed(12.0), alpha, n)
        assert found == pytest.approx((n - 1) * expected, rel=1e-4 / (alpha / 100.0) ** 4 + 1e-9)


def test_no_cosine_is_above_one():
    assert retrieval.weight(Cosine(8), Fixed([-1.0, 1.0]), 1.0, 5).shape == (2,)
    for gap in (1.05, -1.05):
        assert_refused("gap", f"{gap}", retrieval.weight, Cosine(8), Fixed(gap), 1.0, 5)


def test_every_other_length_of_a_query_averages_to_the_same():
    for law in (DotProduct(32), Normal()):
        averaged = partial(retrieval._averaged, law, Fixed(3.0), np.array([50.0, 1e6]), 2.0)
        whole, half = (averaged(retrieval._WEIGHT, every=every) for every in (1, 2))
        np.testing.assert_allclose(half, whole, rtol=1e-6)

"""Each policy against its definition written out by hand; effective α; constants; bad input.

The definitions are in plain arithmetic, one number at a time, and share no code with the library.
"""

import math

import mpmath
import numpy as np
import pytest

from attnlib import policies
from attnlib.policies import POLICIES
from tests.library.test_bad_input import assert_refused

ROOT, LOG = math.sqrt, math.log


def searched(objective, low, high):
    """Return where the objective is largest, by golden section, in forty digits."""
    with mpmath.workdps(40):
        a, b = mpmath.mpf(low), mpmath.mpf(high)
        ratio = (mpmath.sqrt(5) - 1) / 2
        for _ in range(75):
            left, right = b - ratio * (b - a), a + ratio * (b - a)
            a, b = (a, right) if objective(left) > objective(right) else (left, b)
        return float((a + b) / 2)


def best_for_cosines(n, d):
    """Maximise α(1 − E e^{2αs}/(n (E e^{αs})²)), E e^{αs} = ₀F₁(; d/2; α²/4)."""

    def mean(a):
        return mpmath.hyp0f1(mpmath.mpf(d) / 2, a * a / 4)

    return searched(lambda a: a * (1 - mean(2 * a) / (n * mean(a) ** 2)), 1, 100)


IN_DIMENSIONS = {
    **dict.fromkeys(("transformer", "t5", "almost_scaled", "mimo_v2"), lambda d: 1 / ROOT(d)),
    # log₂(1 + e⁰) is 1; the variance of a sum of three products is 3; the root of 4
    "timesfm": lambda d: math.log2(1 + math.exp(0)) / ROOT(d),
    "deberta": lambda d: 1 / ROOT(3 * d),
    "longcat": lambda d: ROOT(6144 / 1536) / ROOT(d),
    # q and k of length √d, one of them m times as long
    "muse_glimmer": lambda d: 3.87 * d / ROOT(d),
    "muse_spark": lambda d: 5.4730064863875 * d / ROOT(d),
    "nanochat": lambda d: 1.2 * 1.2 * d / ROOT(d),
    "parameter_golf": lambda d: 1.5 * d / ROOT(d),
    "modded_nanogpt": lambda d: 0.12 * d,
    "mup": lambda d: 8 / d,
    **dict.fromkeys(("u_mup", "cerebras_gpt"), lambda d: 1 / d),
    # the twelfth layer has index 11
    "gpt2_by_layer": lambda d: 1 / ROOT(d) / (11 + 1),
    # the product of two vectors of length √d is d times the cosine; then it is divided by √d
    **dict.fromkeys(("qk_norm", "ngpt"), lambda d: d / ROOT(d)),
    # the same product, not divided
    "gemma_4": lambda d: 1.0 * ROOT(d) * ROOT(d),
    # the extension is 40, whatever the n; once for q and once for k
    "deepseek_v3": lambda d: (0.1 * LOG(40) + 1) * (0.1 * LOG(40) + 1) / ROOT(d),
}
NUMBERS = {
    **{"granite": 0.0078125, "gemma_2": 1 / 12, "gemma_3": 1 / ROOT(168)},
    **{"grok_1": 0.08838834764831845, "swin_v2": 10, "x_transformers": 10, "am_softmax": 30},
    **{"cosface": 64, "arcface": 64, "simcse": 1 / 0.05, "clip": 100 / 7, "siglip": 10},
}
BY_HAND = {
    **{name: lambda n, d, rule=rule: rule(d) for name, rule in IN_DIMENSIONS.items()},
    **{name: lambda n, d, number=number: number for name, number in NUMBERS.items()},
    # the base-2 logarithm of the pairs of different tokens, n times n − 1
    "qknorm": lambda n, d: LOG(n * (n - 1)) / LOG(2),
    # the square root of two times the logarithm of the number of wrong classes
    "adacos": lambda n, d: ROOT(2) * LOG(n - 1),
    "chiang_cholak": lambda n, d: LOG(n) / ROOT(d),
    # κ log n over d, with κ the square root of d over log 512; short rows count as 16
    "entropy_invariance": lambda n, d: ROOT(d) / LOG(512) * LOG(max(n, 16)) / d,
    # the logarithm to base 2048 of the tokens up to this one, never below 1
    "qwen": lambda n, d: max(1, LOG(n, 2048)) / ROOT(d),
    # the base-2 logarithm of the position over that of 1024, where the position, n − 1, exceeds it
    "grok_2": lambda n, d: (math.log2(n - 1) / math.log2(1024) if n - 1 > 1024 else 1.0) * d**-0.5,
    "gradient": lambda n, d: searched(lambda a: a * (1 - mpmath.exp(a * a) / n), 0, 10) / ROOT(d),
    "gradient_cosine": best_for_cosines,
    "ssmax": lambda n, d: 0.168 * LOG(n) / ROOT(d),
    # a tenth of the logarithm of the extension, plus 1, once for q and once for k
    "yarn": lambda n, d: (0.1 * LOG(max(n / 4096, 1)) + 1) ** 2 / ROOT(d),
    # the root of 1 + log s/log 4096, once for q and once for k, s the extension
    "longrope": lambda n, d: ROOT(1 + LOG(max(n / 4096, 1)) / LOG(4096)) ** 2 / ROOT(d),
    # 1 and a tenth of the logarithm of 1 plus the full blocks of 8192 tokens so far
    "llama_4": lambda n, d: (1 + 0.1 * LOG(1 + n // 8192)) / ROOT(d),
    # the same with the full blocks of 16384 before the position
    "ministral_3": lambda n, d: (1 + 0.1 * LOG(1 + (n - 1) // 16384)) * d**-0.5,
    # d, divided by d, and a tenth of the logarithm beyond 128000 tokens
    "inkling": lambda n, d: d * (1 + 0.1 * LOG(max(1, n / 128000))) / d,
    "beam": lambda n, d: d / ROOT(d) * (1 + n / 2048) ** 0.1,
    "lumina": lambda n, d: ROOT(LOG(n, 4096) / d),
    # the root of 1 − n^{−2/d}, over that of 512 keys
    "infoscale": lambda n, d: ROOT(1 - n ** (-2 / d)) / ROOT(1 - 512 ** (-2 / d)) / ROOT(d),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_scale_is_the_definition_by_hand(name):
    for n, d in [(12, 16), (512, 64), (4096, 128), (131072, 192)]:
        scale = POLICIES[name].scale(n=n, d=d)
        assert scale.dtype == np.float64
        assert scale.shape == ()
        assert float(scale) == pytest.approx(float(BY_HAND[name](n, d)), rel=1e-12)
    # At one and two keys the counts of pairs and of wrong classes begin.
    np.testing.assert_allclose(POLICIES["qknorm"].scale([1, 2], 64), [1.0, 1.0])
    np.testing.assert_array_equal(POLICIES["adacos"].scale([1, 2], 64), [0.0, 0.0])


def same(left, right):
    np.testing.assert_allclose(left, right, rtol=1e-13)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_every_constant_matters_and_has_a_least_value(policy):
    assert policy.depends_on_n == (np.ptp(policy.scale([2, 10**6], 128)) > 0.0)
    for setting in policy.settings:
        assert setting.minimum <= setting.value
        assert setting.meaning
        n = 8 if (policy.name, setting.name) == ("entropy_invariance", "floor") else 10**6
        other = 1.0 if setting.name == "largest" else 0.7 * setting.value
        changed = policy.with_constants(**{setting.name: other})
        assert changed.scale(n, 128) != policy.scale(n, 128), setting
        assert changed.constants == {**policy.constants, setting.name: other}
        assert policy.with_constants() == policy != changed
        least = policy.with_constants(**{setting.name: setting.minimum})
        scales = least.scale([1, 2, 10**6], [[3], [128]])
        assert np.isfinite(scales).all()
        assert (scales >= 0.0).all()
        below = {setting.name: setting.minimum - 1e-9}
        assert_refused(setting.name, "at least", policy.with_constants, **below)


def test_a_rule_relative_to_a_length_and_a_rule_of_ones_own():
    relative = POLICIES["ssmax"].relative(1024)
    assert relative == POLICIES["ssmax"].relative(1024) != POLICIES["ssmax"].relative(1025)
    assert policies.own(np.hypot) == policies.own(np.hypot)  # a key of `attention`'s tables
    assert_refused("train_length", "positive", POLICIES["ssmax"].relative(1).scale, 8, 64)
    assert_refused("train_length", "0.5", POLICIES["ssmax"].relative, 0.5)
    for policy in POLICIES.values():  # of arrays as of numbers
        same(policy.relative(512).scale(n=[512, 512], d=[[3], [64]]), np.ones((2, 2)))
    for name in ("llama_4", "ministral_3", "inkling"):  # each begins to grow where training ended
        moved = POLICIES[name].relative(16).scale(n=100, d=64, position=[0, 15, 99])
        same(moved[:2], 1.0)
        assert moved[2] > 1.1, name
    mine = policies.own(lambda n, d, position: n * d + position, "cosine")
    assert (mine.name, mine.applied_to) == ("<lambda>", "cosine")
    same(mine.scale([2, 3], 16), [33.0, 50.0])
    same(mine.alpha(2, 16, 0), 8.0)
    assert_refused("scale", "-1", policies.own(lambda n, d, position: -n).scale, 1, 1)

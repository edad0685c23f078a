"""Each policy against its definition written out by hand; effective α; constants; bad input.

The definitions are in plain arithmetic, one number at a time, and share no code with the library.
"""

import copy
import math
import pickle
import re
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib import annealed, policies, scores
from attnlib.policies import POLICIES
from tests.books import bibliography_keys
from tests.library.test_bad_input import (
    assert_all_refused,
    assert_refused,
    result_or_refusal,
)


def searched(objective, low, high):
    """Return where the objective is largest, by golden section, in forty digits."""
    with mpmath.workdps(40):
        a, b = mpmath.mpf(low), mpmath.mpf(high)
        ratio = (mpmath.sqrt(5) - 1) / 2
        for _ in range(75):
            left, right = b - ratio * (b - a), a + ratio * (b - a)
            if objective(left) > objective(right):
                b = right
            else:
                a = left
        return float((a + b) / 2)


def best_for_normal_scores(n):
    """Maximise α(1 − e^{α²}/n)."""
    return searched(lambda a: a * (1 - mpmath.exp(a * a) / n), 0, 10)


def best_for_cosines(n, d):
    """Maximise α(1 − E e^{2αs}/(n (E e^{αs})²)), E e^{αs} = ₀F₁(; d/2; α²/4)."""

    def mean(a):
        return mpmath.hyp0f1(mpmath.mpf(d) / 2, a * a / 4)

    return searched(lambda a: a * (1 - mean(2 * a) / (n * mean(a) ** 2)), 1, 100)


BY_HAND = {
    # one over the square root of the head dimension
    "transformer": lambda n, d: 1 / math.sqrt(d),
    # nothing at run time; queries that are 1/√d smaller do the same at the start
    "t5": lambda n, d: 1 / math.sqrt(d),
    # eight over the head dimension
    "mup": lambda n, d: 8 / d,
    # one over the head dimension
    "u_mup": lambda n, d: 1 / d,
    "cerebras_gpt": lambda n, d: 1 / d,
    # as the Transformer; what it multiplies at the output is not a scale of the scores
    "almost_scaled": lambda n, d: 1 / math.sqrt(d),
    # numbers of the models
    "granite": lambda n, d: 0.0078125,
    "gemma_2": lambda n, d: 1 / 12,
    "gemma_3": lambda n, d: 1 / math.sqrt(168),
    "grok_1": lambda n, d: 0.08838834764831845,
    # as the Transformer; what multiplies the values is not a scale of the scores
    "mimo_v2": lambda n, d: 1 / math.sqrt(d),
    # the Transformer's scale divided by the index of the layer plus one: the twelfth has index 11
    "gpt2_by_layer": lambda n, d: 1 / math.sqrt(d) / (11 + 1),
    # the base-2 logarithm of the pairs of different tokens, n times n − 1
    "qknorm": lambda n, d: math.log(n * (n - 1)) / math.log(2),
    # e to the initial logarithm log 10, which is below the clip
    "swin_v2": lambda n, d: 10,
    # the product of two vectors of length √d is d times the cosine; then it is divided by √d
    "qk_norm": lambda n, d: d / math.sqrt(d),
    "ngpt": lambda n, d: d / math.sqrt(d),
    # the same product, and it is not divided: each vector is its direction times √d, times 1
    "gemma_4": lambda n, d: 1.0 * math.sqrt(d) * math.sqrt(d),
    # fixed numbers
    "x_transformers": lambda n, d: 10,
    "am_softmax": lambda n, d: 30,
    "cosface": lambda n, d: 64,
    "arcface": lambda n, d: 64,
    "simcse": lambda n, d: 1 / 0.05,
    "clip": lambda n, d: 100 / 7,
    "siglip": lambda n, d: 10,
    # the square root of two times the logarithm of the number of wrong classes
    "adacos": lambda n, d: math.sqrt(2) * math.log(n - 1),
    # the logarithm of the number of keys, over √d
    "chiang_cholak": lambda n, d: math.log(n) / math.sqrt(d),
    # κ log n over d, with κ the square root of d over log 512; short rows count as 16
    "entropy_invariance": lambda n, d: math.sqrt(d) / math.log(512) * math.log(max(n, 16)) / d,
    # the logarithm to base 2048 of the tokens up to this one, never below 1, over √d
    "qwen": lambda n, d: max(1, math.log(n, 2048)) / math.sqrt(d),
    # the base-2 logarithm of the position over that of 1024, where the position, n − 1, exceeds it
    "grok_2": lambda n, d: (math.log2(n - 1) / math.log2(1024) if n - 1 > 1024 else 1.0) * d**-0.5,
    "gradient": lambda n, d: best_for_normal_scores(n) / math.sqrt(d),
    "gradient_cosine": best_for_cosines,
    # 0.168 times the logarithm of the number of keys, over √d
    "ssmax": lambda n, d: 0.168 * math.log(n) / math.sqrt(d),
    # a tenth of the logarithm of the extension, plus 1, once for q and once for k, over √d
    "yarn": lambda n, d: (0.1 * math.log(max(n / 4096, 1)) + 1) ** 2 / math.sqrt(d),
    # the same with the extension 40, whatever the n
    "deepseek_v3": lambda n, d: (0.1 * math.log(40) + 1) * (0.1 * math.log(40) + 1) / math.sqrt(d),
    # the root of 1 + log s/log 4096, once for q and once for k, s the extension, over √d
    "longrope": lambda n, d: (
        math.sqrt(1 + math.log(max(n / 4096, 1)) / math.log(4096)) ** 2 / math.sqrt(d)
    ),
    # 1 and a tenth of the logarithm of 1 plus the full blocks of 8192 tokens so far, over √d
    "llama_4": lambda n, d: (1 + 0.1 * math.log(1 + n // 8192)) / math.sqrt(d),
    # 1 and a tenth of the logarithm of 1 plus the full blocks of 16384 before the position, over √d
    "ministral_3": lambda n, d: (1 + 0.1 * math.log(1 + (n - 1) // 16384)) * d**-0.5,
    # the root of 1 − n^{−2/d}, over that of 512 keys, over √d
    "infoscale": lambda n, d: (
        math.sqrt(1 - n ** (-2 / d)) / math.sqrt(1 - 512 ** (-2 / d)) / math.sqrt(d)
    ),
}


def test_every_policy_is_checked_by_hand():
    assert set(BY_HAND) == set(POLICIES)
    assert all(name == policy.name for name, policy in POLICIES.items())


@pytest.mark.parametrize(("n", "d"), [(12, 16), (512, 64), (4096, 128), (131072, 192)])
@pytest.mark.parametrize("name", POLICIES)
def test_the_scale_is_the_definition_by_hand(name, n, d):
    found = POLICIES[name].scale(n=n, d=d, position=None)
    assert found.dtype == np.float64
    assert found.shape == ()
    assert float(found) == pytest.approx(float(BY_HAND[name](n, d)), rel=1e-12)


def test_the_numbers_of_a_few_are_worked_out():
    """By hand to the digits shown: √128 = 11.3137, log 4096 = 8.31777, log 512 = 6.23832."""
    expected = {
        "transformer": 0.0883883,
        "mup": 0.0625,
        "entropy_invariance": 0.117851,  # 8.31777/6.23832 = 4/3, over 11.3137
        "chiang_cholak": 0.735193,
        "ssmax": 0.123512,
        "qwen": 0.0964236,  # log 4096/log 2048 = 12/11
        "qknorm": 23.99965,
        "adacos": 11.762748,  # 1.414214 · log 4095 = 1.414214 · 8.317522
        "gemma_4": 128.0,
        "gpt2_by_layer": 0.00736570,  # 0.0883883/12
        "grok_2": 0.106063,  # log₂ 4095 = 11.99965, over 10: 1.199965 · 0.0883883
    }
    for name, value in expected.items():
        assert float(POLICIES[name].scale(4096, 128)) == pytest.approx(value, rel=1e-5), name


# --- limits and disguises -------------------------------------------------------------------------

KEYS = np.array([20.0, 512.0, 5000.0, 131072.0, 1e9])


def scale(name, n=KEYS, d=128, **constants):
    return POLICIES[name].with_constants(**constants).scale(n, d)


def same(left, right, tolerance=1e-13):
    np.testing.assert_allclose(left, right, rtol=tolerance)


def test_mup_is_the_transformer_at_64():
    same(scale("mup", d=64), scale("transformer", d=64))
    same(scale("mup", d=256), scale("transformer", d=256) / 2)


def test_longrope_is_a_log_length_rule_beyond_training():
    beyond = KEYS[KEYS > 4096]
    same(scale("longrope", beyond), np.log(beyond) / np.log(4096) / np.sqrt(128))
    same(scale("longrope", beyond), scale("qwen", beyond, train_length=4096))
    same(scale("longrope", beyond), scale("entropy_invariance", beyond, reference=4096))
    same(scale("longrope", KEYS[KEYS < 4096]), 1 / np.sqrt(128))


def test_infoscale_tends_to_the_root_of_log_n():
    root = np.sqrt(np.log(KEYS) / np.log(512)) / np.sqrt(1e9)
    same(scale("infoscale", d=1e9), root, 1e-7)
    first = 1 - (np.log(KEYS) - np.log(512)) / (2 * 1e5)
    same(scale("infoscale", d=1e5), root * np.sqrt(1e9 / 1e5) * first, 1e-7)


def test_infoscale_tends_to_a_constant_for_many_keys():
    """1 − n^{−2/d} cannot exceed 1: at fixed d the rule stops growing."""
    end = 1 / np.sqrt(1 - 512 ** (-2 / 8)) / np.sqrt(8)
    same(scale("infoscale", [1e100, 1e300], d=8), end)


def test_all_log_laws_are_one_law():
    same(scale("entropy_invariance"), scale("chiang_cholak") / np.log(512))
    same(scale("ssmax", s=1 / np.log(512)), scale("entropy_invariance"))
    same(scale("ssmax", s=1.0), scale("chiang_cholak"))


def test_yarn_is_the_square_of_what_q_and_k_get():
    each = 0.1 * np.log(131072 / 4096) + 1
    same(scale("yarn", 131072), each**2 / np.sqrt(128))
    same(scale("yarn", 100), 1 / np.sqrt(128))
    same(scale("deepseek_v3", 40 * 4096, d=192), scale("yarn", 40 * 4096, d=192))


def test_swin_and_clip_are_clipped():
    same(scale("swin_v2", 64, initial=300.0), 100.0)
    same(scale("clip", 64, largest=10.0), 10.0)


def test_adacos_is_the_root_of_two_times_the_log_of_the_wrong_classes():
    assert float(scale("adacos", 10_575)) == pytest.approx(13.1, abs=0.05)  # worked by hand
    same(scale("adacos", [1, 2]), 0.0)


def test_grok_2_and_ministral_3_count_from_position_0():
    """One position behind Qwen's and Llama 4's rule of the same length."""
    place = np.array([0, 1, 2, 4095, 4096, 8191, 99_999])
    for name, like, length in (
        ("grok_2", "qwen", {"start": 4096, "train_length": 4096}),
        ("ministral_3", "llama_4", {"floor": 4096}),
    ):
        own, other = POLICIES[name], POLICIES[like]
        own = own.with_constants(**{k: v for k, v in length.items() if k in own.constants})
        other = other.with_constants(**{k: v for k, v in length.items() if k in other.constants})
        same(own.scale(10**6, 96, place[1:]), other.scale(10**6, 96, place[1:] - 1))
        assert own.alpha(10**6, 96, 0) == pytest.approx(1.0)


def test_the_layers_of_gpt_2_divide_the_transformers_scale():
    for layer in (1, 2, 48):
        same(scale("gpt2_by_layer", layer=layer) * layer, scale("transformer"))


def test_gradient_maximisation_is_near_the_fit_of_its_source():
    n = np.array([2000.0, 8000.0, 20000.0])
    same(POLICIES["gradient"].alpha(n, 64), 0.84 * np.sqrt(np.log(n)), 0.03)
    assert (np.abs(scale("gradient_cosine", n) - 30) < 5).all()


def test_the_first_positions_are_the_transformers():
    beginnings = {"qwen": 2047, "llama_4": 8190, "grok_2": 1024, "ministral_3": 16383}
    for name, last in beginnings.items():
        place = np.array([0, 1, last])
        same(POLICIES[name].alpha(10**6, 96, place), 1.0)
        assert POLICIES[name].alpha(10**6, 96, last + 1) > 1.0 + 1e-5


# --- the common footing ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("d", [16, 128])
def test_alpha_is_the_standard_deviation_of_simulated_logits(name, d):
    rng = np.random.default_rng(d)
    policy = POLICIES[name]
    q, k = rng.standard_normal((2, 40_000, d))
    logits = (q * k).sum(axis=1)
    if policy.applied_to == "cosine":
        logits /= np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1)
    logits *= float(policy.scale(1000, d))
    squares = logits**2
    error = squares.std() / np.sqrt(squares.size)
    assert abs(squares.mean() - float(policy.alpha(1000, d)) ** 2) < 4.5 * error


def test_alpha_of_a_cosine_uses_its_exact_variance():
    for d in (3, 64):
        found = POLICIES["swin_v2"].alpha(10, d)
        assert float(found) == pytest.approx(10 * np.sqrt(scores.Cosine(d).variance), rel=1e-14)


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_it_broadcasts_over_n_d_and_position(name):
    policy = POLICIES[name]
    n, d = np.array([16, 4096, 131072]), np.array([[16], [128]])
    found = policy.scale(n, d)
    assert found.shape == policy.alpha(n, d).shape == (2, 3)
    one_by_one = [[float(policy.scale(a, b)) for a in n] for b in d[:, 0]]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-14)
    place = np.array([0, 5, 10_000, 99_999]).reshape(4, 1, 1)
    assert policy.scale(n, d, place).shape == policy.alpha(n, d, place).shape == (4, 2, 3)
    assert policy.scale([], d).shape == (2, 0)
    found[...] = 0.0  # the result is the caller's to change


BY_POSITION = ("qwen", "llama_4", "grok_2", "ministral_3")


@pytest.mark.parametrize("name", POLICIES)
def test_only_four_policies_look_at_the_position(name):
    policy = POLICIES[name]
    at_the_start, at_the_end = (float(policy.scale(10**5, 64, place)) for place in (0, 99_999))
    assert (at_the_start != at_the_end) == (name in BY_POSITION)
    assert at_the_end == float(policy.scale(10**5, 64))


# --- constants ------------------------------------------------------------------------------------


def test_constants_can_be_changed_and_the_original_stays():
    yarn = POLICIES["yarn"]
    changed = yarn.with_constants(train_length=2048)
    assert changed.constants == {"coefficient": 0.1, "train_length": 2048.0}
    assert yarn.constants["train_length"] == 4096
    same(changed.scale(4096, 64) * 8, (0.1 * math.log(2) + 1) ** 2)
    assert yarn.with_constants() == yarn != changed


@pytest.mark.parametrize("name", POLICIES)
def test_every_constant_matters_and_is_described(name):
    policy = POLICIES[name]
    for setting in policy.settings:
        assert setting.value >= setting.minimum
        assert setting.meaning
        n = 8 if setting.name == "floor" and name == "entropy_invariance" else 10**5
        changed = policy.with_constants(**{setting.name: 0.7 * setting.value})
        if setting.name == "largest":
            changed = policy.with_constants(largest=1.0)
        assert changed.scale(n, 128) != policy.scale(n, 128), setting


CONSTANTS = [(policy.name, s.name) for policy in POLICIES.values() for s in policy.settings]


def test_a_bad_constant_is_refused():
    cases = [
        *(("2", "'2'"), (None, "None"), (True, "True"), (1j, "1j"), (np.nan, "nan")),
        *((np.inf, "inf"), (-1.0, "-1"), (0.5, "0.5"), ([2048, 4096], "single")),
    ]
    change = POLICIES["yarn"].with_constants
    assert_all_refused("train_length", cases, lambda v: change(train_length=v))


def test_a_constant_below_its_minimum_is_refused():
    for policy in POLICIES.values():
        for setting in policy.settings:
            below = {setting.name: setting.minimum - 1e-9}
            assert_refused(setting.name, "at least", policy.with_constants, **below)


@pytest.mark.parametrize(("name", "constant"), CONSTANTS)
def test_at_its_minimum_a_constant_gives_a_number(name, constant):
    policy = POLICIES[name]
    lowest = {s.name: s.minimum for s in policy.settings}[constant]
    found = policy.with_constants(**{constant: lowest}).scale([1, 2, 10**6], [[3], [128]])
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()


def test_an_unknown_constant_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"yarn are: coefficient, train_length; got 'length'"):
        POLICIES["yarn"].with_constants(length=1)
    with pytest.raises(ValueError, match=r"transformer are: none; got 'x'"):
        POLICIES["transformer"].with_constants(x=1)


# --- what a policy says of itself -----------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_it_describes_itself(policy):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", policy.name)
    assert policy.title
    assert policy.family in ("dimension", "normalised", "length")
    assert policy.applied_to in ("dot product", "cosine")
    assert policy.meaning.endswith(".")
    assert policy.read
    if not re.fullmatch(r"https://[\w./-]+", policy.source):
        assert policy.source in bibliography_keys()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_its_formula_is_balanced_latex(policy):
    depth = 0
    for mark in re.sub(r"\\[{}]", "", policy.formula):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        assert depth >= 0
    assert depth == 0
    for left, right in ("()", "[]"):
        assert policy.formula.count(left) == policy.formula.count(right)
    commands = set(re.findall(r"\\([a-zA-Z]+)", policy.formula))
    known = {"frac", "sqrt", "log", "min", "max", "ell", "alpha", "kappa", "quad"}
    assert commands <= known | {"operatorname", "lfloor", "rfloor"}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_its_formula_is_one_that_matplotlib_can_draw(policy):
    from matplotlib.mathtext import MathTextParser

    MathTextParser("path").parse(f"${policy.formula}$")


def test_what_was_not_read_at_its_source_is_marked():
    assert {p.name for p in POLICIES.values() if not p.verified} == {
        *("granite", "mimo_v2", "gemma_4", "chiang_cholak", "grok_2", "ssmax"),
    }


def test_the_catalogue_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        POLICIES["mine"] = POLICIES["yarn"]
    with pytest.raises(AttributeError):
        POLICIES["yarn"].name = "mine"


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_it_can_be_hashed_copied_and_sent_to_a_worker(policy):
    assert len({policy, copy.deepcopy(policy)}) == 1
    restored = pickle.loads(pickle.dumps(policy))
    assert restored == policy
    assert float(restored.scale(100, 32)) == float(policy.scale(100, 32))


# --- the table ------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_policy():
    frame = policies.table(n=4096, d=128)
    columns = ["name", "applied to", "formula", "scale", "alpha", "learned", "source"]
    assert list(frame.columns) == columns
    assert list(frame["name"]) == list(POLICIES)
    for row in frame.itertuples(index=False):
        policy = POLICIES[row.name]
        assert row.scale == float(policy.scale(4096, 128))
        assert row.alpha == float(policy.alpha(4096, 128))
        assert row.learned is policy.learned
        assert (row.formula, row.source) == (policy.formula, policy.source)


@pytest.mark.parametrize(("n", "d"), [([4096], 128), (4096, [64, 128]), (0, 128), (4096, "64")])
def test_the_table_wants_two_numbers(n, d):
    with pytest.raises((ValueError, TypeError), match=r"\b[nd] must"):
        policies.table(n, d)


def test_only_the_table_loads_pandas():
    code = (
        "import sys, attnlib; attnlib.policies.POLICIES['ssmax'].scale(n=4096, d=128);"
        "print('pandas' in sys.modules); attnlib.policies.table(4096, 128);"
        "print('pandas' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["False", "True"]


# --- bad input ------------------------------------------------------------------------------------


def test_sizes_below_one_are_refused_by_every_policy():
    small = [(0, "0"), (0.999, "0.999"), ([4, 0], "0")]
    for policy in POLICIES.values():
        assert_all_refused("n", small, lambda v, p=policy: p.scale(v, 64))
        assert_all_refused("d", small, lambda v, p=policy: p.scale(100, v))
        assert_refused("position", "-1", policy.scale, 100, 64, -1)


@pytest.mark.parametrize("d", [1, 2, 2.5, 64.5, [64, 2]])
def test_cosines_want_a_whole_dimension_from_three_on(d):
    assert_refused("d", "whole", POLICIES["gradient_cosine"].scale, 100, d)


def test_shapes_that_do_not_broadcast_are_refused():
    for policy in POLICIES.values():
        assert_refused("n", "(2,) and (3,)", policy.scale, [8, 9], [16, 32, 64])
        assert_refused("position", "(2,)", policy.scale, [8, 9, 10], 16, [1, 2])


sizes = st.one_of(
    st.floats(0.0, 1e12),
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.sampled_from([0.0, 1.0, 1.0 + 2e-16, 2.0, 3.0, 1e12, 1e300, 1.7e308]),
)
positions = st.one_of(st.none(), sizes)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "gradient_cosine"])
@settings(max_examples=100)
@given(n=sizes, d=sizes, position=positions)
def test_whatever_is_accepted_gives_a_number_that_is_not_negative(name, n, d, position):
    wanted = 1.0 <= n < np.inf and 1.0 <= d < np.inf
    wanted = wanted and (position is None or 0.0 <= position < np.inf)
    for method in (POLICIES[name].scale, POLICIES[name].alpha):
        found = result_or_refusal(method, n, d, position)
        assert (found is not None) == wanted
        assert found is None or (np.isfinite(found) and found >= 0.0)


@settings(max_examples=20)  # one function calls the other, which has tests of its own
@given(n=st.floats(1.0, 1e12), d=st.integers(3, 10**6))
def test_the_cosines_rule_is_that_of_the_approximation(n, d):
    found = float(POLICIES["gradient_cosine"].scale(n, d))
    assert found == float(annealed.best_alpha(scores.Cosine(d), n))


def test_what_training_changes_is_said():
    learned = {name for name, policy in POLICIES.items() if policy.learned}
    of_losses = {"clip", "siglip"}
    assert learned == of_losses | {
        *("gemma_4", "ngpt", "qk_norm", "qknorm", "ssmax", "swin_v2", "t5"),
    }


def test_the_least_a_constant_may_be():
    found = {
        (policy.name, setting.name): setting.minimum
        for policy in POLICIES.values()
        for setting in policy.settings
    }
    # What is divided by is 1 or more, and the base of a logarithm 2; factors may be 0.
    divisors = [("gemma_2", "scalar"), ("gemma_3", "scalar"), ("grok_1", "scalar")]
    divisors += [("entropy_invariance", "floor"), ("llama_4", "floor"), ("ministral_3", "floor")]
    divisors += [("gpt2_by_layer", "layer")]
    divisors += [("yarn", "train_length"), ("deepseek_v3", "factor")]
    bases = [("entropy_invariance", "reference"), ("infoscale", "train_length")]
    bases += [("qwen", "train_length"), ("longrope", "train_length"), ("grok_2", "start")]
    assert found == {key: 1.0 if key in divisors else 2.0 if key in bases else 0.0 for key in found}
    assert found.keys() >= {*divisors, *bases}


def test_it_shows_no_function():
    assert all(" at 0x" not in repr(policy) for policy in POLICIES.values())


def test_with_two_keys_the_counts_of_pairs_and_of_wrong_classes_begin():
    np.testing.assert_allclose(POLICIES["qknorm"].scale([1, 2, 3], 64), [1.0, 1.0, np.log2(6.0)])
    np.testing.assert_allclose(
        POLICIES["adacos"].scale([1, 2, 3], 64), [0.0, 0.0, np.sqrt(2.0) * np.log(2.0)]
    )

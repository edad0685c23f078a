"""The numbers of the live figures, which JavaScript computes, against attnlib."""

import numpy as np
import pytest
import torch

from attnlib import annealed, criteria, exact, freezing, retrieval, rows, typical
from attnlib.policies import POLICIES
from attnlib.sampling import sample
from attnlib.scores import Normal
from book.live import tables
from experiments.real_heads import shown
from experiments.records import load
from tests.site.live import logits_of

LAW = Normal()
LARGEST_N = tables.KEYS[1]
NEEDLES = {"theta": retrieval.Tilted, "gap": retrieval.Fixed}


def test_means_of_rows(call):
    places = [(0.0, 50), (0.05, 300), (8.0, 2), (2.4, 4096), (3.0, 10**9), (7.0, 16), (160.0, 512)]
    means = call("cases.map((c) => [m.meanCollision(...c), m.meanGradient(...c)])", places)
    for (alpha, n), (collision, gradient) in zip(places, means, strict=True):
        expected = float(exact.collision_probability(LAW, alpha, n))
        assert collision == pytest.approx(expected, rel=1e-5)
        assert gradient == pytest.approx(alpha * (1 - expected), rel=1e-4)


def test_the_approximation_and_the_criteria(call):
    n = [2, 3, 300, 311, 312, 4096, LARGEST_N]
    alpha = [0.01, 0.7, 2.0]
    gradients = call("cases.n.map((n) => cases.alpha.map((a) => m.annealedGradient(a, n)))", {
        "n": n, "alpha": alpha,
    })  # fmt: skip
    np.testing.assert_allclose(gradients, annealed.gradient(LAW, alpha, np.array(n)[:, None]))
    listed = call("cases.map(m.criteria)", n)
    for keys, scales in zip(n, listed, strict=True):
        assert scales["variance"] == 1
        assert scales["annealed"] == pytest.approx(float(annealed.best_alpha(LAW, keys)), rel=1e-9)
        assert scales["freezing"] == pytest.approx(freezing.critical_alpha(keys), rel=1e-9)
        if scales["entropy"] is None:
            assert keys <= 311
        else:  # a thousandth to either side the entropy is on either side of what it should be
            near = scales["entropy"] * np.array([0.999, 1.001])
            above, below = exact.entropy(LAW, near, keys)
            assert above > exact.entropy(LAW, 1.0, criteria.REFERENCE_KEYS) > below
    for keys in (2, 30, 700):
        value, error = typical.best_alpha(LAW, keys, rows=2000, seed=3)
        distance = abs(call("m.typicalAlpha(cases)", keys) - value)
        assert distance < 4.5 * np.hypot(error, 0.005 * value), keys
    few, many = call("[2 ** 16, 2 ** 24].map(m.typicalAlpha)")
    assert many / few == pytest.approx(
        freezing.critical_alpha(2**24) / freezing.critical_alpha(2**16)
    )


@pytest.mark.parametrize("kind", NEEDLES)
def test_the_weight_and_the_loss_of_a_needle(call, kind):
    alphas, keys = [0.0, 0.05, 0.7, 4.0, 20.0], np.array([2, 300, LARGEST_N])
    for strength in (0.0, 4.0, 7.0):
        case = {
            "needle": {"kind": kind, "strength": strength},
            "alphas": alphas,
            "keys": keys.tolist(),
        }
        weight, loss = call(
            """["weight", "loss"].map((name) => cases.alphas.map((alpha) =>
              cases.keys.map((n) => m.needleAt(cases.needle, alpha)[name](n))))""",
            case,
        )
        needle, at = NEEDLES[kind](strength), np.array(alphas)[:, None]
        np.testing.assert_allclose(weight, retrieval.weight(LAW, needle, at, keys), 1e-5, 1e-9)
        np.testing.assert_allclose(loss, retrieval.loss(LAW, needle, at, keys), 1e-4, 1e-6)


def test_every_policy_is_the_library_s(call):
    n = np.array([2, 3, 513, 5000, 131_072, LARGEST_N])[:, None]
    d = np.array([8, 9, 64, 128, 65536])
    numbers = np.array(call(
        """cases.n.map((n) => cases.d.map((d) =>
          m.POLICIES.map((p) => [m.policyScale(p, n, d), m.policyAlpha(p, n, d)])))""",
        {"n": n.ravel().tolist(), "d": d.tolist()},
    ))  # fmt: skip
    assert call("m.POLICIES.map(({ name }) => name)") == list(POLICIES)
    for i, policy in enumerate(POLICIES.values()):
        exactly = 1e-4 if policy.name == "gradient_cosine" else 1e-9  # which has a table
        np.testing.assert_allclose(numbers[:, :, i, 0], policy.scale(n, d), rtol=exactly)
        np.testing.assert_allclose(numbers[:, :, i, 1], policy.alpha(n, d), rtol=exactly)


@pytest.mark.parametrize(
    ("known", "alpha", "times", "unit"),
    [("nothing", 1.0, 1.0, True), ("theta", 4.0, 4.0, False)]
    + [("head", 2.0, 1.0, unit) for unit in (False, True)],
)
def test_what_is_recommended(call, known, alpha, times, unit):
    state = {"n": 4096, "d": 64, "unit": unit, "known": known, "theta": 4, "g": 9, "v": 4, "own": 1}
    answer = call("m.scales(cases)", state)
    advice = answer["recommended"]
    assert advice["alpha"] == pytest.approx(alpha)
    assert advice["scale"] == pytest.approx(times * (8 if unit else 1 / 8))
    rules = {rule["name"]: rule for rule in answer["policies"]}
    if known == "head":  # which is left as it is; what finds this one key is shown beside
        (finding,) = (line for line in answer["criteria"] if line["name"] == "finding")
        assert finding["alpha"] == pytest.approx(4.5)
        like, unlike = ("qk_norm", "transformer")[:: 1 if unit else -1]
        assert rules[like]["alpha"] == pytest.approx(2.0)
        assert rules[unlike]["alpha"] is None
    elif known == "theta":
        weight = float(retrieval.weight(LAW, retrieval.Tilted(4.0), 1.0, 4096))
        assert rules["transformer"]["weight"] == pytest.approx(weight, rel=1e-5)


FEW, ALL = 4000, 20_000
"""Keys for which the lines of code run: most rules have begun to grow; every one has."""

BY_KEYS_SEEN = (
    *("chiang_cholak", "entropy_invariance", "qwen", "grok_2", "gradient", "gradient_cosine"),
    *("ssmax", "llama_4", "ministral_3", "infoscale"),
)
"""Under a mask these have a number for each query. YaRN and LongRoPE count the whole context."""


@pytest.fixture
def multiplied(monkeypatch):
    """Return a function that runs lines of code and returns what multiplies each q·k, or cosine."""
    seen = []

    def attention(q, k, v, *args, scale=None, **options):
        seen.append((q, 1 / np.sqrt(q.shape[-1]) if scale is None else scale))
        return v

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)

    def multiplied(text, applied_to, n):
        q, k, v = torch.randn(3, n, 16, generator=torch.Generator().manual_seed(1)).double()
        exec(text, {"q": q, "k": k, "v": v})
        query, scale = seen.pop()
        unit = q / q.norm(dim=-1, keepdim=True) if applied_to == "cosine" else q
        return ((query * unit).sum(-1) / (unit * unit).sum(-1) * scale).numpy()

    return multiplied


@pytest.mark.parametrize(
    ("n", "causal", "own"),
    [(FEW, True, False)]
    + [
        pytest.param(ALL, *case, marks=pytest.mark.slow)
        for case in ((False, False), (True, False), (True, True))
    ],
)
def test_the_lines_of_code_multiply_with_what_the_catalogue_says(call, multiplied, n, causal, own):
    lines = call(
        """m.rulesOf(cases).concat(m.scales(cases).criteria).filter(({ alpha }) => alpha !== null)
          .map((scale) => [scale, m.code(scale, cases)])""",
        {"n": n, "d": 16, "causal": causal, "own": own, "length": 1000, "known": "nothing"},
    )
    assert len(lines) == len(POLICIES) + 5
    for rule, code in lines:
        name, expected = rule["name"], np.full(n, rule["scale"])
        if name in POLICIES:
            policy = POLICIES[name].with_constants(**rule["changed"])
            by_query = causal and name in BY_KEYS_SEEN
            expected = policy.scale(np.arange(1, n + 1) if by_query else n, 16)
        for text in (code["torch"], code["attnlib"]):
            factor = multiplied(text, rule["applied_to"], n)
            np.testing.assert_allclose(factor, expected, rtol=6e-4, atol=1e-9, err_msg=text)


def test_every_row_is_the_library_s(call):
    rows_by_head = call(
        """m.RECORDED.heads.map((head) => head.meant.map((_, query) => {
          const logits = m.logitsOf(head, query);
          return [0.5, 1, 3].map((times) => {
            const { weights, ...row } = m.rowOf(logits, times);
            return { ...row, largest: Math.max(...weights) };
          });
        }))"""
    )
    for head, of_head in zip(shown.SHOWN, rows_by_head, strict=True):
        table = load("real_heads_shown").find(**head.record_key)
        for query in range(1, len(of_head), 7):
            logits = logits_of(table, query)
            for times, row in zip((0.5, 1, 3), of_head[query], strict=True):
                p = rows.softmax(logits, times)
                assert row["n"] == logits.size
                assert row["largest"] == pytest.approx(p.max(), rel=1e-6)
                assert row["keys"] == pytest.approx(1 / rows.collision_probability(p), rel=1e-6)
                assert row["entropy"] == pytest.approx(rows.shannon_entropy(p), abs=1e-9)
                assert row["alpha"] == pytest.approx(times * logits.std(ddof=1), rel=1e-9)


def test_random_rows_are_near_the_library_s_between_the_nodes(call):
    cases = [[7, 0.8], [19, 2.3], [40, 5.5], [53, 1.4], [50, 14.0]]
    by_case = call("cases.map(([n, alpha]) => m.randomKeys(n, alpha))", cases)
    for (n, alpha), quantiles in zip(cases, by_case, strict=True):

        def keys(scores, alpha=alpha):
            return 1 / rows.collision_probability(rows.softmax(scores, alpha))

        expected = sample(Normal(), n, keys, rows=10_000, seed=1).quantile([0.05, 0.5, 0.95])
        np.testing.assert_allclose(quantiles, expected.value, rtol=0.05)
    assert call("[m.randomKeys(1, 3), m.randomKeys(30, 0)[1]]") == [
        [1, 1, 1],
        pytest.approx(30, rel=0.01),
    ]

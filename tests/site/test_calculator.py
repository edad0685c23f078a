"""The calculator: its numbers against attnlib over the whole range, and its page in a browser."""

import re
from itertools import product
from pathlib import Path
from time import sleep

import numpy as np
import pytest
import torch
from scipy.special import betaincinv, ndtri

from attnlib import annealed, criteria, exact, freezing, retrieval, rows, typical
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, DotProduct, Normal
from book import stills
from book.browser import WIDTHS
from book.live import tables
from experiments.criteria import held_entropy
from tests.site.browser_checks import OVERFLOW, watch

ROOT = Path(__file__).parents[2]
KINDS = {Normal: "normal", Cosine: "cosine", DotProduct: "dot product"}
LARGEST_N = tables.KEYS[1]
SMALLEST_D, LARGEST_D = tables.DIMENSIONS

LAWS = (
    Normal(),
    *map(Cosine, (SMALLEST_D, 9, 30, 128, LARGEST_D)),
    *map(DotProduct, (SMALLEST_D, 100, LARGEST_D)),
)
KEYS = (2, 3, 10, 300, 10**4, 10**6, LARGEST_N)
UNITS = (0.02, 0.7, 1.0, 1.6, 29.9)
"""α in units of the α of freezing."""


def law_of(law):
    """The law as the modules write it; the normal one has no d, so any will do."""
    return {"kind": KINDS[type(law)], "d": getattr(law, "d", 64)}


# --- the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_exact_gradient_is_within_a_thousandth(call, law):
    slow = isinstance(law, DotProduct)
    keys = np.array(KEYS[::2] if slow else KEYS)
    units = np.array(UNITS[1::2] if slow else UNITS)
    alphas = np.array([freezing.critical_alpha(n, law) for n in keys])[:, None] * units
    cases = {"law": law_of(law), "n": keys.tolist(), "alphas": alphas.tolist()}
    found = call("cases.n.map((n, i) => cases.alphas[i].map(m.meanGradient(cases.law, n)))", cases)
    np.testing.assert_allclose(found, exact.gradient(law, alphas, keys[:, None]), rtol=1e-3)


def test_between_the_nodes_it_is_no_worse(call):
    rng = np.random.default_rng(5)
    cases, expected = [], []
    for _ in range(40):
        d = int(np.round(SMALLEST_D / (1 - rng.uniform(0, 0.999))))
        law = Cosine(d) if rng.uniform() < 0.7 else Normal()
        n = int(np.round(2 * (LARGEST_N / 2) ** rng.uniform()))
        alphas = freezing.critical_alpha(n, law) * 10 ** rng.uniform(-1.5, 1.4, 4)
        expected.append(exact.gradient(law, alphas, n))
        cases.append({"law": law_of(law), "n": n, "alphas": list(alphas)})
    found = call("cases.map((c) => c.alphas.map(m.meanGradient(c.law, c.n)))", cases)
    assert np.abs(np.array(found) / np.array(expected) - 1).max() < 1e-3


def test_the_gradient_of_no_scale_and_of_too_large_a_scale(call):
    law = law_of(Cosine(16))
    zero, large = call("[0, 1e4].map(m.meanGradient(cases, 4096))", law)
    assert zero == 0.0
    assert large == pytest.approx(float(exact.gradient_limit(Cosine(16), 4096)), rel=2e-3)


@pytest.mark.parametrize("law", [Normal(), Cosine(8), DotProduct(8)], ids=str)
def test_the_causal_mean_is_the_mean_over_the_positions(call, law):
    cases, expected = [], []
    for n in (2, 3, 24, 25, 26, 100, *([] if isinstance(law, DotProduct) else [1500])):
        alphas = [x * freezing.critical_alpha(n, law) for x in (0.02, 0.3, 1.0, 2.0, 29.0)]
        keys = np.arange(1, n + 1)
        expected.append([float(exact.gradient(law, alpha, keys).mean()) for alpha in alphas])
        cases.append({"law": law_of(law), "n": n, "alphas": alphas})
    found = call("cases.map((c) => c.alphas.map(m.causalGradient(c.law, c.n)))", cases)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_causal_mean_over_sixteen_million_positions(call):
    # Between whole numbers of keys on a fine grid the exact gradient is a straight line enough.
    keys = np.unique(np.round(np.geomspace(1, LARGEST_N, 2000)))
    alpha = 3.0
    gradient = exact.gradient(Normal(), alpha, keys)
    pairs = np.diff(keys)
    # The sum over a piece of a line, without its first point.
    total = (pairs * (gradient[1:] + gradient[:-1]) / 2 + (gradient[1:] - gradient[:-1]) / 2).sum()
    found = call("m.causalGradient(cases, 2 ** 24)(3)", law_of(Normal()))
    assert found == pytest.approx((total + gradient[0]) / LARGEST_N, rel=1e-3)


def test_the_approximation_is_the_library_s(call):
    cases, expected = [], []
    for law in LAWS:
        for n in (2.0, 460.478, float(LARGEST_N)):
            alphas = freezing.critical_alpha(n, law) * np.array([0.01, 0.3, 0.6])
            expected.append(annealed.gradient(law, alphas, n))
            cases.append({"law": law_of(law), "n": n, "alphas": list(alphas)})
    found = call(
        "cases.map((c) => c.alphas.map((a) => m.annealedGradient(c.law, a, c.n) ?? null))", cases
    )
    finite = np.where(np.isfinite(expected), expected, np.nan)
    np.testing.assert_allclose(np.array(found)[np.isfinite(finite)], finite[np.isfinite(finite)])


def test_criteria_in_closed_form(call):
    cases, expected = [], []
    for law in LAWS:
        for n in (2, 3, 500, 1000, LARGEST_N):
            for causal in (False, True):
                keys = criteria.effective_keys(n, causal=causal)
                unit = 1 / np.sqrt(law.variance)
                best, critical = (
                    float(annealed.best_alpha(law, keys)),
                    freezing.critical_alpha(keys, law),
                )
                expected.append([unit, best, critical])
                cases.append([law_of(law), n, causal])
    found = call("cases.map((c) => m.criteria(...c).map(({ alpha }) => alpha))", cases)
    chosen = [[line[0], line[1], line[3]] for line in found]
    np.testing.assert_allclose(chosen, expected, rtol=1e-9)


def needle_of(law, kind, strength):
    """A needle as the library writes it, of a strength in standard deviations."""
    unit = np.sqrt(law.variance)
    return retrieval.Fixed(strength * unit) if kind == "gap" else retrieval.Tilted(strength / unit)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_weight_of_a_needle_is_within_a_thousandth(call, law):
    few = isinstance(law, DotProduct)
    unit = float(np.sqrt(law.variance))
    strengths = {"theta": [0.0, 4.0, 7.0], "gap": [min(5.0, 0.99 / unit)]}
    alphas, keys = [0.3, 3.0, 20.0], np.array([2, 300, LARGEST_N])
    for kind, several in strengths.items():
        for strength in several[few:]:
            found = call(
                """cases.alphas.map((alpha) =>
                  cases.keys.map(m.needleWeight(cases.law, cases.needle, alpha)))""",
                {
                    "law": law_of(law),
                    "needle": {"kind": kind, "strength": strength},
                    "alphas": alphas[few:],
                    "keys": keys.tolist(),
                },
            )
            scales = np.array(alphas[few:])[:, None] / unit
            expected = retrieval.weight(law, needle_of(law, kind, strength), scales, keys)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("law", [Normal(), Cosine(64), DotProduct(64)], ids=str)
def test_the_scales_that_find_a_needle(call, law):
    unit = float(np.sqrt(law.variance))
    cases = [("gap", 5.0, 512), ("theta", 5.0, 512), ("gap", 0.0, 512), ("theta", 3.0, 4096)]
    found = call(
        """cases.needles.map(([kind, strength, n]) =>
          [m.bestAlpha, m.leastAlpha].map((f) => f(cases.law, { kind, strength }, n)))""",
        {"law": law_of(law), "needles": cases},
    )
    for (kind, strength, n), (best, least) in zip(cases, found, strict=True):
        needle = needle_of(law, kind, strength)
        expected = float(retrieval.best_alpha(law, needle, n)) * unit
        assert best == pytest.approx(expected, rel=1e-3), (kind, strength)
        distance = float(retrieval.mean_gap(law, needle)) / unit
        expected = float(retrieval.least_alpha(distance, n)) if distance > 0.0 else np.inf
        assert (np.inf if least is None else least) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("law", [Normal(), Cosine(64), DotProduct(64)], ids=str)
def test_how_far_a_scale_finds_a_needle(call, law):
    unit, names = float(np.sqrt(law.variance)), ["transformer", "ssmax", "simcse", "chiang_cholak"]
    names = names[:3] if isinstance(law, DotProduct) else names
    found = call(
        """cases.names.map((name) => {
          const rule = m.POLICIES.find((policy) => policy.name === name);
          const needle = { kind: "gap", strength: 4 };
          return m.reachOf(cases.law, needle, (n) => m.policyAlpha(rule, n, 64)).reach;
        })""",
        {"law": law_of(law), "names": names},
    )
    needle = retrieval.Fixed(4.0 * unit)
    expected = [float(retrieval.reach(law, needle, policy=name, d=64)) for name in names]
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    largest, none = (
        call(
            """[[9, 9], [0, 5]].map(([strength, alpha]) =>
          m.reachOf(cases, { kind: "gap", strength }, alpha).reach ?? "infinite")""",
            law_of(law),
        )
        if not isinstance(law, Cosine)
        else (np.inf, 2)
    )
    assert largest == np.inf
    assert none <= 3


@pytest.mark.parametrize("law", [Normal(), Cosine(64), DotProduct(64)], ids=str)
def test_the_reach_of_each_scale(call, law):
    state = {**law_of(law), "law": law_of(law)["kind"], "n": 4096, "known": "theta", "strength": 4}
    found = call("m.reachOfEach(cases, m.scales(cases))", {**state, "causal": False, "own": 1})
    needle = needle_of(law, "theta", 4)
    names = list(POLICIES)
    expected = retrieval.reach(law, needle, policy=names, d=64)
    for name, reach in zip(names, expected, strict=True):
        if 64 < reach < LARGEST_N:  # shorter ones are whole numbers too far apart
            assert found[name] == pytest.approx(reach, rel=2e-2), name
    one = float(retrieval.reach(law, needle, 4.0 / np.sqrt(law.variance)))
    assert found["finding"] == pytest.approx(one, rel=2e-3)
    assert found["gemma_4"] is None or found["gemma_4"] <= LARGEST_N


@pytest.mark.parametrize("law", [Normal(), DotProduct(64), Cosine(64)], ids=str)
def test_a_measured_head_gets_the_scale_of_its_needle(call, law):
    g, v = 9.0, 4.0
    state = {**law_of(law), "law": law_of(law)["kind"], "n": 4096, "known": "head", "g": g, "v": v}
    found = call("m.scales(cases)", {**state, "causal": False, "own": 1})
    advice = found["recommended"]
    assert advice["name"] == "finding"
    unit = float(np.sqrt(law.variance))
    needle = needle_of(law, "theta", advice["alpha"])
    gap = float(retrieval.mean_gap(law, needle)) / unit * np.sqrt(v)
    assert gap == pytest.approx(g, rel=1e-9)  # κ′(1) of its logits, for normal ones their variance
    if not isinstance(law, Cosine):
        assert advice["alpha"] / np.sqrt(v) == pytest.approx(g / v, rel=1e-9)
    before = np.sqrt(64) if isinstance(law, Cosine) else 1 / np.sqrt(64)
    assert advice["scale"] == pytest.approx(before * advice["alpha"] / np.sqrt(v))
    rules = {rule["name"]: rule for rule in found["policies"]}
    like, unlike = ("qk_norm", "transformer")[:: 1 if isinstance(law, Cosine) else -1]
    assert rules[like]["alpha"] == pytest.approx(np.sqrt(v))
    assert rules[unlike]["alpha"] is None


@pytest.mark.parametrize("known", ["nothing", "gap", "theta"])
def test_what_is_recommended(call, known):
    law, n = Normal(), 4096
    state = {"n": n, "d": 64, "law": "normal", "causal": False, "known": known, "strength": 4}
    advice = call("m.scales(cases).recommended", {**state, "own": 1})
    expected = {
        "nothing": 1.0,
        "gap": float(retrieval.best_alpha(law, retrieval.Fixed(4.0), n)),
        "theta": 4.0,
    }[known]
    assert advice["alpha"] == pytest.approx(expected, rel=1e-3)
    assert advice["scale"] == pytest.approx(expected / 8, rel=1e-3)


def test_names_and_meanings_are_the_library_s(call):
    listed = call('m.criteria({ kind: "normal", d: 64 }, 2, false)')
    expected = [(entry.name, entry.meaning) for entry in criteria.alphas(Normal(), 2)]
    assert [(entry["name"], entry["meaning"]) for entry in listed] == expected


def test_the_typical_row_within_its_error(call):
    laws = (Normal(), Cosine(8), Cosine(40), DotProduct(8), DotProduct(100))
    points = [(law, n) for law in laws for n in (2, 3, 30, 700)]
    found = call(
        "cases.map((c) => m.criteria(...c)[2].alpha)",
        [[law_of(law), n, False] for law, n in points],
    )
    for (law, n), alpha in zip(points, found, strict=True):
        value, error = typical.best_alpha(law, n, rows=2000, seed=3)
        assert abs(alpha - value) < 4.5 * np.hypot(error, 0.005 * value), (law, n)


def test_the_typical_row_beyond_the_simulations_grows_with_freezing(call):
    law = law_of(Cosine(8))
    few, many = call("[2 ** 16, 2 ** 24].map((n) => m.criteria(cases, n, false)[2].alpha)", law)
    ratio = freezing.critical_alpha(2**24, Cosine(8)) / freezing.critical_alpha(2**16, Cosine(8))
    assert many / few == pytest.approx(ratio, rel=1e-9)


def test_the_scale_that_holds_the_entropy(call):
    points = [
        *((law, n) for law in (Normal(), Cosine(8), Cosine(25)) for n in (400, 3000, LARGEST_N)),
        *((DotProduct(12), n) for n in (400, LARGEST_N)),
    ]
    found = call(
        "cases.map((c) => m.criteria(...c)[4].alpha)",
        [[law_of(law), n, False] for law, n in points],
    )
    for (law, n), alpha in zip(points, found, strict=True):
        # A thousandth to either side the entropy is on either side of what it should be.
        above, below = exact.entropy(law, alpha * np.array([0.999, 1.001]), n)
        assert above > held_entropy(law) > below, (law, n)


def test_too_few_keys_for_the_entropy_are_as_few_as_in_the_library(call):
    laws = [Normal(), *map(Cosine, (*range(8, 30), 500)), *map(DotProduct, (8, 9, 14, 500))]
    fewest = [int(np.exp(held_entropy(law))) + 1 for law in laws]
    cases = [[law_of(law), n] for law, n in zip(laws, fewest, strict=True)]
    found = call(
        "cases.map(([law, n]) => [n - 1, n].map((k) => m.criteria(law, k, false)[4].alpha))", cases
    )
    for law, n, (below, above) in zip(laws, fewest, found, strict=True):
        assert below is None, (law, n)
        assert above is not None, (law, n)


def test_every_policy_is_the_library_s(call):
    n = np.array([2, 3, 17, 512, 513, 5000, 131_072, LARGEST_N])[:, None]
    d = np.array([SMALLEST_D, 9, 64, 128, 1000, LARGEST_D])
    found = call(
        """cases.n.map((n) => cases.d.map((d) =>
          m.POLICIES.map((p) => [m.policyScale(p, n, d), m.policyAlpha(p, n, d)])))""",
        {"n": n.ravel().tolist(), "d": d.tolist()},
    )
    found = np.array(found)
    assert call("m.POLICIES.map(({ name }) => name)") == list(POLICIES)
    for i, policy in enumerate(POLICIES.values()):
        np.testing.assert_allclose(found[:, :, i, 0], policy.scale(n, d), rtol=1e-9)
        np.testing.assert_allclose(found[:, :, i, 1], policy.alpha(n, d), rtol=1e-9)


@pytest.mark.parametrize("n", [2, 20, 64, 65, 4096, LARGEST_N])
def test_the_sample_row_of_normal_scores(call, n):
    for alpha in (0.0, 1.0, 3.0, 20.0):
        found = call(
            "m.weigh(m.sampleRow(cases[0], cases[1]), cases[2])", [law_of(Normal()), n, alpha]
        )
        expected = stills.sample_row(n, alpha)
        np.testing.assert_allclose(found["weights"], expected.weights, rtol=2e-3, atol=1e-12)
        assert found["collision"] == pytest.approx(expected.collision_probability, rel=2e-3)
        assert found["gradient"] == pytest.approx(alpha * (1 - found["collision"]))


@pytest.mark.parametrize("d", [SMALLEST_D, 40])
def test_the_sample_row_of_cosines(call, d):
    arrived = np.array(tables.arrivals())

    def scores(chance):
        # P(cos > s) = ½ I_{1−s²}((d−1)/2, ½) for s > 0
        share = betaincinv((d - 1) / 2, 0.5, 2 * np.minimum(chance, 1 - chance))
        return np.where(chance < 0.5, 1, -1) * np.sqrt(1 - share)

    few = scores(arrived[:30] / arrived[30])
    # Written out: the others in the middles of equal shares of what is left
    total = arrived[63] + 4096 + 1 - 64
    left = 1 - arrived[63] / total
    others = arrived[63] / total + left * (np.arange(4032) + 0.5) / 4032
    many = scores(np.concatenate([arrived[:64] / total, others]))
    for s, tolerance in ((few, 2e-3), (many, 2e-2)):
        for alpha in (2.0, 3.0 * np.sqrt(d)):
            found = call(
                "m.weigh(m.sampleRow(cases[0], cases[1]), cases[2])",
                [law_of(Cosine(d)), s.size, alpha],
            )
            p = rows.softmax(s, alpha)
            np.testing.assert_allclose(found["weights"], p[:64], rtol=tolerance)
            assert found["collision"] == pytest.approx(float((p**2).sum()), rel=tolerance)


def test_dot_products_share_the_normal_sample_row(call):
    expression = "m.sampleRow({ kind: cases, d: 8 }, 100).scores"
    assert call(expression, "dot product") == call(expression, "normal")
    largest = -ndtri(tables.arrivals()[0] / (tables.arrivals()[63] + 37))
    assert call(expression, "normal")[0] == pytest.approx(float(largest), abs=1e-3)


def test_the_output_s_scale(call):
    n = np.array([16, 17, 100, 4096, 65536])
    t = np.geomspace(1 / 16, 16, 60)
    found = call(
        "cases.n.map((n) => cases.t.map((t) => m.outputDeviation(t, n)))",
        {"n": n.tolist(), "t": t.tolist()},
    )
    np.testing.assert_allclose(found, exact.output_std(Normal(), 1 / t, n[:, None]), rtol=1e-3)


def test_the_jacobian(call):
    s = stills.JACOBIAN_SCORES
    for alpha in (0.0, 1.0, 20.0):
        p, matrix, gradient = call(
            """(() => { const p = m.softmax(cases.s, cases.alpha);
              return [p, m.jacobian(p, cases.alpha), m.gradient(p, cases.alpha)]; })()""",
            {"s": s.tolist(), "alpha": alpha},
        )
        np.testing.assert_allclose(p, rows.softmax(s, alpha), rtol=1e-12)
        np.testing.assert_allclose(matrix, rows.jacobian(s, alpha), atol=1e-12)
        assert gradient == pytest.approx(float(rows.gradient(s, alpha)), rel=1e-9)


def test_a_curve_ends_where_it_crosses_the_edge_of_the_axes(call):
    path, x, y = call(
        """(() => {
          const axis = { from: 0, to: 1, name: "", ticks: [] };
          const view = m.chart({ x: axis, y: axis, name: "" });
          const path = view.curve([[0, 2], [0.5, 0.5], [1, -0.5]], "").getAttribute("d");
          return [path, [1 / 3, 0.5, 0.75].map(view.X), [1, 0.5, 0].map(view.Y)];
        })()"""
    )
    places = [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]
    assert path == f"M{places[0]}L{places[1]}L{places[2]}"


LINES = 20_000
"""Keys for which the lines of code run: every rule has begun to grow."""


@pytest.fixture
def multiplied(monkeypatch):
    """Return a function that runs lines of code and returns what multiplies each q·k, or cosine."""
    seen = []

    def attention(q, k, v, *args, scale=None, **options):
        seen.append((q, 1 / np.sqrt(q.shape[-1]) if scale is None else scale))
        return v

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    q, k, v = torch.randn(3, LINES, 16, generator=torch.Generator().manual_seed(1)).double()

    def multiplied(text, applied_to):
        exec(text, {"q": q, "k": k, "v": v})
        found, scale = seen.pop()
        unit = q / q.norm(dim=-1, keepdim=True) if applied_to == "cosine" else q
        return ((found * unit).sum(-1) / (unit * unit).sum(-1) * scale).numpy()

    return multiplied


BY_KEYS_SEEN = (
    *("chiang_cholak", "entropy_invariance", "qwen", "grok_2", "gradient", "gradient_cosine"),
    *("ssmax", "llama_4", "ministral_3", "infoscale"),
)
"""Under a mask these have a number for each query. YaRN and LongRoPE count the whole context."""


def expected_multiplier(policy, causal, d=16):
    """What the catalogue says that a rule multiplies with, for each query."""
    if causal and policy.name in BY_KEYS_SEEN:
        return policy.scale(np.arange(1, LINES + 1), d)
    return np.full(LINES, float(policy.scale(LINES, d)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("law", ["dot product", "cosine"])
def test_the_lines_of_code_multiply_with_what_the_catalogue_says(call, multiplied, law, causal):
    lines = call(
        """(() => {
          const { criteria, policies, own } = m.scales(cases);
          return [...criteria, ...policies, own]
            .filter(({ alpha }) => alpha !== null)
            .map((scale) => [scale.name, scale.scale, scale.applied_to, m.code(scale, cases)]);
        })()""",
        {"n": LINES, "d": 16, "law": law, "causal": causal, "own": 1.7},
    )
    assert len(lines) == 5 + len(POLICIES) + 1
    for name, scale, applied_to, code in lines:
        expected = np.full(LINES, scale)
        if name in POLICIES:
            expected = expected_multiplier(POLICIES[name], causal)
        for text in (code["torch"], code["attnlib"]):
            found = multiplied(text, applied_to)
            np.testing.assert_allclose(found, expected, rtol=6e-4, atol=1e-9, err_msg=text)


def test_the_python_on_the_page_runs(monkeypatch):
    monkeypatch.setattr(criteria, "SAMPLED_SCORES", 2**19)  # the shorter way to the same names
    text = (ROOT / "chapters" / "calculator.md").read_text("utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
    assert names["law"] == DotProduct(128)


# --- the page -------------------------------------------------------------------------------------


def number(text):
    """The number that a text of the page starts with."""
    return float(re.match(r"[\d\u202f.]+", text)[0].replace("\u202f", ""))


def line(page, name):
    """The α, what multiplies, and if shown the reach that the tables have for a name."""
    row = page.locator("tr", has=page.locator(f'input[name=live-scale][value="{name}"]'))
    return [number(re.split(r"[×>]\s", text)[-1]) for text in row.locator("td").all_inner_texts()]


def every_window(page):
    """Give a page each width in each colour scheme, and see that its pictures have the scheme."""
    page.add_style_tag(content="* { transition: none !important; }")  # the theme's sidebar slides
    for width, scheme in product(WIDTHS, ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-theme={scheme}]").wait_for()
        shown = page.locator(".live svg").first.evaluate("(box) => getComputedStyle(box).filter")
        assert (shown != "none") == (scheme == "dark")
        yield


def addressed(page, ending):
    """Wait until the address, which follows with a delay, ends so."""
    page.wait_for_url(re.compile(re.escape(ending) + "$"), timeout=3000)


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def follow(page, state):
    """Set the part of the address behind # and wait until it is drawn."""
    page.evaluate(
        """(state) => new Promise((done) => {
          addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(done)), {
            once: true,
          });
          location.hash = state;
        })""",
        state,
    )


@pytest.fixture(scope="module")
def steady(browser, address):
    """Return one page for tests that leave it in order."""
    noted = []
    page = browser.new_page()
    watch(page, noted)
    page.goto(f"{address}/calculator.html")
    yield page
    page.close()
    assert noted == []


@pytest.mark.parametrize("n", [2, 4096, LARGEST_N])
@pytest.mark.parametrize("law", [DotProduct(64), Cosine(8), Normal()], ids=str)
def test_the_tables_show_what_the_library_says(steady, n, law):
    kind, d = law_of(law)["kind"].replace(" ", "-"), getattr(law, "d", 128)
    page = steady
    follow(page, f"n={n}&d={d}&law={kind}&causal=0&scale=annealed")
    unit = np.sqrt(law.variance)
    times = 1 / unit if kind == "cosine" else 1 / np.sqrt(d)
    for name, alpha in (
        ("variance", 1 / unit),
        ("annealed", float(annealed.best_alpha(law, n))),
        ("freezing", freezing.critical_alpha(n, law)),
    ):
        standard = alpha * unit
        assert line(page, name) == pytest.approx([standard, standard * times], rel=6e-3)
    for name in ("yarn", "clip", "gradient"):
        policy = POLICIES[name]
        expected = [float(policy.alpha(n, d)), float(policy.scale(n, d))]
        assert line(page, name) == pytest.approx(expected, rel=6e-3)
    standard = float(annealed.best_alpha(law, n)) * unit
    shown = page.get_by_label("α", exact=True).input_value()
    assert float(shown) == pytest.approx(standard, rel=1e-3)


def test_it_opens_on_what_the_book_recommends(opened):
    page = opened("calculator.html")
    page.get_by_text("The book recommends it.").wait_for()
    answer = page.locator(".live-answer").inner_text()
    assert "variance: multiply q·k by 0.08839." in answer
    assert "standard deviation α = 1.00" in answer
    assert page.locator("input[name=live-scale]:checked").input_value() == "variance"
    assert page.locator(".live-chosen").count() == 1
    assert "scale=0.08839" in page.locator(".live-code").first.inner_text()
    assert page.get_by_label("Gap g", exact=True).is_hidden()
    for part in page.locator(".live-table").all():
        assert part.is_visible()
    page.locator("label", has_text="annealed").click()
    page.get_by_text("The book recommends variance, α = 1.00").wait_for()
    page.get_by_role("button", name="Take variance").click()
    addressed(page, "scale=recommended")


def test_set_by_keyboard_alone(opened):
    page = opened("calculator.html")
    page.locator("input[name=live-known]:checked").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.labels[0].innerText") == "Number of keys n"
    entry = page.get_by_label("Number of keys n", exact=True)
    page.keyboard.press("Control+a")
    page.keyboard.type("512")
    page.keyboard.press("Tab")  # to the slider
    assert page.evaluate("document.activeElement.type") == "range"
    page.keyboard.press("ArrowRight")
    settle(page)
    assert int(entry.input_value()) == round(512 * 2 ** (1 / 16))
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("64")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # to the laws
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")  # to the mask
    page.keyboard.press("Space")
    addressed(page, "#n=535&d=64&law=cosine&causal=1&scale=recommended")
    keys = criteria.effective_keys(535, causal=True)
    best = float(annealed.best_alpha(Cosine(64), keys))
    assert line(page, "annealed") == pytest.approx([best / 8, best], rel=6e-3)
    page.locator("input[name=live-scale]:checked").focus()
    page.keyboard.press("ArrowDown")
    addressed(page, "scale=annealed")
    page.get_by_label("α", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("1.5")
    addressed(page, "scale=1.5")
    assert "scale=12,\n    is_causal=True,\n)" in page.locator(".live-code").first.inner_text()
    assert "scale=12" in page.locator(".live-code").last.inner_text()
    assert entry.evaluate("(box) => getComputedStyle(box).outlineStyle") == "none"
    entry.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_set_by_pointer_on_a_phone(opened):
    page = opened("calculator.html", width=390, has_touch=True)
    slider = page.get_by_label("Number of keys n, slider")
    slider.tap()
    settle(page)
    n = int(page.get_by_label("Number of keys n", exact=True).input_value())
    assert 2**12 < n < 2**13  # the middle of 2 and 2²⁴, by logarithm
    page.locator("label", has_text="cosines").tap()
    page.locator(".live-check").tap()
    page.locator("label", has_text="freezing").tap()
    addressed(page, f"n={n}&d=128&law=cosine&causal=1&scale=freezing")
    page.locator("label", has_text="CLIP").tap()
    settle(page)
    assert 'policy="clip"' in page.locator(".live-code").last.inner_text()
    page.locator("label", has_text="a measured head").tap()
    addressed(page, "g=12&v=4&scale=recommended")
    assert page.evaluate(OVERFLOW) == []


def test_a_measured_head_on_the_page(opened):
    page = opened("calculator.html#n=4096&d=64&law=normal&g=10&v=4")
    page.get_by_text("Gap over variance is 2.50").wait_for()
    answer = page.locator(".live-answer").inner_text()
    assert "multiply q·k by 0.3125." in answer
    assert "α = 5.00, 2.50 times what was measured." in answer
    page.locator("td[data-reach=transformer]", has_text=re.compile(r"\d")).wait_for()
    reach = float(retrieval.reach(Normal(), retrieval.Tilted(5.0), 2.0))
    assert line(page, "transformer") == pytest.approx([2.0, 0.125, reach], rel=6e-3)
    variance = page.get_by_label("Variance v", exact=True)
    variance.fill("0.01")
    page.get_by_text("No answer yet. Gap g: With this variance").wait_for()
    assert page.locator(".live-table").first.is_hidden()
    variance.fill("2")
    page.get_by_text("Gap over variance is 5.00").wait_for()
    assert page.locator(".live-table").first.is_visible()
    assert fits(page)


def test_the_result_is_spoken(steady):
    page = steady
    follow(page, "n=4096&d=64&law=normal&scale=freezing")
    status = page.get_by_role("status")
    status.get_by_text("For n = 4096, d = 64, freezing: multiply q·k by 0.5098.").wait_for()
    assert "standard deviation α = 4.08" in status.inner_text()
    share = stills.sample_row(4096, freezing.critical_alpha(4096, Normal())).weights[0]
    assert f"{100 * share:.2g}\u00a0%" in status.inner_text()


@pytest.mark.parametrize(
    ("label", "text", "explained"),
    [
        ("Number of keys n", "1", "One key has all the weight"),
        ("Number of keys n", "0", "at least 2"),
        ("Number of keys n", "-7", "at least 2"),
        ("Number of keys n", "2.5", "whole number"),
        ("Number of keys n", "", "not a number"),
        ("Number of keys n", "e", "not a number"),
        ("Number of keys n", "16777217", "end at n = 16\u202f777\u202f216"),
        ("Dimension d", "7", "start at d = 8"),
        ("Dimension d", "-7", "positive"),
        ("Dimension d", "64.5", "whole number"),
        ("Dimension d", "1e9", "end at d = 65\u202f536"),
        ("α", "-1", "negative α"),
        ("α", "1e6", "30 times the α of freezing"),
        ("α", "e", "not a number"),
    ],
)
def test_what_cannot_be_used_is_explained_beside_the_field(steady, label, text, explained):
    page = steady
    if "n=4096&d=100" not in page.url:
        follow(page, "n=4096&d=100&law=dot-product&causal=0&scale=annealed")
    entry = page.get_by_label(label, exact=True)
    assert line(page, "annealed")
    good = entry.input_value()
    if text == "e":  # of which a browser gives the page nothing
        entry.press("Control+a")
        entry.press("e")
    else:
        entry.fill(text)
    settle(page)
    assert entry.get_attribute("aria-invalid") == "true"
    problem = page.locator("#" + entry.get_attribute("aria-describedby").split()[-1])
    assert explained in problem.inner_text()
    answer = page.locator(".live-answer").inner_text()
    assert answer == f"No answer yet. {label}: {problem.inner_text()}"
    for part in page.locator(".live-code, .live-table, .live-pictures").all():
        assert part.is_hidden()
    assert "n=4096&d=100" in page.url
    entry.fill(good)
    settle(page)
    assert "multiply q·k by" in page.locator(".live-answer").inner_text()
    assert entry.get_attribute("aria-invalid") == "false"
    assert problem.inner_text() == ""


def test_an_address_that_makes_no_sense_is_explained(opened):
    page = opened("calculator.html#n=1&d=many&law=zipf&scale=best")
    settle(page)
    text = page.locator(".live").inner_text()
    for explained in (
        "One key has all the weight",
        "This is not a number.",
        "There is no law “zipf”.",
        "There is no scale “best”.",
    ):
        assert explained in text
    assert page.get_by_label("Number of keys n", exact=True).input_value() == "1"
    follow(page, "n=512&d=64&law=normal&causal=0&scale=0.5")
    page.get_by_role("status").get_by_text("your own α: multiply q·k by 0.0625").wait_for()
    assert "One key" not in page.locator(".live").inner_text()


def test_a_key_to_be_found(steady):
    page = steady
    follow(page, "n=4096&d=64&law=normal&gap=6&scale=transformer")
    law, needle = Normal(), retrieval.Fixed(6.0)
    text = page.get_by_role("status")
    reach = int(retrieval.reach(law, needle, policy="transformer", d=64))
    text.get_by_text(f"half or more up to n = {reach}.").wait_for()
    weight = float(retrieval.weight(law, needle, 1.0, 4096))
    assert f"{100 * weight:.2g}\u00a0% of the weight" in text.inner_text()
    best = float(retrieval.best_alpha(law, needle, 4096))
    assert line(page, "finding")[0] == pytest.approx(best, rel=6e-3)
    assert page.locator(".live svg .bar.marked").count() == 1
    page.locator("label", has_text="finding").click()
    addressed(page, "gap=6&scale=finding")
    page.get_by_label("Its gap Δ or strength θ", exact=True).fill("-1")
    page.get_by_text("hidden below the others").first.wait_for()
    page.locator("label", has_text="a strength θ").click()
    page.get_by_label("Its gap Δ or strength θ", exact=True).fill("3")
    addressed(page, "theta=3&scale=recommended")
    page.locator("td[data-reach=finding]", has_text=re.compile(r"\d")).wait_for()
    reach = float(retrieval.reach(law, retrieval.Tilted(3.0), 3.0))
    assert line(page, "finding") == pytest.approx([3.0, 0.375, reach], rel=6e-3)
    assert page.locator("input[value=least]").is_disabled()
    assert fits(page)
    page.locator("label", has_text="nothing:").click()
    settle(page)
    assert page.locator("input[value=finding]").count() == 0
    assert page.get_by_text("What it finds").is_hidden()
    follow(page, "n=4096&d=64&law=cosine&gap=9&scale=variance")
    page.get_by_text("the gap is at most √d = 8.00").first.wait_for()


def test_too_few_keys_for_the_entropy_are_said_to_be(steady):
    page = steady
    follow(page, "n=512&d=64&law=normal&scale=entropy")
    assert line(page, "entropy")[0] == 1.0
    page.get_by_label("Number of keys n", exact=True).fill("311")
    settle(page)
    assert "cannot have the entropy of 512" in page.locator(".live").inner_text()
    assert page.locator("input[value=entropy]").is_disabled()
    addressed(page, "scale=1")


def test_the_page_fits_with_everything_open(opened):
    page = opened("calculator.html#n=16777216&d=8&law=cosine&causal=1&scale=gradient_cosine")
    settle(page)
    for _ in every_window(page):
        assert page.evaluate(OVERFLOW) == []
        inside = page.locator(".live").first.bounding_box()
        table = page.locator(".live-table").last.bounding_box()
        assert table["x"] + table["width"] <= inside["x"] + inside["width"]
    page.get_by_label("Dimension d", exact=True).fill("7")
    page.get_by_text("attnlib has smaller d").first.wait_for()
    for _ in every_window(page):
        assert page.evaluate(OVERFLOW) == []
    for named in page.locator(".live input").all():
        assert named.evaluate("(box) => box.labels.length > 0 || box.ariaLabel !== null")


def test_print_and_browsers_without_javascript_have_the_still(opened, browser, address):
    page = opened("calculator.html")
    still, live = page.locator("#fig-calculator img"), page.locator("#fig-calculator .live")
    live.wait_for()
    assert not still.is_visible()
    page.emulate_media(media="print")
    assert still.is_visible()
    assert not live.is_visible()
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(f"{address}/calculator.html")
    assert plain.locator("#fig-calculator img").is_visible()
    assert plain.get_by_text("attnlib scale --n 4096").first.is_visible()
    plain.close()


def test_it_works_from_a_file(browser, site):
    page = browser.new_page()
    page.goto((site / "chapters" / "calculator.html").as_uri(), wait_until="domcontentloaded")
    page.locator("#fig-calculator .live").wait_for()
    settle(page)
    assert line(page, "freezing")[0] == 4.08
    page.close()


# --- the figures that move ------------------------------------------------------------------------


def readings(page):
    """Return the names and values below a figure."""
    names, values = (
        page.locator(f".live-readings {tag}").all_inner_texts() for tag in ("dt", "dd")
    )
    return dict(zip(names, values, strict=True))


def test_one_row_and_its_jacobian(opened):
    page = opened("jacobian.html")
    page.get_by_label("α, slider").focus()
    page.keyboard.press("End")
    page.get_by_label("Gap of the two largest scores", exact=True).fill("0.1")
    alpha, scores = 20.0, np.append(stills.JACOBIAN_SCORES[:-1], 1.1)
    shown = readings(page)
    gradient = float(rows.gradient(scores, alpha))
    assert number(shown["gradient g = α(1 − Σp²)"]) == pytest.approx(gradient, rel=6e-3)
    assert number(shown["largest entry of J"]) == pytest.approx(
        float(rows.largest_entry(scores, alpha)), rel=6e-3
    )
    moves(page, "Let α grow", "α")
    assert fits(page)


def test_keys_grow_through_freezing(opened):
    page = opened("freezing.html")
    figure = page.locator("#fig-live-freezing")
    keys = figure.get_by_label("Number of keys n", exact=True)
    for n, phase in ((16, "frozen"), (10**5, "rare rows make the mean")):
        keys.fill(str(n))
        shown = readings(figure)
        row = stills.sample_row(n, 4.0)
        assert phase in shown["in the limit of many keys"]
        assert number(shown["as many equal keys, 1/Σp²"]) == pytest.approx(
            1 / row.collision_probability, rel=6e-3
        )
        assert number(shown["largest weight"]) == pytest.approx(100 * row.weights[0], abs=0.6)
    moves(figure, "Let n grow", "Number of keys n")
    assert fits(page)


def test_temperature_through_the_rules(opened):
    page = opened("output_scale.html")
    temperature = page.get_by_label("Temperature t = 1/α", exact=True)
    temperature.fill("0.5")
    page.get_by_label("Number of keys n", exact=True).fill("64")
    std = float(exact.output_std(Normal(), 2.0, 64))
    rule = float(1 / annealed.post_scale(Normal(), 2.0, 64))
    line = page.locator(".live-table tr", has_text="log-normal").locator("td").all_inner_texts()
    assert number(line[0]) == pytest.approx(rule, rel=6e-3)
    assert number(line[1][1:]) == pytest.approx(100 * (rule / std - 1), abs=0.6)
    temperature.fill("0.01")
    assert temperature.get_attribute("aria-invalid") == "true"
    moves(page, "Let it cool", "Temperature t = 1/α")
    assert fits(page)


def fits(page):
    """Return whether no part of a figure sticks out of the page, whose rest is tested elsewhere."""
    scrolled = "pre *"  # lines of code have boxes of their own
    inside = f"""() => [...document.querySelectorAll(".live, .live :not(svg *, {scrolled})")].every(
      (part) => {{
        const {{ left, right }} = part.getBoundingClientRect();
        return left >= 0 && right <= document.documentElement.clientWidth;
      }})"""
    return all(page.evaluate(inside) for _ in every_window(page))


def moves(place, button, label):
    """Press a figure's button on a page or in a part of it, see its field move, and stop it."""
    entry = place.get_by_label(label, exact=True)
    place.get_by_role("button", name=button).click()
    silent = place.locator("[aria-live=off]")
    assert silent.count() == 1  # no screen reader reads sixty results a second
    values = set()
    for _ in range(3):
        values.add(entry.input_value())
        sleep(0.08)
    place.get_by_role("button", name="Stop").click()
    assert len(values) > 1
    place.get_by_role("button", name=button).wait_for()
    assert silent.count() == 0

"""The ledger: complete, decided by its checks, and every check able to say something else."""

import math
import re

import nbformat
import pytest

from attnlib import claims
from attnlib.claims.registry import Finding, claim
from tests.books import CHAPTERS, bibliography_keys

CLAIMS_OF_SOURCES = {
    "001": {
        "variance.mean-zero",
        "variance.linear",
        "variance.product-rule",
        "variance.scale",
        "variance.softmax-exaggerates",
        "variance.ranges",
    },
    "000": {
        "variance.one-hot",
        "normal.mgf",
        "normal.approximation",
        "normal.fit",
        "normal.two-to-three",
        "normal.recommend",
        "normal.figure",
        "cosine.density",
        "cosine.not-elementary",
        "cosine.fit",
        "cosine.range",
        "cosine.explains",
        "cosine.coefficient",
        "cosine.figure",
        "entropy.renyi-slow",
        "entropy.shannon-slow",
        "decoder.half-length",
        "gradient.variance-any-law",
        "gradient.jacobian",
        "gradient.zero-at-0",
        "gradient.zero-at-infinity",
        "gradient.both-ends",
        "gradient.l1",
        "gradient.renyi",
        "gradient.no-closed-form",
    },
    "002": {
        "output.pre-scaled",
        "output.under-scaled",
        "output.flat",
        "output.spike",
        "output.lognormal",
        "output.factor",
        "output.figure",
        "training.worse",
        "training.bert",
        "training.residual",
        "training.scale-dependent",
        "training.cause",
    },
    "003": {
        "cosine.inverse-sqrt",
        "cosine.rmsnorm",
        "comments.max-quarter",
        "comments.max-entry",
        "comments.power",
        "comments.power-faster",
        "comments.not-rnn",
        "comments.epsilon",
        "comments.bounded",
        "comments.not-learning-rate",
    },
    "004": {
        "jacobian.scores-grow",
        "jacobian.product-moments",
        "jacobian.multiply",
        "jacobian.components",
        "jacobian.scale-variant",
        "jacobian.four",
        "jacobian.one-hot",
        "jacobian.vanishing-chain",
        "jacobian.bounded",
    },
}

# A statement changed in one place, and what its check must then say: a constant moved by 20 %, a
# sign or direction flipped, a condition dropped or added.
FALSIFIED = [
    ("variance.mean-zero", {"mean": 0.2}, "wrong"),
    ("variance.mean-zero", {"mean": -0.2}, "wrong"),
    ("variance.linear", {"slope": 1.2}, "wrong"),
    ("variance.linear", {"slope": 0.8}, "wrong"),
    ("variance.linear", {"exponent": 1.2}, "wrong"),
    ("variance.linear", {"exponent": -1.0}, "wrong"),
    ("variance.product-rule", {"factor": 1.2}, "wrong"),
    ("variance.product-rule", {"means": (0.0,)}, "holds"),
    ("variance.product-rule", {"means": (0.5, 1.0)}, "wrong"),
    ("variance.scale", {"exponent": -0.6}, "wrong"),
    ("variance.scale", {"exponent": -0.4}, "wrong"),
    ("variance.scale", {"exponent": 0.5}, "wrong"),
    ("variance.softmax-exaggerates", {"exponent": -0.5}, "wrong"),
    ("variance.softmax-exaggerates", {"typical_row_only": True}, "holds"),
    ("variance.one-hot", {"exponent": -0.5}, "wrong"),
    ("variance.one-hot", {"dimensions": (512, 1000)}, "holds"),
    ("variance.one-hot", {"dimensions": (16, 64)}, "wrong"),
    ("variance.ranges", {"exponent": 0.0}, "wrong"),
    ("variance.ranges", {"exponent": -0.6}, "wrong"),
    ("variance.ranges", {"exponent": -0.4}, "wrong"),
    ("jacobian.scores-grow", {"variance": 1.2 * 512}, "wrong"),
    ("jacobian.scores-grow", {"variance": 0.8 * 512}, "wrong"),
    ("jacobian.scores-grow", {"variance": 1.0}, "wrong"),
    ("jacobian.product-moments", {"mean_factor": 1.2}, "wrong"),
    ("jacobian.product-moments", {"last_sign": 1}, "wrong"),
    ("jacobian.multiply", {"exponent": -0.5}, "holds"),
    ("jacobian.components", {"summed": True}, "holds"),
    ("jacobian.scale-variant", {"factor": 1.0, "shift": 10.0}, "wrong"),
    ("jacobian.four", {"diagonal": 1.2}, "wrong"),
    ("jacobian.four", {"off_diagonal": 1.0}, "wrong"),
    ("jacobian.one-hot", {"winners": 2}, "wrong"),
    ("jacobian.vanishing-chain", {"dimensions": (1024, 16)}, "wrong"),
    ("jacobian.vanishing-chain", {"exponent": -0.5}, "wrong"),
    ("jacobian.vanishing-chain", {"typical_row_only": True}, "holds"),
    ("jacobian.bounded", {"total": 1.2}, "wrong"),
    ("jacobian.bounded", {"upper": 0.8}, "wrong"),
    ("normal.mgf", {"exponent": 0.6}, "wrong"),
    ("normal.mgf", {"exponent": 0.4}, "wrong"),
    ("normal.mgf", {"exponent": -0.5}, "wrong"),
    ("normal.approximation", {"factor": 1.2}, "wrong"),
    ("normal.approximation", {"factor": 0.8}, "wrong"),
    ("normal.approximation", {"exponent": -1.0}, "wrong"),
    ("normal.approximation", {"up_to_the_best": False}, "holds within"),
    ("normal.fit", {"coefficient": 1.2 * 0.84}, "wrong"),
    ("normal.fit", {"coefficient": 0.8 * 0.84}, "wrong"),
    ("normal.two-to-three", {"low": 2.4}, "wrong"),
    ("normal.two-to-three", {"high": 2.4}, "wrong"),
    ("normal.recommend", {"scale": 1.0, "reference": 2.5}, "wrong"),
    ("normal.recommend", {"scale": 0.8}, "wrong"),
    ("normal.figure", {"coefficient": 1.2 * 0.84}, "wrong"),
    ("normal.figure", {"coefficient": 0.8 * 0.84}, "wrong"),
    ("cosine.density", {"offset": 3.6}, "wrong"),
    ("cosine.density", {"offset": 2.4}, "wrong"),
    ("cosine.not-elementary", {"dimensions": (128,)}, "holds"),
    ("cosine.not-elementary", {"dimensions": (3, 5, 7)}, "wrong"),
    ("cosine.fit", {"coefficient": 1.2 * 3.5}, "wrong"),
    ("cosine.fit", {"coefficient": 0.8 * 3.5}, "wrong"),
    ("cosine.fit", {"dimension": 64}, "wrong"),
    ("cosine.range", {"low": 30.0}, "wrong"),
    ("cosine.range", {"high": 28.0}, "wrong"),
    ("cosine.range", {"dimension": 64}, "wrong"),
    ("cosine.explains", {"systems": (("ArcFace", 512, 85_742, 64.0),)}, "holds within"),
    (
        "cosine.explains",
        {"systems": (("AM-Softmax", 512, 10_575, 30.0), ("ArcFace", 512, 85_742, 64.0))},
        "needs a condition",
    ),
    ("cosine.coefficient", {"changes": False}, "wrong"),
    ("cosine.figure", {"coefficient": 1.2 * 3.5}, "wrong"),
    ("cosine.figure", {"coefficient": 0.8 * 3.5}, "wrong"),
    ("cosine.figure", {"dimension": 64}, "wrong"),
    ("cosine.inverse-sqrt", {"exponent": 0.5}, "holds within"),
    ("cosine.rmsnorm", {"exponent": -0.5}, "wrong"),
    ("cosine.rmsnorm", {"dimensions": (128,)}, "holds within"),
    ("cosine.rmsnorm", {"dimensions": (256,)}, "wrong"),
    ("entropy.renyi-slow", {"order": 1.0}, "wrong"),
    ("entropy.renyi-slow", {"alpha": 1.0}, "wrong"),
    ("entropy.shannon-slow", {"order": 2.0}, "holds within"),
    ("decoder.half-length", {"fraction": 1.0}, "wrong"),
    ("decoder.half-length", {"fraction": 0.1}, "wrong"),
    ("gradient.variance-any-law", {"slope": 1.2}, "wrong"),
    ("gradient.variance-any-law", {"slope": 0.8}, "wrong"),
    ("gradient.variance-any-law", {"mean": 0.5}, "wrong"),
    ("gradient.jacobian", {"diagonal": 1.2}, "wrong"),
    ("gradient.jacobian", {"off_diagonal": 1.0}, "wrong"),
    ("gradient.jacobian", {"power": 0.0}, "wrong"),
    ("gradient.zero-at-0", {"at": 1.0}, "wrong"),
    ("gradient.zero-at-0", {"value": 0.2}, "wrong"),
    ("gradient.zero-at-infinity", {"winners": 2}, "wrong"),
    ("gradient.zero-at-infinity", {"averaged": True}, "wrong"),
    ("gradient.both-ends", {"typical_row_only": True}, "holds"),
    ("gradient.both-ends", {"small": 1.0}, "wrong"),
    ("gradient.both-ends", {"large": 2.0}, "wrong"),
    ("gradient.l1", {"factor": 0.6}, "wrong"),
    ("gradient.l1", {"factor": 0.4}, "wrong"),
    ("gradient.l1", {"ratio": 0.8}, "wrong"),
    ("gradient.renyi", {"order": 2.4}, "wrong"),
    ("gradient.renyi", {"order": 1.6}, "wrong"),
    ("gradient.renyi", {"logarithm": False}, "wrong"),
    ("gradient.no-closed-form", {"exists": True}, "holds"),
    ("gradient.no-closed-form", {"shift": 0.6}, "open"),
    ("gradient.no-closed-form", {"shift": 0.4}, "open"),
    ("comments.max-quarter", {"bound": 0.3}, "wrong"),
    ("comments.max-quarter", {"bound": 0.2}, "wrong"),
    ("comments.max-quarter", {"factor": 4.8}, "wrong"),
    ("comments.max-entry", {"rises": True, "interval": (0.1, 300.0)}, "holds"),
    ("comments.max-entry", {"interval": (0.1, 300.0)}, "open"),
    ("comments.max-entry", {"rises": True}, "open"),
    ("comments.power", {"backward": -1.0}, "holds"),
    ("comments.power", {"relative": True}, "holds"),
    ("comments.power-faster", {"comparison": "attention at one rate"}, "holds within"),
    ("comments.power-faster", {"comparison": "each at its best rate"}, "wrong"),
    (
        "comments.power-faster",
        {"comparison": "attention at one rate", "slower": True},
        "wrong",
    ),
    (
        "comments.power-faster",
        {"comparison": "each at its best rate", "slower": True},
        "holds within",
    ),
    ("comments.not-rnn", {"path": "scores"}, "wrong"),
    ("comments.not-rnn", {"gain": 1.5}, "wrong"),
    ("comments.epsilon", {"constant": 0.0}, "wrong"),
    ("comments.bounded", {"condition": "fixed scale"}, "holds"),
    ("comments.bounded", {"condition": "average"}, "holds within"),
    ("comments.bounded", {"condition": "fixed scale", "factor": 0.8}, "wrong"),
    ("comments.bounded", {"condition": "average", "factor": 0.8}, "wrong"),
    ("comments.not-learning-rate", {"alpha": 1.0}, "wrong"),
    ("comments.not-learning-rate", {"cure": "scale"}, "wrong"),
    ("output.pre-scaled", {"exponent": -0.6}, "wrong"),
    ("output.pre-scaled", {"exponent": -0.4}, "wrong"),
    ("output.under-scaled", {"std": 1.2 * 0.102}, "wrong"),
    ("output.under-scaled", {"std": 0.8 * 0.102}, "wrong"),
    ("output.under-scaled", {"n": 205}, "wrong"),
    ("output.flat", {"exponent": -0.6}, "wrong"),
    ("output.flat", {"exponent": -0.4}, "wrong"),
    ("output.spike", {"scale": 1.2}, "wrong"),
    ("output.spike", {"scale": 0.8}, "wrong"),
    ("output.lognormal", {"exponent": 1.2}, "wrong"),
    ("output.lognormal", {"exponent": 0.8}, "wrong"),
    ("output.lognormal", {"sizes": (4096, 65536)}, "holds within"),
    ("output.lognormal", {"from_critical": 1.25}, "holds within"),
    ("output.lognormal", {"from_critical": 0.8}, "wrong"),
    ("output.factor", {"constant": 1.2 * math.e}, "wrong"),
    ("output.factor", {"constant": 0.8 * math.e}, "wrong"),
    ("output.factor", {"causal": True}, "wrong"),
    ("output.figure", {"exponent": 1.2}, "wrong"),
    ("output.figure", {"exponent": 0.8}, "wrong"),
    ("output.figure", {"flat_exponent": -0.6}, "wrong"),
    ("training.worse", {"changed": "baseline", "against": "note"}, "wrong"),
    ("training.bert", {"changed": "baseline", "against": "note"}, "needs a condition"),
    ("training.residual", {"power_of_two": "eight_with_bias"}, "wrong"),
    ("training.residual", {"inexact": "eight_with_bias"}, "wrong"),
    (
        "training.scale-dependent",
        {"experiment": "cause", "undone": "baseline_larger"},
        "wrong",
    ),
    ("training.cause", {"suspect": "note_smaller", "other": "baseline_larger"}, "open"),
]


BOX = re.compile(r"<strong>([a-z ]+)</strong> <code>([^<]+)</code>")


@pytest.fixture(scope="module")
def outcomes():
    return {outcome.id: outcome for outcome in claims.check_all()}


def tells_apart(check, arguments, expected):
    """Whether a check has one verdict for the source's statement and `expected` for another."""
    verdict = check(**arguments).verdict
    return verdict == expected and verdict != check().verdict


@pytest.mark.parametrize(("identifier", "arguments", "expected"), FALSIFIED)
def test_a_falsified_statement_gets_another_verdict(identifier, arguments, expected):
    assert tells_apart(claims.CLAIMS[identifier].check, arguments, expected)


def test_a_check_that_ignores_its_arguments_is_found_out():
    def lazy(slope: float = 1.0) -> Finding:
        return Finding(claims.Verdict.HOLDS, "believe me")

    assert not tells_apart(lazy, {"slope": 1.2}, "wrong")


def test_every_claim_is_falsified_in_some_way():
    assert {identifier for identifier, _, _ in FALSIFIED} == set(claims.CLAIMS)


def test_the_ledger_has_every_claim_of_the_sources_done_so_far():
    found: dict[str, set[str]] = {}
    for entry in claims.CLAIMS.values():
        found.setdefault(entry.source, set()).add(entry.id)
    assert found == CLAIMS_OF_SOURCES


def test_every_claim_is_decided_with_evidence(outcomes):
    assert set(outcomes) == set(claims.CLAIMS)
    for outcome in outcomes.values():
        assert outcome.verdict in set(claims.Verdict)
        assert any(character.isdigit() for character in outcome.evidence)


def test_every_claim_names_a_chapter_and_a_source_that_exist():
    for entry in claims.CLAIMS.values():
        assert (CHAPTERS / f"{entry.chapter}.ipynb").exists()
    assert set(claims.SOURCES.values()) <= bibliography_keys()


def test_every_claim_has_its_box_in_its_chapter():
    for entry in claims.CLAIMS.values():
        text = (CHAPTERS / f"{entry.chapter}.ipynb").read_text(encoding="utf-8")
        assert f'\\"{entry.id}\\"' in text


def test_every_box_in_the_book_repeats_the_verdict_of_its_check(outcomes):
    shown = [
        box
        for path in CHAPTERS.glob("*.ipynb")
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        for box in BOX.findall(output.get("data", {}).get("text/html", ""))
    ]
    assert len(shown) >= 2 * len(outcomes)  # in its chapter, and in the ledger
    for verdict, identifier in shown:
        assert outcomes[identifier].verdict == verdict, identifier


def test_every_claim_that_is_not_true_as_it_stands_is_in_the_errata(outcomes):
    text = (CHAPTERS / "errata.ipynb").read_text(encoding="utf-8")
    for outcome in outcomes.values():
        corrected = outcome.verdict in ("wrong", "needs a condition")
        assert corrected == (f"`{outcome.id}`" in text), outcome.id


def test_the_same_check_gives_the_same_outcome(outcomes):
    assert claims.check("variance.linear") == outcomes["variance.linear"]


def test_an_unknown_id_is_named():
    with pytest.raises(KeyError, match=r"variance\.nothing"):
        claims.check("variance.nothing")


def test_an_id_is_registered_once():
    register = claim("variance.linear", source="001", chapter="variance", statement="again")
    with pytest.raises(ValueError, match=r"variance\.linear"):
        register(lambda: Finding(claims.Verdict.HOLDS, ""))


def test_a_source_must_be_known():
    register = claim("variance.new", source="999", chapter="variance", statement="new")
    with pytest.raises(ValueError, match="999"):
        register(lambda: Finding(claims.Verdict.HOLDS, ""))

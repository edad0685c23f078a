"""The ledger: complete, decided by its checks, and every check able to say something else."""

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
    "000": {"variance.one-hot"},
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
]


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

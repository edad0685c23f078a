"""The ledger: complete, decided by its checks, and every check able to say something else."""

import re
from functools import cache

import nbformat
import pytest

import claims
from claims import registry
from claims.registry import Verdict
from tests.claims.falsified_claims import FALSIFIED
from tests.paths import CHAPTERS

BOX = re.compile(r"<strong>([a-z ]+)</strong> <code>([^<]+)</code>")


@cache
def outputs():
    """Return the HTML that the committed chapters show."""
    return {
        path.stem: [
            output.get("data", {}).get("text/html", "")
            for cell in nbformat.read(path, as_version=4).cells
            for output in cell.get("outputs", [])
        ]
        for path in CHAPTERS.glob("*.ipynb")
    }


@cache
def verdicts():
    """Return the verdicts by claim that chapters/claims shows: nbval runs its checks again."""
    boxes = (BOX.search(html) for html in outputs()["claims"])
    return {box[2]: box[1] for box in boxes if box}


@pytest.mark.parametrize("copy", FALSIFIED, ids=lambda copy: copy.id)
def test_a_falsified_statement_gets_another_verdict(copy):
    verdict = claims.CLAIMS[copy.id](**copy.arguments).verdict
    assert verdict == copy.verdict != verdicts()[copy.id]


def test_every_claim_is_shown_and_if_decided_falsified_in_some_way():
    assert verdicts().keys() == claims.CLAIMS.keys() == set(registry.STATEMENTS)
    decided = {i for i in claims.CLAIMS if verdicts()[i] != Verdict.NOT_CHECKED}
    assert {copy.id for copy in FALSIFIED} == decided
    assert len({i for i in decided if registry.STATEMENTS[i].address}) >= 40


def test_every_box_in_the_book_repeats_the_verdict_of_its_claim():
    shown = [
        (chapter, *match)
        for chapter, several in outputs().items()
        for html in several
        for match in BOX.findall(html)
    ]
    for _, verdict, identifier in shown:
        assert verdicts()[identifier] == verdict, identifier
    for entry in registry.STATEMENTS.values():
        of_claim = {chapter for chapter, _, identifier in shown if identifier == entry.id}
        pages = {"claims"} if entry.address else {entry.chapter, "claims"}
        assert pages <= of_claim, entry.id


def test_every_claim_of_a_followed_source_that_is_not_true_is_in_the_errata():
    text = (CHAPTERS / "errata.ipynb").read_text(encoding="utf-8")
    for identifier in (i for i in claims.CLAIMS if not registry.STATEMENTS[i].address):
        corrected = verdicts()[identifier] in ("wrong", "needs a condition")
        assert corrected == (f"`{identifier}`" in text), identifier

"""The ledger: complete, decided by its checks, and every check able to say something else."""

import ast
import inspect
import re
import sys
from functools import cache, cached_property

import nbformat
import numpy as np
import pytest
from typer.testing import CliRunner

import ledger as claims
from attnlib import exact, symbolic
from attnlib.scores import DotProduct
from book.claim_boxes import box
from experiments.lab import small_models
from ledger import gradient, heads, jacobian, output, registry, scales, training, variance
from ledger.__main__ import app
from ledger.registry import Finding, claim
from tests.books import CHAPTERS, bibliography_keys
from tests.ledger.claim_copies import (
    FALSIFIED,
    OTHER_EVIDENCE,
    SHARED,
    THRESHOLDS,
    UNRESOLVED,
    trained,
)
from tests.notebooks.numeric import text_difference

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
    "005": {"heads.dispersion"},
    "006": {"heads.variance"},
    "007": {"heads.gaps"},
    "008": {"heads.moments"},
}

MODULES = (gradient, heads, jacobian, output, registry, scales, training, variance)

MOVED = 1.15
"""By this factor, up or down, no threshold can be moved unseen."""

BOX = re.compile(r"<strong>([a-z ]+)</strong> <code>([^<]+)</code>")


@pytest.fixture(scope="module", autouse=True)
def proofs_are_made_once():
    """Many copies of a claim rest on one proof by sympy: seconds."""
    residual = cached_property(symbolic.Identity.residual.fget)
    residual.__set_name__(symbolic.Identity, "residual")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbolic.Identity, "residual", residual)
        for name in ("jacobian", "l1_identity", "product_variance", "product_variance_of_any_law"):
            patch.setattr(symbolic, name, cache(getattr(symbolic, name)))
        yield


class Checked(dict):
    """Outcomes by id, each checked when it is asked for; `drew` has those that drew numbers."""

    def __init__(self):
        self.drew = set()
        for cached in (gradient._losses, gradient._retrieval_losses):
            cached.cache_clear()
        gradient._best_scales_by_largest_entry.cache_clear()

    def __missing__(self, identifier):
        draw = np.random.default_rng
        small_models.retrieval.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                np.random, "default_rng", lambda seed: self.drew.add(identifier) or draw(seed)
            )
            self[identifier] = claims.check(identifier)
        return self[identifier]


@pytest.fixture(scope="module")
def checked():
    return Checked()


@pytest.fixture(scope="module")
def outcomes(checked):
    return {identifier: checked[identifier] for identifier in claims.CLAIMS}


def verdict(copy):
    with pytest.MonkeyPatch.context() as patch:
        copy.evidence(patch)
        return claims.CLAIMS[copy.id].check(**copy.arguments).verdict


def named(copies):
    return [pytest.param(one, id=f"{one.id} {one.arguments}") for one in copies]


def trees():
    """Return the syntax of the modules of the claims."""
    return [ast.parse(inspect.getsource(module)) for module in MODULES]


def constants(of=float):
    """Return the numbers that the modules name, each with whether a reason stands below it."""
    found = {}
    for tree in trees():
        for node, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                value = next(vars(m)[name] for m in MODULES if name in vars(m))
                if type(value) is of:
                    found[name] = isinstance(below, ast.Expr)
    return found


@cache
def written():
    """Return each box of the ledger, by its claim's id."""
    cells = nbformat.read(CHAPTERS / "claims.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    boxes = [output.get("data", {}).get("text/html", "") for output in outputs]
    return {m[1]: html for html in boxes if (m := re.search('id="claim-([^"]+)"', html))}


# The first tests to ask for outcomes: each runs its own check, which `make mutants` wants to know.
@pytest.mark.parametrize("identifier", claims.CLAIMS)
def test_every_box_has_the_statement_and_the_evidence_of_its_check(identifier, checked):
    today = box(checked[identifier], linked=True)
    assert text_difference(written()[identifier], today) is None


def test_the_command_prints_a_table_of_all(outcomes, monkeypatch):
    monkeypatch.setattr(claims, "check_all", lambda: list(outcomes.values()))
    result = CliRunner().invoke(app, [], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    for identifier in claims.CLAIMS:
        assert identifier in result.output
    assert "E[Q·K] = 0" in result.output  # brackets are text, not markup
    assert "000, opening" in result.output  # a place
    assert "“本质上” (in essence)" in result.output  # and a quote


@pytest.mark.parametrize("copy", named([*FALSIFIED, *OTHER_EVIDENCE]))
def test_a_falsified_statement_gets_another_verdict(copy, outcomes):
    assert verdict(copy) == copy.verdict != outcomes[copy.id].verdict


@pytest.mark.parametrize("copy", named(UNRESOLVED))
def test_what_the_evidence_does_not_resolve_keeps_the_verdict(copy, outcomes):
    assert verdict(copy) == copy.verdict == outcomes[copy.id].verdict


@pytest.mark.parametrize("copy", named(SHARED))
def test_a_shared_threshold_decides_on_either_side(copy):
    assert verdict(copy) == copy.verdict


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_that_is_moved_changes_a_verdict(name, monkeypatch):
    copies = THRESHOLDS[name]
    assert [verdict(copy) for copy in copies] == [copy.verdict for copy in copies]
    value = next(vars(module)[name] for module in MODULES if name in vars(module))
    for moved, likely in ((value * MOVED, copies[::-1]), (value / MOVED, copies)):
        for module in MODULES:
            if name in vars(module):
                monkeypatch.setattr(module, name, moved)
        assert any(verdict(copy) != copy.verdict for copy in likely)


def test_every_threshold_has_a_name_a_reason_and_a_test_on_either_side():
    assert set(constants()) == set(THRESHOLDS)
    assert all(constants().values())
    for copies in THRESHOLDS.values():
        assert len({copy.verdict for copy in copies}) == 2


def numbers(node):
    """Return the numbers that are written in an expression, but for indices and exponents."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, int | float) else set()
    inside = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Subscript):
        inside = [node.value]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        inside = [node.left]
    return set().union(*map(numbers, inside))


def test_no_verdict_compares_with_a_number_that_has_no_name():
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                equal = all(isinstance(x, ast.Eq | ast.NotEq | ast.In) for x in node.ops)
                assert equal or numbers(node) <= {0, 1}, ast.unparse(node)


def reachable(check):
    """Return the names of the verdicts that a check, or a function that it calls, can return."""
    module = sys.modules[check.__module__]
    called = [vars(module).get(name) for name in check.__code__.co_names]
    helpers = [x for x in called if inspect.isfunction(x) and x.__module__ == check.__module__]
    text = "".join(inspect.getsource(function) for function in (check, *helpers))
    return {claims.Verdict[name] for name in re.findall(r"Verdict\.([A-Z_]+)", text)}


def test_every_verdict_that_a_check_names_is_reached(outcomes):
    copies = [*FALSIFIED, *OTHER_EVIDENCE, *SHARED, *(x for xs in THRESHOLDS.values() for x in xs)]
    reached = {identifier: {outcome.verdict} for identifier, outcome in outcomes.items()}
    for copy in copies:
        reached[copy.id].add(copy.verdict)
    for identifier, entry in claims.CLAIMS.items():
        assert reached[identifier] == reachable(entry.check), identifier


def test_every_claim_is_falsified_in_some_way():
    assert {copy.id for copy in FALSIFIED} == set(claims.CLAIMS)


def test_a_figure_is_called_reproduced_only_if_it_is():
    check = claims.CLAIMS["normal.figure"].check
    assert check().evidence.startswith("Reproduced:")
    assert check(coefficient=1.0).evidence.startswith("Not reproduced:")


def test_the_largest_error_is_told():
    evidence = claims.CLAIMS["variance.product-rule"].check(factor=5.0).evidence
    assert evidence.endswith("With means 0 and variances 1 the variance is 1, not 5.")


def test_under_a_mask_all_positions_count():
    squares = [exact.collision_probability(DotProduct(64), 1.0, n) for n in range(1, 257)]
    error = np.sqrt(256.0 / np.e * np.mean(squares)) - 1.0
    evidence = claims.CLAIMS["output.factor"].check(causal=True, sizes=(256,)).evidence
    assert f"off from 1 by {100.0 * error:+.1f} % (n = 256)" in evidence


def test_the_mean_gradient_is_that_of_the_scale_which_is_claimed():
    mean = exact.gradient(DotProduct(variance.DIMENSIONS[-1]), 1.0, variance.VECTORS)
    evidence = claims.CLAIMS["variance.softmax-exaggerates"].check(exponent=-0.5).evidence
    assert f"its exact mean is {mean:.1f} (scaled: {mean:.2f};" in evidence


def test_a_figure_is_computed_again_at_numbers_of_keys_that_it_has():
    assert set(scales.FIGURE_KEYS) <= set(scales.GRID)


def with_a_seed():
    """Return the ids of the checks that say of which seed their numbers are."""
    return [
        identifier
        for identifier, entry in claims.CLAIMS.items()
        if "seed" in inspect.signature(entry.check).parameters
    ]


def test_every_check_that_draws_numbers_has_a_seed(checked, outcomes):
    assert checked.drew == set(with_a_seed())


@pytest.mark.slow
@pytest.mark.parametrize("identifier", with_a_seed())
def test_a_verdict_is_the_same_with_every_seed(identifier, outcomes):
    check = claims.CLAIMS[identifier].check
    found = {check(seed=1000 * i).verdict for i in range(1, 301)}
    assert found == {outcomes[identifier].verdict}


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


def test_runs_that_are_equal_do_not_end_lower(monkeypatch):
    trained(baseline=0.0, note=0.0)(monkeypatch)
    assert training.worse().evidence.endswith("so many end lower: none.")


def test_all_are_checked_source_by_source(monkeypatch):
    first = {name: claims.CLAIMS[name] for name in ("variance.linear", "gradient.both-ends")}
    monkeypatch.setattr(registry, "CLAIMS", first)
    assert [outcome.id for outcome in claims.check_all()] == [*first][::-1]


def test_an_unknown_id_is_named():
    with pytest.raises(KeyError, match=r"no claim has the id .variance\.nothing.; the ledger has"):
        claims.check("variance.nothing")


def test_a_registered_check_is_still_a_function_of_its_module():
    assert claims.CLAIMS["variance.linear"].check is variance.linear


def test_an_id_is_registered_once():
    register = claim("variance.linear")
    with pytest.raises(ValueError, match=r"variance\.linear"):
        register(lambda: Finding(claims.Verdict.HOLDS, ""))


def test_a_check_needs_a_statement():
    register = claim("variance.new")
    with pytest.raises(ValueError, match=r"statements\.toml, got 'variance\.new'"):
        register(lambda: Finding(claims.Verdict.HOLDS, ""))


def test_every_statement_has_its_place_and_is_checked():
    assert set(registry.STATEMENTS) == set(claims.CLAIMS)
    for entry in registry.STATEMENTS.values():
        assert entry.source in claims.SOURCES, entry.id
        assert len(entry.place) > 5, entry.id
        assert len(entry.statement) > 10, entry.id


def test_a_quote_is_a_few_words_and_what_is_not_english_is_translated():
    for entry in registry.STATEMENTS.values():
        assert len(entry.quote) < 120, entry.id
        foreign = re.search("[\u4e00-\u9fff\uac00-\ud7a3]", entry.quote) is not None
        assert bool(entry.translation) == foreign, entry.id

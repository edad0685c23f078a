"""The table of the rules in use."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from attnlib.policies import POLICIES
from book import catalogue


def test_a_row_for_each_rule_with_its_numbers():
    table = catalogue.rules(n=131_072, length=4096, d=128)
    assert len(table.rows) == len(POLICIES)
    for policy, (title, formula, times, *numbers) in zip(
        POLICIES.values(), table.rows, strict=True
    ):
        assert policy.title in title
        assert policy.name in title
        assert formula.startswith(policy.formula)
        assert times == ("cos" if policy.applied_to == "cosine" else "q·k")
        expected = policy.scale(131_072, 128), *policy.alpha([4096, 131_072], 128)
        assert list(map(float, numbers)) == pytest.approx(
            list(map(float, expected)), rel=1e-3, abs=5e-4
        )


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_formula_in_html_has_all_that_latex_has(policy):
    markup = catalogue.mathml(policy.formula)
    drawn = "".join(ElementTree.fromstring(unescape(markup)).itertext())
    said = re.sub(r"\\(?:frac|sqrt|quad|operatorname|[,{}])", "", policy.formula)
    assert sorted(re.findall("[A-Za-z]|[0-9]", drawn)) == sorted(
        re.findall("[A-Za-z]|[0-9]", re.sub(r"\\(alpha|kappa|ell|lfloor|rfloor)", "", said))
    )
    assert "merror" not in markup

"""Formulas become MathML as TeX would set them."""

from xml.etree import ElementTree

import pytest

from book.formulas import mathml


@pytest.mark.parametrize(
    ("tex", "same"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\tfrac\delta2", r"\tfrac{\delta}{2}"),
        (r"x^10", r"x^{1}0"),
        (r"1 + \dots", r"1 + \ldots"),
        (r"\Phi'", r"\Phi^{\prime}"),
    ],
)
def test_short_forms_are_the_long_ones(tex, same):
    assert mathml(tex) == mathml(same)


def test_names_stand_apart_and_signs_before_numbers_do_not():
    assert mathml(r"\operatorname{E}Y").count("<mspace") == 1
    assert "<mspace" not in mathml(r"\log(n)")
    assert '<mo form="prefix">−</mo>' in mathml(r"x \le -1")
    assert '<mo form="prefix">' not in mathml(r"x - 1")


def test_high_brackets_carry_their_scripts_and_may_stand_in_two_columns():
    tree = ElementTree.fromstring(mathml(r"\big(x\big)^2"))
    assert [child.text for child in tree.find("msup/mrow")] == ["(", "x", ")"]
    tex = r"\begin{aligned}a \big[b &- c\big] \\ &- d\end{aligned}"
    cells = ElementTree.fromstring(mathml(tex, block=True)).findall(".//mtd")
    assert len(cells) == 4
    assert cells[1][0].get("form") == "infix"


def test_a_prime_stands_beside_its_letter_and_a_sum_in_a_line_is_small():
    assert "<msup>" not in mathml(r"\Phi'")
    assert mathml("f''").count("″") == 1
    assert 'largeop="false"' in mathml(r"\sum_i x")
    assert "largeop" not in mathml(r"\sum_i x", block=True)


@pytest.mark.parametrize("tex", [r"\unknown", r"\frac{1}", "x}y"])
def test_what_cannot_be_read_is_an_error(tex):
    with pytest.raises(Exception, match=r"Unknown|children|insertion|Unbalanced"):
        mathml(tex)

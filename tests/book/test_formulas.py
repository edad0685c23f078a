"""Formulas become MathML as TeX would set them."""

import pytest

from book.formulas import mathml


@pytest.mark.parametrize(
    ("tex", "same"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\tfrac\delta2", r"\tfrac{\delta}{2}"),
        (r"x^10", r"x^{1}0"),
        (r"1 + \dots", r"1 + \ldots"),
        (r"\Big(x\Big)^2", r"{\Big(x\Big)}^2"),
    ],
)
def test_short_forms_are_the_long_ones(tex, same):
    assert mathml(tex) == mathml(same)


def test_names_stand_apart_and_signs_before_numbers_do_not():
    assert mathml(r"\operatorname{E}Y").count("<mspace") == 1
    assert "<mspace" not in mathml(r"\log(n)")
    assert '<mo form="prefix">−</mo>' in mathml(r"x \le -1")
    assert '<mo form="prefix">' not in mathml(r"x - 1")

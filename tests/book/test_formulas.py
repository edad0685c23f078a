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

import pytest

from book.plain import plain


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"n^{1-y^2+2xy}", "n^(1 − y² + 2xy)"),
        (r"e^{-\alpha s_i}", "e^(−αsᵢ)"),
        (r"\frac{k\alpha}{2n}", "(kα)/(2n)"),
        (r"10^{12}, p_{\max}", "10¹², p_max"),
        (r"\int_0^\infty e^{-t}\,dt", "∫₀^∞ e^(−t) dt"),
        (r"\bar x = -1", "x = −1"),
        (r"\kappa'(\alpha) \ge \tfrac12", "κ′(α) ≥ 1/2"),
    ],
)
def test_formulas_are_characters(tex, text):
    assert plain(tex) == text

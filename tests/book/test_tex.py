"""The reader of formulas: what TeX says, and what is planted in it."""

import math

import numpy as np
import pytest

from tests.book.tex import FormulaError, changes, evaluate, statements

ROW = {"p": [0.2, 0.3, 0.5], "i in": range(3), "j in": range(3), "n": 3, "x": 0.7, "m": 2}


@pytest.mark.parametrize(
    ("tex", "value"),
    [
        (r"\frac12 x^2 - x/2", 0.245 - 0.35),
        (r"\frac{n-1}n\,x", 2 / 3 * 0.7),
        (r"-x^2", -0.49),
        (r"2\log 2\,(x-1)", 2 * math.log(2) * -0.3),
        (r"\log_2 8", 3),
        (r"\log n/\log 2", math.log(3) / math.log(2)),
        (r"\frac{\pi x}{\sin\pi x}", math.pi * 0.7 / math.sin(math.pi * 0.7)),
        (r"\operatorname{sech}^2(x)", 1 / math.cosh(0.7) ** 2),
        (r"\sqrt{x + \sqrt3}", math.sqrt(0.7 + math.sqrt(3))),
        (r"\sum_i p_i^2", 0.38),
        (r"1 - \sum_{i,j} p_i p_j + x", 0.7),
        (r"\max_i p_i + \min(x, 1)", 1.2),
        (r"\int_1^n \frac{dy}{y}", math.log(3)),
        (r"\int e^{-s^2}\, ds", math.sqrt(math.pi)),
        (r"(x)_m + n!", 0.7 * 1.7 + 6),
        (r"{}_0F_1(;\tfrac n2;x)", math.sinh(2 * math.sqrt(0.7)) / (2 * math.sqrt(0.7))),
        (r"\begin{cases} x & n < 3, \\ 2x & n \ge 3. \end{cases}", 1.4),
        (r"\lfloor n x\rfloor^m", 4),
        (r"\Big(\frac2x\Big)^{m}", (2 / 0.7) ** 2),
    ],
)
def test_value(tex, value):
    assert np.isclose(evaluate(tex, ROW).values[0], value, rtol=1e-9)


def test_letters_before_a_bracket_are_functions_if_they_are_given_so():
    assert evaluate("f(x) + f'(x)", {"f": math.sin, "f'": math.cos, "x": 0.0}).values[0] == 1.0
    assert evaluate("f(x + 1)", {"f": 2.0, "x": 3.0}).values[0] == 8.0


def test_names_may_have_a_star_an_index_and_a_power():
    names = {r"\alpha^*": 3.0, "n_0": 2.0, r"\alpha^*_\cos": lambda d: d, "A": lambda k: k + 0.5}
    sides = evaluate(r"\alpha^{*2} = n_0^2 = \alpha^*_{\cos}(5) = A_2", names).values
    assert [float(side) for side in sides] == [9.0, 4.0, 5.0, 2.5]


def test_a_mean_is_taken_of_the_product_behind_it():
    names = {"E": lambda value: float(np.mean(value)), "s": np.array([1.0, 3.0])}
    sides = evaluate(r"2\operatorname{E}s^2 + 1 = (\operatorname{E}s)^2", names).values
    assert [float(side) for side in sides] == [11.0, 4.0]


def test_lines_are_statements_unless_they_go_on():
    tex = r"\begin{aligned} a &= b \\ &\quad - c, \\ d &\le e . \end{aligned}"
    assert [text.replace("&", "").split() for text in statements(tex)] == [
        ["a", "=", "b", "-", "c"],
        ["d", r"\le", "e"],
    ]


@pytest.mark.parametrize(
    "tex",
    ["y", "p_k", r"\sum_k p_k", r"\frac{x}{0}", "x +", r"\unknown(x)", "(x", r"\int y"],
)
def test_what_has_no_value_is_an_error(tex):
    with pytest.raises(FormulaError):
        evaluate(tex, ROW)


@pytest.mark.parametrize(
    ("tex", "rough", "true"),
    [
        ("x = 0.7", None, True),
        ("x = 0.8", None, False),
        (r"x \le 0.7 < n", None, True),
        (r"x \to 0.71", 0.001, False),
        (r"x - 0.7 = 0", None, True),
    ],
)
def test_relations(tex, rough, true):
    statement = evaluate(tex, ROW)
    if true:
        statement.holds(1e-9, 0.0, rough)
    else:
        with pytest.raises(AssertionError, match="does not hold"):
            statement.holds(1e-9, 0.0, rough)


def test_how_near_an_approximation_is_has_to_be_said():
    with pytest.raises(FormulaError, match="how near"):
        evaluate(r"x \approx 0.7", ROW).holds(1e-9, 0.0, None)


def test_every_sign_number_relation_and_fraction_is_changed():
    found = {(change.kind, change.tex) for change in changes(r"\frac12 x^2 - 1.54 \le y")}
    assert found == {
        ("fraction", r"\frac{2}{1} x^2 - 1.54 \le y"),
        ("number", r"\frac22 x^2 - 1.54 \le y"),
        ("number", r"\frac13 x^2 - 1.54 \le y"),
        ("number", r"\frac12 x^3 - 1.54 \le y"),
        ("sign", r"\frac12 x^2 + 1.54 \le y"),
        ("number", r"\frac12 x^2 - 1.55 \le y"),
        ("relation", r"\frac12 x^2 - 1.54 \ge y"),
    }

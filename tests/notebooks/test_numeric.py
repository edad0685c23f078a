import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from tests.notebooks.numeric import EXCERPT, first_difference, text_difference, values

PATH = '<svg><path clip-path="url(#p0123456789)" d="M 10.5 {} L 20 30.25"/></svg>'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gradient 0.1234567890", "gradient 0.1234567891"),
        ("gradient 1.0", "gradient 1.0000001"),
        ("1e-05", "1.0000001e-05"),
        ("1.5e+03", "1500.0"),
        ("at −1.5", "at −1.50000001"),
        ("at -1.5", "at −1.5"),
        ("1.2345678(3)", "1.2345679(3)"),
        ("0.5%", "0.50000001%"),
        ("x1.5", "x1.5000001"),
        ("[0.5        0.33333333]", "[0.50000001 0.33333333]"),
        ("[3.        1.5]", "[2.9999999 1.5      ]"),
        ("1.25e-5000", "1.2500001e-5000"),
        ("nan inf -inf", "nan inf -inf"),
        ("law    mean\nsign   0.50\n", "law     mean\nsign   0.500\n"),
        ("law    mean\nsign  10.50\n", "law    mean\nsign  10.5000001\n"),
    ],
)
def test_rounding_is_no_difference(old, new):
    assert text_difference(old, new) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gradient 0.50000", "gradient 0.500015"),
        ("gradient 0.5", "gradient -0.5"),
        ("0.0", "-0.0"),
        ("1e-17", "-1e-17"),
        ("1e-17", "2e-17"),
        ("0.0", "1e-17"),
        ("1e-5000", "2e-5000"),
        ("1.2e9999", "1.3e9999"),
        ("−1.5", "1.5"),
        ("0.5", "nan"),
        ("1e308", "inf"),
        ("inf", "-inf"),
        ("gradient 0.5", "slope 0.5"),
        ("a b", "ab"),
        ("0.5 0.5", "0.5"),
        ("0.5", "0.5 0.5"),
        ("", "0.5"),
        ("100000", "100001"),
        ("100000.", "100001."),
        ("3", "3.0"),
        ("3", "3."),
        ("12", "1 2"),
        ("d=128", "d=129"),
        ("x1", "x2"),
        ("N(0,1)", "N(0,2)"),
        ("3-5", "3+5"),
        ("1.2(3)", "1.2(4)"),
        ("0.5%", "0.5"),
        ("1,234.5", "1,235.5"),
        ("5e-05", "5e-06"),
        ("#1e5000", "#1e5001"),
        ("0x1e5000", "0x1e5001"),
        ("5e80000000", "5e80000001"),
        ("commit 1e5000ab", "commit 1e5001ab"),
        ("first 0.5\nsecond 0.5", "first 0.5 second 0.5"),
        ("first 0.5\nsecond 0.5", "first 0.5000001 second 0.5"),
        ("first\n\nsecond", "first\nsecond"),
        ("law   mean\nsign  0.50", "  law mean\nsign  0.50"),
        ("law   mean\nsign  0.50", "law   mean\nsign   0.50"),
        ("law  mean  \n", "law  mean\n"),
        ("0.5\n", "0.5"),
        ("<tr><td>1.5</td></tr>", "<tr><th>1.5</th></tr>"),
        ("<td>a</td><td>b</td>", "<td>a</td></tr><tr><td>b</td>"),
    ],
)
def test_anything_else_is_a_difference(old, new):
    assert text_difference(old, new) is not None


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([-1, 1]))
def test_tolerance_is_relative_at_every_magnitude(size, sign):
    value = sign * size
    assert text_difference(repr(value), repr(value * (1 + 1e-7))) is None
    assert text_difference(repr(value), repr(value * (1 + 3e-5))) is not None


@pytest.mark.parametrize("new", ["0.0004", "-0.0004", "0", "-0", "1e-4", "0.01"])
def test_pixels_agree_within_a_hundredth(new):
    assert text_difference(PATH.format("0.0001"), PATH.format(new)) is None


def test_a_moved_curve_is_a_difference():
    difference = text_difference(PATH.format("40.25"), PATH.format("40.27"))
    assert difference is not None
    assert "number 2" in difference
    assert "old: 40.25\n" in difference
    assert "new: 40.27" in difference


@pytest.mark.parametrize("label", ["<!-- {} -->", "<text>{}</text>"])
def test_labels_of_a_figure_are_plain_text(label):
    old, new = (PATH.format(0) + f"<svg>{label.format(x)}</svg>" for x in ("0.0004", "0.0005"))
    assert text_difference(old, new) is not None


def test_numbers_beside_a_figure_are_plain_text():
    assert text_difference(PATH.format(0) + "0.0004", PATH.format(0) + "0.0005") is not None


def test_hashed_ids_are_compared_by_order_of_appearance():
    old = '<svg><use href="#m0123456789"/><use href="#mabcdefabcd"/></svg>'
    assert text_difference(old, old.replace("#m0123456789", "#m1111111111")) is None
    assert text_difference(old, old.replace("#mabcdefabcd", "#m0123456789")) is not None


def test_difference_tells_where_and_what():
    difference = text_difference("slope 1, gradient 0.5 here", "slope 1, gradient 0.6 here")
    assert difference == "number 2, after 'slope 1 , gradient'\n  old: 0.5\n  new: 0.6"


def test_outputs_are_compared_in_order_and_reported_briefly():
    text, figure = ("stdout", "0.5"), ("image/svg+xml", "<svg>" + "x" * 9999 + "</svg>")
    assert first_difference([text, figure], [text, figure]) is None
    for other in ([text], [figure, text], [text, figure, figure]):
        difference = first_difference([text, figure], other)
        assert difference is not None
        assert len(difference) < 3 * EXCERPT


def output(kind="display_data", data=("text/plain", "0.5"), **metadata):
    return new_output(kind, data=dict([data]), metadata=metadata)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (output(scrapbook={"name": "error"}), "error"),
        (output(), "{}"),
        (output(kind="execute_result", scrapbook={"name": "variance"}), "execute_result"),
        (output(data=("text/html", "0.5"), scrapbook={"name": "variance"}), "text/html"),
    ],
)
def test_metadata_are_compared_the_names_of_glued_values_among_them(other, what):
    glued = output(scrapbook={"name": "variance"})
    assert first_difference(values([glued]), values([glued])) is None
    difference = first_difference(values([glued]), values([other]))
    assert difference is not None
    assert what in difference.split("new: ")[1]


def test_two_outputs_are_not_one():
    one = new_output("display_data", data={"text/html": "0.5", "text/plain": "0.5"})
    two = [output(data=("text/html", "0.5")), output()]
    assert first_difference(values([one]), values(two)) is not None


def test_a_moved_word_is_told_with_its_place():
    difference = text_difference("law   mean\nsign  0.5", "  law mean\nsign  0.5")
    assert difference == "space\n  old: ''\n  new: '  '"
    difference = text_difference("law\nmean", "law mean")
    assert difference == "lines, after 'law'\n  old: '\\n'\n  new: ' '"


def test_structured_content_is_compared_exactly():
    old, new = [("application/json", {"x": 1.0})], [("application/json", {"x": 1.1})]
    assert first_difference(old, old) is None
    assert first_difference(old, new) is not None

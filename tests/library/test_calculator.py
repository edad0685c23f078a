"""What the live figures are made of: the tables, the one script, the stills and their record."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.polynomial import chebyshev

from attnlib import exact, freezing, rows, typical
from attnlib.scores import Cosine, DotProduct, Normal
from tools import calculator, criterion_tables, stills


@pytest.fixture(scope="module")
def table():
    """Return the committed tables."""
    lines = calculator.TABLE.read_text("utf-8").splitlines()[3:-1]
    return json.loads("{" + "".join(lines).rstrip(",") + "}")


@pytest.fixture(scope="module")
def recorded():
    return json.loads(criterion_tables.RESULTS.read_text("utf-8"))


def test_the_committed_table_is_what_the_tool_makes(table, monkeypatch):
    # The gradient's takes ten seconds: its nodes are looked at one by one below.
    monkeypatch.setattr(calculator, "gradient_table", lambda: table["gradient"])
    assert calculator.table_module() == calculator.TABLE.read_text("utf-8")


def test_the_committed_script_is_what_the_tool_makes():
    assert calculator.script() == calculator.SCRIPT.read_text("utf-8")
    assert len(calculator.SCRIPT.read_bytes()) < 70_000


def test_the_gradient_table_goes_through_the_exact_gradient(table):
    gradient = table["gradient"]
    assert gradient["inverse_d"] == list(calculator.INVERSE_DIMENSION)
    assert gradient["root_log_n"] == list(calculator.root_log(calculator.KEYS))
    assert gradient["reach"] == calculator.REACH
    numbers = [int(text) if text else 0 for text in gradient["values"].split(",")]
    coefficients = gradient["unit"] * np.reshape(numbers, gradient["shape"])
    keys = calculator.whole_nodes(calculator.GRADIENT_KEYS, *calculator.KEYS)
    places = calculator.at(np.sqrt(np.log(keys)), calculator.root_log(calculator.KEYS))
    largest = calculator.REACH / (1 + calculator.REACH)
    share = (calculator.nodes(calculator.GRADIENT_SCALES) + 1) / 2 * largest
    x = (share / (1 - share))[::3]
    inverse = calculator.at(
        calculator.inverse(calculator.GRADIENT_DIMENSIONS), calculator.INVERSE_DIMENSION
    )
    for i, j in ((0, 0), (0, 11), (2, 6), (4, 9), (7, 0), (7, 11)):
        d, n = calculator.GRADIENT_DIMENSIONS[i], int(keys[j])
        law = Cosine(d) if d else Normal()
        alpha = x * freezing.critical_alpha(n, law)
        series = np.tensordot(
            np.outer(
                *(
                    chebyshev.chebvander(point, size - 1)
                    for point, size in zip((inverse[i], places[j]), gradient["shape"], strict=False)
                )
            ),
            coefficients,
            axes=2,
        )
        found = alpha * np.exp(chebyshev.chebval(calculator.at(share[::3], (0, largest)), series))
        # The rounding of two thousand coefficients is all that is left.
        np.testing.assert_allclose(found / (1 + x), exact.gradient(law, alpha, n), rtol=3e-4)


def test_the_script_is_made_of_the_modules_and_nothing_else():
    modules = {
        "one": "// A comment.\nexport const a = 1;\n\nexport function b() {\n  return a;\n}\n",
        "two": 'import { a, b } from "./one.js";\n\nconst c = a + b();\n',
    }
    script = calculator.bundle({name: calculator.bare(text) for name, text in modules.items()})
    assert "comment" not in script
    assert "modules.one = (() => {\nconst a = 1;" in script
    assert "return { a, b };\n})();" in script
    assert "modules.two = (() => {\nconst { a, b } = modules.one;\nconst c = a + b();\n})" in script


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"b": 'import { a } from "./a.js";\n', "a": "export const a = 1;\n"}, "come earlier"),
        ({"a": 'import a from "./b.js";\n'}, "a classic script cannot have: import a"),
        ({"a": "export default 1;\n"}, "a classic script cannot have: export default"),
    ],
)
def test_what_cannot_be_in_the_script_is_named(modules, message):
    with pytest.raises(ValueError, match=message):
        calculator.bundle(modules)


def test_every_module_is_in_the_script_and_stays_on_this_site():
    assert {path.stem for path in calculator.LIVE.glob("*.js")} == set(calculator.MODULES)
    text = calculator.SCRIPT.read_text("utf-8")
    assert set(re.findall(r"https?://[^\"`]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|eval|localStorage)\b", text)


def test_the_record_is_complete_and_was_made_by_its_command(recorded):
    assert recorded["command"] == criterion_tables.COMMAND
    points = [
        *criterion_tables.points_of_entropy(),
        *criterion_tables.points_of_the_typical_row(),
    ]
    assert list(recorded["entries"]) == [criterion_tables.name(*point) for point in points]


@pytest.mark.parametrize(
    "point",
    [("entropy", Normal(), 312), ("entropy", Cosine(8), 16777216), ("typical", DotProduct(8), 2)],
)
def test_the_record_agrees_with_the_library(recorded, point):
    entry = recorded["entries"][criterion_tables.name(*point)]
    assert entry == pytest.approx(criterion_tables.record(*point, recorded["budget"]), rel=1e-8)


@pytest.mark.parametrize("law", [Normal(), Cosine(8), DotProduct(64)])
def test_the_simulated_record_agrees_with_other_rows(recorded, law):
    entry = recorded["entries"][criterion_tables.name("typical", law, 50)]
    value, error = typical.best_alpha(law, 50, rows=8000, seed=1)
    unit = freezing.critical_alpha(50, law)
    difference = abs(value / unit - entry["ratio"])
    assert difference < 4.5 * np.hypot(error / unit, entry["standard_error"])


def test_the_record_goes_on_where_it_was_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(criterion_tables, "ENTROPY_DIMENSIONS", ())
    monkeypatch.setattr(criterion_tables, "ENTROPY_NODES", 2)
    monkeypatch.setattr(criterion_tables, "TYPICAL_DIMENSIONS", (8,))
    monkeypatch.setattr(criterion_tables, "TYPICAL_KEYS", (2, 20))
    path = tmp_path / "new" / "record.json"

    def run(budget=2**14):
        arguments = ["--out", str(path), "--budget", str(budget)]
        answer = CliRunner().invoke(criterion_tables.main, arguments)
        assert answer.exit_code == 0, answer.output
        return answer.output.count(" s\n")

    assert run() == 8
    whole = path.read_bytes()
    assert run() == 0
    content = json.loads(whole)
    content["entries"].popitem()
    path.write_text(json.dumps(content))
    assert run() == 1
    assert path.read_bytes() == whole
    assert run(budget=2**15) == 8  # other settings: nothing is kept


@pytest.mark.parametrize("n", [2, 16, 64])
def test_the_sample_row_is_a_row_of_softmax(n):
    found = stills.sample_row(n, 2.0)
    assert found.weights.size == n
    assert found.weights.sum() == pytest.approx(1.0, rel=1e-14)
    assert found.collision_probability == pytest.approx(
        float(rows.collision_probability(found.weights)), rel=1e-13
    )


def test_rows_made_like_the_sample_row_have_the_exact_mean(monkeypatch):
    # Fresh arrivals each time, as against the one set that the page uses.
    rng = np.random.default_rng(2)
    n, alpha = 1000, 2.0
    drawn = np.cumsum(rng.exponential(size=(4000, calculator.ARRIVALS)), axis=1)
    found = []
    for arrived in drawn:
        monkeypatch.setattr(stills, "arrivals", lambda row=arrived: row)
        found.append(stills.sample_row(n, alpha).collision_probability)
    error = np.std(found) / np.sqrt(len(found))
    expected = float(exact.collision_probability(Normal(), alpha, n))
    # The others' mean in place of their sum: too small a difference to be seen here.
    assert abs(np.mean(found) - expected) < 4.5 * error < 0.15 * expected

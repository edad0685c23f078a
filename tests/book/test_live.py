"""What pages say of the live figures is what they show, and that is what is recorded."""

import json
import re

import numpy as np

from attnlib import annealed, criteria, exact, freezing, rows
from attnlib.scores import Cosine, DotProduct, Normal
from book import drawings
from book.extensions import pages
from book.live import heads, tables
from experiments.real_heads.summary import FINDS, LISTED
from experiments.records import load
from tests.paths import CHAPTERS, ROOT


def test_the_calculator_page_says_what_its_figure_shows():
    n, law = 4096, Normal()
    best, critical = float(annealed.best_alpha(law, n)), float(freezing.critical_alpha(n, law))
    held = criteria.same_entropy(law, n)
    text = (CHAPTERS / "calculator.md").read_text("utf-8")
    (smallest_n, largest_n), _ = tables.KEYS, tables.DIMENSIONS
    cosines = float(freezing.critical_alpha(n, Cosine(64))) / 8
    for said in (
        f"The gradient against α for {n} keys.",
        f"peaks near {best:.2f} and",
        f"levels off near {exact.gradient(law, 2.2 * critical, n):.1f}. Dots",
        f"at 1, entropy at {held:.2f}, annealed at {best:.2f} and freezing at {critical:.2f}.",
        f"as {criteria.REFERENCE_KEYS} keys are under",
        f"for {n} keys at $\\alpha = {cosines:.2f}$ in place of {critical:.2f}.",
        f"for $n$ from {smallest_n} to $2^{{{np.log2(largest_n):.0f}}}$",
    ):
        assert said in text, said
    dots = float(annealed.best_alpha(DotProduct(64), n))
    assert abs(dots / best - 1) < 0.06  # "differ little"
    assert "below 312 keys," in text
    assert criteria.same_entropy(law, 311) is None
    assert criteria.same_entropy(law, 312) is not None


def test_the_front_page_says_what_its_figures_show():
    text = (ROOT / "intro.md").read_text("utf-8")
    row = np.array(tables.sixteen()[0])
    few, some, many, divided = (
        1 / rows.collision_probability(rows.softmax(row, d**0.5)) for d in (4, 64, 1024, 1)
    )
    assert (drawings.LONG_GAP, drawings.LONG_STRENGTH) == (12, 4)
    for said in (
        f"on {few:.1f} keys at d = 4, on {some:.1f} keys at d = 64,",
        f"on {many:.1f} keys at d = 1024.",
        f"on {divided:.1f} keys at any d.",
    ):
        assert said in text, said


def test_the_atlas_is_the_record():
    atlas, record, start = json.loads(json.dumps(heads.atlas())), load("real_heads_atlas"), 0
    for model, measured in zip(atlas["models"], heads.MODELS, strict=True):
        found = record.find(model=measured.name, **measured.at)
        count = model["layers"] * model["heads"]
        assert count == len(found["alpha"])
        for name in ("alpha", "keys_rest", "first", "output", "entropy", "random_keys"):
            mine = atlas["columns"][name][start : start + count]
            np.testing.assert_allclose(mine, np.array(found[name], float), rtol=6e-3)
        expected = 1 / (found["n"] * exact.collision_probability(Normal(), 2.0, model["n"]))
        at_two = np.exp(np.interp(np.log(2), np.log(atlas["alphas"]), np.log(model["random"])))
        np.testing.assert_allclose(at_two, float(expected), rtol=0.01)
        start += count
    assert {len(column) for column in atlas["columns"].values()} == {start}


def test_the_page_of_heads_says_what_the_records_do():
    source = [(ROOT / "chapters" / "models.md").read_text("utf-8")]
    pages.fill(None, "chapters/models", source)
    [text] = source
    assert "«" not in text
    assert text.count("<tr><td>") == 550  # a plain table, which needs no script
    table, packages = heads.heads(), load("real_heads_atlas").settings["packages"]
    for i, model in enumerate(heads.MODELS):
        own = table["model"] == i
        counted = rf"{own.sum() // model.heads} × {model.heads} \| {table['n'][own][0]:.0f}"
        found = re.search(rf"\| {model.name} .*\| (\S+) (\S+) \| {counted} \|", text)
        assert packages[found[1]]["version"] == found[2]
    share = table["keys"] / table["n"]
    words, logits, meant = tables.row_of_head()
    row = rows.softmax(logits)
    fewer = np.mean(table["keys"] < table["random_keys"])
    for said in (
        f"all {share.size} heads of five",
        f"command `{load('real_heads_atlas').command}`",
        f"up to {heads.NEEDLE_LENGTH} where that is largest, if it is {LISTED} or more",
        f"{FINDS} or more is said to find its needle: {(table['weight'] >= FINDS).sum()} of them",
        f"A cloud of {share.size} marks in five shapes. α goes from {table['alpha'].min():.2f} to "
        f"{table['alpha'].max():.1f}, and effective keys over n from {share.min():.4f} to "
        f"{share.max():.2f}.",
        f"{100 * fewer:.0f} percent of the heads have fewer keys than",
        f"the {row.size} tokens that it sees, as bars: {row[meant]:.2f} on “{words[meant]}”, which "
        f"followed before, and {row[0]:.2f} on the first.",
    ):
        assert said in " ".join(text.split()), said
    assert words[tables.QUERY] == words[16] == "the"
    assert words[17] == "fox"
    assert meant == row.argmax() == 17

"""The file of a run is believed when everything in it agrees, and else named in one line."""

import json
import math
import sys
from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib import provenance
from attnlib.files import write_json
from experiments import records
from experiments.lab import data, results
from experiments.lab.model import Config
from experiments.lab.recall import FIELDS, LAWS, MODEL_FIELDS, Found, Task
from experiments.lab.results import ResultError, Setting
from experiments.lab.train import Run, Training, train

TEXT = data.embedded(2000)
SETTING = Setting(
    "baseline",
    Config(width=8, head_size=4, depth=1, sequence=16),
    Training(steps=25, batch=2, record_every=10, validation_windows=4, learning_rate=0.01),
    "embedded",
    data.digest(TEXT),
)
DIVERGING = replace(SETTING, training=replace(SETTING.training, learning_rate=1e30))
MADE = provenance.made("numpy", "torch", threads=1)


@pytest.fixture(scope="module")
def run():
    return train(SETTING.config, SETTING.training, TEXT)


@pytest.fixture(scope="module")
def whole(run):
    """Return what is written."""
    return json.loads(json.dumps(results.encoded(SETTING, run, MADE)))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("results") / "run.json"


def assert_same(one: Run, other: Run):
    for name in Run.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def refusal(path, setting=SETTING):
    with pytest.raises(ResultError) as caught:
        results.stored(path, setting)
    line = str(caught.value)
    assert line.startswith(f"{path} is not the result of its run: ")
    assert "\n" not in line
    assert len(line) < 700
    return line


def test_what_is_written_is_read_again(path, run, whole):
    write_json(path, whole)
    assert_same(results.stored(path, SETTING), run)
    assert results.stored(path.with_name("nothing.json"), SETTING) is None


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_means_of_losses_are_read_again(path, precision):
    training = replace(SETTING.training, steps=40, losses_every=10, precision=precision)
    setting = replace(SETTING, training=training)
    run = train(setting.config, training, TEXT)
    table = json.loads(json.dumps(results.encoded(setting, run, MADE)))
    write_json(path, table)
    assert_same(results.stored(path, setting), run)
    write_json(path, {**table, "final_loss": run.final_loss * (1 + 3e-7)})
    assert "its losses say" in refusal(path, setting)
    write_json(path, {**table, "losses": table["losses"][:-1]})
    assert "losses must be 4 numbers, got 3" in refusal(path, setting)


def test_what_was_seen_of_attention_is_read_again(path):
    setting = replace(SETTING, training=replace(SETTING.training, record_attention=True))
    run = train(setting.config, setting.training, TEXT)
    table = json.loads(json.dumps(results.encoded(setting, run, MADE)))
    write_json(path, table)
    assert run.spreads.shape == (4, 1)
    assert_same(results.stored(path, setting), run)
    assert "it has too much" in refusal(path)
    del table["spreads"]
    write_json(path, table)
    assert "it has no spreads" in refusal(path, setting)


def test_a_run_that_diverged_is_read_again(path):
    run = train(DIVERGING.config, DIVERGING.training, TEXT)
    write_json(path, results.encoded(DIVERGING, run, MADE))
    assert run.diverged_at == 1
    assert_same(results.stored(path, DIVERGING), run)
    for name in ("final_loss", "validation_loss"):
        table = json.loads(path.read_text())
        write_json(path.with_name("changed.json"), {**table, name: 5.5})
        assert f"{name} must be null" in refusal(path.with_name("changed.json"), DIVERGING)


def test_a_run_that_its_last_step_threw_away_has_no_validation_loss(path):
    setting = replace(DIVERGING, training=replace(DIVERGING.training, steps=1))
    run = train(setting.config, setting.training, TEXT)
    assert math.isfinite(run.final_loss)
    assert run.validation_loss is None
    write_json(path, results.encoded(setting, run, MADE))
    assert_same(results.stored(path, setting), run)


def test_a_file_of_an_older_version_may_lack_a_field_at_its_default(path, run, whole):
    older = deepcopy(whole)
    older["model"] = asdict(SETTING.config)  # all of it, as it was written until 1.0.0
    del older["model"]["policy"], older["training"]["masked"], older["made"]
    older["versions"] = {"attnlib": "1.0.0", "torch": "2.13.0"}
    write_json(path, older)
    assert_same(results.stored(path, SETTING), run)
    del older["training"]["learning_rate"]
    write_json(path, older)
    assert "it is of another run, with learning_rate=0.0009765625, not 0.01" in refusal(path)


WRONG = [
    (("losses",), lambda losses: losses[:5], "losses must be 25 numbers, got 5"),
    (("losses",), lambda losses: [losses], "losses must be 25 numbers, got 1"),
    (("losses",), lambda _: None, "losses must be 25 numbers, got None"),
    (("losses", 3), lambda _: None, "losses must be numbers from 0 to 1000, got None"),
    (("losses", 3), lambda _: "5.5", "losses must be numbers from 0 to 1000, got '5.5'"),
    (("losses", 3), lambda _: True, "losses must be numbers from 0 to 1000, got True"),
    (("losses", 3), lambda _: 10**400, "losses must be numbers from 0 to 1000, got 1"),
    (("losses", 3), lambda _: 1000.5, "losses must be numbers from 0 to 1000, got 1000.5"),
    (("losses", 3), lambda _: -0.5, "losses must be numbers from 0 to 1000, got -0.5"),
    (("losses", 24), lambda loss: loss + 1e-6, "final_loss is "),
    (("final_loss",), lambda loss: loss + 1e-10, "and its losses say "),
    (("final_loss",), lambda _: None, "final_loss must be numbers from 0 to inf, got None"),
    (("final_loss",), lambda _: [1.0], "final_loss must be numbers from 0 to inf, got [1.0]"),
    (("validation_loss",), lambda _: "", "validation_loss must be numbers from 0 to inf, got ''"),
    (("diverged_at",), lambda _: [], "diverged_at must be null or a step, got []"),
    (("diverged_at",), lambda _: 25, "diverged_at must be null or a step, got 25"),
    (("diverged_at",), lambda _: True, "diverged_at must be null or a step, got True"),
    (("diverged_at",), lambda _: 5, "losses must be 5 numbers, got 25"),
    (("recorded_at",), lambda steps: steps[1:], "recorded_at must be [0, 10, 20, 24], got [10"),
    (("recorded_at", 0), lambda _: 0.0, "recorded_at must be [0, 10, 20, 24], got [0.0, 10"),
    (("gradient_norms",), lambda norms: norms[1:], "gradient_norms must be 4 numbers, got 3"),
    (("gradient_norms", 1), lambda _: 1e300, "gradient_norms must be numbers from 0 to 3.4"),
    (("branch_ratios",), lambda rows: rows * 2, "branch_ratios must be 4 lists, got [["),
    (("branch_ratios", 2), lambda _: 1.0, "branch_ratios must be 1 numbers, got 1.0"),
    (("model",), lambda _: [], "model must be a table of width, depth"),
    (("model",), lambda model: {**model, "gain": 1}, "model must be a table of width, depth"),
    (("model", "width"), lambda _: 16, "it is of another run, with width=16, not 8"),
    (("model", "width"), lambda _: 8.0, "it is of another run, with width=8.0, not 8"),
    (("model",), lambda m: {**m, "causal": 1}, "it is of another run, with causal=1, not True"),
    (("corpus", "sha256"), lambda _: "", "it is of another run, with sha256='', not '"),
    (("made",), lambda _: 3, "made must be a table, got 3"),
    (("made", "threads"), lambda _: "one", "made has no such threads: 'one'"),
    (("made", "threads"), lambda _: 0, "made has no such threads: 0"),
    (("made", "commit"), lambda _: "today", "made has no such commit: 'today'"),
    (("made", "torch"), lambda _: None, "made has no such torch: None"),
]


@pytest.mark.parametrize(("where", "change", "shown"), WRONG, ids=[shown for *_, shown in WRONG])
def test_what_does_not_agree_is_named(path, whole, where, change, shown):
    write_json(path, changed(whole, where, change))
    assert shown in refusal(path)


def changed(whole, where, change):
    """Return a copy of a table with another value at a place."""
    *way, last = where
    table = inner = deepcopy(whole)
    for step in way:
        inner = inner[step]
    inner[last] = change(inner[last])
    return table


@pytest.mark.parametrize("name", ["versions", "commit", "python", "processor", "threads"])
def test_what_it_was_made_with_is_needed(path, whole, name):
    table = deepcopy(whole)
    table["made"].pop(name, None)
    if name == "versions":
        del table["made"]
        table["versions"] = {"torch": 2}
    write_json(path, table)
    shown = "versions must be a table of words" if name == "versions" else f"made must have {name}"
    assert shown in refusal(path)


@pytest.mark.parametrize("key", [*results.SETTING_KEYS, results.MADE, *results.RUN_KEYS])
def test_a_key_that_is_missing_is_named(path, whole, key):
    write_json(path, {name: value for name, value in whole.items() if name != key})
    assert f"it has no {key}" in refusal(path)


def test_a_key_too_many_is_refused(path, whole):
    write_json(path, {**whole, "comment": "mine"})
    assert "it has too much: 'model', " in refusal(path)


DEEP = 10**5
BYTES = [
    (b"", "Expecting value"),
    (b"[]", "it must be a table, got []"),
    (b"\xff\xfe", "codec can't decode"),
    (b'{"model": {}, "train', "Unterminated string"),
    (b'{"model": NaN}', "it holds NaN"),
    (b'{"model": -Infinity}', "it holds -Infinity"),
    (b'{"model": 1e999}', "it holds 1e999"),
    (b"[" * DEEP + b"]" * DEEP, "it is nested too deeply"),
    (b'{"model": ' + b"9" * 10**5 + b"}", "Exceeds the limit"),
]


@pytest.mark.parametrize(("content", "shown"), BYTES, ids=[shown for _, shown in BYTES])
def test_a_file_that_is_no_table_is_named(path, content, shown):
    path.write_bytes(content)
    assert shown in refusal(path)


def test_tables_as_deep_as_json_reads_them_are_named_too(path, whole):
    depth = sys.getrecursionlimit() // 2
    for _ in range(8):  # somewhere there, it can be read and no longer be shown
        deep = json.dumps({**whole, "losses": 3}).replace("3", "[" * depth + "]" * depth, 1)
        path.write_text(deep)
        refusal(path)
        depth += sys.getrecursionlimit() // 16


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def places(table, way=()):
    """Yield the way to each value of a table."""
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from places(value, (*way, key))


def any_change_is_refused_or_harmless(path, whole, run, data_):
    where = data_.draw(st.sampled_from(list(places(whole))))
    value = data_.draw(ANYTHING | st.floats(0.0, 10.0))
    path.write_text(json.dumps(changed(whole, where, lambda _: value)))
    try:
        found = results.stored(path, SETTING)
    except ResultError:
        refusal(path)
    else:
        assert np.isfinite(found.losses).all()
        assert found.losses.shape == (25,)
        assert (found.losses[-20:] == run.losses[-20:]).all()
        assert found.final_loss == run.final_loss


@given(data_=st.data())
@settings(max_examples=300)
def test_any_change_of_a_file_is_refused_or_harmless(path, whole, run, data_):
    any_change_is_refused_or_harmless(path, whole, run, data_)


@pytest.mark.slow
@given(data_=st.data())
@settings(max_examples=10_000)
def test_ten_thousand_changes_of_a_file_are_refused_or_harmless(path, whole, run, data_):
    any_change_is_refused_or_harmless(path, whole, run, data_)


@given(cut=st.floats(0.0, 1.0), junk=st.binary(max_size=3))
@settings(max_examples=100)
def test_a_file_cut_anywhere_is_refused(path, whole, cut, junk):
    text = json.dumps(whole).encode()
    path.write_bytes(text[: int(cut * (len(text) - 1))] + junk)
    try:
        results.stored(path, SETTING)
    except ResultError:
        return
    assert junk.strip() == b"}"


def test_every_recorded_run_is_believed():
    for name in ("cause", "residual"):
        assert records.runs(name)


def test_what_is_null_is_read_as_no_number(path, whole):
    table = changed(whole, ("gradient_norms", 1), lambda _: None)
    write_json(path, changed(table, ("branch_ratios", 2, 0), lambda _: None))
    found = results.stored(path, SETTING)
    assert np.flatnonzero(np.isnan(found.gradient_norms)).tolist() == [1]
    assert np.argwhere(np.isnan(found.branch_ratios)).tolist() == [[2, 0]]
    assert found.gradient_norms.dtype == found.branch_ratios.dtype == np.float64


def test_only_a_setting_has_a_result(run):
    with pytest.raises(TypeError, match="setting must be of Setting"):
        results.encoded({}, run, MADE)


@pytest.mark.parametrize(("share", "believed"), [(5e-13, True), (1.5e-12, False)])
def test_a_final_loss_has_the_digits_of_float64(path, whole, share, believed):
    write_json(path, changed(whole, ("final_loss",), lambda loss: loss * (1.0 + share)))
    if believed:
        assert results.stored(path, SETTING)
    else:
        assert "and its losses say " in refusal(path)


def test_both_tables_of_laws_are_looked_at(path):
    config = Config(width=16, head_size=8, depth=1, sequence=24, fit_policy=True)
    setting = Setting("recall", config, Task(name="recall", steps=1), "", "")
    law = dict.fromkeys(LAWS, 0.5)
    one = dict.fromkeys((*FIELDS, *MODEL_FIELDS), 0.5) | {"n": 24, "heads": 2}
    one |= {"laws": law, "answers": law, "kappa": [0.5] * 4}
    made = json.loads(json.dumps(results.encoded(setting, Found([2.0], None, [one]), MADE)))
    write_json(path, made)
    assert results.stored(path, setting) == Found([2.0], None, [one])
    for name in ("laws", "answers"):
        write_json(path, changed(made, ("measured", 0, name), lambda _: {"ssmax": 0.5}))
        assert "measured must be of n, gap" in refusal(path, setting)

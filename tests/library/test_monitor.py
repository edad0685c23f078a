"""What a monitor measures in training, and that training does not notice."""

import csv
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from attnlib.probing import Monitor, measure, probe
from attnlib.probing.monitor import SHOWN, _numbers
from attnlib.probing.sample import some_rows
from tests.library import foreign
from tests.library.test_probing import Caller, draw


def train(model, steps, monitor=None):
    """Train for some steps, and return the parameters and a random number drawn after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    for _ in range(steps):
        optimizer.zero_grad()
        model(foreign.tokens())[0].square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()], torch.rand(1)


def test_training_is_bitwise_what_it_is_without():
    plain = train(foreign.llama().train(), 5)
    model = foreign.llama().train()
    with Monitor(model, every=2, rows=5) as monitor:
        watched = train(model, 5)
    assert all(map(torch.equal, plain[0], watched[0]))
    assert torch.equal(plain[1], watched[1])
    assert list(monitor.tables) == [0, 2, 4]
    table = monitor.table()
    assert list(table["step"].unique()) == [0, 2, 4]
    assert len(table) == 3 * 2 * foreign.HEADS


def test_with_all_rows_it_measures_what_the_probe_does():
    model = foreign.llama().train()
    with Monitor(model, every=1, rows=10**6) as monitor:
        model(foreign.tokens())
    with probe(model, theory=False) as report:
        model(foreign.tokens())
    found, expected = monitor.tables[0], report.table()
    for name in found.columns:
        assert (found[name] == expected[name]).all() or found[name].isna().all(), name
    assert expected["random_entropy"].isna().all()
    assert expected["gradient_share"].isna().all()


def test_padding_that_the_model_is_told_of_is_left_out():
    model = foreign.llama().train()
    mask = (~foreign.PADDING).long()
    with Monitor(model, every=1) as monitor:
        model(input_ids=foreign.tokens(), attention_mask=mask)
    with probe(model, theory=False) as report:
        model(input_ids=foreign.tokens(), attention_mask=mask)
    padded = foreign.LENGTH - foreign.SHORT
    assert report.padding == 2 * foreign.HEADS * padded
    assert monitor.table().rows.tolist() == report.table().rows.tolist()


def test_nothing_is_watched_in_evaluation_and_after_the_context():
    model = foreign.llama()
    with Monitor(model, every=1) as monitor:
        model(foreign.tokens())
        assert not monitor.tables
        model.train()(foreign.tokens())
        assert list(monitor.tables) == [0]
    model(foreign.tokens())
    assert list(monitor.tables) == [0]
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_steps_that_are_told_are_those_that_count():
    model = foreign.llama().train()
    with Monitor(model, every=3) as monitor:
        for step in (2, 3, 4, 5, 6):
            monitor.step = step
            for _ in range(2):  # two calls a step
                model(foreign.tokens())
    assert list(monitor.tables) == [3, 6]
    assert monitor.tables[3]["rows"].eq(2 * (foreign.LENGTH - 1)).all()


@pytest.mark.parametrize("training", [True, False])
def test_an_error_in_the_model_is_the_model_s_and_the_next_call_counts_as_always(training):
    model = foreign.llama().train()
    with Monitor(model, every=1) as monitor:
        model.layers[0].self_attn.forward = nonsense
        with pytest.raises(TypeError, match="nonsense"):
            model(foreign.tokens())
        assert not monitor.tables
        del model.layers[0].self_attn.forward
        model.train(training)(foreign.tokens())
    assert len(monitor.tables) == training  # outside of training nothing is watched


def nonsense(*_, **__):
    raise TypeError("nonsense")


def test_a_model_without_attention_that_can_be_seen_is_told_at_once():
    model = torch.nn.Linear(2, 2).train()
    with Monitor(model), pytest.raises(RuntimeError, match="probe has measured no attention"):
        model(torch.ones(1, 2))


def test_a_file_has_a_line_for_each_number(tmp_path):
    path = tmp_path / "attention.csv"
    for _ in range(2):
        model = foreign.llama().train()
        with Monitor(model, log=path) as monitor:
            model(foreign.tokens())
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert len(lines) == 2 * 2 * 8
    found = {line["name"]: float(line["value"]) for line in lines}
    heads = monitor.table().query("layer == 'layers.1.self_attn'")
    prefix = "attention/layers.1.self_attn/"
    assert found[f"{prefix}largest_logit"] == heads["largest_logit"].max()
    assert found[f"{prefix}entropy"] == heads["entropy"].min()
    assert found[f"{prefix}effective_keys"] == pytest.approx(heads["effective_keys"].mean())


def test_a_function_gets_names_numbers_and_steps():
    told = []
    model = foreign.llama().train()
    with Monitor(model, log=lambda *line: told.append(line)):
        model(foreign.tokens())
    assert len(told) == 2 * 8
    assert all(step == 0 and name.startswith("attention/layers.") for name, _, step in told)


def test_a_trainer_of_transformers_calls_it():
    from transformers import TrainerControl, TrainerState
    from transformers.trainer_callback import CallbackHandler

    model = foreign.llama().train()
    monitor = Monitor(model, every=2)
    handler = CallbackHandler([monitor.callback()], model, None, None, None)
    arguments = None  # a TrainingArguments, which wants accelerate
    state, control = TrainerState(), TrainerControl()
    handler.on_train_begin(arguments, state, control)
    for state.global_step in range(5):
        handler.on_step_begin(arguments, state, control)
        for _ in range(2):  # two batches are one step
            model(foreign.tokens())
        handler.on_step_end(arguments, state, control)
    handler.on_train_end(arguments, state, control)
    assert list(monitor.tables) == [0, 2, 4]
    assert not model._forward_hooks


def test_a_trainer_of_lightning_calls_it(monkeypatch):
    stand_in = SimpleNamespace(Callback=type("Callback", (), {}))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(pytorch=stand_in))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", stand_in)
    model = foreign.llama().train()
    monitor = Monitor(model, every=2)
    callback = monitor.lightning_callback()
    callback.on_fit_start(None, None)
    for step in range(3):
        callback.on_train_batch_start(SimpleNamespace(global_step=step), None, None, step)
        model(foreign.tokens())
    callback.on_fit_end(None, None)
    assert list(monitor.tables) == [0, 2]
    assert not model._forward_hooks


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": "bool"}, {"mask": "float"}])
def test_a_sample_has_the_numbers_of_its_rows(options):
    q, k, v = (draw(6, 2, 40, 4, seed=i) for i in range(3))
    if options.get("mask") == "bool":
        options = {"mask": (draw(6, 1, 40, 40, seed=5) > -1.0) | torch.eye(40, dtype=torch.bool)}
    elif options.get("mask") == "float":
        options = {"mask": draw(40, 40, seed=5)}
    call = measure.Call(q, k, v, **options)
    output = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=call.mask, is_causal=call.is_causal
    )
    whole = measure.measure(call, output).rows
    some, part = some_rows(call, output, 20, np.random.default_rng(0))
    found = measure.measure(some, part).rows
    assert found.keys.shape == (4, 2, 5)
    for name in ("entropy", "keys", "largest_logit", "collision_probability"):
        numbers, all_numbers = getattr(found, name), getattr(whole, name)
        for head in range(2):
            for number in numbers[:, head].ravel():
                assert np.isclose(all_numbers[:, head], number, rtol=1e-5).any(), name


def test_a_sample_of_all_rows_is_all_of_them():
    call = measure.Call(*(draw(2, 2, 10, 4, seed=i) for i in range(3)))
    assert some_rows(call, None, 20, np.random.default_rng(0)) == (call, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every must be from 1"),
        ({"rows": -1}, "rows must be from 1"),
        ({"log": "numbers.txt"}, "log must be a function"),
        ({"log": 7}, "log must be a function"),
    ],
)
def test_what_it_does_not_take(options, message):
    with pytest.raises(ValueError, match=message):
        Monitor(Caller(), **options)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_what_is_no_model():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got a int"):
        Monitor(7)
    with pytest.raises(ValueError, match="model is compiled"):
        Monitor(torch.compile(Caller(), backend="eager"))


@pytest.mark.parametrize(("heads", "end"), [(3, ""), (4, "1 more"), (6, "3 more")])
def test_three_alarms_of_a_step_are_named_and_the_others_counted(heads, end):
    line = {"layer": "a", "call": 0, "rows": 9, "alpha": np.nan, "largest_logit": 1.0}
    table = pd.DataFrame([line | {"head": head} for head in range(heads)])
    with pytest.warns(UserWarning, match="^step 5: not finite in a head 0") as caught:
        (monitor := Monitor(Caller()))._look(table, 5)
    (warning,) = caught
    text = str(warning.message)
    assert text.count("not finite in a head") == 3
    assert text.endswith(f"; and {end} in monitor.alarms" if end else "when they are squared")
    assert len(monitor.alarms) == heads


def test_lightning_s_own_steps_count(monkeypatch):
    stand_in = SimpleNamespace(Callback=type("Callback", (), {}))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(pytorch=stand_in))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", stand_in)
    monitor = Monitor(model := Caller().train(), every=2)
    callback = monitor.lightning_callback()
    callback.on_fit_start(None, None)
    for step in (11, 12, 13):  # a run that goes on where another was stopped
        callback.on_train_batch_start(SimpleNamespace(global_step=step), None, None, step)
        model(*(draw(1, 1, 4, 2, seed=i) for i in range(3)))
    callback.on_fit_end(None, None)
    assert list(monitor.tables) == [12]


def test_numbers_are_told_in_the_order_of_the_calls():
    table = pd.DataFrame(
        [{"layer": layer, "call": 0, **dict.fromkeys(SHOWN, 1.0)} for layer in ("b", "b", "a")]
    )
    names = [name for name, _ in _numbers(table)]
    assert [name.split("/")[1] for name in names] == ["b"] * len(SHOWN) + ["a"] * len(SHOWN)


def test_tensorboard_gets_the_numbers(monkeypatch):
    told = []
    writer = SimpleNamespace(add_scalar=lambda *line: told.append(line))
    stand_in = SimpleNamespace(SummaryWriter=lambda: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    with Monitor(model := Caller().train(), log="tensorboard"):
        model(*(draw(1, 1, 4, 2, seed=i) for i in range(3)))
    assert [name for name, *_ in told] == [f"attention/Caller/{column}" for column in SHOWN]


def test_a_sample_of_every_token_has_each_once():
    q, k, v = (draw(5, 3, 8, 4, seed=i) for i in range(3))
    call = measure.Call(q, k, v, mask=draw(8, 8, seed=5))
    output = functional.scaled_dot_product_attention(q, k, v, attn_mask=call.mask)
    some, part = some_rows(call, output, 4 * 8, np.random.default_rng(0))
    assert part.shape == (4, 3, 8, 4)
    for one, rows in zip(some.query, part, strict=True):
        (i,) = (i for i in range(5) if torch.equal(one, q[i]))
        assert torch.equal(rows, output[i])
    again = functional.scaled_dot_product_attention(*some[:3], attn_mask=some.mask)
    torch.testing.assert_close(again, part)


def test_a_call_without_heads_is_not_sampled():
    for shape in [(9, 4), (3, 9, 4)]:
        call = measure.Call(*(draw(*shape, seed=i) for i in range(3)))
        assert some_rows(call, None, 2, np.random.default_rng(0)) == (call, None)

"""What a monitor measures in training, and that training does not notice."""

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.probing import Monitor, probe
from attnlib.probing.monitor import LOGGED
from tests.library import foreign


def train(model, steps):
    """Train for some steps, and return the parameters and a random number drawn after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    for _ in range(steps):
        optimizer.zero_grad()
        model(foreign.tokens())[0].square().mean().backward()
        optimizer.step()
    return [*(p.detach().clone() for p in model.parameters()), torch.rand(1)]


def test_training_is_bitwise_what_it_is_without():
    plain = train(foreign.llama().train(), 5)
    model = foreign.llama().train()
    with Monitor(model, every=2, rows=5) as monitor:
        watched = train(model, 5)
    assert all(map(torch.equal, plain, watched))
    table = monitor.table()
    assert list(table["step"].unique()) == list(monitor.tables) == [0, 2, 4]
    assert len(table) == 3 * 2 * foreign.HEADS
    assert monitor.alarms == []


def test_with_all_rows_it_measures_what_the_probe_does_without_padding():
    model, mask = foreign.llama().train(), (~foreign.PADDING).long()
    with Monitor(model, every=1, rows=10**6) as monitor:
        model(input_ids=foreign.tokens(), attention_mask=mask)
    with probe(model, theory=False) as report:
        model(input_ids=foreign.tokens(), attention_mask=mask)
    pd.testing.assert_frame_equal(monitor.tables[0], report.table())


def test_only_calls_in_training_and_inside_the_context_are_watched():
    model = foreign.llama()
    with Monitor(model, every=1) as monitor:
        model(foreign.tokens())
        assert not monitor.tables
        model.train()(foreign.tokens())
    model(foreign.tokens())
    assert list(monitor.tables) == [0]
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_each_number_is_logged_in_the_order_of_the_calls():
    logged = []
    model = foreign.llama().train()
    model.layers._modules = dict(reversed(model.layers._modules.items()))  # layers.1 is first
    with Monitor(model, log=lambda *line: logged.append(line)) as monitor:
        model(foreign.tokens())
    assert all(step == 0 for *_, step in logged)
    numbers = {name: number for name, number, _ in logged}
    layers = monitor.table()["layer"].unique()
    assert list(numbers) == [f"attention/{layer}/{name}" for layer in layers for name in LOGGED]
    for layer, heads in monitor.table().groupby("layer"):
        for names, summary in (
            (("alpha_to_critical", "largest_logit", "largest_weight", "first_weight"), max),
            (("entropy", "gradient"), min),
            (("effective_keys", "output_std"), np.mean),
        ):
            for name in names:
                number = numbers[f"attention/{layer}/{name}"]
                assert number == pytest.approx(summary(heads[name].tolist())), name


# --- trainers -------------------------------------------------------------------------------------


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
        model(foreign.tokens())
        handler.on_substep_end(arguments, state, control)
        model(foreign.tokens())  # two batches are one step
        handler.on_step_end(arguments, state, control)
        assert not model._forward_hooks
    handler.on_train_end(arguments, state, control)
    assert list(monitor.tables) == [0, 2, 4]
    assert set(monitor.tables[0]["rows"]) == {2 * (foreign.LENGTH - 1)}

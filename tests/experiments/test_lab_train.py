"""Training, against a plain loop, against itself, and where it goes wrong."""

import math
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from attnlib.calibration import scale_gradient
from experiments.lab import texts
from experiments.lab.batches import Batch, training_batches, validation_batch
from experiments.lab.descent import Descent, descend
from experiments.lab.model import Config, Transformer
from experiments.lab.train import (
    LOSS_LIMIT,
    Training,
    batch_loss,
    train,
    train_model,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = texts.embedded(20_000)
TINY = Config(width=8, head_size=4, depth=2, sequence=16)
SHORT = Training(steps=25, batch=4, learning_rate=2.0**-6, record_every=10, validation_windows=10)


def test_the_spread_and_the_effective_keys_are_those_of_the_rows_by_hand():
    config, training = replace(TINY, depth=1), replace(SHORT, steps=1, record_attention=True)
    run = train(config, training, TEXT)
    without = train(config, replace(training, record_attention=False), TEXT)
    assert without.spreads is without.effective_keys is None
    np.testing.assert_array_equal(run.losses, without.losses)
    model = Transformer(config, training.seed, torch.float64)
    parts = texts.split(TEXT)
    (batch,) = training_batches(parts.training, sequence=16, batch=4, steps=1, seed=0)
    x = model.token(torch.from_numpy(batch.inputs)) + model.position.weight
    block = model.blocks[0]
    q, k, _ = block.attention.input(block.attention_norm(x)).chunk(3, dim=-1)
    q, k = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (q, k))
    logits = (q @ k.mT / 2.0).detach().numpy()
    variances, shared = [], []
    for row in range(1, 16):
        seen = logits[:, :, row, : row + 1]
        variances.append(seen.var(axis=-1, ddof=1))
        weights = np.exp(seen) / np.exp(seen).sum(-1, keepdims=True)
        shared.append((weights**2).sum(-1))
    assert run.spreads.shape == run.effective_keys.shape == (1, 1)
    assert run.spreads[0, 0] == pytest.approx(np.sqrt(np.mean(variances)), rel=1e-5)
    by_head = np.mean(shared, axis=(0, 1))
    assert run.effective_keys[0, 0] == pytest.approx(1.0 / by_head.mean(), rel=1e-5)


def rms(tensor):
    return math.sqrt(tensor.detach().square().mean())


def plain_loop(config, training, text):
    """Train as anybody would, with nothing of experiments.lab but the model."""
    cut = len(text) - len(text) // 10
    rng = np.random.default_rng([training.seed, 1])
    model = Transformer(config, training.seed, torch.float64)
    adam = torch.optim.Adam(model.parameters(), lr=training.learning_rate, foreach=False)
    inner = {}
    for block in model.blocks:
        block.attention_norm.register_forward_pre_hook(
            lambda module, given: inner.__setitem__(module, given[0])
        )
        block.attention.register_forward_hook(
            lambda module, given, result: inner.__setitem__(module, result)
        )
    losses, ratios = [], []
    for _ in range(training.steps):
        starts = rng.integers(0, cut - config.sequence, training.batch)
        rows = [text[i : i + config.sequence + 1].astype(np.int64) for i in starts]
        tokens = torch.tensor(np.array(rows))
        logits = model(tokens[:, :-1])
        loss = cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
        adam.zero_grad()
        loss.backward()
        losses.append(loss.item())
        ratios.append(
            [
                rms(inner[block.attention]) / rms(inner[block.attention_norm])
                for block in model.blocks
            ]
        )
        adam.step()
    validation = text[cut:].astype(np.int64)
    starts = np.linspace(0, len(validation) - config.sequence - 1, training.validation_windows)
    with torch.no_grad():
        values = []
        for i in starts.astype(int):
            row = torch.tensor(validation[i : i + config.sequence + 1])
            values.append(cross_entropy(model(row[None, :-1])[0], row[1:]).item())
    return losses, ratios, np.mean(values)


def test_training_is_what_a_plain_loop_does():
    training = replace(SHORT, precision="float64")
    config = replace(TINY, post_scale="constant")
    run = train(config, training, TEXT)
    losses, ratios, validation = plain_loop(config, training, TEXT)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-9)
    assert run.recorded_at.tolist() == [0, 10, 20, 24]
    np.testing.assert_allclose(run.branch_ratios, np.array(ratios)[run.recorded_at], rtol=1e-9)
    assert run.validation_loss == pytest.approx(validation, rel=1e-9)
    assert run.final_loss == pytest.approx(np.mean(losses[-20:]), rel=1e-9)


@pytest.mark.parametrize("law", ["none", "own"])
def test_other_lengths_are_read_at_the_same_bytes(law):
    config = replace(TINY, positions="none", law=law)
    training = replace(SHORT, steps=20, lengths=[16, 64], losses_every=20, record_gains=True)
    model, run = train_model(config, training, TEXT)
    assert run.losses.shape == (1,)
    if law == "none":
        assert run.gains is None
    else:
        assert run.gains.shape == (3, 2, 2, 2)
        assert (run.gains[0] == np.array([[1.0], [0.0]])).all()
        assert (run.gains[1] != run.gains[0]).any()
    laws = ("none", "root_log", "log") if law == "none" else (law,)
    assert run.readings.shape == (2, len(laws))
    text = torch.from_numpy(texts.split(TEXT).validation.astype(np.int64))
    for column, rule in enumerate(laws):
        other = Transformer(replace(config, law=rule))
        other.load_state_dict(model.state_dict())
        for row, n in enumerate((16, 64)):
            starts = range(32 - n // 2, 32 - n // 2 + 1952, n // 2)  # 1952 = 61 · 32
            windows = torch.stack([text[start : start + n + 1] for start in starts])
            with torch.no_grad():
                logits = other(windows[:, :-1])[:, n // 2 :].flatten(0, 1)
            expected = cross_entropy(logits, windows[:, 1 + n // 2 :].flatten()).item()
            assert run.readings[row, column] == pytest.approx(expected, rel=1e-4)


def test_a_run_without_bounds_is_cut_off_where_it_diverged(monkeypatch):
    run = train(TINY, replace(SHORT, learning_rate=1e6), TEXT)
    assert run.diverged_at is not None
    assert len(run.losses) == run.diverged_at >= 1
    assert (run.losses <= LOSS_LIMIT).all()
    assert run.final_loss is None
    assert run.validation_loss is None
    assert len(run.recorded_at) == len(run.branch_ratios) == 1
    assert train(TINY, replace(SHORT, learning_rate=1e30), TEXT).diverged_at == 1  # NaN
    monkeypatch.setattr("experiments.lab.train.LOSS_LIMIT", 1.0)  # below the first loss
    cut = train(TINY, SHORT, TEXT)
    assert cut.diverged_at == cut.losses.size == cut.recorded_at.size == 0


def gained():
    """Return a matrix, a bias and a gain."""
    model = torch.nn.Linear(3, 2)
    model.scale = torch.nn.Parameter(torch.ones(2))
    model.weight.data.copy_(torch.arange(6.0).reshape(2, 3))
    model.bias.data.fill_(0.5)
    return model, lambda: (model.scale * model(torch.ones(3))).square().sum()


@pytest.mark.parametrize("decay", ["none", "linear", "cosine"])
def test_warm_up_decay_and_clipping_are_those_of_a_plain_loop(decay):
    of_clipped = {"weight_decay": 0.5, "clip": 2.0, "gain_rate": 4.0}
    descent = Descent(steps=9, learning_rate=0.1, decay=decay, warmup=3, **of_clipped)
    falls = {
        "none": lambda done: 1.0,
        "linear": lambda done: 1.0 - done,
        "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
    }
    rates = [0.25, 0.5, 0.75, *(falls[decay](k / 6) for k in range(6))]
    (ours, our_loss), (theirs, their_loss) = gained(), gained()
    groups = [
        {"params": [theirs.weight], "weight_decay": 0.5},
        {"params": [theirs.bias, theirs.scale], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=1.0)
    batches = repeat(None)
    for step, _, value in descend(ours, descent, batches, lambda *_: our_loss()):
        expected = their_loss()
        assert value == pytest.approx(expected.item(), rel=1e-4)
        before = theirs.scale.detach().clone()
        adam.zero_grad()
        expected.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in theirs.parameters()))
        for parameter in theirs.parameters():
            parameter.grad.mul_(min(1.0, 2.0 / norm))
        for group in adam.param_groups:
            group["lr"] = 0.1 * rates[step]
        adam.step()
        with torch.no_grad():  # Adam's step does not depend on the size of the gradient
            theirs.scale.copy_(before + 4.0 * (theirs.scale - before))


def test_weights_and_their_gradients_tell_what_the_interception_finds():
    config, training = replace(TINY, start_factor=16.0), replace(SHORT, precision="float64")
    training = replace(training, steps=20, record_every=1, record_scale=True)
    model, run = train_model(config, training, TEXT)
    parts = texts.split(TEXT)
    batches = training_batches(parts.training, sequence=16, batch=4, steps=20, seed=0)
    fresh = Transformer(config, training.seed, torch.float64)
    [sample] = scale_gradient(fresh, [next(batches)], batch_loss).samples
    np.testing.assert_allclose(run.slopes[0], sample, rtol=1e-9, atol=1e-15)
    weights = [block.attention.input.weight.detach() for block in fresh.blocks]
    queries = [w[:8].square().reshape(2, -1).sum(-1).numpy() for w in weights]  # no biases yet
    np.testing.assert_allclose(run.norms[0, :, 0], queries, rtol=1e-12)
    assert run.norms.shape == (20, 2, 2, 2)
    assert run.scale_samples.shape == (2, 16, 2, 2)
    for row, part in zip(run.scale_samples, parts, strict=True):
        whole = validation_batch(part, sequence=16, windows=64)
        text = Batch(*(tokens[4:8] for tokens in whole))
        model.zero_grad()
        batch_loss(model, text).backward()
        for layer, block in enumerate(model.blocks):
            entry = block.attention.input
            product = (entry.weight * entry.weight.grad)[:8].reshape(2, -1).sum(-1)
            product = product + (entry.bias * entry.bias.grad)[:8].reshape(2, -1).sum(-1)
            expected = product.detach().numpy()
            np.testing.assert_allclose(row[1, layer], expected, rtol=1e-9, atol=1e-15)

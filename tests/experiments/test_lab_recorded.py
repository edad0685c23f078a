"""The recorded runs are those of today's code: their first steps are trained anew."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from experiments.lab import train_task
from experiments.lab.descent import descend
from experiments.lab.model import Transformer
from experiments.lab.train import train
from experiments.records import runs

pytestmark = pytest.mark.usefixtures("one_thread")

# On the recording processor the losses are the same to the last bit. Another one adds in another
# order, and a step of Adam divides by the gradient's size, so that rounding grows. With the kernels
# of AVX2, of no vector unit, MKL's for the least processor, oneDNN's for AVX2, two threads, and on
# an Intel Xeon with AVX-512, the means of the first ten losses are at most 5e-7 away, relatively
# (7.5e-6 where 256 cosines are summed: none of these). In float64 it is 3e-16. A learning rate that
# is 1 % larger moves them by 3.3e-5 to 1.6e-3.
TOLERANCE = {"float32": 1e-5, "float64": 1e-14}


def chosen(experiment, variant):
    """Return the first recorded run of seed 0 of a variant, and its setting."""
    first_seed = (run for run in runs(experiment) if run.setting.training.seed == 0)
    return next(run for run in first_seed if run.setting.variant == variant)


def slow(experiment, variant):
    """Return the name of a run that is replayed in make test-all."""
    return pytest.param(experiment, variant, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def shakespeare():
    """Return what the first steps of seed 0 see of tiny-shakespeare, and zeros for the rest.

    A machine without the text, and without a network, has enough of it that way.
    """
    seen = json.loads(Path(__file__).with_name("shakespeare.json").read_text("utf-8"))
    text = np.zeros(seen["bytes"], dtype=np.uint8)
    for start, window in seen["windows"].items():
        text[int(start) :][: len(window)] = np.frombuffer(window.encode("ascii"), dtype=np.uint8)
    return text


def first_losses(setting, text, **changed):
    steps = max(3, setting.training.losses_every)  # a mean of losses needs all of them
    training = replace(setting.training, steps=steps, validation_windows=1, **changed)
    return train(setting.config, training, text).losses


@pytest.mark.parametrize(
    ("experiment", "variant"),
    [
        ("source_start", "note"),  # PyTorch's start, and a factor behind attention
        slow("encoder", "baseline"),  # masked bytes
        slow("no_scale_norm", "norm_learned_64"),  # cosines, and a scale that is learned
        slow("residual", "eight_with_bias"),  # a factor that is taken back
    ],
)
def test_the_first_steps_of_a_recorded_run_are_replayed(experiment, variant, shakespeare):
    setting, recorded = chosen(experiment, variant)
    losses = first_losses(setting, shakespeare)
    tolerance = TOLERANCE[setting.training.precision]
    np.testing.assert_allclose(losses, recorded.losses[: losses.size], rtol=tolerance)


@pytest.mark.parametrize(
    ("experiment", "variant"),
    [
        ("length_head", "noise_70_qk"),
        slow("length_recall", "fixed_qk"),
        slow("length_induction", "rotary_ssmax"),
    ],
)
def test_the_first_steps_of_a_recorded_head_are_replayed(experiment, variant):
    setting, recorded = chosen(experiment, variant)
    config, task = setting.config, setting.training
    kind = train_task.Head if task.name == "nearest" else Transformer
    model = kind(config, task.seed)
    each = task.steps // train_task.STRETCHES
    stretches = max(1, 60 // each)
    training = descend(model, task, train_task.draw_batches(config, task), train_task.batch_loss)
    steps = islice(training, each * stretches)
    losses = np.reshape([value.item() for *_, value in steps], (stretches, each)).mean(axis=1)
    np.testing.assert_allclose(losses, recorded.losses[:stretches], rtol=1e-5)

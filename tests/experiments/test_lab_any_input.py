"""Any input to any public function of the laboratory: a result without NaN, or a named error."""

import inspect
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from itertools import product
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from experiments import lab
from experiments.lab import comparison, data, model, recall, results, small_models, sweep, train
from experiments.lab.model import Config
from experiments.lab.results import Setting
from experiments.lab.train import Run, Training

TEXT = data.embedded(400)
CONFIG = Config(width=4, head_size=4, depth=1, sequence=6)
TRAINING = Training(steps=3, batch=1, validation_windows=2, record_every=2)


pytestmark = pytest.mark.usefixtures("one_thread")


# --- what is drawn -------------------------------------------------------------------------------

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([math.nan, math.inf, -math.inf, 1.5, -1.0, 10**400, 1j, b"a", object(), "\0"]),
    st.text(max_size=3),
    st.lists(st.floats(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
    arrays.arrays(np.float64, arrays.array_shapes(max_dims=2, max_side=3)),
)
SEEDS = st.integers(0, 2**53)
FEW_SEEDS = st.integers(0, 3)
POSITIVE = st.floats(0.0, exclude_min=True, allow_infinity=False)
LOSSES = st.none() | st.floats(0.0, 1e3)
RUN = Run(np.zeros(0), None, 0.0, 0.0, np.zeros(0, int), np.zeros(0), np.zeros((0, 1)))


@st.composite
def outcomes(draw):
    rates = draw(st.lists(POSITIVE, min_size=1, max_size=3, unique=True))
    seeds = draw(st.lists(SEEDS, min_size=1, max_size=3, unique=True))
    found = []
    for rate, seed, variant in product(rates, seeds, ("baseline", "note")):
        setting = Setting(variant, CONFIG, Training(learning_rate=rate, seed=seed), "embedded", "")
        run = replace(RUN, final_loss=draw(LOSSES), validation_loss=draw(LOSSES))
        found.append(sweep.Outcome(setting, run))
    if draw(st.integers(0, 3)) == 0:  # a run is missing
        found.pop(draw(st.integers(0, len(found) - 1)))
    return found


FACTORS = POSITIVE | st.sampled_from(["constant", "inverse"])
CONFIGS = {
    "width": st.sampled_from([4, 8]),
    "depth": st.integers(1, 2),
    "head_size": st.sampled_from([1, 2, 4]),
    "sequence": st.integers(1, 6),
    "causal": st.booleans(),
    "biases": st.booleans(),
    "alpha": st.floats(0.0, 1e4) | st.just("annealed"),
    "policy": st.none() | st.sampled_from(["similar", "ssmax", "u_mup", "ngpt"]),
    "cosine": st.booleans(),
    "post_scale": POSITIVE | st.sampled_from(["none", "constant", "exact"]),
    "residual_weight": FACTORS,
    "weighted_bias": st.booleans(),
    "projection_gain": FACTORS,
    "attention": st.sampled_from(["fused", "written_out"]),
    "positions": st.sampled_from(["learned", "rotary", "interleaved", "none"]),
    "learned_scale": st.booleans(),
    "fit_policy": st.booleans(),
}
TRAININGS = {
    "learning_rate": POSITIVE,
    "steps": st.integers(1, 3),
    "batch": st.integers(1, 2),
    "seed": SEEDS,
    "precision": st.sampled_from(["float32", "float64", "bfloat16"]),
    "record_every": st.integers(1, 4),
    "losses_every": st.integers(1, 3),
    "loss_limit": POSITIVE,
    "validation_windows": st.integers(1, 3),
    "masked": st.floats(0.0, 1.0, exclude_min=True),
}

TASKS = {
    "name": st.sampled_from(recall.TASKS),
    "gap": st.sampled_from(recall.GAPS),
    "strength": st.floats(0.0, 1.0),
    "lengths": st.lists(st.integers(1, 2**53), max_size=3),
    "rows": st.integers(1, 64),
    **{name: TRAININGS[name] for name in ("learning_rate", "steps", "batch", "seed")},
}


@st.composite
def any_valid(draw, kind, given_fields):
    """Draw fields that go together."""
    chosen = draw(st.fixed_dictionaries({}, optional=given_fields))
    try:
        return replace(kind, **chosen)
    except ValueError:
        return kind


# Numbers that keep to what a float32 can hold: a factor of 1e300 in it is infinite.
SANE = {
    **CONFIGS,
    "alpha": st.floats(0.0, 1e4),
    **dict.fromkeys(("post_scale", "residual_weight", "projection_gain"), st.floats(1e-3, 1e3)),
}
MODELS = any_valid(CONFIG, SANE)
TEXTS = st.integers(1, 400).map(lambda size: TEXT[:size])
TOKENS = arrays.arrays(
    np.int64, st.tuples(st.integers(1, 2), st.integers(1, 7)), elements=st.integers(-1, 257)
).map(torch.from_numpy)
LOGITS = arrays.arrays(
    np.float32, (2, 3, 256), elements=st.floats(-(2.0**126), 2.0**126, width=32)
).map(torch.from_numpy)
TARGETS = arrays.arrays(np.int64, (2, 3), elements=st.sampled_from([0, 7, 255, -100, 256, -1])).map(
    torch.from_numpy
)


def forward(config, seed, dtype, tokens):
    return model.Transformer(config, seed, dtype)(tokens).detach()


def drawn_batches(**arguments):
    return list(data.batches(**arguments))


@dataclass(frozen=True)
class Call:
    """A function, and for each of its arguments what may be right."""

    function: Callable
    arguments: dict
    names: tuple[str, ...] = ()
    """Other words that an error may name."""
    errors: tuple[type[Exception], ...] = (ValueError, TypeError)
    usually: int = 200
    """Inputs in the usual run; fewer where one takes milliseconds."""


SIZES = {"sequence": st.integers(1, 40), "masked": st.none() | st.floats(0, 1)}
FILES = (ValueError, TypeError, OSError)
CALLS = {
    "comparison.interval": Call(
        comparison.interval,
        {
            "values": arrays.arrays(
                np.float64,
                arrays.array_shapes(max_dims=2, max_side=4),
                elements=st.floats(allow_nan=False),
            ),
            "comparisons": st.integers(1, 100),
        },
    ),
    "comparison.learning_rates": Call(comparison.learning_rates, {"outcomes": outcomes()}),
    "comparison.losses": Call(
        comparison.losses,
        {
            "outcomes": outcomes(),
            "variant": st.sampled_from(["baseline", "note"]),
            "measure": st.sampled_from(comparison.MEASURES),
        },
    ),
    "comparison.losses_at_best": Call(
        comparison.losses_at_best,
        {
            "outcomes": outcomes(),
            "variant": st.sampled_from(["baseline", "note"]),
            "measure": st.sampled_from(comparison.MEASURES),
        },
    ),
    "comparison.harm": Call(
        comparison.harm,
        {
            "outcomes": outcomes(),
            "changed": st.sampled_from(["baseline", "note"]),
            "against": st.sampled_from(["baseline", "note"]),
            "measure": st.sampled_from(comparison.MEASURES),
        },
        ("variant",),
    ),
    "data.load": Call(
        data.load,
        {"name": st.sampled_from(["embedded", __file__, "tests", "nothing"]), "path": st.none()},
        ("corpus",),
        FILES,
        usually=100,
    ),
    "data.read": Call(
        data.read, {"path": st.sampled_from([__file__, "nothing"])}, ("text",), FILES
    ),
    "data.tiny_shakespeare": Call(
        data.tiny_shakespeare, {"path": st.sampled_from([__file__, "nothing"])}, ("tiny",), FILES
    ),
    "data.digest": Call(data.digest, {"text": TEXTS}),
    "data.embedded": Call(data.embedded, {"size": st.integers(0, 3000), "seed": SEEDS}),
    "data.split": Call(data.split, {"text": TEXTS, "fraction": st.floats(0.0, 1.0)}),
    "data.batches": Call(
        drawn_batches,
        {
            "text": TEXTS,
            "batch": st.integers(1, 3),
            "steps": st.integers(0, 2),
            "seed": SEEDS,
            **SIZES,
        },
    ),
    "data.validation_batch": Call(
        data.validation_batch, {"text": TEXTS, "windows": st.integers(1, 99), **SIZES}
    ),
    "model.Config": Call(Config, CONFIGS),
    "model.Transformer": Call(
        forward,
        {
            "config": MODELS,
            "seed": SEEDS,
            "dtype": st.sampled_from([torch.float32, torch.float64]),
            "tokens": TOKENS,
        },
        usually=100,
    ),
    "model.loss": Call(model.loss, {"logits": LOGITS, "targets": TARGETS}),
    "recall.Task": Call(recall.Task, TASKS),
    "recall.tilt": Call(
        recall.tilt,
        {"strength": st.floats(0.01, 0.99), "d": st.integers(3, 200)},
    ),
    "train.Training": Call(Training, TRAININGS),
    "train.final_loss": Call(
        train.final_loss,
        {"losses": st.lists(st.floats(0.0, 1e3), min_size=1)},
    ),
    "train.train": Call(
        train.train,
        {
            "config": any_valid(CONFIG, CONFIGS),
            "training": any_valid(TRAINING, TRAININGS),
            "text": TEXTS,
            "device": st.just("cpu"),
        },
        ("sequence",),
        usually=100,
    ),
    "small_models.retrieval": Call(
        small_models.retrieval,
        {"seed": FEW_SEEDS, **dict.fromkeys(("count", "n", "d"), st.integers(1, 4))},
    ),
    "small_models.train_retrieval": Call(
        small_models.train_retrieval,
        {
            "seed": FEW_SEEDS,
            "rate": POSITIVE,
            "alpha": st.floats(0.0, allow_infinity=False),
            "size": st.floats(0.0, allow_infinity=False),
            "normaliser": st.sampled_from(["softmax", "power"]),
            "optimiser": st.sampled_from(["descent", "adam"]),
            "steps": st.integers(0, 3),
        },
        usually=100,
    ),
    "small_models.train_classifier": Call(
        small_models.train_classifier,
        {
            "seed": FEW_SEEDS,
            "rate": POSITIVE,
            "normaliser": st.sampled_from(["softmax", "power"]),
            "optimiser": st.sampled_from(["descent", "adam"]),
            "steps": st.integers(0, 3),
        },
        usually=40,
    ),
    "small_models.stack_gradients": Call(
        small_models.stack_gradients,
        {
            "seed": SEEDS,
            "path": st.sampled_from(["residual", "no residual", "scores"]),
            "gain": st.floats(0.01, 4.0),
            "normalised": st.booleans(),
            "depth": st.integers(1, 64),
            "n": st.integers(1, 6),
            "d": st.integers(2, 6),
        },
    ),
    "small_models.recurrent_gradients": Call(
        small_models.recurrent_gradients,
        {
            "seed": SEEDS,
            "gain": st.floats(0.0, 10.0),
            "normalised": st.booleans(),
            "depth": st.integers(1, 64),
            "d": st.integers(2, 6),
        },
    ),
}
REQUIRED = {
    name: {
        parameter.name
        for parameter in inspect.signature(call.function).parameters.values()
        if parameter.default is parameter.empty
    }
    for name, call in CALLS.items()
}

ELSEWHERE = {
    # experiments.lab.results and sweep read files: any file in test_lab_results and test_lab_sweep
    *("results.encoded", "results.stored", "sweep.read", "sweep.outcomes", "sweep.stored"),
    "sweep.run",  # below
    "data.fetch",  # goes to the network: test_lab_data
    "train.train_model",  # what train.train calls
    *("model.Attention", "model.Block", "model.written_out"),  # parts of Transformer
    *("model.fitted", "model.rotated"),
    # train, or take arrays that belong together: test_lab_recall
    *(
        "recall.find",
        "recall.Head",
        "recall.check",
        "recall.asked",
        "recall.lengths",
        "recall.multipliers",
    ),
    *("recall.nearest", "recall.sequences", "recall.measured", "recall.foresight"),
    "recall.of_lengths",
}
VALUES = {"Batch", "Split", "Run", "Setting", "Sweep", "Outcome", "Interval", "Retrieval"} | {
    *("Found", "Rows", "Sequences", "Trial")
}
"""Classes that hold what is given to them."""


def test_every_public_function_is_here():
    found = set()
    for module in iter_modules(lab.__path__):
        content = vars(import_module(f"experiments.lab.{module.name}"))
        for name, thing in content.items():
            ours = getattr(thing, "__module__", None) == f"experiments.lab.{module.name}"
            callable_ = inspect.isfunction(thing) or inspect.isclass(thing)
            error = inspect.isclass(thing) and issubclass(thing, Exception)
            if ours and callable_ and not error and not name.startswith("_"):
                found.add(f"{module.name}.{name}")
    named = {name for name in found if name.split(".")[1] in VALUES}
    assert found - named == CALLS.keys() | ELSEWHERE


# --- what comes of it ----------------------------------------------------------------------------


def assert_no_nan(found):
    if isinstance(found, torch.Tensor):
        assert not found.isnan().any()
    elif isinstance(found, np.ndarray):
        assert not np.isnan(found).any()
    elif isinstance(found, float):
        assert not math.isnan(found)
    elif isinstance(found, tuple | list):
        for one in found:
            assert_no_nan(one)
    elif isinstance(found, Run):
        # A norm or a ratio can be beyond float32 just before a run diverges; a loss cannot.
        assert_no_nan([found.losses, found.final_loss, found.validation_loss])
    elif is_dataclass(found):
        assert_no_nan([getattr(found, field.name) for field in fields(found)])


def right_or_refused(name, drawn):
    call = CALLS[name]
    arguments = {}
    for key, right in call.arguments.items():
        if key in REQUIRED[name] or drawn.draw(st.booleans(), label=f"{key} is given"):
            junk = drawn.draw(st.integers(0, 9), label=f"{key} is junk") == 0
            arguments[key] = drawn.draw(JUNK if junk else right, label=key)
    try:
        found = call.function(**arguments)
    except call.errors as error:
        refusal = error
    else:
        assert_no_nan(found)
        return
    if not isinstance(refusal, OSError):
        (line,) = str(refusal).splitlines()
        assert any(word in line for word in (*call.arguments, *call.names)), line


def check(name, examples):
    @given(drawn=st.data())
    @settings(max_examples=examples)
    def any_input(drawn):
        right_or_refused(name, drawn)

    any_input()


@pytest.mark.parametrize("name", CALLS)
def test_any_input_is_right_or_refused_by_name(name):
    check(name, CALLS[name].usually)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_ten_thousand_inputs_are_right_or_refused_by_name(name):
    check(name, 10_000)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a sweep that is done."""
    file = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    file.write_text(
        'results = "."\ncorpus = "embedded"\n'
        "[model]\nwidth = 4\nhead_size = 4\ndepth = 1\nsequence = 6\n"
        "[training]\nsteps = 1\nbatch = 1\nvalidation_windows = 1\n"
    )
    found = sweep.read(file)
    with ThreadPoolExecutor(1) as pool:
        sweep.run(found, executor=pool)
    return found


@pytest.mark.parametrize("name", ["sweep", "executor", "workers", "device", "progress"])
@pytest.mark.parametrize("value", [3.5, -1, "x", [], Ellipsis, math.nan], ids=repr)
def test_a_sweep_is_not_run_with_what_makes_no_sense(finished, name, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must be"):
        sweep.run(**{"sweep": finished, name: value})


@pytest.mark.parametrize("name", ["path", "text"])
@pytest.mark.parametrize("value", [3.5, -1, [], Ellipsis, math.nan], ids=repr)
def test_a_sweep_is_not_read_from_what_is_no_path(finished, name, value):
    with pytest.raises(TypeError, match=f"^{name} must be"):
        sweep.read(**{"path": finished.file, name: value})


def test_a_result_is_of_a_setting():
    for wrong in (None, 3, "x"):
        with pytest.raises(TypeError, match="setting must be"):
            results.encoded(wrong, RUN, {})

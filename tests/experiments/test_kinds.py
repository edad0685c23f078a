"""Kinds of text: their windows, properties, and what is measured of a window."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnlib.calibration import scale_gradient
from experiments import kinds as recorder
from experiments.compatibility import tiny
from experiments.real_heads import kinds, models
from experiments.real_heads.models import Model


@pytest.fixture
def characters(monkeypatch):
    """Make each character a token of a tiny model, and texts that need no package."""
    module = tiny("Llama", "sdpa", head=True, vocab_size=128, initializer_range=0.5).double()
    model = Model("characters", models.freeze(module), lambda text: list(map(ord, text)), chr)
    monkeypatch.setattr(models, "smollm2", lambda: model)
    lines = [f"{number:03d} words\n" for number in range(900)]
    for kind in (*kinds.KINDS, "numbered"):
        monkeypatch.setitem(kinds.KINDS, kind, lambda kind=kind: kind.upper() + "".join(lines))
        digest = kinds.hashlib.sha256(kinds.KINDS[kind]().encode()).hexdigest()
        monkeypatch.setitem(kinds.SHA256, kind, digest)
    kinds.load_kind.cache_clear()
    yield model
    kinds.load_kind.cache_clear()


def test_windows_begin_at_equal_distances_at_a_line(characters):
    windows = [kinds.window(characters, "news", number, 3, 12) for number in range(3)]
    assert ["".join(map(chr, ids)) for ids in windows] == [
        f"{n:03d} words\n{n + 1:03d}"[:12] for n in (150, 450, 750)
    ]
    with pytest.raises(ValueError, match="window 2 of news has 1500 tokens, which is below 2000"):
        kinds.window(characters, "news", 2, 3, 2000)


def test_what_is_measured_of_a_window_is_what_scale_gradient_finds(characters, monkeypatch):
    monkeypatch.setattr(recorder, "WINDOWS", {40: 3})
    monkeypatch.setattr(recorder, "CHUNK", 7)
    measured = recorder.measure_text("drama", 40, 1)
    ids = torch.tensor([recorder.window_tokens("drama", 40, 1)])
    right = scale_gradient(characters.module, [ids])
    assert measured["loss"] == pytest.approx(right.losses[0], rel=1e-6)  # in float32 there
    np.testing.assert_allclose(measured["gradient"], right.value, rtol=1e-4, atol=1e-12)
    first, second = measured["halves"]
    assert measured["loss"] == pytest.approx((20 * first + 19 * second) / 39)
    logs = functional.log_softmax(characters.module(ids).logits[0, :-1], -1)
    assert measured["entropy"] == pytest.approx(float(-(logs.exp() * logs).sum(-1).mean()))
    step = 1e-3
    monkeypatch.setattr(recorder, "SHIFTS", (-step, step))
    below, above = recorder.measure_text("drama", 40, 1)["losses"]
    slope = float(np.sum(right.value))
    assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-2)

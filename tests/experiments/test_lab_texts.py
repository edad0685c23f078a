"""Texts and batches: which bytes they are, and what a seed fixes."""

import math

import numpy as np
import pytest

from experiments.lab import texts
from experiments.lab.batches import IGNORED, MASK, training_batches


def test_the_embedded_text_is_the_same_everywhere():
    text = texts.embedded()
    assert (text.size, text.dtype) == (2**18, np.uint8)
    assert texts.sha256("embedded")[:16] == "e7bc76d8f0ad5801"  # results recorded elsewhere name it
    np.testing.assert_array_equal(texts.embedded(1000), text[:1000])
    assert (texts.embedded(1000, seed=1) != text[:1000]).any()


def test_splits_and_names():
    parts = texts.split(np.arange(100, dtype=np.uint8))
    np.testing.assert_array_equal(parts.training, np.arange(90))
    np.testing.assert_array_equal(parts.validation, np.arange(90, 100))
    np.testing.assert_array_equal(texts.load("embedded"), texts.embedded())
    with pytest.raises(
        ValueError, match="name must be one of 'embedded', 'tiny-shakespeare', 'python'"
    ):
        texts.load("shakespeare")


TEXT = texts.embedded(5000)


def drawn(text=TEXT, **changes):
    given = {"sequence": 20, "batch": 3, "steps": 5, "seed": 0, **changes}
    return list(training_batches(text, **given))


def test_an_encoder_sees_the_windows_of_a_decoder_but_for_the_hidden_bytes():
    for plain, (inputs, targets) in zip(drawn(), drawn(masked=0.15), strict=True):
        hidden = inputs == MASK
        assert (hidden.sum(axis=1) == 3).all()
        np.testing.assert_array_equal(np.where(hidden, targets, inputs), plain.inputs)
        assert (targets[~hidden] == IGNORED).all()
    count = sum((inputs == MASK).sum(axis=0) for inputs, _ in drawn(masked=0.5, steps=1000))
    assert (abs(count - 1500) < 4.5 * math.sqrt(3000 * 0.25)).all()  # any place as often
    assert all((inputs == MASK).sum() == 3 for inputs, _ in drawn(masked=1e-9))

"""What was predicted of the recorded runs, and what became of it, in one form for all.

A group is what one file predicted before its runs. Its parts are single numbers or signs, each with
what was expected, what was found, and a verdict. Chapter: predictions.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from experiments import alarms, gains, length, length_models, no_scale, records, trained
from experiments.length import HOLDS, REFUTED, Part
from experiments.real_heads import verdicts


class Group(NamedTuple):
    """Predictions that were written into one file."""

    title: str
    chapter: str
    """The chapter that uses the runs."""
    file: str
    """Where they were written, in experiments/."""
    parts: Callable[[], Iterable[Part]]
    words: Callable[[], dict[int, str]] = dict
    """Predictions in a few words, by number, where the parts alone do not say them."""


def watched() -> Iterator[Part]:
    """Yield the predictions about alarms in training."""
    for at, (text, value, held) in enumerate(alarms.verdicts(records.load("alarms")), 1):
        what, _, expected = text.rpartition(": ")
        expected = expected.removesuffix(" predicted")
        yield Part(at, what, expected, value, 0.0, HOLDS if held else REFUTED)


def gain_text() -> gains.Gains:
    """Return all runs of decoders whose QK-norm has a gain."""
    names = "gain_text", "gain_text_longer", "gain_text_faster"
    return gains.Gains(run for name in names for run in records.runs(name))


def _text() -> trained.Text:
    names = "trained_text", "trained_text_more"
    return trained.Text([run for name in names for run in records.runs(name)])


GROUPS = (
    Group("Models that do not divide", "unscaled", "sweeps/no_scale.toml", no_scale.predicted),
    Group(
        *("With QK-norm", "qk_norm", "sweeps/no_scale_norm.toml", no_scale.predicted_with_norm),
    ),
    Group(
        *("Gains of text models, 500 steps", "qk_norm", "sweeps/gain_text.toml"),
        lambda: gains.brief(gains.Gains(records.runs("gain_text"))),
    ),
    Group(
        *("Gains of text models, 2000 steps", "qk_norm", "sweeps/gain_text_longer.toml"),
        lambda: gains.longer(gain_text()),
    ),
    Group(
        *("Gains that learn faster", "qk_norm", "sweeps/gain_text_faster.toml"),
        lambda: gains.faster(gain_text()),
    ),
    Group(
        *("Gains of recall models", "qk_norm", "sweeps/gain_recall.toml"),
        lambda: gains.recall(gains.Gains(records.runs("gain_recall"))),
    ),
    Group(
        *("Single heads that learn to find", "length_extrapolation", "predictions/length.md"),
        lambda: length.parts(records.runs("length_head")),
        lambda: length.WORDS,
    ),
    Group(
        *("Transformers that learn to find", "length_extrapolation", "predictions/length.md"),
        lambda: length_models.parts(length_models.outcomes()),
        lambda: length_models.WORDS,
    ),
    Group(
        *("Recall models trained with a rule", "length_extrapolation", "sweeps/trained_law.toml"),
        lambda: trained.recall(trained.Recall(records.runs("trained_law"))),
        lambda: trained.RECALL_WORDS,
    ),
    Group(
        *("Text models trained with a rule", "length_extrapolation", "sweeps/trained_text.toml"),
        lambda: trained.text(_text()),
        lambda: trained.TEXT_WORDS,
    ),
    Group(
        *("More of them", "length_extrapolation", "sweeps/trained_text_more.toml"),
        lambda: trained.more(_text()),
        lambda: trained.MORE_WORDS,
    ),
    Group("Alarms in training", "probe", "alarms.py", watched),
)
"""The predictions about runs of our own models; those of trained heads have a list of their own."""


def trained_heads() -> list[verdicts.Verdict]:
    """Return the predictions about the heads of trained models, with their verdicts."""
    return verdicts.all_of_them()

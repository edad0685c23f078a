"""What was predicted of the recorded runs, and what became of it, in one form for all.

A group is what one file predicted before its runs. Its parts are single numbers or signs, each with
what was expected, what was found, and a verdict. Chapter: predictions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from experiments import (
    alarms,
    calibrated,
    decoder_scale,
    designed,
    fresh_layers,
    gains,
    kinds_of_text,
    length,
    length_models,
    no_scale,
    output_factor,
    rates,
    records,
    scale_learned,
    trained,
)
from experiments.gpu import summary
from experiments.judging import HOLDS, OPEN, REFUTED, Part
from experiments.real_heads import verdicts


class Group(NamedTuple):
    """Predictions that were written into one file."""

    title: str
    chapter: str
    """The chapter that uses the runs."""
    file: str
    """Where they were written, in experiments/."""
    parts: Callable[[], Iterable[Part]]
    words: Callable[[], dict[int, str] | dict[str, str]] = dict
    """Predictions in a few words, by number or name, where the parts alone do not say them."""


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


def text_models() -> trained.Text:
    """Return all decoders that were trained with a rule in n on text."""
    names = "trained_text", "trained_text_more"
    return trained.Text([run for name in names for run in records.runs(name)])


def of_heads() -> Iterator[Part]:
    """Yield the predictions about the heads of trained models."""
    for verdict in verdicts.all_of_them():
        yield from verdict.parts


GROUPS = (
    Group("Models that do not divide", "unscaled", "sweeps/no_scale.toml", no_scale.predicted),
    Group(
        *("1/d with more seeds", "unscaled", "sweeps/no_scale_unseen.toml"),
        no_scale.predicted_unseen,
    ),
    Group(
        *("Warm-up and decay: rates", "unscaled", "sweeps/people_undivided_rates.toml"),
        no_scale.predicted_people_rates,
    ),
    Group(
        *("Warm-up and decay", "unscaled", "sweeps/people_undivided.toml"),
        no_scale.predicted_people,
    ),
    Group(
        *("With QK-norm", "qk_norm", "sweeps/no_scale_norm.toml", no_scale.predicted_with_norm),
    ),
    Group(
        *("With QK-norm, two more seeds", "qk_norm", "sweeps/no_scale_norm_seeds.toml"),
        no_scale.predicted_with_norm_again,
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
        lambda: trained.text(text_models()),
        lambda: trained.TEXT_WORDS,
    ),
    Group(
        *("More of them", "length_extrapolation", "sweeps/trained_text_more.toml"),
        lambda: trained.more(text_models()),
        lambda: trained.MORE_WORDS,
    ),
    Group(
        *("One head comes to its scale", "learning_scale", "predictions/one_head.md"),
        scale_learned.parts,
        lambda: scale_learned.WORDS,
    ),
    *(
        Group(f"Rates for {runs}", chapter, f"sweeps/{sweep}_rates.toml", parts)
        for runs, chapter, sweep, parts in (
            ("gains of text models", "qk_norm", "gain_text", rates.gain_text),
            ("gains of recall models", "qk_norm", "gain_recall", rates.gain_recall),
            ("recall with a rule", "length_extrapolation", "trained_law", rates.trained_law),
            ("text with a rule", "length_extrapolation", "trained_text", rates.trained_text),
        )
    ),
    *(
        Group(title, chapter, f"sweeps/{parts.__name__}.toml", parts)
        for chapter, title, parts in (
            ("qk_norm", "Where QK-norm begins, each at its best rate", designed.norm_500),
            ("qk_norm", "The same after 2000 steps", designed.norm_2000),
            ("qk_norm", "Their rates", designed.norm_500_rates),
            ("qk_norm", "Their rates, 2000 steps", designed.norm_2000_rates),
            ("unscaled", "Heads of 256, smaller rates", designed.undivided_low),
            ("unscaled", "Rates for heads of 256", designed.undivided_low_rates),
            ("length_extrapolation", "A rule trained in or after", designed.trained_quarter),
            ("length_extrapolation", "Rates for a rule trained in", designed.trained_quarter_rates),
            ("training_details", "The factor, by ingredient", designed.factor_ingredients),
            ("training_details", "The factor, 1500 steps", designed.factor_short),
            ("training_details", "The factor, 6000 steps again", designed.factor_long),
            ("training_details", "Rates for 1500 steps", designed.factor_short_rates),
            ("training_details", "Rates for 6000 steps", designed.factor_long_rates),
            ("learning_scale", "Sizes in decoders, Adam", decoder_scale.sizes_adam),
            ("learning_scale", "Sizes, gradient descent", decoder_scale.sizes_descent),
            ("learning_scale", "Rates for gradient descent", decoder_scale.sizes_descent_rates),
            ("learning_scale", "Weight decay in decoders", decoder_scale.decay),
        )
    ),
    Group(
        *("QK-norm, 25 million parameters", "qk_norm", "gpu/gain.toml"),
        lambda: summary.of_gains(summary.recorded()),
    ),
    Group(
        *("Lengths, 25 million parameters", "length_extrapolation", "gpu/length.toml"),
        lambda: summary.of_lengths(summary.recorded()),
    ),
    Group("Alarms in training", "probe", "alarms.py", watched),
    *(
        Group(title, "training_details", f"sweeps/{sweep}.toml", parts)
        for title, sweep, parts in (
            ("The factor, from the post's start", "source_start", output_factor.source_start),
            ("From our start", "cause_seeds", output_factor.cause_seeds),
            ("From our start, more rates", "cause_rates", output_factor.cause_rates),
            ("Other starts of W", "dose", output_factor.dose),
            ("Other starts, from ours", "dose_unit", output_factor.dose_unit),
            ("Both branches", "both_branches", output_factor.both_branches),
            ("The exact factor", "exact_source", output_factor.exact_source),
            ("The factor, 6000 steps", "longer", output_factor.longer),
            ("The factor, warm-up and decay", "people_factor", output_factor.people_factor),
            ("The factor in an encoder", "encoder_slower", output_factor.encoder),
        )
    ),
    Group(
        *("Fresh layers", "almost_scaled", "predictions/starts.md", fresh_layers.parts),
        lambda: fresh_layers.WORDS,
    ),
    Group("The best scale of SmolLM2", "calibration", "predictions/calibrate.md", calibrated.parts),
    Group("Kinds of text", "calibration", "predictions/kinds.md", kinds_of_text.parts),
    Group(
        *("Heads of trained models", "trained_heads", "predictions/real_heads.md", of_heads),
        lambda: {verdict.name: verdict.words for verdict in verdicts.all_of_them()},
    ),
)
"""All predictions whose runs are there, in the order of the appendix."""


def came(chapter: str) -> str:
    """Return how many parts of the predictions of a chapter held, failed and are open, in words."""
    parts = (part for group in GROUPS if group.chapter == chapter for part in group.parts())
    counts = Counter(part.verdict for part in parts)
    verb = "is" if counts[OPEN] == 1 else "are"
    undecided = f" and {counts[OPEN]} {verb} open" if counts[OPEN] else ""
    joint = "," if undecided else " and"
    return f"{counts[HOLDS]} parts held{joint} {counts[REFUTED]} failed{undecided}"

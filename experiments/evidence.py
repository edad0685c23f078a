"""What the headlines of the book rest on: one row for each, computed from the records.

A row says what was measured, on how many pairs, what was chosen by looking, what else differs
between the two sides, and what speaks against it. A sentence may say no more than its row.
Chapters: how_sure, short_answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments import (
    calibrated,
    decoder_scale,
    designed,
    kinds_of_text,
    length,
    no_scale,
    predicted,
    trained,
)
from experiments.kinds import LONG
from experiments.lab import comparison
from experiments.lab.comparison import Interval, interval
from experiments.records import load, runs

UNSEEN = "validation_loss"


class Row(NamedTuple):
    """A headline's evidence, in words beside its numbers."""

    quantity: str
    estimate: Interval | str
    """Paired, with 95 %."""
    pairs: str
    """How many differences, and which clusters they are."""
    chosen: str
    """What was chosen by looking, and on which data."""
    differs: str
    """What else differs between the two sides."""
    among: str
    """How many comparisons of its kind there are."""
    against: str
    covers: str
    """The models, sizes, texts and lengths that it holds for."""
    digits: int = 2

    def shown(self) -> str:
        """Return the estimate as text, with as many digits as show the side of 0 it is on."""
        if isinstance(self.estimate, str):
            return self.estimate
        mean, half = self.estimate
        return f"{mean:+.{self.digits}f} ± {half:.{self.digits}f}".replace("-", "−")


ROWS: dict[str, Callable[[], Row]] = {}
"""The rows by name."""


def row(name: str) -> Callable[[Callable[[], Row]], Callable[[], Row]]:
    """Register a function that computes a row."""

    def register(function: Callable[[], Row]) -> Callable[[], Row]:
        ROWS[name] = function
        return function

    return register


WIDE = "decoders of two layers, width 256, 1000 steps at a constant rate on one text"
DEEP = "decoders of four layers, width 128, on one text"


def _undivided(values: ArrayLike, text: str) -> Row:
    return Row(
        f"final loss on {text} with q·k undivided minus with 1/√d, 64-dimensional heads, nats per "
        "byte",
        interval(values),
        "3 seeds",
        "the rate of each scale, of four or more, on the first of the seeds",
        "the learning rate: each scale has its own best",
        "3 scales in 3 head sizes",
        "nothing known; with warm-up and decay the rise is larger",
        WIDE,
    )


@row("undivided")
def undivided() -> Row:
    """The loss of decoders that do not divide, on the text they train on."""
    return _undivided(no_scale.rise("one", 64), "the text of training")


@row("undivided-unseen")
def undivided_unseen() -> Row:
    """The same on unseen text."""
    return _undivided(no_scale.rise("one", 64, UNSEEN), "unseen text")


@row("undivided-usual")
def undivided_usual() -> Row:
    """The same with warm-up and decay."""
    mean, half = interval(designed.undivided_harm())
    return Row(
        "final loss on the text of training with q·k undivided minus with 1/√d, 64-dimensional "
        "heads, as people train (warm-up, cosine to 0, weight decay, clipping), nats per byte",
        interval(no_scale.as_people_train(64)),
        "5 seeds",
        "the rate of each scale, of three or four, on another seed",
        "the learning rate: each scale has its own best",
        f"2 head sizes; in 256-dimensional heads, of six rates, {mean:+.2f} ± {half:.2f}",
        "nothing known",
        "decoders of two layers, width 256, one text",
    )


@row("inverse-d")
def inverse_d() -> Row:
    """1/d in a single wide head."""
    return Row(
        "final loss with 1/d minus with 1/√d, one 256-dimensional head in each of two layers, nats "
        "per byte",
        interval(no_scale.over_unseen()),
        "5 seeds",
        "the rate of each, on another seed",
        "the learning rate: each has its own best",
        "3 head sizes; in the other two no difference is shown",
        "we had predicted the opposite; in decoders of four layers 1/d ends higher at the rate "
        "that is best for 1/√d",
        WIDE,
        digits=3,
    )


def _policy(name: str, quantity: str, against: str) -> Row:
    return Row(
        quantity,
        interval(comparison.loss_increase(runs("policies"), name)[0]),
        "3 seeds",
        "the rate, on the side of 1/√d",
        "nothing: one learning rate, the best of 1/√d",
        "4 scales",
        against,
        f"{DEEP}, 1500 steps",
    )


@row("largest-gradient")
def largest_gradient() -> Row:
    """The scale that maximises the approximate gradient, in training."""
    return _policy(
        "annealed",
        "final loss with the scale of the largest approximate gradient minus with 1/√d, nats per "
        "byte",
        "nothing known",
    )


@row("norm")
def norm() -> Row:
    """QK-norm at √d."""
    return _policy(
        "normalised",
        "final loss with QK-norm at √d minus without the norm at 1/√d, nats per byte",
        "nothing known",
    )


def _gain(kind: str) -> Row:
    return Row(
        f"loss on unseen text with a {kind} gain that begins at α = 2.25 minus one that begins at "
        "1, under QK-norm, nats per byte",
        interval(designed.of_gain(kind, 2.25, 2000) - designed.of_gain(kind, 1.0, 2000)),
        "5 seeds",
        "the rate of each start, of four, on two other seeds",
        "nothing: both have the same best rate",
        "4 starts beside 1, learned and fixed, 500 steps and 2000",
        "a decoder of 25 million parameters ended lower from 4 than from 1, one seed, two rates; "
        "contests begin at α from 1.13 to 6",
        f"{DEEP}, 2000 steps, rate falling to 0",
        digits=3,
    )


@row("gain-learned")
def gain_learned() -> Row:
    """A learned gain that begins higher."""
    return _gain("learned")


@row("gain-fixed")
def gain_fixed() -> Row:
    """A fixed gain that is higher."""
    return _gain("fixed")


def _output(steps: int, way: str, training: str, against: str) -> Row:
    return Row(
        f"final loss with the factor √(n/e) on attention's output minus without, {steps} steps "
        f"{training}, nats per byte",
        interval(designed.factor_harm("factor_short" if steps == 1500 else "factor_long", way)),
        "5 seeds",
        f"the rate of each side, of four, on {'two' if steps == 1500 else 'one'} other seed"
        + "s" * (steps == 1500),
        "the learning rate: each side has its own best",
        "2 ways of training, 1500 steps and 6000",
        against,
        f"{DEEP}, its author's model at half its size",
        digits=3,
    )


@row("output-short")
def output_short() -> Row:
    """The output factor after 1500 steps."""
    against = "less is left after 6000 steps; in an encoder no rise is seen"
    return _output(1500, "constant", "at a constant rate", against)


@row("output-constant")
def output_constant() -> Row:
    """The output factor after 6000 steps."""
    return _output(6000, "constant", "at a constant rate", "nothing known")


@row("output-usual")
def output_usual() -> Row:
    """The output factor after 6000 steps as people train."""
    mean, half = interval(designed.factor_harm("factor_short", "people"))
    against = f"after 1500 steps as people train the mean is higher, {mean:+.3f} ± {half:.3f}"
    return _output(6000, "people", "with warm-up, cosine, decay and clipping", against)


@row("late-recall")
def late_recall() -> Row:
    """Log n after training against log n in training, on recall."""
    recall = trained.Recall(runs("trained_law"))
    late = recall("growing_none", length.FAR, "ssmax")
    return Row(
        "loss of the answer at 16 times the length, log n applied after training minus log n "
        "trained in, recall with growing needles, nats",
        interval(late - recall("growing_log", length.FAR)),
        "5 seeds",
        "the rate, on another seed; a pilot had been seen",
        "the learning rate where the best differs",
        "3 tasks",
        "two papers on language models report that training with log n is better",
        "Transformers of one layer without positions",
        digits=4,
    )


@row("trained-text")
def trained_text() -> Row:
    """A rule trained in, on text."""
    texts = predicted.text_models()
    earlier = texts("quarter_root_log", 16) - texts("quarter_none", 16, trained.UNDER_ROOT_LOG)
    mean, half = interval(earlier)
    return Row(
        "loss at 16 times the length, √log n trained in minus the same rule applied after "
        "training, rotary positions in a quarter of the dimensions, nats per byte",
        interval(designed.trained_in("root_log")),
        "5 seeds",
        "the rate of each, of four, on two other seeds",
        "nothing: all have the same best rate",
        "2 rules",
        f"three earlier seeds, picked out of eight comparisons, had {mean:+.2f} ± {half:.2f}",
        "decoders of two layers, width 128, 1500 steps on one text",
    )


def _applied(task: str, needle: str) -> Row:
    recall = trained.Recall(runs("trained_law"))
    late, none = (recall(f"{task}_none", length.FAR, rule) for rule in ("ssmax", "none"))
    return Row(
        f"loss of the answer at 16 times the length, log n applied after training minus no rule, "
        f"recall where {needle}, nats",
        interval(late - none),
        "5 seeds",
        "the rate of training, on another seed",
        "nothing: the same models",
        "3 tasks, 6 rules",
        "nothing known: earlier models, all at one rate, have the same sign",
        "Transformers of one layer without positions",
        digits=3,
    )


@row("applied-once")
def applied_once() -> Row:
    """Log n where nothing can be mistaken for the needle."""
    return _applied("fixed", "nothing can be mistaken for the needle")


@row("applied-noise")
def applied_noise() -> Row:
    """Log n where something can."""
    return _applied("noise", "something can")


def _single(strength: int, *, against: str) -> Row:
    heads = length.Heads(runs("length_head"))
    best = heads("best", f"noise_{strength}", length.LONG, length.START)
    seeds = ", ".join(f"{t:.2f}" for t in sorted(best))
    return Row(
        f"the factor of least loss of a trained single head, at its length, mean cosine .{strength}"
        " of the needle",
        f"{seeds} (the seeds)",
        "5 seeds",
        "nothing",
        "nothing",
        "2 strengths, 5 lengths of training, 3 kinds of needle",
        against,
        "heads of 32 × 32 that find one of 64 random keys, 10,000 steps of Adam",
    )


@row("single-heads")
def single_heads() -> Row:
    """What the scale of single heads ends at."""
    against = "a stronger needle, and one that is fixed, end elsewhere: little loss is left"
    return _single(50, against=against)


@row("single-heads-strong")
def single_heads_strong() -> Row:
    """The same with a stronger needle."""
    return _single(70, against="the seeds differ: at 64 keys hardly any loss is left to learn from")


@row("learning-direction")
def learning_direction() -> Row:
    """Direction before size."""
    small = decoder_scale.by_direction("sizes_adam", "start_256th")
    mean, half = interval(small)
    first = interval(decoder_scale.by_direction("sizes_adam", "start_1", layer=0))
    return Row(
        "share of direction, not of size, in the first doubling of the spread of the logits, "
        "second layer, Adam from the usual start",
        interval(decoder_scale.by_direction("sizes_adam", "start_1")),
        "5 seeds",
        "nothing; predicted above one half",
        "nothing",
        "4 starts by Adam, 3 by gradient descent",
        f"from logits 256 times smaller it is {mean:.2f} ± {half:.2f}; in the first layer, from "
        f"the usual start, {first.mean:.2f} ± {first.half_width:.2f}",
        "decoders of two layers, heads of 32 dimensions, one text, 2000 steps",
    )


@row("learning-size")
def learning_size() -> Row:
    """Sizes beside the scale gradient."""
    return Row(
        "part of the squared changes of the norms of W_q and W_k that the scale gradient predicts, "
        "gradient descent from the usual start",
        interval(decoder_scale.explained("start_1")),
        "5 seeds, 8 heads and 80 records each",
        "the learning rate, on another seed",
        "nothing",
        "3 starts",
        "it is of plain gradient descent; under Adam only the order agrees, in part",
        "the same decoders, 4000 steps, no weight decay",
    )


@row("smollm2-factor")
def smollm2_factor() -> Row:
    """Where the loss of SmolLM2 is lowest."""
    return Row(
        "log of the factor on all logits with the least loss, 4096 tokens",
        interval(calibrated.by_kind(calibrated.curves(4096).wants())),
        "4 kinds of text, four texts each",
        "the factors measured: at 8192 tokens on the side that shorter texts had shown",
        "nothing",
        "6 lengths; at three of them the interval contains 0",
        "in American prose alone the interval contains 0 at every length; at 512 tokens 24 windows "
        "a kind put it below 0 in seven of twelve kinds, prose among them",
        "SmolLM2-135M-Instruct in 4 bits; prose, the Bible, Shakespeare, Python",
        digits=3,
    )


@row("smollm2-gain")
def smollm2_gain() -> Row:
    """What a factor gains in SmolLM2."""
    [rule] = calibrated.select(what="fit log")
    mean, half = interval(1000 * np.subtract(rule["before"], rule["after"]))
    return Row(
        "fall of the loss by one factor, fitted to half of the texts of each kind and judged on "
        "the others, 4096 tokens, thousandths of a nat per token",
        interval(1000 * calibrated.by_kind(calibrated.curves(4096).crossed())),
        "4 kinds of text, four texts each",
        "the factor, on the other half",
        "nothing",
        "6 lengths",
        f"a rule in n, fitted to two kinds at 2048 tokens, gains {mean:.1f} ± {half:.1f} on eight "
        "texts of the other two; a factor for each head was tried at 512 tokens only",
        "SmolLM2-135M-Instruct in 4 bits; a model trained without a rule has a gradient near 0",
        digits=1,
    )


@row("kinds-gain")
def kinds_gain() -> Row:
    """What a factor for each kind of text gains in SmolLM2."""
    gains = kinds_of_text.own_gains(LONG)
    own = 1000 * np.array([gains[kind].mean() for kind in kinds_of_text.NAMES])
    more = interval(own - 1000 * kinds_of_text.common_gains(LONG))
    most = max(gains, key=lambda kind: float(gains[kind].mean()))
    alone = interval(1000 * gains[most])
    return Row(
        "fall of the loss by a factor of its own for each kind of text, 2048 tokens, thousandths "
        "of a nat per token",
        interval(own),
        "12 kinds of text, 12 windows each",
        "the factor, on the other half of the windows, both ways",
        "nothing",
        "2 lengths, and one factor for all beside it",
        f"it is {more.mean:.1f} ± {more.half_width:.1f} more than one factor for all gains; one "
        f"kind, {most}, gains {alone.mean:.1f} ± {alone.half_width:.1f}",
        "SmolLM2-135M-Instruct in 4 bits",
        digits=1,
    )


@row("reactions-gain")
def reactions_gain() -> Row:
    """What a factor gains in RXNMapper."""
    gained = calibrated.curves("RXNMapper").crossed()
    family = interval(gained, comparisons=len(calibrated.OTHERS)).half_width
    return Row(
        "fall of the loss of RXNMapper by one factor, fitted to half of the reactions and judged "
        "on the others, nats per token",
        interval(gained),
        "16 reactions of one textbook",
        "the factor, on the other half",
        "nothing",
        f"4 models, of which this one was picked: ± {family:.3f} if all four are to hold together",
        "the reactions are not its training text; in MiniLM such a factor does harm",
        "RXNMapper, short texts",
        digits=3,
    )


@row("audit")
def audit() -> Row:
    """Faults found by the audit."""
    exhibits = [entry for entry in load("museum").entries if "exhibit" in entry.at]
    found = sum(bool(entry.found["audit"]) for entry in exhibits)
    unseen = [entry.found["found"] for entry in load("museum.unseen_first").entries]
    return Row(
        "public bugs, rebuilt, in which the audit finds a fault",
        f"{found} of {len(exhibits)}",
        "bugs of different projects",
        "the audit was extended until it found them; of "
        f"{len(unseen)} reports on which it had not been tried it found {sum(unseen)}",
        "nothing",
        "one",
        "its two alarms on the census of 408 families are right, but most of that was recorded "
        "before its last repairs; it cannot tell where a configuration does not say the scale",
        "attention as a function of q, k, v in PyTorch, and models of transformers",
    )

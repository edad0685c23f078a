"""Draw the stills of the live figures: what print and a browser without JavaScript show.

Each shows its figure in the state in which the page opens it, or some states side by side. The
numbers are computed here from `attnlib`, not by the modules of book/live.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.special import log_ndtr, ndtri

from attnlib import annealed, criteria, exact, freezing, retrieval, rows, typical
from attnlib.checking import FloatArray
from attnlib.scores import DotProduct, Normal
from book import style
from book.live import heads
from book.live.tables import KEYS, PARTING_ALPHA, PARTING_KEYS, PARTING_ROWS, arrivals, sixteen
from experiments.real_heads import shown
from experiments.records import load

SHOWN = 24
"""Bars."""

CALCULATOR_KEYS = 4096
CALCULATOR_STRENGTH = 6.0
FROZEN_ALPHA = 4.0
FROZEN_KEYS = (16, 4096, 2**24)
JACOBIAN_ALPHAS = (1.0, 3.0, 12.0)
JACOBIAN_SCORES = np.array([*np.linspace(-1.5, 0.6, 6), 1.0, 1.2])
NEEDLE_ALPHAS = (1.0, 4.0, 10.0)
NEEDLE_KEYS = 512
NEEDLE_SEED = 10
NEEDLE_STRENGTH = 4.0
OUTPUT_KEYS = 4096
LANDING_DIMENSIONS = (4, 64, 1024)
NUMBER_GAP = 4.0

QUERY = 36
"""The token whose row is drawn of the first of the recorded heads."""
MARKS = ("o", "s", "^", "D", "x")
MULTIPLIERS = np.geomspace(0.25, 4.0, 49)
PRODUCT_LENGTHS = (4, 64, 512)
REACH_ALPHAS = (1.0, 2.0, 4.0, 10.0)
REACH_GAP = 4.0
PARTING_SHOWN = 45

SIGNS = LinearSegmentedColormap.from_list("signs", [style.VERMILLION, "#ffffff", style.BLUE])


class Row(NamedTuple):
    """A sample row at one α: its largest weights, and Σp²."""

    weights: FloatArray
    collision_probability: float


def sample_row(n: int, alpha: float) -> Row:
    """Return the calculator's sample row of n normal scores at α.

    Its largest scores come from the arrivals S of a Poisson process: the k-th is exceeded with
    chance S_k/S_{n+1}. The rest of a long row is replaced by its mean, n e^{α²/2} Φ(s − α) below
    the smallest of them.
    """
    arrived = np.array(arrivals())
    kept = arrived.size - 1
    count = min(n, kept)
    total = arrived[n] if n <= kept else arrived[kept - 1] + n + 1 - kept
    scores = -ndtri(arrived[:count] / total)
    powers = np.exp(alpha * (scores - scores[0]))
    rest = np.zeros(2)
    if n > kept:
        order = np.array([1.0, 2.0]) * alpha
        logs = np.log(n) + order**2 / 2.0 + log_ndtr(scores[-1] - order) - order * scores[0]
        rest = np.exp(logs)
    mass = powers.sum() + rest[0]
    return Row(powers / mass, float(((powers**2).sum() + rest[1]) / mass**2))


def figures() -> dict[str, Figure]:
    """Return the stills by their file names."""
    style.set_style()
    return {
        "live-calculator.svg": calculator(),
        "live-jacobian.svg": jacobian(),
        "live-freezing.svg": frozen(),
        "live-temperature.svg": temperature(),
        "live-landing.svg": landing(),
        "live-number.svg": number(),
        "live-heads.svg": atlas(),
        "live-attend.svg": attend(),
        "live-parting.svg": parting(),
        "live-needle.svg": needle(),
        "live-reach.svg": reach(),
        "live-variance.svg": variance(),
    }


def calculator() -> Figure:
    """Return the gradient with the criteria on it, a row at 1/√d, and how a key is found."""
    n, law = CALCULATOR_KEYS, Normal()
    drawing, panels = subplots(3, 1, figsize=(5.4, 7.0), height_ratios=[1.9, 0.9, 1.2])
    above, below, last = panels
    critical = float(freezing.critical_alpha(n))
    alpha = np.linspace(0.0, 2.2 * critical, 120)
    approximation = annealed.gradient(law, alpha, n)
    near = approximation > -0.1
    row = [a * (1.0 - sample_row(n, float(a)).collision_probability) for a in alpha]
    above.plot(alpha, row, "-.", color=style.GREEN, label="a sample row")
    above.plot(alpha[near], approximation[near], "--", color=style.VERMILLION)
    above.plot(alpha, exact.gradient(law, alpha, n), "-", color=style.BLUE, label="exact mean")
    above.lines[1].set_label("approximation")
    scales = {
        "variance": (1.0, (7, -12), "left"),
        "entropy": (criteria.same_entropy(law, n) or 0.0, (-8, 3), "right"),
        "annealed": (float(annealed.best_alpha(law, n)), (7, -12), "left"),
        "freezing": (critical, (7, -12), "left"),
    }
    for name, (place, offset, side) in scales.items():
        height = float(exact.gradient(law, place, n))
        above.plot(place, height, "o", color=style.INK)
        above.annotate(
            f"{name} {place:.3g}",
            *((place, height), offset),
            textcoords="offset points",
            ha=side,
            fontsize="small",
        )
    above.set(xlim=(0, alpha[-1]), ylim=(0, 4.2), xlabel="α", ylabel="gradient G")
    above.legend(loc="lower right")
    draw_bars(below, sample_row(n, 1.0), highest=0.01)
    below.set_xlabel(f"the {SHOWN} largest weights of a row, at 1/√d")
    keys = np.unique(np.round(np.geomspace(*KEYS, 60)))
    needle = retrieval.Tilted(CALCULATOR_STRENGTH)
    for place, words, look, at in (
        (1.0, "1/√d", "--", (3, 0.55)),
        (CALCULATOR_STRENGTH, "α = Δ", "-", (3e5, 0.9)),
    ):
        last.plot(keys, retrieval.weight(law, needle, place, keys), look, color=style.BLUE)
        last.annotate(words, at)
    last.axhline(0.5, color=style.GREY, linewidth=0.8)
    last.axvline(n, color=style.GREY, linewidth=0.8)
    last.set(xscale="log", ylim=(0, 1.02), ylabel="weight on it", yticks=[0, 0.5, 1])
    last.set_xlabel(f"number of keys n, one of them to be found: Δ = {CALCULATOR_STRENGTH:g}")
    return drawing


def jacobian() -> Figure:
    """Return weights and Jacobian of one row at three scales."""
    drawing, axes = subplots(
        2, 3, figsize=(5.4, 3.4), height_ratios=[1.0, 1.9], sharex=True, squeeze=False
    )
    for column, alpha in zip(axes.T, JACOBIAN_ALPHAS, strict=True):
        bars, squares = column
        p = rows.softmax(JACOBIAN_SCORES, alpha)
        bars.bar(np.arange(p.size) + 0.5, p, width=0.7, color=style.BLUE)
        gradient = float(rows.gradient(JACOBIAN_SCORES, alpha))
        bars.set(ylim=(0, 1), xticks=[], yticks=[], title=f"α = {alpha:g}\ng = {gradient:.2f}")
        matrix = rows.jacobian(JACOBIAN_SCORES, alpha)
        strongest = max(float(np.abs(matrix).max()), 0.25)
        squares.pcolormesh(matrix, cmap=SIGNS, vmin=-strongest, vmax=strongest, edgecolors="none")
        squares.set(xticks=[], yticks=[], aspect="equal")
        squares.invert_yaxis()
        squares.spines[["top", "right"]].set_visible(True)
    axes[0, 0].set_ylabel("p")
    axes[1, 0].set_ylabel("J")
    return drawing


def frozen() -> Figure:
    """Return the largest weights of a row at one scale and three numbers of keys."""
    drawing, axes = subplots(3, 1, figsize=(5.4, 4.8), sharex=True)
    for panel, n in zip(axes, FROZEN_KEYS, strict=True):
        row = sample_row(n, FROZEN_ALPHA)
        draw_bars(panel, row, highest=1.0)
        ratio = FROZEN_ALPHA / float(freezing.critical_alpha(n))
        keys = f"{n}" if n < 10**6 else "2²⁴"
        share = 1.0 / row.collision_probability
        panel.set_title(
            rf"n = {keys}: $\alpha/\alpha_c$ = {ratio:.2f}, 1/Σp² = {share:.1f}", fontsize="small"
        )
    axes[-1].set_xlabel(f"the {SHOWN} largest weights of a row, α = {FROZEN_ALPHA:g}")
    return drawing


def temperature() -> Figure:
    """Return the output's scale against temperature with the three rules."""
    drawing, axes = style.figure("temperature t", "std of the output")
    n, t = OUTPUT_KEYS, np.geomspace(1.0 / 16.0, 16.0, 161)
    law = Normal()
    rule = 1.0 / annealed.post_scale(law, 1.0 / t, n)
    near = rule < 1.4
    grey = {"color": style.GREY, "linewidth": 1.2}
    axes.plot(t, exact.output_std(law, 1.0 / t, n), "-", color=style.BLUE, label="exact")
    axes.plot(t[near], rule[near], "--", color=style.VERMILLION, label="log-normal rule")
    axes.axhline(1.0, linestyle="-.", label="spike", **grey)
    axes.axhline(n**-0.5, linestyle=":", label="flat", **grey)
    axes.axvline(1.0, linestyle="-", color=style.GREY, linewidth=0.8)
    axes.plot(1.0, float(exact.output_std(law, 1.0, n)), "o", color=style.BLUE)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(ylim=(1 / 100, 1.4), xlim=(1 / 16, 16))
    axes.legend(loc="center right")
    return drawing


def sixteen_keys(d: int, *, divided: bool = False) -> Row:
    """Return the weights of the front page's first sixteen keys at d."""
    p = rows.softmax(np.array(sixteen()[0]), 1.0 if divided else np.sqrt(d))
    return Row(p, float(rows.collision_probability(p)))


def landing() -> Figure:
    """Return sixteen keys at three head sizes, undivided, and divided by √d at any."""
    drawing, axes = subplots(2, 2, figsize=(5.4, 3.6), sharex=True, sharey=True)
    panels = [(f"q·k, d = {d}", sixteen_keys(d)) for d in LANDING_DIMENSIONS]
    panels.append(("q·k ÷ √d, any d", sixteen_keys(64, divided=True)))
    for panel, (name, row) in zip(axes.flat, panels, strict=True):
        heights, largest = row.weights, row.weights.argmax()
        colours = [style.VERMILLION if k == largest else style.BLUE for k in range(heights.size)]
        panel.bar(np.arange(heights.size), heights, width=0.76, color=colours)
        keys = 1.0 / row.collision_probability
        panel.set_title(f"{name}: {keys:.1f} keys", fontsize="medium")
        panel.set(ylim=(0, 1), xticks=[], yticks=[0, 0.5, 1])
    for panel in axes[:, 0]:
        panel.set_ylabel("weight")
    drawing.supxlabel("sixteen keys", fontsize="medium")
    return drawing


def number() -> Figure:
    """Return the weight on a key that stands out, against n, with two scales."""
    drawing, axes = style.figure("number of keys n", "weight on the key", height=3.0)
    n = np.unique(np.round(np.geomspace(*KEYS, 81)))
    law, needle = Normal(), retrieval.Tilted(NUMBER_GAP)
    lines = {"Δ/√d": (NUMBER_GAP, style.BLUE, "-"), "1/√d": (1.0, style.VERMILLION, "--")}
    for name, (alpha, colour, dashes) in lines.items():
        weight = retrieval.weight(law, needle, alpha, n)
        axes.plot(n, weight, dashes, color=colour, label=f"times {name}")
    axes.axhline(0.5, linestyle="-.", color=style.GREY, linewidth=1.0)
    axes.set_xscale("log")
    axes.set(xlim=KEYS, ylim=(0, 1))
    axes.legend(loc="upper right")
    return drawing


def parting() -> Figure:
    """Return single rows against α, and the three averages of them."""
    law, n = Normal(), PARTING_KEYS
    alpha = np.linspace(0.02, PARTING_ALPHA, 46)
    drawing, axes = style.figure("α", "gradient α(1 − Σp²)", height=4.0)
    sample = law.sample(np.random.default_rng(0), PARTING_SHOWN, n)
    few = alpha[::3]
    each = np.stack([rows.gradient(sample, float(a)) for a in few])
    axes.plot(few, each, "-", color=style.GREY, linewidth=0.5, alpha=0.35)
    fine = np.linspace(0.0, 2.5, 60)
    approximation = annealed.gradient(law, fine, n)
    typical_row, _ = typical.gradient(law, alpha, n, rows=PARTING_ROWS)
    heavy = {"linewidth": 2.4}
    name = "approximation"
    axes.plot(fine, approximation, "--", color=style.VERMILLION, label=name, **heavy)
    name = "mean of all rows"
    axes.plot(alpha, exact.gradient(law, alpha, n), "-", color=style.BLUE, label=name, **heavy)
    axes.plot(alpha, typical_row, "-.", color=style.GREEN, label="typical row", **heavy)
    axes.set(xlim=(0, PARTING_ALPHA), ylim=(0, 4.4))
    axes.legend(loc="upper left")
    return drawing


def needle() -> Figure:
    """Return the largest weights of one row with a needle, at three scales."""
    rng = np.random.default_rng(NEEDLE_SEED)
    s = Normal().sample(rng, 1, NEEDLE_KEYS)[0]
    s[0] += NEEDLE_STRENGTH
    order = np.argsort(-s)[:SHOWN]
    drawing, axes = subplots(3, 1, figsize=(5.4, 4.8), sharex=True)
    for panel, alpha in zip(axes, NEEDLE_ALPHAS, strict=True):
        p = rows.softmax(s, alpha)
        colours = [style.VERMILLION if key == 0 else style.BLUE for key in order]
        panel.bar(np.arange(SHOWN), p[order], width=0.76, color=colours)
        loss = float(retrieval.loss(Normal(), retrieval.Tilted(NEEDLE_STRENGTH), alpha, s.size))
        said = f"α = {alpha:g}: the needle has {p[0]:.2f}; mean loss {loss:.2f}"
        panel.set_title(said, fontsize="small")
        panel.set(ylim=(0, 1), xticks=[], yticks=[0, 0.5, 1], ylabel="weight")
    axes[-1].set_xlabel(f"the {SHOWN} largest weights of a row, θ = {NEEDLE_STRENGTH:g}")
    return drawing


def reach() -> Figure:
    """Return the weight of a needle against the number of keys, at four scales."""
    law, needle = Normal(), retrieval.Fixed(REACH_GAP)
    drawing, axes = style.figure("number of keys n", "weight of the needle")
    n = np.round(np.geomspace(2, 1e6, 60))
    for alpha in REACH_ALPHAS:
        (curve,) = axes.plot(n, retrieval.weight(law, needle, alpha, n), label=f"α = {alpha:g}")
        most = float(retrieval.reach(law, needle, alpha))
        axes.plot(most, 0.5, "o", color=curve.get_color(), markersize=7)
    axes.axvline(np.exp(REACH_GAP**2 / 2), color=style.GREY, linestyle=":", linewidth=1.2)
    axes.axhline(0.5, color=style.GREY, linestyle="-", linewidth=0.8)
    axes.annotate(r"$e^{\Delta^2/2}$", (np.exp(REACH_GAP**2 / 2) * 1.15, 0.93), color=style.GREY)
    axes.set(xscale="log", xlim=(2, 1e6), ylim=(0, 1))
    axes.legend(loc="upper right")
    return drawing


def atlas() -> Figure:
    """Return all heads of the trained models: α and effective keys over n, beside random rows."""
    table = heads.heads()
    drawing, axes = style.figure(
        "α, standard deviation of the logits", "effective keys, share of n", height=4.4
    )
    share = table["keys"] / table["n"]
    for i, (model, mark, colour) in enumerate(zip(heads.MODELS, MARKS, style.PALETTE, strict=True)):
        own = table["model"] == i
        axes.scatter(
            table["alpha"][own],
            share[own],
            s=13.0,
            c=colour,
            marker=mark,
            alpha=0.65,
            linewidths=0.9 if mark == "x" else 0.3,
            label=model.name,
        )
        random = heads.random_share(float(table["n"][own][0]))
        axes.plot(heads.CURVE, random, "-", color=colour, linewidth=0.9)
    axes.set(xscale="log", yscale="log", xlim=(0.5, 32), ylim=(4e-4, 1.2))
    axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes.set_xticks([], minor=True)
    axes.set_yticks([1e-3, 1e-2, 1e-1, 1], ["0.001", "0.01", "0.1", "1"])
    axes.legend(loc="lower left", handletextpad=0.2)
    return drawing


def attended() -> tuple[list[str], FloatArray, int, FloatArray]:
    """Return tokens, weights, the key that is meant, and logits of a row of a recorded head."""
    one = shown.SHOWN[0]
    found = load("real_heads_shown").find(model=one.model, layer=one.layer, head=one.head)
    query, key = shown.unpacked(found["queries"])[QUERY], shown.unpacked(found["keys"])
    logits = found["scale"] * key[: QUERY + 1] @ query
    return found["tokens"], rows.softmax(logits), found["meant"][QUERY], logits


def attend() -> Figure:
    """Return a row of a recorded head, and its keys at other scales beside random rows."""
    words, row, meant, logits = attended()
    drawing, (above, below) = subplots(2, 1, figsize=(5.4, 5.0), height_ratios=[1.0, 1.3])
    colours = [style.VERMILLION if i == meant else style.BLUE for i in range(row.size)]
    above.bar(np.arange(row.size), row, width=0.76, color=colours)
    above.set(ylim=(0, 1), yticks=[0, 0.5, 1], ylabel="weight", xlim=(-0.6, row.size - 0.4))
    above.set_xticks(np.arange(row.size), words[: row.size], rotation=90, fontsize=8.5)
    keys = [1.0 / float(rows.collision_probability(rows.softmax(logits, t))) for t in MULTIPLIERS]
    record = load("real_heads_shown")
    nodes = np.array([record.find(random="keys", n=n) for n in shown.KEYS])
    alpha = MULTIPLIERS * logits.std(ddof=1)
    places = np.log1p(np.minimum(alpha, shown.LARGEST_ALPHA))
    at_nodes = np.array([
        [np.interp(places, np.log1p(shown.ALPHAS), np.log(one)) for one in table.T]
        for table in nodes
    ])  # fmt: skip
    low, median, high = (
        np.exp([np.interp(np.log(row.size), np.log(shown.KEYS), one) for one in side.T])
        for side in at_nodes.swapaxes(0, 1)
    )
    below.fill_between(MULTIPLIERS, low, high, color=style.GREY, alpha=0.28, linewidth=0)
    below.plot(MULTIPLIERS, median, "--", color=style.GREY, linewidth=1.2, label="random rows")
    below.plot(MULTIPLIERS, keys, "-", color=style.BLUE, label="this row")
    below.plot(1.0, 1.0 / float(rows.collision_probability(row)), "o", color=style.BLUE)
    below.set(xscale="log", yscale="log", xlim=(0.25, 4), ylim=(1, row.size))
    below.set(xlabel="multiplier of the logits", ylabel="effective keys")
    below.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
    below.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    for axis in (below.xaxis, below.yaxis):
        axis.set_ticks([], minor=True)
    below.legend(loc="upper right")
    return drawing


def variance() -> Figure:
    """Return the densities of a dot product for three lengths, and divided by the root of them."""
    drawing, (above, below) = subplots(2, 1, figsize=(5.4, 4.4))
    for d in PRODUCT_LENGTHS:
        x = np.linspace(-4.0, 4.0, 161)
        density = np.exp(DotProduct(d).logpdf(x))
        above.plot(x * np.sqrt(d), density / np.sqrt(d), label=f"d = {d}")
        below.plot(x, density, label=f"d = {d}")
    above.set(xlabel="q·k", ylabel="density", xlim=(-80, 80), ylim=(0, 0.22))
    below.set(xlabel="q·k/√d", ylabel="density", xlim=(-4, 4), ylim=(0, None))
    above.legend(loc="upper right")
    return drawing


def draw_bars(axes: Axes, row: Row, *, highest: float) -> None:
    """Draw the largest weights of a row."""
    weights = np.zeros(SHOWN)
    weights[: row.weights.size] = row.weights[:SHOWN]
    axes.bar(np.arange(SHOWN), weights, width=0.76, color=style.BLUE)
    axes.set(ylim=(0, highest), xticks=[], yticks=[0, highest / 2, highest], ylabel="weight")

"""Draw the stills of the live figures: what print and a browser without JavaScript show.

Each shows its figure in a state in which the page may show it, or some states side by side. The
numbers are computed here by `attnlib`, not by the modules of book/live.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.special import ndtri

from attnlib import annealed, criteria, exact, freezing, retrieval, rows, typical
from attnlib.checking import FloatArray
from attnlib.scores import DotProduct, Normal
from book import style
from book.live import heads
from book.live.tables import (
    FACE_LENGTHS,
    FACE_POINTS,
    KEYS,
    PARTING_ALPHA,
    PARTING_KEYS,
    PARTING_ROWS,
    face,
    row_of_head,
    sixteen,
)

SHOWN = 24
"""Bars of a long row."""

CALCULATOR_KEYS = 4096
FROZEN_ALPHA = 4.0
FROZEN_KEYS = (16, 4096, 2**20)
JACOBIAN_ALPHAS = (1.0, 3.0, 12.0)
JACOBIAN_SCORES = np.array([*np.linspace(-1.5, 0.6, 6), 1.0, 1.2])
LANDING_DIMENSIONS = (4, 64, 1024)
GAP = 4.0
"""Of a key that stands out, also as the strength of a needle."""

LAW = Normal()


def figures() -> dict[str, Figure]:
    """Return the stills by their file names."""
    style.set_style()
    return {
        "live-calculator.svg": calculator(),
        "live-jacobian.svg": jacobian(),
        "live-freezing.svg": frozen(),
        "live-temperature.svg": temperature(),
        "live-face.svg": faced(),
        "live-landing.svg": landing(),
        "live-number.svg": number(),
        "live-heads.svg": atlas(),
        "live-attend.svg": attend(),
        "live-parting.svg": parting(),
        "live-needle.svg": needle(),
        "live-reach.svg": reach(),
        "live-variance.svg": variance(),
    }


def averages(
    axes: Axes, alpha: FloatArray, n: int, *, simulated: int = 0, width: float = 1.8
) -> None:
    """Draw mean gradients of rows: the approximation, the exact mean, and the typical row.

    The last is the geometric mean of `simulated` rows, if any.
    """
    approximation = annealed.gradient(LAW, alpha, n)
    near = approximation > -0.3
    curves = {
        "approximation": (alpha[near], approximation[near], "--", style.VERMILLION),
        "mean of all rows": (alpha, exact.gradient(LAW, alpha, n), "-", style.BLUE),
    }
    if simulated:
        typical_row, _ = typical.gradient(LAW, alpha, n, rows=simulated)
        curves["typical row"] = alpha, typical_row, "-.", style.GREEN
    for name, (x, y, dashes, colour) in curves.items():
        axes.plot(x, y, dashes, color=colour, label=name, linewidth=width)


def bars(panel: Axes, weights: FloatArray, title: str, marked: int = -1) -> None:
    """Draw weights as bars, one of them marked."""
    places = np.arange(weights.size)
    colours = [style.VERMILLION if place == marked else style.BLUE for place in places]
    panel.bar(places, weights, width=0.76, color=colours)
    panel.set_title(title, fontsize="small")
    panel.set(ylim=(0, 1), xticks=[], yticks=[0, 0.5, 1], ylabel="weight")


def calculator() -> Figure:
    """Return the gradient with the criteria on it."""
    n = CALCULATOR_KEYS
    drawing, axes = style.figure("α", "gradient G", height=4.0)
    critical = float(freezing.critical_alpha(n))
    averages(axes, np.linspace(0.0, 2.2 * critical, 120), n)
    scales = {
        "variance": (1.0, (7, -12), "left"),
        "entropy": (criteria.same_entropy(LAW, n) or 0.0, (-8, 3), "right"),
        "annealed": (float(annealed.best_alpha(LAW, n)), (7, -12), "left"),
        "freezing": (critical, (7, -12), "left"),
    }
    for name, (alpha, offset, side) in scales.items():
        place = alpha, float(exact.gradient(LAW, alpha, n))
        axes.plot(*place, "o", color=style.INK)
        words = f"{name} {alpha:.3g}"
        axes.annotate(words, place, offset, textcoords="offset points", ha=side, fontsize="small")
    axes.set(xlim=(0, 2.2 * critical), ylim=(0, 4.2))
    axes.legend(loc="lower right")
    return drawing


def jacobian() -> Figure:
    """Return weights and Jacobian of one row at three scales."""
    drawing, axes = subplots(2, 3, figsize=(5.4, 3.4), height_ratios=[1.0, 1.9], sharex=True)
    signs = LinearSegmentedColormap.from_list("signs", [style.VERMILLION, "#ffffff", style.BLUE])
    places = np.arange(JACOBIAN_SCORES.size)
    for (above, below), alpha in zip(axes.T, JACOBIAN_ALPHAS, strict=True):
        gradient = float(rows.gradient(JACOBIAN_SCORES, alpha))
        bars(above, rows.softmax(JACOBIAN_SCORES, alpha), f"α = {alpha:g}\ng = {gradient:.2f}")
        above.set(yticks=[], ylabel="")
        matrix = rows.jacobian(JACOBIAN_SCORES, alpha)
        strongest = max(float(np.abs(matrix).max()), 0.25)
        below.pcolormesh(places, places, matrix, cmap=signs, vmin=-strongest, vmax=strongest)
        below.set(xticks=[], yticks=[], aspect="equal")
        below.invert_yaxis()
        below.spines[["top", "right"]].set_visible(True)
    axes[0, 0].set_ylabel("p")
    axes[1, 0].set_ylabel("J")
    return drawing


def frozen_row(n: int) -> FloatArray:
    """Return the weights of a row whose n scores lie where normal ones do on average."""
    return rows.softmax(-ndtri((np.arange(n) + 0.5) / n), FROZEN_ALPHA)


def frozen() -> Figure:
    """Return the largest weights of a row at one scale and three numbers of keys."""
    drawing, axes = subplots(3, 1, figsize=(5.4, 4.8), sharex=True)
    for panel, n in zip(axes, FROZEN_KEYS, strict=True):
        row = frozen_row(n)
        ratio = FROZEN_ALPHA / float(freezing.critical_alpha(n))
        share = 1.0 / float(rows.collision_probability(row))
        title = rf"n = {n}: $\alpha/\alpha_c$ = {ratio:.2f}, 1/Σp² = {share:.1f}"
        bars(panel, row[:SHOWN], title)
    axes[-1].set_xlabel(f"the {SHOWN} largest weights of a row, α = {FROZEN_ALPHA:g}")
    return drawing


def temperature() -> Figure:
    """Return the output's scale against temperature with the three rules."""
    drawing, axes = style.figure("temperature t", "std of the output")
    n, t = 4096, np.geomspace(1.0 / 16.0, 16.0, 161)
    rule = 1.0 / annealed.post_scale(LAW, 1.0 / t, n)
    near = rule < 1.4
    grey = {"color": style.GREY, "linewidth": 1.2}
    axes.plot(t, exact.output_std(LAW, 1.0 / t, n), "-", color=style.BLUE, label="exact")
    axes.plot(t[near], rule[near], "--", color=style.VERMILLION, label="log-normal rule")
    axes.axhline(1.0, linestyle="-.", label="spike", **grey)
    axes.axhline(n**-0.5, linestyle=":", label="flat", **grey)
    axes.axvline(1.0, linestyle="-", color=style.GREY, linewidth=0.8)
    axes.plot(1.0, float(exact.output_std(LAW, 1.0, n)), "o", color=style.BLUE)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(ylim=(1 / 100, 1.4), xlim=(1 / 16, 16))
    axes.legend(loc="center right")
    return drawing


def sixteen_keys(alpha: float) -> FloatArray:
    """Return the weights of the front page's first sixteen keys."""
    return rows.softmax(np.array(sixteen()[0]), alpha)


def faced() -> Figure:
    """Return a row of a trained head at three factors, and its model's loss against the factor."""
    words, logits, meant = row_of_head()
    table = face()
    drawing, (*panels, axes) = subplots(4, 1, figsize=(5.4, 7.6), height_ratios=(1, 1, 1, 3))
    for panel, times in zip(panels, (0.5, 1.0, 2.0), strict=True):
        row = rows.softmax(logits, times)[: table["first"]]
        bars(panel, row, "", meant)
        panel.set(ylabel=f"× {times:g}", yticks=[0, 1])
    panels[-1].set_xticks(np.arange(table["first"]), words[: table["first"]], rotation=60)
    octaves = np.linspace(table["octaves"]["from"], table["octaves"]["to"], FACE_POINTS)
    for n, dashes in zip(FACE_LENGTHS, ("-", "-.", "--"), strict=True):
        axes.plot(2.0**octaves, table["losses"][n], dashes, label=f"{n} tokens")
    axes.set(xscale="log", xlabel="multiplier of all logits", ylabel="rise of the loss, nats")
    axes.set_xticks([0.5, 1, 2], ["½", "1", "2"])
    axes.minorticks_off()
    axes.legend()
    return drawing


def landing() -> Figure:
    """Return sixteen keys at three head sizes, undivided, and divided by √d at any."""
    drawing, axes = subplots(2, 2, figsize=(5.4, 3.6), sharex=True, sharey=True)
    panels = {f"q·k, d = {d}": d**0.5 for d in LANDING_DIMENSIONS} | {"q·k ÷ √d, any d": 1.0}
    for panel, (name, alpha) in zip(axes.flat, panels.items(), strict=True):
        row = sixteen_keys(alpha)
        keys = 1.0 / float(rows.collision_probability(row))
        bars(panel, row, f"{name}: {keys:.1f} keys", int(row.argmax()))
    for panel in axes[:, 1]:
        panel.set_ylabel("")
    drawing.supxlabel("sixteen keys", fontsize="medium")
    return drawing


def number() -> Figure:
    """Return the weight on a key that stands out, against n, with two scales."""
    drawing, axes = style.figure("number of keys n", "weight on the key", height=3.0)
    n = np.unique(np.round(np.geomspace(*KEYS, 81)))
    for name, alpha, dashes in (("Δ/√d", GAP, "-"), ("1/√d", 1.0, "--")):
        weight = retrieval.weight(LAW, retrieval.Tilted(GAP), alpha, n)
        axes.plot(n, weight, dashes, label=f"times {name}")
    axes.axhline(0.5, linestyle="-.", color=style.GREY, linewidth=1.0)
    axes.set(xscale="log", xlim=KEYS, ylim=(0, 1))
    axes.legend(loc="upper right")
    return drawing


def parting() -> Figure:
    """Return single rows against α, and the three averages of them."""
    drawing, axes = style.figure("α", "gradient α(1 − Σp²)", height=4.0)
    sample = LAW.sample(np.random.default_rng(0), 45, PARTING_KEYS)
    few = np.linspace(0.02, PARTING_ALPHA, 16)
    each = np.stack([rows.gradient(sample, float(a)) for a in few])
    axes.plot(few, each, "-", color=style.GREY, linewidth=0.5, alpha=0.35)
    alpha = np.linspace(0.02, PARTING_ALPHA, 100)
    averages(axes, alpha, PARTING_KEYS, simulated=PARTING_ROWS, width=2.4)
    axes.set(xlim=(0, PARTING_ALPHA), ylim=(0, 4.4))
    axes.legend(loc="upper left")
    return drawing


def needle() -> Figure:
    """Return the largest weights of one row with a needle, at three scales."""
    s = LAW.sample(np.random.default_rng(10), 1, 512)[0]
    s[0] += GAP
    order = np.argsort(-s)[:SHOWN]
    drawing, axes = subplots(3, 1, figsize=(5.4, 4.8), sharex=True)
    for panel, alpha in zip(axes, (1.0, 4.0, 10.0), strict=True):
        p = rows.softmax(s, alpha)
        loss = float(retrieval.loss(LAW, retrieval.Tilted(GAP), alpha, s.size))
        title = f"α = {alpha:g}: the needle has {p[0]:.2f}; mean loss {loss:.2f}"
        bars(panel, p[order], title, int(np.flatnonzero(order == 0)[0]))
    axes[-1].set_xlabel(f"the {SHOWN} largest weights of a row, θ = {GAP:g}")
    return drawing


def reach() -> Figure:
    """Return the weight of a needle against the number of keys, at four scales."""
    needle, beyond = retrieval.Fixed(GAP), np.exp(GAP**2 / 2)
    drawing, axes = style.figure("number of keys n", "weight of the needle")
    n = np.round(np.geomspace(2, 1e6, 60))
    for alpha in (1.0, 2.0, 4.0, 10.0):
        (curve,) = axes.plot(n, retrieval.weight(LAW, needle, alpha, n), label=f"α = {alpha:g}")
        most = float(retrieval.reach(LAW, needle, alpha))
        axes.plot(most, 0.5, "o", color=curve.get_color(), markersize=7)
    axes.axvline(beyond, color=style.GREY, linestyle=":", linewidth=1.2)
    axes.axhline(0.5, color=style.GREY, linestyle="-", linewidth=0.8)
    axes.annotate(r"$e^{\Delta^2/2}$", (beyond * 1.15, 0.93), color=style.GREY)
    axes.set(xscale="log", xlim=(2, 1e6), ylim=(0, 1))
    axes.legend(loc="upper right")
    return drawing


def atlas() -> Figure:
    """Return all heads of the trained models: α and effective keys over n, beside random rows."""
    table = heads.heads()
    drawing, axes = style.figure(
        "α, standard deviation of the logits", "effective keys, share of n", height=4.4
    )
    for i, (model, mark, colour) in enumerate(
        zip(heads.MODELS, "os^Dx", style.PALETTE, strict=True)
    ):
        own = table["model"] == i
        alpha, share = table["alpha"][own], (table["keys"] / table["n"])[own]
        look = {"c": colour, "marker": mark, "linewidths": 0.9 if mark == "x" else 0.3}
        axes.scatter(alpha, share, s=13.0, alpha=0.65, label=model.name, **look)
        random = heads.random_share(float(table["n"][own][0]))
        axes.plot(heads.CURVE, random, "-", color=colour, linewidth=0.9)
    axes.set(xscale="log", yscale="log", xlim=(0.5, 32), ylim=(4e-4, 1.2))
    axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes.set_xticks([], minor=True)
    axes.set_yticks([1e-3, 1e-2, 1e-1, 1], ["0.001", "0.01", "0.1", "1"])
    axes.legend(loc="lower left", handletextpad=0.2)
    return drawing


def attend() -> Figure:
    """Return a row of a recorded head."""
    words, logits, meant = row_of_head()
    drawing, axes = subplots(figsize=(5.4, 2.6))
    bars(axes, rows.softmax(logits), "", meant)
    axes.set_xlim(-0.6, logits.size - 0.4)
    axes.set_xticks(np.arange(logits.size), words, rotation=90, fontsize=8.5)
    return drawing


def variance() -> Figure:
    """Return the densities of a dot product for three lengths, and divided by the root of them."""
    drawing, (above, below) = subplots(2, 1, figsize=(5.4, 4.4))
    x = np.linspace(-4.0, 4.0, 161)
    for d in (4, 64, 512):
        density = np.exp(DotProduct(d).logpdf(x))
        above.plot(x * np.sqrt(d), density / np.sqrt(d), label=f"d = {d}")
        below.plot(x, density, label=f"d = {d}")
    above.set(xlabel="q·k", ylabel="density", xlim=(-80, 80), ylim=(0, 0.22))
    below.set(xlabel="q·k/√d", ylabel="density", xlim=(-4, 4), ylim=(0, None))
    above.legend(loc="upper right")
    return drawing

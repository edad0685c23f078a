// How far a scale reaches: among how many keys a key with a gap keeps half of the weight.

import { figure, remembered } from "./controls.js";
import { chart, digits, grouped, percent, powersOfTen, superscript } from "./drawing.js";
import { needleAt, reachOf } from "./normal.js";

const GAPS = [1, 7];
const LARGEST_ALPHA = 12;
const LIMITS = [2, 1e12];
const STEP = 0.25;

/** Under one scale the weight falls as n grows: few points find where it passes a half. */
const FEW = 1;

/** Return the reach of α for a needle with a gap, and the weight against n, exactly. */
export function exactReach(gap, alpha, count) {
  return reachOf({ kind: "gap", strength: gap }, alpha, LIMITS, count);
}

/** Return log n of the formula, αΔ − α²/2 up to α = Δ; it ends there at Δ²/2. */
function logReach(gap, alpha) {
  return alpha * gap - (alpha * alpha) / 2;
}

/** Say what limits the needle. */
function reachInWords(gap, alpha) {
  if (alpha < 0.8 * gap)
    return "Too small a scale: the many weak keys together outweigh the needle before a rival does.";
  if (alpha <= 1.25 * gap)
    return "About the scale that finds: here the formula reaches furthest, at α = Δ.";
  return "Beyond α = Δ only rivals count, keys with a larger score, and no scale helps against them.";
}

/** Return a number of keys, with two digits and a power of ten where it is long. */
function keysInWords(n) {
  if (n < 100 && !Number.isInteger(n)) return digits(n, 2);
  if (n < 1e6) return grouped(Math.round(n));
  const power = Math.floor(Math.log10(n) + 1e-9);
  return `${(n / 10 ** power).toFixed(1)} · 10${superscript(power)}`;
}

/** Return what the live figure shows. */
export function reachingFigure() {
  const reaches = remembered((gap) =>
    Array.from({ length: LARGEST_ALPHA / STEP }, (_, i) => STEP * (i + 1)).map((a) => [
      a,
      Math.log10(exactReach(gap, a, FEW).reach),
    ]),
  );
  return figure({
    state: { gap: 4, alpha: 1 },
    fields: {
      gap: { label: "Gap Δ", letter: "Δ", from: GAPS[0], to: GAPS[1], step: 0.1 },
      alpha: { label: "α", to: LARGEST_ALPHA },
    },
    across: "alpha",
    grow: { label: "Let α grow", name: "alpha" },
    lines: [
      ["line exact", "exact"],
      ["line approximation", "exp(αΔ − α²/2)"],
      ["thin dotted", "exp(Δ²/2)"],
    ],
    draw: ({ gap, alpha }) => {
      const found = exactReach(gap, alpha);
      const formula = keysInWords(Math.exp(logReach(gap, alpha)));
      const weight = needleAt({ kind: "gap", strength: gap }, alpha).weight(4096);
      return {
        pictures: [againstScale(reaches(gap), gap, alpha, found.reach), againstKeys(found, gap, alpha)],
        readings: [
          ["reach of this α, exact", keysInWords(found.reach)],
          ["by the formula, exp(αΔ − α²/2)", alpha > gap ? "only up to α = Δ" : formula],
          ["its largest, exp(Δ²/2)", keysInWords(Math.exp((gap * gap) / 2))],
          ["weight among 4096 keys", percent(weight)],
        ],
        note: reachInWords(gap, alpha),
      };
    },
  });
}

const largest = (gap) => (gap * gap) / 2 / Math.LN10;

/** Return the power of ten, one of 3, 6, 9 and 12, at which the axes of a gap end. */
const lastPower = (gap) => 3 * Math.ceil((largest(gap) + 0.5) / 3);

function againstScale(reaches, gap, alpha, reach) {
  const last = lastPower(gap);
  const powers = [0, 1, 2, 3].map((third) => (third * last) / 3);
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: [0, 4, 8, 12] },
    y: { from: 0, to: last, name: "reach, number of keys", ticks: powersOfTen(...powers) },
    name: "The reach against α, exact and by the formula, with a dot at the chosen α.",
  });
  view.graph(() => largest(gap), "thin dotted", [0, LARGEST_ALPHA], 1);
  view.curve(reaches, "line exact");
  view.graph((a) => logReach(gap, a) / Math.LN10, "line approximation", [0, gap], 40);
  view.upright(alpha, "thin");
  view.dot(alpha, Math.log10(reach), "dot exact");
  return view;
}

function againstKeys({ points, reach }, gap, alpha) {
  const [from, to] = [Math.log10(LIMITS[0]), lastPower(gap)];
  const powers = [1, 2, 3].map((third) => (third * to) / 3);
  const shown = points.map(([n, weight]) => [Math.log10(n), weight]).filter(([place]) => place <= to);
  const view = chart({
    x: { from, to, name: "number of keys n", ticks: powersOfTen(...powers) },
    y: { from: 0, to: 1, name: "weight of the needle", ticks: [0, 0.5, 1] },
    name: "The needle’s mean weight against the number of keys; a dot where it is one half.",
  });
  view.graph(() => 0.5, "thin", [from, to], 1);
  view.upright(largest(gap), "thin dotted");
  if (alpha <= gap && logReach(gap, alpha) > Math.LN2)
    view.upright(logReach(gap, alpha) / Math.LN10, "line approximation");
  view.curve(shown, "line exact");
  if (reach > 1) view.dot(Math.log10(reach), 0.5, "dot exact");
  return view;
}

// How far a scale reaches: among how many keys a key with a gap keeps half of the weight.

import { draggedField, numberField, readings } from "./controls.js";
import { chart, digits, grouped, html, legend, percent, superscript } from "./drawing.js";
import { reachOf } from "./needle.js";

const NORMAL = { kind: "normal" };
const GAPS = [1, 7];
const LARGEST_ALPHA = 12;
const LIMITS = [2, 1e12];
const STEP = 0.25;

/** Return the reach of α for a needle with a gap, and the weight against n, exactly. */
export function exactReach(gap, alpha) {
  return reachOf(NORMAL, { kind: "gap", strength: gap }, alpha, LIMITS);
}

/** Return log n of the formula, αΔ − α²/2 up to α = Δ; it ends there at Δ²/2. */
export function logReach(gap, alpha) {
  return alpha * gap - (alpha * alpha) / 2;
}

/** Say what limits the needle. */
export function reachInWords(gap, alpha) {
  if (alpha < 0.8 * gap)
    return "Too small a scale: the many weak keys together outweigh the needle before a rival does.";
  if (alpha <= 1.25 * gap)
    return "About the scale that finds: here the formula reaches furthest, at α = Δ.";
  return "Beyond α = Δ only rivals count, keys with a larger score, and no scale helps against them.";
}

/** Return what the live figure shows. */
export function reachingFigure() {
  const state = { gap: 4, alpha: 1 };
  const stage = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  let [view, reaches] = [null, null];
  const measure = () => {
    reaches = Array.from({ length: LARGEST_ALPHA / STEP }, (_, i) => {
      const a = STEP * (i + 1);
      return [a, Math.log10(exactReach(state.gap, a).reach)];
    });
    draw();
  };
  const draw = () => {
    const { gap, alpha } = state;
    const found = exactReach(gap, alpha);
    view = againstScale(reaches, state, found.reach);
    stage.replaceChildren(view.root, againstKeys(found, state));
    values.replaceChildren(
      ...readings([
        ["reach of this α, exact", keysInWords(found.reach)],
        [
          "by the formula, exp(αΔ − α²/2)",
          alpha > gap ? "only up to α = Δ" : keysInWords(Math.exp(logReach(gap, alpha))),
        ],
        ["its largest, exp(Δ²/2)", keysInWords(Math.exp((gap * gap) / 2))],
        ["weight among 4096 keys", percent(weightAt(found.points, 4096))],
      ]),
    );
    note.textContent = reachInWords(gap, alpha);
  };
  const change = (part) => {
    Object.assign(state, part);
    if ("gap" in part) measure();
    else draw();
  };
  const gap = numberField({
    label: "Gap Δ",
    from: GAPS[0],
    to: GAPS[1],
    step: 0.1,
    check: (value) => (value < GAPS[0] || value > GAPS[1] ? "Here Δ goes from 1 to 7." : ""),
    use: (value) => change({ gap: value }),
  });
  const alpha = draggedField({
    letter: "α",
    to: LARGEST_ALPHA,
    use: (value) => change({ alpha: value }),
    stage,
    view: () => view,
    results: values,
  });
  gap.show(state.gap);
  alpha.show(state.alpha);
  measure();
  return [
    html("div", { class: "live-fields" }, gap.element, alpha.element),
    html("div", { class: "live-buttons" }, alpha.play),
    legend([
      ["line exact", "exact"],
      ["line approximation", "exp(αΔ − α²/2)"],
      ["thin dotted", "exp(Δ²/2)"],
    ]),
    stage,
    values,
    note,
  ];
}

/** Return a number of keys, with two digits and a power of ten where it is long. */
export function keysInWords(n) {
  if (n < 100 && !Number.isInteger(n)) return digits(n, 2);
  if (n < 1e6) return grouped(Math.round(n));
  const power = Math.floor(Math.log10(n) + 1e-9);
  return `${(n / 10 ** power).toFixed(1)} · 10${superscript(power)}`;
}

/** Return the weight at n between the points of a curve. */
function weightAt(points, n) {
  const right = points.findIndex(([keys]) => keys >= n);
  const [[a, p], [b, q]] = [points[right - 1], points[right]];
  return p + ((q - p) * Math.log(n / a)) / Math.log(b / a);
}

const POWERS = [0, 3, 6, 9, 12].map((power) => [power, power ? `10${superscript(power)}` : "1"]);

function againstScale(reaches, { gap, alpha }, reach) {
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: [0, 4, 8, 12] },
    y: { from: 0, to: 12, name: "reach, number of keys", ticks: POWERS },
    name: "The reach against α, exact and by the formula, with a dot at the chosen α.",
  });
  const ten = Math.LN10;
  view.curve(
    [0, LARGEST_ALPHA].map((a) => [a, (gap * gap) / 2 / ten]),
    "thin dotted",
  );
  view.curve(reaches, "line exact");
  view.curve(
    Array.from({ length: 41 }, (_, i) => [(gap * i) / 40, logReach(gap, (gap * i) / 40) / ten]),
    "line approximation",
  );
  view.upright(alpha, "thin");
  view.dot(alpha, Math.log10(reach), "dot exact");
  return view;
}

function againstKeys({ points, reach }, { gap, alpha }) {
  const view = chart({
    x: {
      from: Math.log10(LIMITS[0]),
      to: 12,
      name: "number of keys n",
      ticks: [2, 5, 8, 11].map((power) => [power, `10${superscript(power)}`]),
    },
    y: { from: 0, to: 1, name: "weight of the needle", ticks: [0, 0.5, 1] },
    name: "The needle’s mean weight against the number of keys; a dot where it is one half.",
  });
  const ten = Math.LN10;
  view.curve(
    [Math.log10(2), 12].map((power) => [power, 0.5]),
    "thin",
  );
  view.upright((gap * gap) / 2 / ten, "thin dotted");
  if (alpha <= gap && logReach(gap, alpha) > Math.LN2)
    view.upright(logReach(gap, alpha) / ten, "line approximation");
  view.curve(
    points.map(([n, weight]) => [Math.log10(n), weight]),
    "line exact",
  );
  if (reach > 1) view.dot(Math.log10(reach), 0.5, "dot exact");
  return view.root;
}

// One row of eight scores and its Jacobian, while α slides.

import { numberField, player, readings } from "./controls.js";
import { chart, digits, html, percent, svg, ticks } from "./drawing.js";

const OTHERS = [-1.5, -1.08, -0.66, -0.24, 0.18, 0.6];
const LARGEST_ALPHA = 20;
const CELL = 30;

/** Return the weights of a row at α. */
export function softmax(scores, alpha) {
  const largest = Math.max(...scores);
  const powers = scores.map((s) => Math.exp(alpha * (s - largest)));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

/** Return the matrix α(diag(p) − ppᵀ). */
export function jacobian(p, alpha) {
  return p.map((a, i) => p.map((b, j) => alpha * ((i === j ? a : 0) - a * b)));
}

/** Return α(1 − Σp²). */
export function gradient(p, alpha) {
  return alpha * p.reduce((sum, a) => sum + a * (1 - a), 0);
}

/** Return what the live figure shows. */
export function jacobianFigure() {
  const state = { alpha: 3, gap: 0.2 };
  const pictures = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const draw = () => {
    const scores = [...OTHERS, 1, 1 + state.gap];
    const p = softmax(scores, state.alpha);
    const matrix = jacobian(p, state.alpha);
    pictures.replaceChildren(matrixPicture(p, matrix), curvePicture(scores, state));
    values.replaceChildren(
      ...readings([
        ["gradient g = α(1 − Σp²)", digits(gradient(p, state.alpha))],
        ["largest entry of J", digits(Math.max(...matrix.flat()))],
        ["no entry exceeds α/4", digits(state.alpha / 4)],
        ["largest weight", percent(Math.max(...p))],
      ]),
    );
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const alpha = numberField({
    label: "α",
    from: 0,
    to: LARGEST_ALPHA,
    step: 0.1,
    check: (value) => (value < 0 || value > LARGEST_ALPHA ? "Here α goes from 0 to 20." : ""),
    use: (value) => change({ alpha: value }),
  });
  const gap = numberField({
    label: "Gap of the two largest scores",
    from: 0,
    to: 1,
    step: 0.01,
    check: (value) => (value < 0 || value > 1 ? "Here the gap goes from 0 to 1." : ""),
    use: (value) => change({ gap: value }),
  });
  const play = player({
    label: "Let α grow",
    results: values,
    move: (part) => {
      const value = Number((LARGEST_ALPHA * part).toFixed(1));
      alpha.show(value);
      change({ alpha: value });
    },
  });
  alpha.show(state.alpha);
  gap.show(state.gap);
  draw();
  return [
    html("div", { class: "live-fields" }, alpha.element, gap.element, play),
    pictures,
    values,
  ];
}

/** Draw the weights over the matrix: blue entries are positive, red ones negative. */
function matrixPicture(p, matrix) {
  const size = CELL * p.length;
  const name = "The weights of eight keys as bars, above the matrix J as coloured squares.";
  const root = svg("svg", {
    viewBox: `-18 0 ${size + 36} ${size + 112}`,
    role: "img",
    "aria-label": name,
    class: "live-square",
  });
  for (const [i, weight] of p.entries()) {
    const height = 84 * weight;
    root.append(
      svg("rect", { class: "bar", x: CELL * i + 4, y: 90 - height, width: CELL - 8, height }),
    );
  }
  root.append(svg("path", { class: "axis", d: `M0 90H${size}` }));
  const strongest = Math.max(1e-9, ...matrix.flat().map(Math.abs));
  for (const [i, line] of matrix.entries())
    for (const [j, entry] of line.entries())
      root.append(
        svg("rect", {
          class: entry >= 0 ? "positive" : "negative",
          x: CELL * j + 1,
          y: 100 + CELL * i + 1,
          width: CELL - 2,
          height: CELL - 2,
          "fill-opacity": (Math.abs(entry) / Math.max(strongest, 0.25)).toFixed(3),
        }),
      );
  root.append(svg("rect", { class: "frame", x: 0, y: 100, width: size, height: size }));
  return root;
}

function curvePicture(scores, { alpha }) {
  const points = Array.from({ length: 101 }, (_, i) => {
    const a = (LARGEST_ALPHA * i) / 100;
    return [a, gradient(softmax(scores, a), a)];
  });
  const highest = Math.max(1, ...points.map(([, g]) => g)) * 1.08;
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: ticks(0, LARGEST_ALPHA) },
    y: { from: 0, to: highest, name: "gradient g", ticks: ticks(0, highest) },
    name: "The gradient of this row against α, with a dot at the chosen α.",
  });
  view.curve(points, "line exact");
  view.dot(alpha, gradient(softmax(scores, alpha), alpha), "dot exact");
  return view.root;
}

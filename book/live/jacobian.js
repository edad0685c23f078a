// One row of eight scores and its Jacobian, while α slides.

import { figure } from "./controls.js";
import { chart, digits, percent, svg, ticks } from "./drawing.js";
import { softmax } from "./rows.js";

const OTHERS = [-1.5, -1.08, -0.66, -0.24, 0.18, 0.6];
const LARGEST_ALPHA = 20;
const CELL = 30;

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
  return figure({
    state: { alpha: 3, gap: 0.2 },
    fields: {
      alpha: { label: "α", to: LARGEST_ALPHA, step: 0.1 },
      gap: { label: "Gap of the two largest scores", letter: "the gap", to: 1, step: 0.01 },
    },
    grow: { label: "Let α grow", name: "alpha" },
    draw: ({ alpha, gap }) => {
      const scores = [...OTHERS, 1, 1 + gap];
      const p = softmax(scores, alpha);
      const matrix = jacobian(p, alpha);
      return {
        pictures: [{ root: matrixPicture(p, matrix) }, curvePicture(scores, alpha)],
        readings: [
          ["gradient g = α(1 − Σp²)", digits(gradient(p, alpha))],
          ["largest entry of J", digits(Math.max(...matrix.flat()))],
          ["no entry exceeds α/4", digits(alpha / 4)],
          ["largest weight", percent(Math.max(...p))],
        ],
      };
    },
  });
}

/** Draw the weights over the matrix: blue entries are positive, red ones negative. */
function matrixPicture(p, matrix) {
  const size = CELL * p.length;
  const name = "The weights of eight keys as bars, above the matrix J as coloured squares.";
  const box = { viewBox: `-18 0 ${size + 36} ${size + 112}`, class: "live-square" };
  const bar = (weight, i) =>
    svg("rect", { class: "bar", x: CELL * i + 4, y: 90 - 84 * weight, width: CELL - 8, height: 84 * weight });
  const strongest = Math.max(0.25, ...matrix.flat().map(Math.abs));
  const cell = (entry, i, j) =>
    svg("rect", {
      class: entry >= 0 ? "positive" : "negative",
      x: CELL * j + 1,
      y: 101 + CELL * i,
      width: CELL - 2,
      height: CELL - 2,
      "fill-opacity": (Math.abs(entry) / strongest).toFixed(3),
    });
  return svg(
    "svg",
    { ...box, role: "img", "aria-label": name },
    ...p.map(bar),
    svg("path", { class: "axis", d: `M0 90H${size}` }),
    ...matrix.flatMap((line, i) => line.map((entry, j) => cell(entry, i, j))),
    svg("rect", { class: "frame", x: 0, y: 100, width: size, height: size }),
  );
}

function curvePicture(scores, alpha) {
  const at = (a) => gradient(softmax(scores, a), a);
  const places = Array.from({ length: 41 }, (_, i) => (LARGEST_ALPHA * i) / 40);
  const highest = Math.max(1, ...places.map(at)) * 1.08;
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: ticks(0, LARGEST_ALPHA) },
    y: { from: 0, to: highest, name: "gradient g", ticks: ticks(0, highest) },
    name: "The gradient of this row against α, with a dot at the chosen α.",
  });
  view.graph(at, "line exact");
  view.dot(alpha, at(alpha), "dot exact");
  return view;
}

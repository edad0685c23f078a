// The number of keys grows through the freezing transition.

import { figure, whole } from "./controls.js";
import { bars, chart, digits, percent, powersOfTen } from "./drawing.js";
import { criticalAlpha, meanCollision } from "./normal.js";
import { sampleRow, weigh } from "./rows.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const LARGEST_ALPHA = 6;
const [FEWEST, MOST] = TABLE.limits.n;

/** The boundaries of the phases in units of the critical α, and what lies above each. */
export const PHASES = [
  [0, "the formula holds for typical rows and in the mean"],
  [1 / 2, "the formula holds in the mean only"],
  [1 / Math.sqrt(3), "the formula fails; rare rows make the mean"],
  [1, "frozen"],
];

/** Return the phase of a row at α, in the limit of many keys. */
export function phase(alpha, n) {
  return PHASES.findLast(([from]) => alpha / criticalAlpha(n) >= from)[1];
}

/** Return what the live figure shows. */
export function freezingFigure() {
  return figure({
    state: { n: 16, alpha: 4 },
    fields: {
      n: { label: "Number of keys n", ...whole("n", FEWEST, MOST) },
      alpha: { label: "α", to: LARGEST_ALPHA },
    },
    grow: { label: "Let n grow", name: "n" },
    plane: ([power, alpha]) => ({
      n: Math.min(Math.round(10 ** power), MOST),
      alpha: Math.min(Number(alpha.toFixed(2)), LARGEST_ALPHA),
    }),
    draw: ({ n, alpha }) => {
      const row = weigh(sampleRow(n), alpha);
      const formula = n / Math.exp(alpha * alpha);
      return {
        pictures: [plane(alpha, n), bars(row.weights, { name: "The largest weights of a row." })],
        readings: [
          ["critical α √(2 log n)", digits(criticalAlpha(n))],
          ["α in its units", digits(alpha / criticalAlpha(n))],
          ["largest weight", percent(row.weights[0])],
          ["as many equal keys, 1/Σp²", digits(1 / row.collision)],
          ["of the mean of rows, 1/E Σp²", digits(1 / meanCollision(alpha, n))],
          ["by the formula, n/exp(α²)", formula < 1 ? "below 1" : digits(formula)],
          ["in the limit of many keys", phase(alpha, n)],
        ],
      };
    },
  });
}

/** Draw the plane of n and α with its phases, and where we are. */
function plane(alpha, n) {
  const view = chart({
    x: {
      from: Math.log10(FEWEST),
      to: Math.log10(MOST),
      name: "number of keys n",
      ticks: powersOfTen(1, 3, 5, 7),
    },
    y: { from: 0, to: 6.5, name: "α", ticks: [0, 2, 4, 6] },
    name: "The plane of n and α with the boundaries of the phases, and a dot at the chosen n and α.",
  });
  for (const [unit] of PHASES.slice(1))
    view.graph((power) => unit * criticalAlpha(10 ** power), unit === 1 ? "line ink" : "thin");
  view.label(1, 5, "frozen");
  view.label(5.4, 3.6, "neither");
  view.label(4.5, 0.9, "formula holds");
  view.handle(Math.log10(n), alpha, "dot exact");
  return view;
}

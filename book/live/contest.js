// The contest of number and weight: which scores carry a long row, as exponents of n.

import { figure } from "./controls.js";
import { chart, grouped, html } from "./drawing.js";
import { PHASES } from "./freezing.js";

const LARGEST = 2;
const FURTHEST = 1.5;
const KEYS = 4096;

/** Return the exponent of n of the weight of all keys at level y, if there were keys at every one. */
export function exponent(x, y) {
  return 1 - y * y + 2 * x * y;
}

/** Return the level that wins at x = α/α_c, and the exponents of its weight and number of keys. */
export function winner(x) {
  const level = Math.min(x, 1);
  return { level, weight: exponent(x, level), number: exponent(0, level) };
}

/** Say who wins, and what that means for Σp². */
export function contestInWords(x) {
  if (x >= 1) return "Frozen: the best level would be beyond the last key, so the edge wins.";
  const means = `For Σp², ${PHASES.findLast(([from]) => x >= from)[1]}.`;
  if (x === 0) return `Every key has the same weight, so the many ordinary keys win. ${means}`;
  return `Spread out: a level with very many keys wins, neither the crowd nor the best few. ${means}`;
}

/** Return what the live figure shows. */
export function contestFigure() {
  const short = (value) => String(Number(value.toFixed(2)));
  const power = (value) => html("span", {}, "n", html("sup", {}, short(value)));
  return figure({
    state: { x: 0.5 },
    fields: { x: { label: "x, α over the critical α", letter: "x", to: LARGEST, step: 0.01 } },
    across: "x",
    grow: { label: "Let α grow", name: "x" },
    lines: [
      ["line exact", "weight of the keys at a level"],
      ["thin ink", "their number"],
      ["thin dotted", "who wins, at every x"],
    ],
    draw: ({ x }) => {
      const { level, weight, number } = winner(x);
      const few = number === 0;
      return {
        pictures: [picture(x)],
        readings: [
          ["level that wins", short(level)],
          ["its keys weigh together", power(weight)],
          ["so many keys are there", few ? "a few" : power(number)],
          [`of ${KEYS}, about`, few ? "a few" : grouped(Math.round(KEYS ** number))],
        ],
        note: contestInWords(x),
      };
    },
  });
}

function picture(x) {
  const view = chart({
    x: { from: 0, to: FURTHEST, name: "level y: score over the critical α", ticks: [0, 0.5, 1, 1.5] },
    y: { from: 0, to: 4.2, name: "exponent of n", ticks: [0, 1, 2, 3, 4] },
    name:
      "The exponent of the weight against the level, at the chosen scale, with a dot where it is " +
      "largest; thin, that of the number of keys.",
  });
  view.graph((y) => exponent(0, y), "thin ink", [0, 1]);
  view.graph((y) => exponent(y, y), "thin dotted", [0, 1]);
  view.curve([1, LARGEST].map((end) => [1, exponent(end, 1)]), "thin dotted");
  view.upright(1, "thin");
  view.label(1.04, 0.15, "no keys here");
  view.graph((y) => exponent(x, y), "line exact", [0, 1]);
  view.graph((y) => exponent(x, y), "line exact absent", [1, FURTHEST]);
  const { level, weight } = winner(x);
  view.dot(level, weight, "dot exact");
  return view;
}

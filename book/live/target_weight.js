// A row with a needle: its weights, and the loss of that row and of all rows against α.

import { figure, remembered, whole } from "./controls.js";
import { bars, chart, digits, grouped, percent, SHOWN, ticks } from "./drawing.js";
import { needleAt } from "./normal.js";
import { normals, uniforms } from "./mean_vs_typical.js";
import { sampleRow, weigh, withNeedle } from "./rows.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const STRONGEST = 8;
const LARGEST_ALPHA = 10;
const STEP = 0.1;

/** Steps of the curve of means, which is smooth. */
const MEANS = 40;

const at = (theta, alpha) => needleAt({ kind: "theta", strength: theta }, alpha);

/** Return a row of n normal keys, one of them moved up by θ, as `withNeedle` does. */
export function rowWithNeedle(theta, n, seed) {
  const uniform = uniforms(seed);
  let arrived = 0;
  const arrivals = TABLE.arrivals.map(() => (arrived -= Math.log(1 - uniform())));
  return withNeedle(sampleRow(n - 1, arrivals), theta + normals(-seed)());
}

/** Return what the live figure shows. */
export function targetWeightFigure() {
  const rowOf = remembered(rowWithNeedle);
  const curveOf = remembered((theta, n) =>
    Array.from({ length: MEANS + 1 }, (_, i) => (LARGEST_ALPHA * i) / MEANS).map((a) => [a, at(theta, a).loss(n)]),
  );
  return figure({
    state: { theta: 4, alpha: 1, n: 512, seed: 3 },
    fields: {
      theta: { label: "Strength of the needle θ", letter: "θ", to: STRONGEST, step: STEP },
      alpha: { label: "α", to: LARGEST_ALPHA },
      n: { label: "Number of keys n", ...whole("n", ...TABLE.limits.n) },
    },
    across: "alpha",
    grow: { label: "Let α grow", name: "alpha" },
    buttons: [["Draw another row", (state) => state.seed++]],
    lines: [
      ["line exact", "mean loss"],
      ["thin ink", "loss of this row"],
      ["thin dotted", "α = θ"],
    ],
    draw: ({ theta, alpha, n, seed }) => {
      const row = rowOf(theta, n, seed);
      const { weight, loss } = at(theta, alpha);
      const p = weigh(row, alpha).weights;
      const own = p[row.placed];
      const where = row.rank > 1 ? `number ${grouped(row.rank)} by score` : "the best by score";
      return {
        pictures: [
          lossPicture(curveOf(theta, n), row, { theta, alpha, n }, loss(n)),
          bars(p, {
            name: "The largest weights of a row; the needle is marked.",
            highest: [0.1, 0.2, 0.5, 1].find((height) => p[0] <= height),
            marked: row.placed < SHOWN ? row.placed : -1,
          }),
        ],
        readings: [
          ["weight of the needle, this row", percent(own)],
          ["mean weight, all such rows", percent(weight(n))],
          ["loss −log p, this row", digits(-Math.log(own))],
          ["mean loss, all such rows", digits(loss(n))],
        ],
        note:
          `In this row the needle is ${where}. The least mean loss is ${digits(at(theta, theta).loss(n))}, ` +
          `at α = θ = ${theta}: the same α for every n.`,
      };
    },
  });
}

function lossPicture(curve, row, { theta, alpha, n }, mean) {
  const highest = 1.08 * Math.log(n);
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: [0, 2, 4, 6, 8, 10] },
    y: { from: 0, to: highest, name: "loss, nats", ticks: ticks(0, highest) },
    name: "The loss against α, of all rows in the mean and of this row, with a dot at the chosen α.",
  });
  const lossOf = (a) => -Math.log(weigh(row, a).weights[row.placed]);
  view.upright(theta, "thin dotted");
  view.graph(lossOf, "thin ink", [0, LARGEST_ALPHA], LARGEST_ALPHA / STEP);
  view.curve(curve, "line exact");
  view.upright(alpha, "thin");
  for (const [height, style] of [[lossOf(alpha), "dot hollow"], [mean, "dot exact"]])
    if (height <= highest) view.dot(alpha, height, style);
  return view;
}

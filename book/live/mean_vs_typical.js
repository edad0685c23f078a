// Rows of one law against α: together at first, then each its own way, and three averages of them.

import { evaluate, place, unpack } from "./chebyshev.js";
import { figure, remembered } from "./controls.js";
import { typicalAlpha } from "./criteria.js";
import { chart, digits, svg } from "./drawing.js";
import { annealedBestAlpha, annealedGradient, meanGradient } from "./normal.js";
import { softmax } from "./rows.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const TYPICAL = unpack(TABLE.parting);
const { n: KEYS, alpha: LARGEST_ALPHA } = TABLE.parting;
const ROWS = 200;
const STEP = 0.1;

/** Rows that are drawn before the page may answer again. */
const AT_ONCE = 10;

const HIGHEST = 4.4;

/** The three rows that are shown whole, by the part of all rows that have a smaller gap. */
const CHOSEN = [
  [0.05, "near-tie"],
  [0.5, "usual"],
  [0.95, "clear"],
];
const BARS = 6;

/** From this relative distance on two curves have parted. */
const APART = 0.1;

/** Return a generator of uniform numbers with a seed: the same rows for every reader. */
export function uniforms(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return a generator of normal numbers with a seed. */
export function normals(seed) {
  const uniform = uniforms(seed);
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** Return rows of independent normal scores, each with its largest first. */
export function normalRows(count, keys, seed) {
  const normal = normals(seed);
  return Array.from({ length: count }, () => {
    const row = new Float64Array(keys);
    for (let k = 0; k < keys; k++) row[k] = normal();
    return row.sort().reverse();
  });
}

/** Return the gradients of a row at 0, step, 2·step, …, so many of them. */
export function rowGradients(scores, step, count) {
  const factors = scores.map((s) => Math.exp(step * (s - scores[0])));
  const powers = new Float64Array(scores.length).fill(1);
  return Array.from({ length: count }, (_, i) => {
    let [sum, squares] = [0, 0];
    for (let k = 0; k < powers.length; k++) {
      sum += powers[k];
      squares += powers[k] * powers[k];
      powers[k] *= factors[k];
    }
    return i * step * (1 - squares / (sum * sum));
  });
}

/** The three averages as functions of α, and where the two that have a maximum have it. */
export const AVERAGES = {
  approximation: (alpha) => annealedGradient(alpha, KEYS),
  mean: (alpha) => meanGradient(alpha, KEYS),
  typical: (alpha) => alpha * Math.exp(evaluate(TYPICAL, place(alpha, [0, LARGEST_ALPHA]))),
};
const BEST = { approximation: annealedBestAlpha(KEYS), typical: typicalAlpha(KEYS) };

/** Say which of the three still agree, and which are past their maximum. */
export function partingInWords(alpha, { approximation, mean, typical }) {
  const far = (value) => Math.abs(value / mean - 1) > APART;
  if (alpha === 0) return "At α = 0 no row looks at its scores, and no gradient is left.";
  if (!far(approximation) && !far(typical))
    return `Together: nearly every row has g close to α, so any average of them does.`;
  const formula =
    alpha > BEST.approximation
      ? `The approximation is past its maximum at ${digits(BEST.approximation)}`
      : "The approximation begins to leave the others";
  const row =
    alpha > BEST.typical
      ? `the typical row is past its own, at ${digits(BEST.typical)}`
      : "the typical row still rises";
  return `${formula}; ${row}; the mean rises, and will for ever.`;
}

/** Return what the live figure shows. */
export function meanVsTypicalFigure() {
  const drawn = remembered(drawingOf);
  return figure({
    state: { alpha: 1, seed: 1 },
    fields: { alpha: { label: "α", to: LARGEST_ALPHA } },
    across: "alpha",
    grow: { label: "Let α grow", name: "alpha" },
    buttons: [["Draw other rows", (state) => state.seed++]],
    lines: [
      ["line approximation", "approximation"],
      ["line exact", "mean of all rows"],
      ["line sample", "typical row"],
      ["faint", `${ROWS} rows`],
    ],
    draw: ({ alpha, seed }) => {
      const { view, chosen } = drawn(seed);
      const found = Object.fromEntries(Object.entries(AVERAGES).map(([name, f]) => [name, f(alpha)]));
      mark(view, alpha, found);
      return {
        pictures: [view, rowsPicture(chosen, alpha)],
        readings: [
          ["approximation", found.approximation < 0 ? "below 0" : digits(found.approximation)],
          ["mean of all rows", digits(found.mean)],
          ["typical row", digits(found.typical)],
        ],
        note: partingInWords(alpha, found),
      };
    },
  });
}

/** Draw what does not depend on α, the rows some at a time; also return the three that are shown whole. */
function drawingOf(seed) {
  const rows = normalRows(ROWS, KEYS, seed);
  const byGap = [...rows].sort((a, b) => a[0] - a[1] - (b[0] - b[1]));
  const chosen = CHOSEN.map(([part]) => byGap[Math.floor(part * ROWS)]);
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: [0, 1, 2, 4, 6, 8] },
    y: { from: 0, to: HIGHEST, name: "gradient α(1 − Σp²)", ticks: [0, 1, 2, 3, 4] },
    name:
      `The gradients of ${ROWS} rows against α, faint; over them the approximation, the exact ` +
      "mean and the typical row, with a dot on each at the chosen α.",
  });
  const count = Math.round(LARGEST_ALPHA / STEP) + 1;
  const crowd = view.add("g", {});
  const curve = (row, style) => view.curve(rowGradients(row, STEP, count).map((g, i) => [i * STEP, g]), style);
  const few = (from) => {
    for (const row of rows.slice(from, from + AT_ONCE)) crowd.append(curve(row, "faint"));
    if (from + AT_ONCE < ROWS) setTimeout(() => few(from + AT_ONCE));
  };
  setTimeout(() => few(0));
  for (const row of chosen) curve(row, "thin ink");
  view.graph(AVERAGES.approximation, "line approximation");
  view.graph(AVERAGES.typical, "line sample");
  view.graph(AVERAGES.mean, "line exact", [0, LARGEST_ALPHA], 40);
  view.marks = view.add("g", {});
  return { view, chosen };
}

/** Draw the chosen α and a dot on each of the three curves. */
function mark(view, alpha, found) {
  const { X, Y, box } = view;
  const dot = (height, style) =>
    height >= 0
      ? [svg("circle", { class: `dot ${style}`, cx: X(alpha), cy: Y(height), r: 5 })]
      : [];
  view.marks.replaceChildren(
    svg("path", { class: "thin", d: `M${X(alpha).toFixed(1)} ${box.top}V${box.bottom}` }),
    ...dot(found.approximation, "wrong"),
    ...dot(found.typical, "usual"),
    ...dot(found.mean, "exact"),
  );
}

/** Draw the largest weights of the three chosen rows. */
function rowsPicture(chosen, alpha) {
  const groups = chosen.length * (BARS + 1);
  const view = chart({
    x: {
      from: 0,
      to: groups,
      name: `the ${BARS} largest weights of three rows`,
      ticks: CHOSEN.map(([, name], i) => [i * (BARS + 1) + (BARS + 1) / 2, name]),
    },
    y: { from: 0, to: 1, name: "weight", ticks: [0, 0.5, 1] },
    name: "The largest weights of three rows at the chosen α: a near-tie, a usual row, a clear winner.",
  });
  for (const [i, scores] of chosen.entries())
    for (const [k, weight] of softmax(scores, alpha).slice(0, BARS).entries()) {
      const from = i * (BARS + 1) + k + 0.5;
      view.bar(from, from + 1, weight);
    }
  return view;
}

// The plane of n and α: its phases, the rules of the sources in it, and one row at a place.

import { dragged, keysField, numberField, readings } from "./controls.js";
import { chart, digits, html, legend, superscript } from "./drawing.js";
import { PHASES } from "./freezing.js";
import { annealedBestAlpha, criticalAlpha } from "./laws.js";
import { meanCollision } from "./needle.js";
import { sampleRow, weigh } from "./rows.js";

const NORMAL = { kind: "normal" };
const [FEWEST, MOST] = [2, 1e12];
const HIGHEST = 8;
const NAMES = ["Both", "Mean", "Neither", "Frozen"];

/** Scales of the sources: name, style of the line, α. */
export const SOURCES = [
  ["1, 2 and 2.5", "line exact"],
  ["α*(n)", "line ink", (n) => annealedBestAlpha(NORMAL, n)],
  ["0.84 √log n", "line approximation", (n) => 0.84 * Math.sqrt(Math.log(n))],
  ["log n/log 512", "line sample", (n) => Math.log(n) / Math.log(512)],
  ["3.5 log n/√128", "line logarithm", (n) => (3.5 * Math.log(n)) / Math.sqrt(128)],
];
const CONSTANTS = [1, 2, 2.5];

/** Return the number of the region of the plane, from below. */
export function region(alpha, n) {
  return PHASES.findLastIndex(([from]) => alpha / criticalAlpha(NORMAL, n) >= from);
}

/** Return what the live figure shows. */
export function phasesFigure() {
  const state = { n: 4096, alpha: 2.4 };
  const stage = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  let view = null;
  const draw = () => {
    const { alpha, n } = state;
    view = picture(state);
    stage.replaceChildren(view.root);
    const formula = n / Math.exp(alpha * alpha);
    values.replaceChildren(
      ...readings([
        ["α over the critical α", digits(alpha / criticalAlpha(NORMAL, n))],
        ["effective keys of a row, 1/Σp²", digits(1 / weigh(sampleRow(NORMAL, n), alpha).collision)],
        ["of the mean, 1/E Σp²", digits(1 / meanCollision(alpha, n))],
        ["by the formula, n/exp(α²)", formula < 1 ? "below 1" : digits(formula)],
      ]),
    );
    note.textContent = `${NAMES[region(alpha, n)]}: ${PHASES[region(alpha, n)][1]}, when keys are many.`;
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const keys = keysField({ to: MOST, most: "10¹²", use: (value) => change({ n: value }) });
  const scale = numberField({
    label: "α",
    from: 0,
    to: HIGHEST,
    step: 0.05,
    check: (value) => (value < 0 || value > HIGHEST ? `Here α goes from 0 to ${HIGHEST}.` : ""),
    use: (value) => change({ alpha: value }),
  });
  const show = () => {
    keys.show(state.n);
    scale.show(state.alpha);
  };
  const move = ([power, alpha]) => {
    Object.assign(state, { n: rounded(10 ** power), alpha: Number(alpha.toFixed(2)) });
    show();
    draw();
  };
  dragged(stage, () => view, move, { plane: true });
  show();
  draw();
  return [
    html("p", { class: "live-hint" }, "Drag the dot, or use the fields."),
    html("div", { class: "live-fields" }, keys.element, scale.element),
    legend(SOURCES.map(([name, style]) => [style, name])),
    stage,
    values,
    note,
  ];
}

/** Return a number of keys with three digits. */
function rounded(n) {
  return Math.max(FEWEST, Math.round(Number(n.toPrecision(3))));
}

function picture({ n, alpha }) {
  const [from, to] = [FEWEST, MOST].map(Math.log10);
  const view = chart({
    x: {
      from,
      to,
      name: "number of keys n",
      ticks: [2, 5, 8, 11].map((power) => [power, `10${superscript(power)}`]),
    },
    y: { from: 0, to: HIGHEST, name: "α", ticks: [0, 2, 4, 6, 8] },
    height: 320,
    name:
      "The plane of n and α with its four regions, the scales of the sources as lines, and a dot " +
      "at the chosen n and α.",
  });
  const places = Array.from({ length: 121 }, (_, i) => from + ((to - from) * i) / 120);
  const line = (f) => places.map((power) => [power, f(10 ** power)]);
  const bounds = PHASES.map(([unit]) => (keys) => unit * criticalAlpha(NORMAL, keys));
  for (const [i, style] of ["region both", "region mean", "region neither"].entries()) {
    const edge = (f) => places.map((p) => `${view.X(p).toFixed(1)} ${view.Y(f(10 ** p)).toFixed(1)}`);
    const path = [...edge(bounds[i]), ...edge(bounds[i + 1]).reverse()];
    view.add("path", { class: style, d: `M${path.join("L")}Z` });
  }
  for (const level of CONSTANTS) view.curve(line(() => level), "line exact");
  for (const [, style, rule] of SOURCES.slice(1)) view.curve(line(rule), style);
  for (const [power, height, text] of [
    [0.7, 6.4, "frozen"],
    [8.6, 4.85, "neither"],
    [10.7, 3.7, "mean"],
    [4.4, 1.35, "both"],
  ])
    view.label(power, height, text, text === NAMES[region(alpha, n)].toLowerCase() ? "here" : "");
  view.handle(Math.log10(n), alpha, "dot hollow");
  return view;
}

// The contest of number and weight: which scores carry a long row, as exponents of n.

import { draggedField, readings } from "./controls.js";
import { chart, grouped, html, legend } from "./drawing.js";
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
  const stage = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  let view = null;
  const draw = (x) => {
    const { level, weight, number } = winner(x);
    view = picture(x);
    stage.replaceChildren(view.root);
    values.replaceChildren(
      ...readings([
        ["level that wins", short(level)],
        ["its keys weigh together", power(weight)],
        ["so many keys are there", number === 0 ? "a few" : power(number)],
        [`of ${KEYS}, about`, number === 0 ? "a few" : grouped(Math.round(KEYS ** number))],
      ]),
    );
    note.textContent = contestInWords(x);
  };
  const scale = draggedField({
    letter: "x",
    label: "x, α over the critical α",
    to: LARGEST,
    step: 0.01,
    use: draw,
    stage,
    view: () => view,
    results: values,
  });
  scale.move(0.5);
  return [
    html("div", { class: "live-fields" }, scale.element, scale.play),
    legend([
      ["line exact", "weight of the keys at a level"],
      ["thin ink", "their number"],
      ["thin dotted", "who wins, at every x"],
    ]),
    stage,
    values,
    note,
  ];
}

function short(value) {
  return String(Number(value.toFixed(2)));
}

function power(value) {
  return html("span", {}, "n", html("sup", {}, short(value)));
}

function picture(x) {
  const view = chart({
    x: { from: 0, to: FURTHEST, name: "level y: score over the critical α", ticks: [0, 0.5, 1, 1.5] },
    y: { from: 0, to: 4.2, name: "exponent of n", ticks: [0, 1, 2, 3, 4] },
    name:
      "The exponent of the weight against the level, at the chosen scale, with a dot where it is " +
      "largest; thin, that of the number of keys.",
  });
  const line = (f, from, to, style) =>
    view.curve(
      Array.from({ length: 51 }, (_, i) => {
        const y = from + ((to - from) * i) / 50;
        return [y, f(y)];
      }),
      style,
    );
  line((y) => exponent(0, y), 0, 1, "thin ink");
  line((y) => exponent(y, y), 0, 1, "thin dotted");
  view.curve(
    [
      [1, exponent(1, 1)],
      [1, exponent(LARGEST, 1)],
    ],
    "thin dotted",
  );
  view.upright(1, "thin");
  view.label(1.04, 0.15, "no keys here");
  line((y) => exponent(x, y), 0, 1, "line exact");
  line((y) => exponent(x, y), 1, FURTHEST, "line exact absent");
  const { level, weight } = winner(x);
  view.dot(level, weight, "dot exact");
  return view;
}

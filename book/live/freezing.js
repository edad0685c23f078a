// The number of keys grows through the freezing transition.

import { dragged, keysField, numberField, player, readings } from "./controls.js";
import { bars, chart, digits, html, percent } from "./drawing.js";
import { criticalAlpha } from "./laws.js";
import { sampleRow, weigh } from "./rows.js";
import { TABLE } from "./table.js";

const NORMAL = { kind: "normal" };
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
  const x = alpha / criticalAlpha(NORMAL, n);
  return PHASES.findLast(([from]) => x >= from)[1];
}

/** Return what the live figure shows. */
export function freezingFigure() {
  const state = { alpha: 4, n: 16 };
  const pictures = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  let view = null;
  const draw = () => {
    const { alpha, n } = state;
    view = plane(alpha, n);
    const row = weigh(sampleRow(NORMAL, n), alpha);
    const critical = criticalAlpha(NORMAL, n);
    const formula = n / Math.exp(alpha * alpha);
    pictures.replaceChildren(
      view.root,
      bars(row.weights, { name: "The largest weights of a row." }).root,
    );
    values.replaceChildren(
      ...readings([
        ["critical α √(2 log n)", digits(critical)],
        ["α in its units", digits(alpha / critical)],
        ["largest weight", percent(row.weights[0])],
        ["as many equal keys, 1/Σp²", digits(1 / row.collision)],
        ["by the formula, n/exp(α²)", formula < 1 ? "below 1" : digits(formula)],
        ["in the limit of many keys", phase(alpha, n)],
      ]),
    );
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const keys = keysField({ to: MOST, use: (value) => change({ n: value }) });
  const scale = numberField({
    label: "α",
    from: 0,
    to: LARGEST_ALPHA,
    step: 0.05,
    check: (value) => (value < 0 || value > LARGEST_ALPHA ? "Here α goes from 0 to 6." : ""),
    use: (value) => change({ alpha: value }),
  });
  const play = player({
    label: "Let n grow",
    results: values,
    move: (part) => {
      const value = Math.round(FEWEST * (MOST / FEWEST) ** part);
      keys.show(value);
      change({ n: value });
    },
  });
  const show = () => {
    keys.show(state.n);
    scale.show(state.alpha);
    draw();
  };
  const move = ([power, alpha]) => {
    const n = Math.min(Math.round(10 ** power), MOST);
    Object.assign(state, { n, alpha: Math.min(Number(alpha.toFixed(2)), LARGEST_ALPHA) });
    show();
  };
  dragged(pictures, () => view, move, { plane: true });
  show();
  return [
    html("div", { class: "live-fields" }, keys.element, scale.element, play),
    pictures,
    values,
  ];
}

/** Draw the plane of n and α with its phases, and where we are. */
function plane(alpha, n) {
  const end = Math.log10(MOST);
  const view = chart({
    x: {
      from: Math.log10(2),
      to: end,
      name: "number of keys n",
      ticks: [
        [1, "10"],
        [3, "10³"],
        [5, "10⁵"],
        [7, "10⁷"],
      ],
    },
    y: { from: 0, to: 6.5, name: "α", ticks: [0, 2, 4, 6] },
    name: "The plane of n and α with the boundaries of the phases, and a dot at the chosen n and α.",
  });
  const places = Array.from({ length: 60 }, (_, i) => Math.log10(2) + ((end - 0.30103) * i) / 59);
  for (const [unit, style] of [
    [1 / 2, "thin"],
    [1 / Math.sqrt(3), "thin"],
    [1, "line ink"],
  ])
    view.curve(
      places.map((x) => [x, unit * criticalAlpha(NORMAL, 10 ** x)]),
      style,
    );
  view.label(1, 5, "frozen");
  view.label(5.4, 3.6, "neither");
  view.label(4.5, 0.9, "formula holds");
  view.handle(Math.log10(n), alpha, "dot exact");
  return view;
}

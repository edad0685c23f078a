// The scale of attention's output against temperature: the exact one and three rules.

import { evaluate, place, unpack } from "./chebyshev.js";
import { keysField, numberField, player } from "./controls.js";
import { chart, digits, grouped, html, legend } from "./drawing.js";
import { TABLE } from "./table.js";

const OUTPUT = unpack(TABLE.output);
const [FEWEST, MOST] = TABLE.output.n;
const [COLDEST, HOTTEST] = TABLE.output.t;

/** Return the exact standard deviation of the output for n normal scores, from the table. */
export function outputDeviation(t, n) {
  const ends = (range, f) => range.map(f);
  const root = (count) => Math.sqrt(Math.log(count));
  return Math.exp(
    evaluate(
      OUTPUT,
      place(root(n), ends(TABLE.output.n, root)),
      place(Math.log(t), ends(TABLE.output.t, Math.log)),
    ),
  );
}

/** The rules: name, style of the line, formula. */
export const RULES = [
  ["flat", "thin dotted", (t, n) => n ** -0.5],
  ["log-normal", "line approximation", (t, n) => Math.exp(t ** -2 / 2) / n ** 0.5],
  ["spike", "thin dashed", () => 1],
];

/** Return what the live figure shows. */
export function temperatureFigure() {
  const state = { t: 1, n: 4096 };
  const pictures = html("div", { class: "live-pictures" });
  const body = html("tbody");
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  const draw = () => {
    const { t, n } = state;
    const exact = outputDeviation(t, n);
    pictures.replaceChildren(picture(t, n));
    body.replaceChildren(
      ...RULES.map(([name, , rule]) => {
        const off = rule(t, n) / exact - 1;
        return html(
          "tr",
          {},
          html("th", { scope: "row" }, name),
          html("td", {}, digits(rule(t, n))),
          html("td", {}, wrongness(off)),
        );
      }),
    );
    const bound = Math.sqrt(1.5 / Math.log(n));
    note.textContent =
      `The exact standard deviation at t = ${digits(t)} and n = ${grouped(n)} is ${digits(exact)}. ` +
      `The log-normal rule needs t well above √(3/(2 log n)) = ${digits(bound)}.`;
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const temperature = numberField({
    label: "Temperature t = 1/α",
    from: COLDEST,
    to: HOTTEST,
    step: 0.001,
    scale: "logarithmic",
    check: (value) => (value < COLDEST || value > HOTTEST ? "Here t goes from 1/16 to 16." : ""),
    use: (value) => change({ t: value }),
  });
  const keys = keysField({ from: FEWEST, to: MOST, use: (value) => change({ n: value }) });
  const play = player({
    label: "Let it cool",
    results: note,
    move: (part) => {
      const value = Number((HOTTEST * (COLDEST / HOTTEST) ** part).toPrecision(3));
      temperature.show(value);
      change({ t: value });
    },
  });
  temperature.show(state.t);
  keys.show(state.n);
  draw();
  return [
    html("div", { class: "live-fields" }, temperature.element, keys.element, play),
    legend([
      ["line exact", "exact"],
      ["thin dotted", "flat, n^(−½)"],
      ["line approximation", "log-normal, (exp(1/t²)/n)^½"],
      ["thin dashed", "spike, 1"],
    ]),
    pictures,
    note,
    html(
      "table",
      { class: "live-table" },
      html(
        "thead",
        {},
        html(
          "tr",
          {},
          ...["rule", "value", "off by"].map((text) => html("th", { scope: "col" }, text)),
        ),
      ),
      body,
    ),
  ];
}

/** Return in words how far off a rule is. */
function wrongness(off) {
  if (off > 9) return `${digits(1 + off, 2)} ×`;
  const sign = off < 0 ? "−" : "+";
  return Math.abs(off) < 0.0005 ? "0\u00a0%" : `${sign}${digits(100 * Math.abs(off), 2)}\u00a0%`;
}

function picture(t, n) {
  const log = Math.log2;
  const lowest = log(n ** -0.5) - 0.6;
  const heights = [1, 1 / 4, 1 / 16, 1 / 64, 1 / 256].filter((value) => log(value) > lowest);
  const view = chart({
    x: {
      from: log(COLDEST),
      to: log(HOTTEST),
      name: "temperature t",
      ticks: [
        [-4, "1/16"],
        [-2, "1/4"],
        [-1, "1/2"],
        [0, "1"],
        [2, "4"],
        [4, "16"],
      ],
    },
    y: {
      from: lowest,
      to: 0.5,
      name: "std of the output",
      ticks: heights.map((value) => [log(value), value === 1 ? "1" : `1/${1 / value}`]),
    },
    name:
      "The output’s standard deviation against temperature: the exact curve, three rules, " +
      "and dots at the chosen temperature.",
  });
  const places = Array.from({ length: 121 }, (_, i) => -4 + (8 * i) / 120);
  const draw = (rule, style) => {
    view.curve(
      places.map((x) => [x, log(rule(2 ** x, n))]),
      style,
    );
  };
  for (const [, style, rule] of RULES) draw(rule, style);
  draw(outputDeviation, "line exact");
  view.upright(log(t), "thin");
  const inside = (value) => log(value) <= 0.5;
  for (const [, , rule] of RULES)
    if (inside(rule(t, n))) view.dot(log(t), log(rule(t, n)), "dot hollow");
  view.dot(log(t), log(outputDeviation(t, n)), "dot exact");
  return view.root;
}

// A row with a needle: its weights, and the loss of that row and of all rows against α.

import { draggedField, keysField, numberField, readings } from "./controls.js";
import { bars, chart, digits, grouped, html, legend, percent, SHOWN, ticks } from "./drawing.js";
import { meanLoss, needleWeight } from "./needle.js";
import { normalRows, uniforms } from "./parting.js";

const NORMAL = { kind: "normal" };
const STRONGEST = 8;
const LARGEST_ALPHA = 10;
const MOST = 4096;
const STEP = 0.1;

/** Return a row of n normal keys, the largest first, one of them moved up by θ, and its place. */
export function rowWithNeedle(theta, n, seed) {
  const others = [...normalRows(1, n, seed)[0]];
  const [chosen] = others.splice(Math.floor(n * uniforms(-seed)()), 1);
  const score = chosen + theta;
  const before = others.findIndex((other) => other <= score);
  const placed = before < 0 ? others.length : before;
  others.splice(placed, 0, score);
  return { scores: others, placed };
}

/** Return the weights of a row at α. */
function weights(scores, alpha) {
  const powers = scores.map((s) => Math.exp(alpha * (s - scores[0])));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

/** Return what the live figure shows. */
export function findingFigure() {
  const state = { theta: 4, alpha: 1, n: 512, seed: 3 };
  const stage = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  const places = Array.from({ length: LARGEST_ALPHA / STEP + 1 }, (_, i) => i * STEP);
  let [view, row, curve] = [null, null, null];
  const sample = () => {
    const { theta, n, seed } = state;
    row = rowWithNeedle(theta, n, seed);
    curve = places.map((a) => [a, meanLoss(NORMAL, { kind: "theta", strength: theta }, a)(n)]);
    draw();
  };
  const draw = () => {
    const { theta, alpha, n } = state;
    const needle = { kind: "theta", strength: theta };
    const p = weights(row.scores, alpha);
    const own = p[row.placed];
    const mean = meanLoss(NORMAL, needle, alpha)(n);
    view = lossPicture(curve, row, state, mean);
    const shown = row.placed < SHOWN ? row.placed : -1;
    const highest = [0.1, 0.2, 0.5, 1].find((height) => p[0] <= height);
    const name = "The largest weights of a row; the needle is marked.";
    stage.replaceChildren(view.root, bars(p, { name, highest, marked: shown }).root);
    values.replaceChildren(
      ...readings([
        ["weight of the needle, this row", percent(own)],
        ["mean weight, all such rows", percent(needleWeight(NORMAL, needle, alpha)(n))],
        ["loss −log p, this row", digits(-Math.log(own))],
        ["mean loss, all such rows", digits(mean)],
      ]),
    );
    const where = row.placed ? `number ${grouped(row.placed + 1)} by score` : "the best by score";
    const least = curve[Math.round(theta / STEP)][1];
    note.textContent =
      `In this row the needle is ${where}. The least mean loss is ${digits(least)}, at ` +
      `α = θ = ${theta}: the same α for every n.`;
  };
  const change = (part) => {
    Object.assign(state, part);
    if ("alpha" in part) draw();
    else sample();
  };
  const theta = numberField({
    label: "Strength of the needle θ",
    from: 0,
    to: STRONGEST,
    step: STEP,
    check: (value) =>
      value < 0 || value > STRONGEST ? `Here it goes from 0 to ${STRONGEST}.` : "",
    use: (value) => change({ theta: Number(value.toFixed(1)) }),
  });
  const alpha = draggedField({
    letter: "α",
    to: LARGEST_ALPHA,
    use: (value) => change({ alpha: value }),
    stage,
    view: () => view,
    results: values,
  });
  const keys = keysField({ to: MOST, use: (value) => change({ n: value }) });
  const another = html(
    "button",
    { type: "button", class: "live-button", onclick: () => change({ seed: state.seed + 1 }) },
    "Draw another row",
  );
  theta.show(state.theta);
  alpha.show(state.alpha);
  keys.show(state.n);
  sample();
  return [
    html("div", { class: "live-fields" }, theta.element, alpha.element, keys.element),
    html("div", { class: "live-buttons" }, alpha.play, another),
    legend([
      ["line exact", "mean loss"],
      ["thin ink", "loss of this row"],
      ["thin dotted", "α = θ"],
    ]),
    stage,
    values,
    note,
  ];
}

function lossPicture(curve, { scores, placed }, { theta, alpha, n }, mean) {
  const highest = 1.08 * Math.log(n);
  const view = chart({
    x: { from: 0, to: LARGEST_ALPHA, name: "α", ticks: [0, 2, 4, 6, 8, 10] },
    y: { from: 0, to: highest, name: "loss, nats", ticks: ticks(0, highest) },
    name: "The loss against α, of all rows in the mean and of this row, with a dot at the chosen α.",
  });
  view.upright(theta, "thin dotted");
  view.curve(
    curve.map(([a]) => [a, -Math.log(weights(scores, a)[placed])]),
    "thin ink",
  );
  view.curve(curve, "line exact");
  view.upright(alpha, "thin");
  const own = -Math.log(weights(scores, alpha)[placed]);
  if (own <= highest) view.dot(alpha, own, "dot hollow");
  if (mean <= highest) view.dot(alpha, mean, "dot exact");
  return view;
}

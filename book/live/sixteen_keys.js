// The front page: sixteen keys with and without the division by √d.

import { button, choice, numberField, speaker, whole } from "./controls.js";
import { chart, digits, html } from "./drawing.js";
import { softmax } from "./rows.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const SMALLEST_D = 4;
const LARGEST_D = 1024;
const KEYS = TABLE.sixteen[0].length;

/** Return the weights of a row of sixteen keys at d, and how many keys share the weight. */
export function sixteenKeys({ d, divided, row }) {
  const weights = softmax(TABLE.sixteen[row], divided ? 1 : Math.sqrt(d));
  const collision = weights.reduce((sum, p) => sum + p * p, 0);
  return { weights, keys: 1 / collision };
}

/** Return the bars of sixteen keys, which move where a style sheet lets them. */
export function sixteenKeysFigure() {
  const state = { d: 64, divided: false, row: 0 };
  const picture = sixteenBars();
  const count = html("strong");
  const spread = html("strong");
  const spoken = speaker();
  const draw = () => {
    const { weights, keys } = sixteenKeys(state);
    picture.show(weights);
    count.textContent = digits(keys, 2);
    spread.textContent = state.divided ? "1" : digits(Math.sqrt(state.d));
    spoken.say(
      `With d = ${state.d} and scores ${state.divided ? "" : "not "}divided by √d, ` +
        `${digits(keys, 2)} of ${KEYS} keys share the weight.`,
    );
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const share = ` of ${KEYS} keys share the weight; scores spread by `;
  const shown = html("div", {}, picture.root, html("p", { class: "live-count" }, count, share, spread));
  const divide = choice({
    legend: "Scores",
    name: "live-landing",
    options: [
      ["plain", "q·k"],
      ["divided", "q·k ÷ √d"],
    ],
    use: (value) => change({ divided: value === "divided" }),
  });
  divide.element.classList.add("live-switch");
  const size = numberField({
    label: "Head size d",
    ...whole("d", SMALLEST_D, LARGEST_D),
    use: (d) => {
      shown.hidden = false;
      change({ d });
    },
    refuse: () => {
      shown.hidden = true;
    },
  });
  const another = button("Other keys", () => change({ row: (state.row + 1) % TABLE.sixteen.length }));
  divide.show("plain");
  size.show(state.d);
  draw();
  return [
    html("div", { class: "live-row" }, divide.element, another),
    shown,
    size.element,
    spoken.element,
  ];
}

/** Return bars for weights, which `show` sets, and in which the largest has another colour. */
function sixteenBars() {
  const view = chart({
    x: { from: 0, to: KEYS, name: "", ticks: [] },
    y: { from: 0, to: 1, name: "weight", ticks: [0, 0.5, 1] },
    height: 226,
    name: "The weights of sixteen keys as bars.",
  });
  const middle = (view.box.left + view.box.right) / 2;
  view.add("text", { x: middle, y: view.box.bottom + 20, "text-anchor": "middle" }, `${KEYS} keys`);
  view.root.setAttribute("viewBox", `0 0 420 ${view.box.bottom + 26}`); // an axis without ticks
  const bars = Array.from({ length: KEYS }, (_, k) => view.bar(k, k + 1, 0));
  return {
    root: view.root,
    show(weights) {
      const largest = Math.max(...weights);
      for (const [k, weight] of weights.entries()) {
        bars[k].setAttribute("class", weight === largest ? "bar moving marked" : "bar moving");
        bars[k].setAttribute("y", view.Y(weight).toFixed(1));
        bars[k].setAttribute("height", (view.box.bottom - view.Y(weight)).toFixed(1));
      }
    },
  };
}

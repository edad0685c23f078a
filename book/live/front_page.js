// The face of the book: a trained head reads a sentence again, and its model's loss, as one factor
// multiplies all logits.

import { numberField, speaker } from "./controls.js";
import { chart, digits, html, legend, percent } from "./drawing.js";
import { softmax } from "./rows.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const [LEAST, MOST] = [1 / 2, 2];
const HIGHEST = 2.4;
const LINES = ["line exact", "line sample", "line approximation"];
const BALLS = ["dot exact", "dot usual", "dot wrong"];

/** Return the rise of a loss at a factor, between the points of its curve. */
export function riseAt(curve, times) {
  const { from, to } = TABLE.face.octaves;
  const place = ((Math.log2(times) - from) / (to - from)) * (curve.length - 1);
  const left = Math.min(Math.max(Math.floor(place), 0), curve.length - 2);
  return curve[left] + (place - left) * (curve[left + 1] - curve[left]);
}

/** Return the words of the first reading with their bars, and a function that sets the weights. */
function sentence() {
  const { words, meant, first } = TABLE.face;
  const bars = words.slice(0, first).map(() => html("span", { class: "live-weight" }));
  const tokens = bars.map((bar, i) =>
    html(
      "span",
      { class: i === meant ? "live-token meant" : "live-token" },
      html("span", { class: "live-column" }, bar),
      html("span", { class: "live-word" }, words[i]),
    ),
  );
  const again = words.slice(first, -1).join(" ").replaceAll(" ,", ",");
  return {
    element: html(
      "div",
      { class: "live-tokens", "aria-hidden": "true" },
      html("div", { class: "live-words" }, ...tokens),
      html("p", { class: "live-again" }, `${again} `, html("strong", {}, words.at(-1)), " …"),
    ),
    show(weights) {
      for (const [i, bar] of bars.entries()) bar.style.height = `${(100 * weights[i]).toFixed(1)}%`;
    },
  };
}

/** Return the three curves of the loss, with a ball on each at a factor. */
function picture(times) {
  const { octaves, losses } = TABLE.face;
  const view = chart({
    x: {
      ...octaves,
      name: "multiplier of all logits",
      ticks: [
        [-1, "½"],
        [0, "1"],
        [1, "2"],
      ],
    },
    y: { from: -0.1, to: HIGHEST, name: "rise of the loss, nats", ticks: [0, 1, 2] },
    height: 214,
    name: "The loss of the model against the multiplier: least near 1 at every length.",
  });
  for (const [i, curve] of Object.values(losses).entries()) {
    const step = (octaves.to - octaves.from) / (curve.length - 1);
    view.curve(
      curve.map((rise, k) => [octaves.from + step * k, rise]),
      LINES[i],
    );
    view.dot(Math.log2(times), riseAt(curve, times), BALLS[i]);
  }
  return view.root;
}

/** Return what the live figure shows. */
export function frontPageFigure() {
  const { words, logits, meant, losses } = TABLE.face;
  const text = sentence();
  const said = html("p", { class: "live-count" });
  const pictures = html("div", { class: "live-pictures" });
  const spoken = speaker();
  const names = Object.keys(losses).map((n, i) => [LINES[i], `${n} tokens`]);
  const shown = html("div", {}, text.element, said, legend(names), pictures);
  const draw = (times) => {
    const weights = softmax(logits, times);
    text.show(weights);
    shown.hidden = false;
    const rise = Math.max(...Object.values(losses).map((curve) => riseAt(curve, times)));
    said.replaceChildren(
      `Logits × ${digits(times)}: `,
      html("strong", {}, percent(weights[meant])),
      ` of the head’s weight on “${words[meant]}”; the model’s loss `,
      html("strong", {}, rise < 0.005 ? "is near its least" : `rises by up to ${digits(rise, 2)} nats`),
    );
    pictures.replaceChildren(picture(times));
    spoken.say(said.textContent);
  };
  const field = numberField({
    label: "Multiply its logits",
    from: LEAST,
    to: MOST,
    step: 0.01,
    scale: "logarithmic",
    check: (value) => (value < LEAST || value > MOST ? "Here it goes from ½ to 2." : ""),
    use: draw,
    refuse: () => {
      shown.hidden = true;
    },
  });
  field.show(1);
  draw(1);
  return [field.element, shown, spoken.element];
}

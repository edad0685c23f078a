// The front page: sixteen keys with and without the division by √d, and a number for a model.

import { choice, numberField, once, whole } from "./controls.js";
import { chart, digits, grouped, html, legend, percent } from "./drawing.js";
import { problemOfD, problemOfN } from "./inputs.js";
import { softmax } from "./jacobian.js";
import { needleWeight, reachOf } from "./needle.js";
import { TABLE } from "./table.js";

const SMALLEST_D = 4;
const LARGEST_D = 1024;
const KEYS = TABLE.sixteen[0].length;

/** Milliseconds without a change after which a result is spoken. */
const PAUSE = 400;

/** Return the weights of a row of sixteen keys at d, and how many keys share the weight. */
export function sixteenKeys({ d, divided, row }) {
  const weights = softmax(TABLE.sixteen[row], divided ? 1 : Math.sqrt(d));
  const collision = weights.reduce((sum, p) => sum + p * p, 0);
  return { weights, keys: 1 / collision };
}

/** Return the bars of sixteen keys, which move where a style sheet lets them. */
export function landingFigure() {
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
    use: (d) => change({ d }),
  });
  const another = html(
    "button",
    {
      type: "button",
      class: "live-button",
      onclick: () => change({ row: (state.row + 1) % TABLE.sixteen.length }),
    },
    "Other keys",
  );
  divide.show("plain");
  size.show(state.d);
  draw();
  return [
    html("div", { class: "live-row" }, divide.element, another),
    picture.root,
    html(
      "p",
      { class: "live-count" },
      count,
      ` of ${KEYS} keys share the weight; scores spread by `,
      spread,
    ),
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
  const gap = (view.box.right - view.box.left) / KEYS;
  const bars = Array.from({ length: KEYS }, (_, k) =>
    view.add("rect", {
      class: "bar",
      x: (view.box.left + gap * (k + 0.12)).toFixed(1),
      width: (0.76 * gap).toFixed(1),
    }),
  );
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

/** Return an element that a screen reader reads once a result has stayed for a moment. */
function speaker() {
  const element = html("p", { class: "live-spoken", role: "status" });
  let waiting;
  return {
    element,
    say(text) {
      clearTimeout(waiting);
      waiting = setTimeout(() => (element.textContent = text), PAUSE);
    },
  };
}

// --- a number for a model ------------------------------------------------------------------------

const NORMAL = { kind: "normal" };
const EXAMPLE = 4;
const [WEAKEST, STRONGEST] = [0.1, 30];
const LARGEST_VARIANCE = 400;
const KNOWN = [
  ["nothing", "nothing: a new model"],
  ["gap", "how far its key stands out"],
  ["head", "its logits: a trained head"],
];
const RANGE = `Here a key stands out by ${WEAKEST} to ${STRONGEST} standard deviations.`;
const WRONG = ".live-field:not([hidden]) [aria-invalid=true]";
const ASKED = { nothing: [], gap: ["gap"], head: ["logits", "variance"] };

/**
 * Return the number for a model: what multiplies q·k, by what factor that differs from what is
 * there, 1/√d or the head's own, and what becomes of the key to be found before and after. All
 * scores are normal, and that of the key varies as the others do: then α = Δ has the least loss.
 */
export function numberFor({ n, d, known, gap, logits, variance }) {
  const present = known === "head" ? Math.sqrt(variance) : 1;
  const strength = { nothing: EXAMPLE, gap, head: logits / present }[known];
  const factor = known === "nothing" ? 1 : strength / present;
  const needle = { kind: "theta", strength };
  const at = (alpha) => ({
    weight: needleWeight(NORMAL, needle, alpha)(n),
    ...reachOf(NORMAL, needle, alpha),
  });
  return {
    strength,
    factor,
    scale: factor / Math.sqrt(d),
    before: at(present),
    after: at(factor * present),
  };
}

/** Return the answer: what to multiply, by which number, and why. */
export function numberInWords({ n, d, known }, { strength, factor, scale, before, after }) {
  const reaches = ({ reach }) => {
    if (reach === Infinity) return "in all rows of this page";
    return reach < 2 ? "in no row" : `up to n = ${grouped(reach)}`;
  };
  const has = (part) => `${percent(part.weight)} of the weight, and half or more ${reaches(part)}`;
  const root = `1/√${grouped(d)}`;
  const number = digits(scale, 4);
  const lost = after.weight < 0.5 ? " Too many for such a key: no scale has less loss." : "";
  const among = `among ${grouped(n)} keys`;
  if (known === "nothing")
    return {
      what: "q·k",
      number,
      words:
        `It is ${root}, and n does not enter: random keys get logits of standard deviation 1. ` +
        "Among them none is to be found, and no scale is the right one; training makes the " +
        `logits larger. At the start a key that stands out by ${EXAMPLE} standard deviations ` +
        `has, ${among}, ${has(before)}.`,
    };
  if (known === "gap")
    return {
      what: "q·k",
      number,
      words:
        `It is ${Number(strength.toPrecision(4))}/√${grouped(d)}, and n does not enter: at every n this scale ` +
        `has the least loss. The key has, ${among}, ${has(after)}. With ${root} it has ` +
        `${has(before)}.${lost}`,
    };
  return {
    what: "the head’s logits",
    number: digits(factor),
    words:
      `It is gap/variance, at every n, if the other logits are normal. From ${root} the scale goes to ${number}. The key ` +
      `stands out by ${digits(strength)} standard deviations and has, ${among}, ` +
      `${has(before)}. With this number it has ${has(after)}.${lost}`,
  };
}

/** Return the form: what is known of a model goes in, its number comes out. */
export function numberForModel() {
  const state = { n: 4096, d: 128, known: "nothing", gap: 4, logits: 10, variance: 4 };
  const what = html("span");
  const number = html("strong");
  const words = html("p", { class: "live-note" });
  const code = html("code");
  const lines = html("div");
  const picture = html("div", { class: "live-pictures" });
  const problem = html("p", { class: "live-problem", "aria-live": "polite" });
  const more = html("a", {}, "The calculator");
  const spoken = speaker();
  const update = once(() => {
    for (const name of ["gap", "logits", "variance"])
      fields[name].element.hidden = !ASKED[state.known].includes(name);
    const strength = state.logits / Math.sqrt(state.variance);
    const wrong = state.known === "head" ? problemOfGap(strength) : "";
    problem.textContent = wrong && `${RANGE} These are ${digits(strength)}: gap/√variance.`;
    // No answer stays beside an input that it does not belong to.
    answer.hidden = wrong !== "" || form.querySelector(WRONG) !== null;
    if (answer.hidden) return;
    const found = numberFor(state);
    const said = numberInWords(state, found);
    what.textContent = `Multiply ${said.what} by `;
    number.textContent = said.number;
    words.textContent = said.words;
    const scale = Number(found.scale.toPrecision(4));
    code.textContent = `scaled_dot_product_attention(\n    q, k, v, scale=${scale})`;
    lines.replaceChildren(legend(linesOf(state)));
    picture.replaceChildren(weightPicture(state, found));
    more.setAttribute("href", `chapters/calculator.html${addressOf(state, found)}`);
    spoken.say(`Multiply ${said.what} by ${said.number}. ${said.words}`);
  });
  const change = (part) => {
    Object.assign(state, part);
    update();
  };
  const field = (name, options) =>
    numberField({ ...options, use: (value) => change({ [name]: value }) });
  const [n, d] = [TABLE.limits.n, TABLE.limits.d].map(([from, to]) => {
    return { from, to, step: 1, scale: "logarithmic" };
  });
  const fields = {
    n: field("n", { label: "Number of keys n", ...n, check: problemOfN }),
    d: field("d", { label: "Dimension d of a head", ...d, check: problemOfD }),
    gap: field("gap", {
      label: "How far Δ, in standard deviations",
      hint: "The score of the key to be found less the mean of the others. It varies as they do.",
      from: WEAKEST,
      to: 12,
      step: 0.1,
      check: problemOfGap,
    }),
    logits: field("logits", {
      label: "Gap",
      hint: "The logit of the key to be found less the mean of the others.",
      from: 0.1,
      to: 40,
      step: 0.1,
      check: (value) => (value <= 0 ? "It must be above 0." : ""),
    }),
    variance: field("variance", {
      label: "Variance",
      hint: "Of the other logits, as softmax gets them.",
      from: 0.1,
      to: 40,
      step: 0.1,
      check: (value) =>
        value < 0.01 || value > LARGEST_VARIANCE
          ? `Here it goes from 0.01 to ${LARGEST_VARIANCE}.`
          : "",
    }),
  };
  const known = choice({
    legend: "What do you know of it?",
    name: "live-known",
    options: KNOWN,
    use: (value) => change({ known: value }),
  });
  known.element.classList.add("live-list");
  const form = html(
    "form",
    { onsubmit: (event) => event.preventDefault(), oninput: update },
    html("div", { class: "live-fields" }, fields.n.element, fields.d.element),
    known.element,
    html(
      "div",
      { class: "live-fields" },
      fields.gap.element,
      fields.logits.element,
      fields.variance.element,
    ),
    problem,
  );
  const answer = html(
    "div",
    {},
    html("p", { class: "live-answer" }, what, number),
    words,
    lines,
    picture,
    html("div", { class: "live-code" }, html("pre", { tabindex: 0 }, code)),
    html("p", { class: "live-note" }, more, " has all criteria and rules in use, cosines, masks."),
  );
  known.show(state.known);
  for (const [name, { show }] of Object.entries(fields)) show(state[name]);
  update();
  return [form, answer, spoken.element];
}

/** Return what is wrong with how far a key stands out, or nothing. */
function problemOfGap(value) {
  return value < WEAKEST || value > STRONGEST ? RANGE : "";
}

/** Return the part of the calculator's address behind # that goes on from here. */
function addressOf({ n, d, known }, { strength }) {
  const needle = known === "nothing" ? {} : { theta: Number(strength.toPrecision(4)) };
  const scale = known === "nothing" ? "variance" : "finding";
  return `#${new URLSearchParams({ n, d, law: "normal", causal: 0, ...needle, scale })}`;
}

/** Return the lines of the picture, as its legend has them. */
function linesOf({ known }) {
  if (known === "nothing") return [["line exact", `a key ${EXAMPLE} above the others, with 1/√d`]];
  return [
    ["line exact", "with this number"],
    ["line approximation", known === "gap" ? "with 1/√d" : "as the head is"],
  ];
}

const POWERS = { 1: "10", 3: "1000", 5: "10⁵", 7: "10⁷" };

/** Draw the mean weight of the key to be found against n: with the number, and without. */
function weightPicture({ n, known }, { before, after }) {
  const [from, to] = TABLE.limits.n.map(Math.log10);
  const view = chart({
    x: { from, to, name: "number of keys n", ticks: [1, 3, 5, 7].map((k) => [k, POWERS[k]]) },
    y: { from: 0, to: 1, name: "weight on the key", ticks: [0, 0.5, 1] },
    height: 230,
    name: "The mean weight of the key to be found against n, a line at one half, and your n.",
  });
  const along = ({ points }) => points.map(([keys, height]) => [Math.log10(keys), height]);
  const half = [from, to].map((end) => [end, 0.5]);
  view.curve(half, "thin dashed");
  view.upright(Math.log10(n), "thin");
  if (known !== "nothing") view.curve(along(before), "line approximation");
  view.curve(along(after), "line exact");
  view.dot(Math.log10(n), after.weight, "dot exact");
  return view.root;
}

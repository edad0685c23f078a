// Twelve recorded heads: the rows of one text, while a multiplier of the logits slides.

import { numberField, place, readings } from "./controls.js";
import { chart, digits, html, percent } from "./drawing.js";
// recorded.js is not in git: book/live/script.py makes it.
import { RECORDED } from "./recorded.js";

const [LEAST, MOST] = [1 / 4, 4];
const STEPS = 48;

/** Return the vectors that were recorded as whole numbers of a unit each. */
export function unpacked({ units, whole }) {
  return whole.map((line, i) => line.split(",").map((number) => units[i] * Number(number)));
}

/** Return the logits of a row by key, nothing for a key that the query does not see. */
export function logitsOf(head, query, { first = true } = {}) {
  head.vectors ??= { q: unpacked(head.queries), k: unpacked(head.keys) };
  const { q, k } = head.vectors;
  return k.map((key, i) => {
    if (head.causal && i > query) return null;
    if (!first && i === 0 && !(head.causal && query === 0)) return null;
    return head.scale * key.reduce((sum, value, j) => sum + value * q[query][j], 0);
  });
}

/** Return what a row is when its logits are multiplied: weights, α, n, keys 1/Σp², entropy. */
export function rowOf(logits, times = 1) {
  const seen = logits.filter((logit) => logit !== null);
  const n = seen.length;
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const largest = Math.max(...seen);
  const mean = sum(seen) / n;
  const powers = logits.map((logit) => (logit === null ? 0 : Math.exp(times * (logit - largest))));
  const total = sum(powers);
  const weights = powers.map((power) => power / total);
  return {
    n,
    weights,
    alpha: n > 1 ? times * Math.sqrt(sum(seen.map((s) => (s - mean) ** 2)) / (n - 1)) : 0,
    keys: 1 / sum(weights.map((p) => p * p)),
    entropy: -sum(weights.map((p) => (p > 0 ? p * Math.log(p) : 0))),
  };
}

/** Return where a number lies in a growing list: before which of its members, and which share. */
function between(list, value) {
  const inside = Math.min(Math.max(value, list[0]), list.at(-1));
  const after = Math.max(
    list.findIndex((one) => one >= inside),
    1,
  );
  return [after, (inside - list[after - 1]) / (list[after] - list[after - 1])];
}

const NODES = {
  n: RECORDED.random.n.map(Math.log),
  alpha: RECORDED.random.alpha.map(Math.log1p),
};

/** Return the 5 %, 50 % and 95 % quantiles of 1/Σp² over random rows, from the table. */
export function randomKeys(n, alpha) {
  if (n < 2) return [1, 1, 1];
  const [row, down] = between(NODES.n, Math.log(n));
  const [column, right] = between(NODES.alpha, Math.log1p(alpha));
  return [0, 1, 2].map((which) => {
    const at = (i, j) => Math.log(RECORDED.random.keys[i][j][which]);
    const line = (i) => at(i, column - 1) * (1 - right) + at(i, column) * right;
    return Math.exp(line(row - 1) * (1 - down) + line(row) * down);
  });
}

/** Return the query that is shown first: the last that means something, or the middle one. */
export function firstQuery({ meant }) {
  const last = meant.findLastIndex((key) => key >= 0);
  return last > 3 ? last - 3 : Math.floor(meant.length / 2);
}

/** Return what the live figure shows. */
export function attendFigure() {
  const state = { head: 0, query: firstQuery(RECORDED.heads[0]), times: 1, first: true };
  const pictures = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const tokens = html("fieldset", { class: "live-tokens" });
  const hint = html("p", { class: "live-hint" });
  const grey = "Grey: nine in ten rows of random scores with the same α and n; dashed, their median.";
  const shown = html("div", {}, ...[tokens, hint, pictures, values], html("p", { class: "live-hint" }, grey));
  let marks = [];
  const own = () => RECORDED.heads[state.head];
  const words = () => RECORDED.texts[own().text];
  const draw = () => {
    shown.hidden = false;
    const { query, times, first } = state;
    const logits = logitsOf(own(), query, state);
    const row = rowOf(logits, times);
    const meant = own().meant[query];
    for (const [i, mark] of marks.entries()) {
      const weight = row.weights[i];
      mark.element.classList.toggle("unseen", logits[i] === null && i !== query);
      mark.element.classList.toggle("meant", i === meant);
      mark.bar.style.height = `${(100 * weight).toFixed(1)}%`;
      mark.number.textContent = weight >= 0.005 ? Math.round(100 * weight) : "";
    }
    pictures.replaceChildren(picture(logits, row, times));
    const [low, median, high] = randomKeys(row.n, row.alpha);
    const pairs = [
      ["effective keys, 1/Σp²", `${digits(row.keys)} of ${row.n}`],
      [
        "random rows",
        row.n > 1 ? `${digits(low)} to ${digits(high)}, median ${digits(median)}` : "–",
      ],
      ["α, std of the logits", row.n > 1 ? digits(row.alpha) : "–"],
      ["entropy", `${digits(row.entropy)} nats`],
      ["weight of the first key", logits[0] === null ? "left out" : percent(row.weights[0])],
    ];
    if (meant >= 0 && logits[meant] !== null)
      pairs.push([`weight of “${words()[meant]}”, outlined`, percent(row.weights[meant])]);
    values.replaceChildren(...readings(pairs));
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  /** Put the words of the text in their places, each a button for its row. */
  const write = () => {
    marks = words().map((word, i) => {
      const bar = html("span", { class: "live-weight" });
      const number = html("span", { class: "live-percent" });
      const input = html("input", {
        type: "radio",
        name: "live-query",
        value: i,
        checked: i === state.query,
        onchange: () => change({ query: i }),
      });
      const element = html(
        "label",
        { class: "live-token" },
        html("span", { class: "live-column", "aria-hidden": "true" }, bar),
        input,
        html("span", { class: "live-word" }, word),
        number,
      );
      return { element, bar, number };
    });
    tokens.replaceChildren(
      html("legend", {}, "The text; choose a query"),
      html("div", { class: "live-words" }, ...marks.map(({ element }) => element)),
    );
    hint.textContent = own().meant.some((key) => key >= 0)
      ? "Bars and percentages: where the query’s weight goes. Outlined: what this head looks for."
      : "Bars and percentages: where the query’s weight goes.";
  };
  const heads = html(
    "select",
    {
      id: "live-attend-head",
      onchange: () => {
        state.head = Number(heads.value);
        state.query = firstQuery(own());
        write();
        draw();
      },
    },
    ...RECORDED.heads.map(({ model, layer, head, does }, i) =>
      html("option", { value: i }, `${model}, layer ${layer}, head ${head}: ${does}`),
    ),
  );
  const times = numberField({
    label: "Multiplier of all logits",
    from: LEAST,
    to: MOST,
    step: 0.01,
    scale: "logarithmic",
    check: (value) => (value < LEAST || value > MOST ? "Here it goes from ¼ to 4." : ""),
    use: (value) => change({ times: value }),
    refuse: () => {
      shown.hidden = true;
    },
  });
  const first = html("input", {
    type: "checkbox",
    onchange: () => change({ first: !first.checked }),
  });
  times.show(1);
  write();
  draw();
  return [
    html(
      "div",
      { class: "live-field live-select" },
      html("label", { for: heads.id }, "Head"),
      heads,
    ),
    html(
      "div",
      { class: "live-fields" },
      times.element,
      html("label", { class: "live-check" }, first, " without the first key"),
    ),
    shown,
  ];
}

/** Draw how many keys the row uses against the multiplier, over what random rows use. */
function picture(logits, row, times) {
  const ceiling = Math.log10(Math.max(row.n, 2));
  const view = chart({
    x: {
      from: Math.log2(LEAST),
      to: Math.log2(MOST),
      name: "multiplier of the logits",
      ticks: [
        [-2, "¼"],
        [-1, "½"],
        [0, "1"],
        [1, "2"],
        [2, "4"],
      ],
    },
    y: {
      from: 0,
      to: ceiling + 0.02,
      name: "effective keys",
      ticks: [1, 2, 5, 10, 20, 50].filter((k) => k <= row.n).map((k) => [Math.log10(k), String(k)]),
    },
    name: "Effective keys of the row against the multiplier, over the band of random rows.",
  });
  const places = Array.from({ length: STEPS + 1 }, (_, i) => -2 + (4 * i) / STEPS);
  const random = places.map((x) => randomKeys(row.n, (row.alpha / times) * 2 ** x));
  const side = (which) => places.map((x, i) => [x, Math.log10(random[i][which])]);
  const pair = ([x, y]) => `${view.X(x).toFixed(1)} ${view.Y(y).toFixed(1)}`;
  const around = [...side(0), ...side(2).reverse()].map(pair);
  view.add("path", { class: "band", d: `M${around.join("L")}Z` });
  view.curve(side(1), "thin dashed");
  view.curve(
    places.map((x) => [x, Math.log10(Math.max(rowOf(logits, 2 ** x).keys, 1))]),
    "line exact",
  );
  view.dot(Math.log2(times), Math.log10(Math.max(row.keys, 1)), "dot exact");
  return view.root;
}

place({ "fig-live-attend": attendFigure, "fig-models-attend": attendFigure });

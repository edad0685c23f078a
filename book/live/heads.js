// The atlas: one point for each head of five trained models, on axes that the reader chooses.

// atlas.js is not in git: book/live/script.py makes it.
import { ATLAS } from "./atlas.js";
import { choice, once } from "./controls.js";
import { chart, digits, html, percent, svg } from "./drawing.js";

/** Pointer and head are no further apart, in units of the picture. */
const NEAR = 26;

/** What is drawn for a head of each model, from its place on. */
const SHAPES = [
  "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
  "m-2.8-2.8h5.6v5.6h-5.6z",
  "m0-3.8l3.6 6.4h-7.2z",
  "m0-4.2l4 4.2l-4 4.2l-4-4.2z",
  "m-3-3l6 6m-6 0l6-6",
];

/** All heads: model (its number), layer, head, and what the atlas has of them. */
export const HEADS = ATLAS.models.flatMap((model, number) => {
  const before = ATLAS.models.slice(0, number).reduce((sum, m) => sum + m.layers * m.heads, 0);
  return Array.from({ length: model.layers * model.heads }, (_, i) => {
    const own = Object.entries(ATLAS.columns).map(([name, values]) => [name, values[before + i]]);
    const place = { model: number, layer: Math.floor(i / model.heads), head: i % model.heads };
    return { ...place, n: model.n, ...Object.fromEntries(own) };
  });
});

const share = (keys, n) => Math.log10(keys / n);
const powers = (...values) => values.map((value) => [Math.log10(value), String(value)]);
const plain = (...values) => values.map((value) => [value, String(value).replace("-", "−")]);
const SCALE = { from: Math.log10(0.5), to: Math.log10(32), ticks: powers(0.5, 1, 2, 5, 10, 20) };
const SHARE = { from: -3.4, to: 0.08, ticks: powers(0.001, 0.01, 0.1, 1) };

/** The views: two axes, what a head has on them, a line to compare with, and what to see. */
export const VIEWS = {
  keys: {
    title: "α and keys",
    x: { ...SCALE, name: "α, standard deviation of the logits" },
    y: { ...SHARE, name: "effective keys, share of n" },
    at: (head) => [Math.log10(head.alpha), share(head.keys, head.n)],
    random: true,
    note: "Lines: random rows of one α, for the number of keys of each model. Below its line a head uses fewer keys than they would.",
  },
  rest: {
    title: "the same without the first key",
    x: { ...SCALE, name: "α without the first key" },
    y: { ...SHARE, name: "effective keys, share of n − 1" },
    at: (head) => [Math.log10(head.alpha_rest), share(head.keys_rest, head.n - 1)],
    random: true,
    note: "The same rows after their first key is taken out. What was low because of a sink rises.",
  },
  sink: {
    title: "the first key",
    x: { from: 0, to: 1, ticks: [[0, "first layer"], [0.94, "last"]], name: "depth in the model" },
    y: { from: -0.02, to: 1.02, ticks: plain(0, 0.5, 1), name: "weight of the first key" },
    at: (head) => [(head.layer + 0.5) / ATLAS.models[head.model].layers, head.first],
    note: "The mean weight on the first key, layer by layer. Where it is large, the first key is a sink.",
  },
  growth: {
    title: "growth with n",
    x: { from: -0.55, to: 1.3, ticks: plain(-0.5, 0, 0.5, 1), name: "s of random rows of its α" },
    y: { from: -0.55, to: 1.3, ticks: plain(-0.5, 0, 0.5, 1), name: "s, keys ∝ nˢ" },
    at: (head) => [head.random_s, head.s],
    diagonal: true,
    note: "With s = 1 a head looks at a fixed share of all keys, with s = 0 at a fixed number. On the line a head’s keys grow as those of random rows.",
  },
  output: {
    title: "the output",
    x: { from: -1.5, to: 0.05, ticks: powers(0.05, 0.1, 0.2, 0.5, 1), name: "√(mean Σp²)" },
    y: { from: -1.5, to: 0.05, ticks: powers(0.05, 0.1, 0.2, 0.5, 1), name: "output, in the values’ std" },
    at: (head) => [-Math.log10(head.keys) / 2, Math.log10(head.output)],
    diagonal: true,
    note: "Values that know nothing of the weights give an output on the line. Above it, keys with weight have values that are alike.",
  },
  needle: {
    title: "what is looked for",
    x: { from: 0.4, to: 2.2, ticks: powers(3, 10, 30, 100), name: "variance of the other logits" },
    y: { from: 0.4, to: 1.6, ticks: powers(3, 10, 30), name: "gap of what is meant" },
    at: (head) => (head.gap === null ? null : [Math.log10(head.variance), Math.log10(head.gap)]),
    diagonal: true,
    note: `Heads of SmolLM2 with at least ${percent(ATLAS.listed)} of the weight on something known, at 512 tokens, without the first key. On the line the gap is the variance, as in a calibrated head with normal noise.`,
  },
};

/** Return the name of a head. */
export function nameOf({ model, layer, head }) {
  return `${ATLAS.models[model].name}, layer ${layer}, head ${head}`;
}

/** Return in one line what a head does. */
export function describe(head) {
  const parts = [];
  if (head.needle !== null) {
    const verb = head.weight >= ATLAS.finds ? "finds" : "looks for";
    parts.push(`${verb} ${ATLAS.needles[head.needle]} (${percent(head.weight)} of the weight)`);
  }
  const sink = head.first >= ATLAS.finds ? " (a sink)" : "";
  parts.push(
    `in the mean row ${percent(head.first)} on the first key${sink}`,
    `${digits(head.keys)} of ${head.n} keys, random rows ${digits(head.random_keys)}`,
    `α ${digits(head.alpha)}`,
    `entropy ${digits(head.entropy)}`,
    `output ${digits(head.output)}`,
    `s ${head.s.toFixed(2).replace("-", "−")}`,
  );
  return parts.join("; ");
}

/** Return what the live figure shows. */
export function headsFigure() {
  const strongest = Math.max(...HEADS.map(({ weight }) => weight ?? 0));
  const state = {
    view: "keys",
    head: HEADS.findIndex(({ weight }) => weight === strongest),
    models: new Set(ATLAS.models.keys()),
  };
  const name = html("strong");
  const does = html("span");
  const note = html("p", { class: "live-note" });
  const box = html("div", {
    class: "live-atlas",
    tabindex: 0,
    role: "slider",
    "aria-label": "Head",
    "aria-describedby": "live-atlas-hint",
    "aria-valuemin": 1,
    "aria-valuemax": HEADS.length,
  });
  let view = null;
  let ring = null;
  /** Return where a head is drawn, or nothing if it is not. */
  const place = (head) => {
    const at = state.models.has(head.model) && VIEWS[state.view].at(head);
    return at && at.every(Number.isFinite) ? [view.X(at[0]), view.Y(at[1])] : null;
  };
  const select = (index) => {
    state.head = index;
    const head = HEADS[index];
    name.textContent = nameOf(head);
    does.textContent = `: ${describe(head)}.`;
    box.setAttribute("aria-valuenow", index + 1);
    box.setAttribute("aria-valuetext", `${name.textContent}: ${describe(head)}`);
    const at = place(head);
    ring.setAttribute("visibility", at ? "visible" : "hidden");
    if (at) {
      ring.setAttribute("cx", at[0].toFixed(1));
      ring.setAttribute("cy", at[1].toFixed(1));
    }
  };
  const draw = () => {
    const { x, y, diagonal, random, note: seen } = VIEWS[state.view];
    view = chart({
      x,
      y,
      height: 340,
      name: `Heads of trained models: ${y.name} against ${x.name}.`,
    });
    if (diagonal) {
      const ends = [Math.max(x.from, y.from), Math.min(x.to, y.to)];
      view.curve(
        ends.map((end) => [end, end]),
        "thin dashed",
      );
    }
    if (random)
      for (const number of state.models)
        view.curve(
          ATLAS.alphas.map((alpha, i) => [
            Math.log10(alpha),
            Math.log10(ATLAS.models[number].random[i]),
          ]),
          `thin curve model-${number}`,
        );
    for (const number of state.models)
      view.add("path", {
        class: `point model-${number}`,
        d: HEADS.filter((head) => head.model === number)
          .map(place)
          .filter(Boolean)
          .map(([a, b]) => `M${a.toFixed(1)} ${b.toFixed(1)}${SHAPES[number]}`)
          .join(""),
      });
    ring = view.add("circle", { class: "ring", r: 7.5 });
    box.replaceChildren(view.root);
    note.textContent = seen;
    select(state.head);
  };
  const nearest = ({ clientX, clientY }) => {
    const { left, top, width } = view.root.getBoundingClientRect();
    const unit = view.root.viewBox.baseVal.width / width;
    const [a, b] = [(clientX - left) * unit, (clientY - top) * unit];
    let [best, least] = [-1, NEAR];
    for (const [index, head] of HEADS.entries()) {
      const at = place(head);
      const distance = at ? Math.hypot(at[0] - a, at[1] - b) : Infinity;
      if (distance < least) [best, least] = [index, distance];
    }
    if (best >= 0) select(best);
  };
  let last = null;
  const follow = once(() => nearest(last));
  for (const kind of ["pointermove", "pointerdown"])
    box.addEventListener(kind, (event) => {
      last = event;
      follow();
    });
  box.addEventListener("keydown", (event) => {
    const next = moveBy(event.key, state);
    if (next === null) return;
    event.preventDefault();
    select(next);
  });
  const views = choice({
    legend: "Show",
    name: "live-atlas-view",
    options: Object.entries(VIEWS).map(([key, { title }]) => [key, title]),
    use: (key) => {
      state.view = key;
      draw();
    },
  });
  const models = html(
    "fieldset",
    { class: "live-choice" },
    html("legend", {}, "Models"),
    ...ATLAS.models.map((model, number) => {
      const tick = html("input", {
        type: "checkbox",
        checked: true,
        onchange: () => {
          if (tick.checked) state.models.add(number);
          else state.models.delete(number);
          draw();
        },
      });
      const key = svg(
        "svg",
        { class: "live-mark", viewBox: "-6 -6 12 12", "aria-hidden": "true" },
        svg("path", { class: `point model-${number}`, d: `M0 0${SHAPES[number]}` }),
      );
      return html("label", {}, tick, " ", key, " ", model.name);
    }),
  );
  views.show(state.view);
  draw();
  return [
    views.element,
    models,
    box,
    html("p", { class: "live-answer live-head" }, name, does),
    note,
    html(
      "p",
      { id: "live-atlas-hint", class: "live-hint" },
      "Point at a head or touch it. From the keyboard: arrows to the next head (→, ←) or layer (↑, ↓), Page Up and Down to another model.",
    ),
  ];
}

/** Return the head to which a key leads, or nothing for a key of another use. */
export function moveBy(key, { head, models }) {
  const shown = [...HEADS.keys()].filter((index) => models.has(HEADS[index].model));
  if (!shown.length) return null;
  const { model } = HEADS[head];
  const first = (number) => HEADS.findIndex((one) => one.model === number);
  const kept = (index) => (HEADS[index] && models.has(HEADS[index].model) ? index : head);
  const other = (step) => {
    for (let number = model + step; ATLAS.models[number]; number += step)
      if (models.has(number)) return first(number);
    return head;
  };
  const layer = ATLAS.models[model].heads;
  const leads = {
    ArrowRight: () => shown.find((index) => index > head) ?? head,
    ArrowLeft: () => shown.findLast((index) => index < head) ?? head,
    ArrowUp: () => (HEADS[head + layer]?.model === model ? kept(head + layer) : head),
    ArrowDown: () => (HEADS[head - layer]?.model === model ? kept(head - layer) : head),
    PageUp: () => other(1),
    PageDown: () => other(-1),
    Home: () => shown[0],
    End: () => shown.at(-1),
  };
  return leads[key] ? leads[key]() : null;
}

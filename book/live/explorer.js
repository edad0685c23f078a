// The rules in use, one beside the other: pick one, and its curve over n, its row in the table of the
// chapter, its formula and its lines of code are shown together.

import { numberField, once, readings, whenWhole } from "./controls.js";
import { criteria } from "./criteria.js";
import { chart, digits, grouped, html } from "./drawing.js";
import { problemOfD, problemOfN } from "./inputs.js";
import { criticalAlpha } from "./laws.js";
import { POLICIES, policyAlpha, policyScale } from "./policies.js";
import { code } from "./snippets.js";
import { TABLE } from "./table.js";

const NORMAL = { kind: "normal", d: 64 };
const [FEWEST, MOST] = [16, TABLE.limits.n[1]];
const START = { name: "yarn", n: 131072, length: 4096, own: false, d: 128 };
const POINTS = 97;
const PLACES = Array.from(
  { length: POINTS },
  (_, i) => FEWEST * (MOST / FEWEST) ** (i / (POINTS - 1)),
);
const POWERS = [
  [2, "100"],
  [4, "10⁴"],
  [6, "10⁶"],
];
const HEIGHTS = [1 / 16, 1 / 4, 1, 2, 4, 8, 16];
const TABLE_ID = "table-rules";

/** Constants that say for which length a model was trained, or from which on its rule begins. */
const LENGTHS = ["train_length", "reference", "start"];

/**
 * Return a rule's constants that differ from the published ones if a model was trained on so many
 * keys and is to read n: its lengths, and how many times the context is extended.
 */
export function changedConstants({ constants }, { length, n, own }) {
  if (!own) return {};
  const extension = Number(Math.max(1, n / length).toPrecision(6));
  const lengths = Object.fromEntries(LENGTHS.map((name) => [name, length]));
  const values = { factor: extension, ...lengths };
  const changed = Object.keys(constants).filter((name) => name in values);
  return Object.fromEntries(changed.map((name) => [name, values[name]]));
}

/** Return the rules as a state has them, each with its α as a function of n. */
export function rulesOf(state) {
  return POLICIES.map((policy) => {
    const changed = changedConstants(policy, state);
    const rule = { ...policy, changed, constants: { ...policy.constants, ...changed } };
    const alpha = (n) => policyAlpha(rule, n, state.d);
    return {
      ...rule,
      alphaAt: alpha,
      scale: policyScale(rule, state.n, state.d),
      varies: TABLE.limits.n.some((n) => alpha(n) !== alpha(state.n)),
    };
  });
}

/** Return the constants of a rule that its formula has as letters, as a text. */
export function constantsOf({ constants, letters }) {
  return Object.entries(letters)
    .map(([name, letter]) => `${letter} = ${Number(constants[name].toPrecision(6))}`)
    .join(", ");
}

/** Return the explorer; the chapter's table becomes a part of it. */
export function rulesFigure() {
  const state = { ...START };
  const stage = html("div", { class: "live-pictures live-wide" });
  const said = html("p", { class: "live-formula" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const lines = { torch: html("code"), attnlib: html("code") };
  const none = html("p", { class: "live-answer", hidden: true });
  const wrong = {};
  let view;
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const field = (name, options) =>
    numberField({
      from: FEWEST,
      to: MOST,
      step: 1,
      scale: "logarithmic",
      check: problemOfN,
      use: (value) => {
        delete wrong[name];
        change(name === "length" ? { length: value, own: true } : { [name]: value });
      },
      refuse: (problem) => {
        wrong[name] = problem;
        draw();
      },
      ...options,
    });
  const fields = {
    length: field("length", { label: "Training length L" }),
    n: field("n", { label: "Target length n" }),
    d: field("d", {
      label: "Dimension d",
      from: TABLE.limits.d[0],
      to: 1024,
      check: problemOfD,
    }),
  };
  const own = html("input", { type: "checkbox", onchange: () => change({ own: own.checked }) });
  const select = html(
    "select",
    { id: "live-rules", onchange: () => change({ name: select.value }) },
    ...["dimension", "normalised", "length"].map((family) =>
      html(
        "optgroup",
        { label: FAMILIES[family] },
        ...POLICIES.filter((policy) => policy.family === family).map(({ name, title, models }) =>
          html("option", { value: name }, models ? `${title}: ${models}` : title),
        ),
      ),
    ),
  );
  let table = null;
  const draw = once(() => {
    own.checked = state.own;
    select.value = state.name;
    const [name, problem] = Object.entries(wrong)[0] ?? [];
    for (const part of [stage, said, values, told]) part.hidden = Boolean(problem);
    none.hidden = !problem;
    if (problem) none.textContent = `No answer yet. ${fields[name].label}: ${problem}`;
    const rules = rulesOf(state);
    const chosen = rules.find((rule) => rule.name === state.name);
    view = picture(rules, chosen, state);
    stage.replaceChildren(view.root);
    const critical = criticalAlpha(NORMAL, state.n);
    const [before, after] = [state.length, state.n].map(chosen.alphaAt);
    const formula = table?.formula(chosen.name) ?? "";
    const constants = constantsOf(chosen);
    said.replaceChildren(
      html("strong", {}, chosen.title),
      ` multiplies ${symbolOf(chosen)} by `,
      formula,
      constants && ` with ${constants}`,
    );
    values.replaceChildren(
      ...readings([
        [`multiplies ${symbolOf(chosen)} at n = ${grouped(state.n)} by`, digits(chosen.scale, 4)],
        ["α, std of the logits", digits(after)],
        [`α at L = ${grouped(state.length)}`, digits(before)],
        ["α over that of freezing", digits(after / critical)],
      ]),
    );
    const found = code(chosen, { n: state.n, d: state.d, causal: true });
    lines.torch.textContent = found.torch;
    lines.attnlib.textContent = found.attnlib;
    table?.show(rules, state, Boolean(problem));
  });
  /** Take the target length from where a pointer is on the picture. */
  const drag = ({ type, buttons, clientX }) => {
    if (type === "pointermove" && !buttons) return;
    const { root, box } = view;
    const { left, width } = root.getBoundingClientRect();
    const across = ((clientX - left) / width) * root.viewBox.baseVal.width;
    const share = Math.min(Math.max((across - box.left) / (box.right - box.left), 0), 1);
    const n = Math.round(Number((FEWEST * (MOST / FEWEST) ** share).toPrecision(3)));
    delete wrong.n;
    fields.n.show(Math.min(n, MOST));
    change({ n: Math.min(n, MOST) });
  };
  for (const type of ["pointerdown", "pointermove"]) stage.addEventListener(type, drag);
  const block = (title, text) =>
    html("div", { class: "live-code" }, html("p", {}, title), html("pre", { tabindex: 0 }, text));
  const told = html(
    "div",
    {},
    block("PyTorch, under a causal mask", lines.torch),
    block("attnlib", lines.attnlib),
  );
  for (const name of ["length", "n", "d"]) fields[name].show(state[name]);
  draw();
  whenWhole(() => {
    table = rulesTable((name) => change({ name }));
    draw();
  });
  return [
    html(
      "div",
      { class: "live-fields" },
      html(
        "div",
        { class: "live-field" },
        html("label", { for: "live-rules" }, "Model or rule"),
        select,
      ),
      fields.n.element,
      fields.length.element,
      fields.d.element,
    ),
    html("label", { class: "live-check" }, own, " use L in the rules that have a training length"),
    none,
    stage,
    said,
    values,
    told,
  ];
}

const FAMILIES = {
  dimension: "by dimension",
  normalised: "for unit vectors",
  length: "by length",
};

function symbolOf({ applied_to }) {
  return applied_to === "cosine" ? "the cosine" : "q·k";
}

/** Return a chart of α against n: the phases of random rows, all rules, and the chosen one. */
function picture(rules, chosen, { n, length }) {
  const [x, y] = [Math.log10, Math.log2];
  const curve = ({ alphaAt }) => PLACES.map((keys) => [x(keys), y(alphaAt(keys))]);
  const line = curve(chosen);
  const lowest = Math.min(-1, ...line.map(([, height]) => height - 0.3));
  const highest = Math.max(4.3, ...line.map(([, height]) => height + 0.3));
  const shown = HEIGHTS.filter((height) => y(height) >= lowest && y(height) <= highest);
  const view = chart({
    x: { from: x(FEWEST), to: x(MOST), name: "number of keys n", ticks: POWERS },
    y: { from: lowest, to: highest, name: "α", ticks: shown.map((h) => [y(h), fraction(h)]) },
    ...(innerWidth < 700 ? {} : { width: 620, height: 360 }),
    name:
      `α against the number of keys on logarithmic axes: ${chosen.title} among all rules, ` +
      "the phases of random rows, and lines at your two lengths.",
  });
  const edge = (share) => PLACES.map((keys) => [x(keys), y(share * criticalAlpha(NORMAL, keys))]);
  const edges = [1 / 2, 1 / Math.sqrt(3), 1].map(edge);
  const corner = ([a, b]) => `${view.X(a).toFixed(1)} ${view.Y(b).toFixed(1)}`;
  for (const [low, high] of [edges.slice(0, 2), edges.slice(1)]) {
    const around = [...low, ...high.toReversed()].map(corner);
    view.add("path", { class: "band", d: `M${around.join("L")}Z` });
  }
  view.label(x(FEWEST) + 0.1, 3.3, "frozen");
  for (const rule of rules) if (rule !== chosen) view.curve(curve(rule), "thin dimmed");
  for (const keys of [length, n]) if (keys >= FEWEST) view.upright(x(keys), "thin dashed");
  for (let keys = 64; keys <= TABLE.criteria.typical.largest; keys *= 4) {
    const typical = criteria(NORMAL, keys, false).find(({ name }) => name === "typical");
    view.dot(x(keys), y(typical.alpha), "dot ink");
  }
  view.curve(line, "line exact");
  for (const keys of [length, n])
    if (keys >= FEWEST) view.dot(x(keys), y(chosen.alphaAt(keys)), "dot exact");
  return view;
}

function fraction(value) {
  return value < 1 ? `1/${1 / value}` : String(value);
}

/**
 * Make the chapter's table a part of the figure: a button in each row picks its rule, the columns can
 * be sorted, rows be looked for, and its numbers follow. Its rows are in the order of the rules.
 */
function rulesTable(pick) {
  const table = document.getElementById(TABLE_ID);
  if (!table) return null;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const rank = rows.map(() => heads.map(() => 0));
  const constants = rows.map((row) => row.querySelector("small"));
  const sorted = { column: -1, up: true };
  const sort = () => {
    const { column, up } = sorted;
    const order = rows.map((_, i) => i);
    const compare = (i, j) => {
      const [a, b] = [rank[i][column], rank[j][column]];
      return typeof a === "number" ? a - b : a.localeCompare(b);
    };
    if (column >= 0) order.sort((i, j) => (up ? 1 : -1) * compare(i, j) || i - j);
    body.append(...order.map((i) => rows[i]));
    for (const [i, head] of heads.entries())
      if (i === column) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
  };
  const titles = heads.map((head, column) => {
    const button = html("button", { type: "button", class: "live-sort" });
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      Object.assign(sorted, { up: sorted.column === column ? !sorted.up : true, column });
      sort();
    });
    head.append(button);
    return button;
  });
  const inputs = rows.map((row, i) => {
    const { name } = POLICIES[i];
    const input = html("input", {
      type: "radio",
      name: "live-rule",
      value: name,
      onchange: () => pick(name),
    });
    const label = html("label", {}, input, " ");
    label.append(...row.cells[0].childNodes);
    row.cells[0].append(label);
    return input;
  });
  const count = html("span", { role: "status" });
  const search = html("input", {
    type: "search",
    id: "live-find",
    oninput: () => {
      const wanted = search.value.trim().toLowerCase();
      const text = ({ name, title, models, meaning }) =>
        `${name} ${title} ${models} ${meaning}`.toLowerCase();
      let left = 0;
      for (const [i, row] of rows.entries()) {
        row.hidden = !text(POLICIES[i]).includes(wanted);
        left += !row.hidden;
      }
      count.textContent = wanted ? ` ${left} of ${rows.length}` : "";
    },
  });
  table.before(
    html(
      "p",
      { class: "live live-find" },
      html("label", { for: "live-find" }, "Find a model or a rule: "),
      search,
      count,
    ),
  );
  table.classList.add("live-rules");
  return {
    formula(name) {
      const at = POLICIES.findIndex((policy) => policy.name === name);
      return rows[at].querySelector("math").cloneNode(true);
    },
    show(rules, { name, n, length }, hidden) {
      const named = [`scale at n = ${n}`, `α at n = ${length}`, `α at n = ${n}`];
      for (const [i, text] of named.entries()) titles[i + 3].textContent = text;
      for (const [i, rule] of rules.entries()) {
        const found = [rule.scale, rule.alphaAt(length), rule.alphaAt(n)];
        const texts = found.map((value, k) => (hidden ? "" : digits(value, k ? 3 : 4)));
        constants[i].textContent = constantsOf(rule);
        for (const [k, text] of texts.entries()) rows[i].cells[k + 3].textContent = text;
        const words = [0, 1, 2].map((k) => rows[i].cells[k].textContent.trim());
        rank[i] = [...words, ...found];
        inputs[i].checked = rule.name === name;
        rows[i].classList.toggle("live-chosen", rule.name === name);
      }
      if (sorted.column >= 0) sort();
    },
  };
}

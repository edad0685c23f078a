// The rules in use, one beside the other: pick one, and its curve over n, its row in the table of the
// chapter, its formula and its lines of code are shown together.

import { codeBlock } from "./calculator.js";
import { dragged, numberField, once, readings, whenWhole } from "./controls.js";
import { typicalAlpha } from "./criteria.js";
import { chart, digits, grouped, html, powersOfTen } from "./drawing.js";
import { problemOfD, problemOfN } from "./inputs.js";
import { listing } from "./listing.js";
import { criticalAlpha } from "./normal.js";
import { POLICIES, policyAlpha, policyScale } from "./policies.js";
import { code } from "./snippets.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const [FEWEST, MOST] = [16, TABLE.limits.n[1]];
const START = { name: "yarn", n: 131072, length: 4096, own: false, d: 128 };
const POINTS = 97;
const PLACES = Array.from(
  { length: POINTS },
  (_, i) => FEWEST * (MOST / FEWEST) ** (i / (POINTS - 1)),
);
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
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const field = (name, label, options = {}) =>
    numberField({
      ...{ label, from: FEWEST, to: MOST, step: 1, scale: "logarithmic", check: problemOfN },
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
    n: field("n", "Target length n"),
    length: field("length", "Training length L"),
    d: field("d", "Dimension d", { from: TABLE.limits.d[0], to: 1024, check: problemOfD }),
  };
  const own = html("input", { type: "checkbox", onchange: () => change({ own: own.checked }) });
  const option = ({ name, title, models }) =>
    html("option", { value: name }, models ? `${title}: ${models}` : title);
  const select = html(
    "select",
    { id: "live-rules", onchange: () => change({ name: select.value }) },
    ...Object.entries(FAMILIES).map(([family, label]) =>
      html("optgroup", { label }, ...POLICIES.filter((policy) => policy.family === family).map(option)),
    ),
  );
  const told = html(
    "div",
    {},
    codeBlock("PyTorch, under a causal mask", lines.torch),
    codeBlock("attnlib", lines.attnlib),
  );
  let [view, table] = [null, null];
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
    const symbol = chosen.applied_to === "cosine" ? "the cosine" : "q·k";
    const constants = constantsOf(chosen);
    said.replaceChildren(
      html("strong", {}, chosen.title),
      ` multiplies ${symbol} by `,
      table?.formula(chosen.name) ?? "",
      constants && ` with ${constants}`,
    );
    const [before, after] = [state.length, state.n].map(chosen.alphaAt);
    values.replaceChildren(
      ...readings([
        [`multiplies ${symbol} at n = ${grouped(state.n)} by`, digits(chosen.scale, 4)],
        ["α, std of the logits", digits(after)],
        [`α at L = ${grouped(state.length)}`, digits(before)],
        ["α over that of freezing", digits(after / criticalAlpha(state.n))],
      ]),
    );
    const found = code(chosen, { n: state.n, d: state.d, causal: true });
    lines.torch.textContent = found.torch;
    lines.attnlib.textContent = found.attnlib;
    table?.show(rules, state, Boolean(problem));
  });
  dragged(stage, () => view, ([power]) => {
    const n = Math.min(Math.round(Number((10 ** power).toPrecision(3))), MOST);
    delete wrong.n;
    fields.n.show(n);
    change({ n });
  });
  for (const [name, { show }] of Object.entries(fields)) show(state[name]);
  draw();
  whenWhole(() => {
    table = rulesTable((name) => change({ name }));
    draw();
  });
  const rule = html("label", { for: "live-rules" }, "Model or rule");
  const numbers = Object.values(fields).map(({ element }) => element);
  return [
    html("div", { class: "live-fields" }, html("div", { class: "live-field" }, rule, select), ...numbers),
    html("label", { class: "live-check" }, own, " use L in the rules that have a training length"),
    ...[none, stage, said, values, told],
  ];
}

const FAMILIES = {
  dimension: "by dimension",
  normalised: "for unit vectors",
  length: "by length",
};

/** Return a chart of α against n: the phases of random rows, all rules, and the chosen one. */
function picture(rules, chosen, { n, length }) {
  const [x, y] = [Math.log10, Math.log2];
  const curve = ({ alphaAt }) => PLACES.map((keys) => [x(keys), y(alphaAt(keys))]);
  const line = curve(chosen);
  const lowest = Math.min(-1, ...line.map(([, height]) => height - 0.3));
  const highest = Math.max(4.3, ...line.map(([, height]) => height + 0.3));
  const shown = HEIGHTS.filter((height) => y(height) >= lowest && y(height) <= highest);
  const view = chart({
    x: { from: x(FEWEST), to: x(MOST), name: "number of keys n", ticks: powersOfTen(2, 4, 6) },
    y: { from: lowest, to: highest, name: "α", ticks: shown.map((h) => [y(h), fraction(h)]) },
    ...(innerWidth < 700 ? {} : { width: 620, height: 360 }),
    name:
      `α against the number of keys on logarithmic axes: ${chosen.title} among all rules, ` +
      "the phases of random rows, and lines at your two lengths.",
  });
  const phase = (share) => (power) => y(share * criticalAlpha(10 ** power));
  view.between(phase(1 / 2), phase(1 / Math.sqrt(3)), "region mean");
  view.between(phase(1 / Math.sqrt(3)), phase(1), "region neither");
  view.label(x(FEWEST) + 0.1, 3.3, "frozen");
  for (const rule of rules) if (rule !== chosen) view.curve(curve(rule), "thin dimmed");
  for (const keys of [length, n]) if (keys >= FEWEST) view.upright(x(keys), "thin dashed");
  for (let keys = 64; keys <= TABLE.criteria.typical.largest; keys *= 4) {
    view.dot(x(keys), y(typicalAlpha(keys)), "dot ink");
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
  const rows = [...table.tBodies[0].rows];
  const constants = rows.map((row) => row.querySelector("small"));
  const inputs = rows.map((row, i) => {
    const { name, meaning, models } = POLICIES[i];
    row.dataset.words = `${meaning} ${models}`;
    const input = html("input", { type: "radio", name: "live-rule", value: name, onchange: () => pick(name) });
    const label = html("label", {}, input, " ");
    label.append(...row.cells[0].childNodes);
    row.cells[0].append(label);
    return input;
  });
  listing(table, { noun: "rules", hint: "A model or a rule. A heading orders the table, and again the other way." });
  const titles = [...table.tHead.querySelectorAll("button")];
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
        constants[i].textContent = constantsOf(rule);
        for (const [k, value] of found.entries())
          rows[i].cells[k + 3].textContent = hidden ? "" : digits(value, k ? 3 : 4);
        inputs[i].checked = rule.name === name;
        rows[i].classList.toggle("live-chosen", rule.name === name);
      }
    },
  };
}

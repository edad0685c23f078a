// The calculator, and on the front page the short form of it: what is known goes in; the book's advice,
// its reason, its code and what the key to be found gets come out.

import { chosenOf, finding, reachInWords, reason, scales } from "./advice.js";
import { button, choice, numberField, once, PAUSE, remembered, speaker } from "./controls.js";
import { bars, chart, digits, grouped, html, legend, percent, powersOfTen, svg, ticks } from "./drawing.js";
import {
  KNOWN,
  largestAlpha,
  OWN,
  problemOfAlpha,
  problemOfD,
  problemOfGap,
  problemOfN,
  problemOfTheta,
  problemOfNoise,
  problemsOfKnown,
  readAddress,
  RECOMMENDED,
  START,
  VECTORS,
  writeAddress,
} from "./inputs.js";
import { annealedGradient, criticalAlpha, meanGradient } from "./normal.js";
import { sampleRow, weigh } from "./rows.js";
import { code, isByQuery } from "./snippets.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const POINTS = 90;
const HEIGHTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** The numbers that are asked for, as numberField takes them. */
function asked(state) {
  const [n, d] = [TABLE.limits.n, TABLE.limits.d].map(([from, to]) => {
    return { from, to, step: 1, scale: "logarithmic" };
  });
  return {
    n: { label: "Number of keys n", hint: "Those that a query sees.", ...n, check: problemOfN },
    d: { label: "Dimension d", hint: "Of one head.", ...d, check: problemOfD },
    theta: {
      label: "How far Δ, in standard deviations",
      hint: "The score of the key to be found less the mean of the others. It varies as they do.",
      ...{ to: 12, step: 0.1, check: problemOfTheta },
    },
    g: {
      label: "Gap g",
      hint: "Of the target’s logit, over the mean of the others: the probe’s target_ratio × target_slope.",
      ...{ to: 40, step: 0.1, check: (value) => problemOfGap(value, state.v) },
    },
    v: {
      label: "Noise v = κ′(1)",
      hint: "The probe’s target_slope. For normal logits it is their variance.",
      ...{ from: 0.05, to: 50, step: 0.01, scale: "logarithmic", check: problemOfNoise },
    },
  };
}

/**
 * Return the fields that ask for a state, all or on the front page a few. `changed` is called with
 * what changes in the state; `trouble` says what is wrong, `show` puts a state into the fields.
 */
function questions(state, changed, { few = false } = {}) {
  const wrong = {}; // by field, what cannot be used: until it is put right there is no answer
  const fields = Object.fromEntries(
    Object.entries(asked(state)).map(([name, options]) => {
      const use = (value) => {
        delete wrong[name];
        changed({ [name]: value });
      };
      const refuse = (problem) => {
        wrong[name] = problem;
        changed({});
      };
      return [name, numberField({ ...options, use, refuse })];
    }),
  );
  const aboutKey = ["theta", "g", "v"];
  const known = choice({
    legend: "What do you know of what your attention should find?",
    name: few ? "live-known-few" : "live-known",
    options: KNOWN,
    use: (value) => {
      for (const name of aboutKey.filter((one) => wrong[one])) {
        delete wrong[name];
        fields[name].show(state[name]);
      }
      changed({ known: value, scale: RECOMMENDED });
    },
  });
  known.element.classList.add("live-list");
  const unit = choice({
    legend: "Queries and keys are",
    name: "live-unit",
    options: VECTORS,
    use: (value) => changed({ unit: value === "unit" }),
  });
  unit.element.classList.add("live-list");
  const causal = html("input", {
    type: "checkbox",
    onchange: () => changed({ causal: causal.checked }),
  });
  const row = (...names) =>
    html("div", { class: "live-fields" }, ...names.map((name) => fields[name].element));
  const mask = html("label", { class: "live-check" }, causal, " causal mask");
  return {
    elements: [known.element, row(...aboutKey), row("n", "d"), unit.element, ...(few ? [] : [mask])],
    /** Say what is wrong, also with fields that became impossible by others; return the first. */
    trouble() {
      const impossible = problemsOfKnown(state);
      for (const name of aboutKey) {
        fields[name].element.hidden = !(name in impossible);
        if (name in impossible && !wrong[name]) fields[name].say(impossible[name]);
      }
      const [name, problem] = Object.entries({ ...impossible, ...wrong }).find(([, text]) => text) ?? [];
      return problem ? `No answer yet. ${fields[name].label}: ${problem}` : "";
    },
    show(problems = {}) {
      for (const name of Object.keys(wrong)) delete wrong[name];
      for (const [name, field] of Object.entries(fields)) {
        field.show(state[name]);
        if (!problems[name]) continue;
        wrong[name] = problems[name].problem;
        field.entry.value = problems[name].text;
        field.say(problems[name].problem);
      }
      known.show(state.known);
      unit.show(state.unit ? "unit" : "any");
      causal.checked = state.causal;
    },
  };
}

/** Return the elements of an answer, and a function that shows a scale in them. */
function answering(state, { change, chapters }) {
  const parts = {
    answer: html("p", { class: "live-answer" }),
    why: html("p", { class: "live-note" }),
    torch: html("code"),
    attnlib: html("code"),
    found: html("div", { class: "live-found", hidden: true }),
  };
  const show = (found, chosen) => {
    parts.answer.textContent = answerOf(state, chosen);
    const said = reason(state).map((part) =>
      Array.isArray(part) ? html("a", { href: `${chapters}${part[1]}.html` }, part[0]) : part,
    );
    const { recommended } = found;
    const ofKey = state.known === "theta"; // of one key, and not of a model
    if (chosen.name === recommended.name)
      parts.why.replaceChildren(ofKey ? "For this key alone: " : "The book recommends it. ", ...said);
    else
      parts.why.replaceChildren(
        `${ofKey ? "For this key alone the best is" : "The book recommends"} ${recommended.title}, α = ${digits(recommended.alpha)}: `,
        `${digits(recommended.scale, 4)} × ${symbolOf(recommended)}. `,
        ...said,
        " ",
        button(`Take ${recommended.title}`, () => change({ scale: RECOMMENDED })),
      );
    const lines = code(chosen, state);
    parts.torch.textContent = lines.torch;
    parts.attnlib.textContent = lines.attnlib;
    const reached = finding(state, chosen);
    parts.found.hidden = !reached;
    parts.reach = reached ? reachInWords(reached, state.n) : "";
    if (reached)
      parts.found.replaceChildren(
        html("p", { class: "live-note" }, parts.reach),
        legend([["line exact", "mean weight of the key to be found, against n"]]),
        html("div", { class: "live-pictures" }, reachPicture(reached, state.n)),
      );
  };
  return { parts, show };
}

/** Return the answer in words. */
function answerOf({ n, d, causal, known, v }, chosen) {
  const last = causal && isByQuery(chosen) ? " at the last position" : "";
  const times = known === "head" ? `, ${digits(chosen.alpha / Math.sqrt(v))} times what was measured` : "";
  return (
    `For n = ${grouped(n)}, d = ${grouped(d)}, ${chosen.title}: multiply ${symbolOf(chosen)} by ` +
    `${digits(chosen.scale, 4)}${last}. Then the logits have standard deviation ` +
    `α = ${digits(chosen.alpha)}${times}.`
  );
}

/** Return the form of the front page. */
export function numberForModel() {
  const state = { ...START, theta: 4 };
  const change = (part) => {
    Object.assign(state, part);
    update();
  };
  const form = questions(state, change, { few: true });
  const { parts, show } = answering(state, { change, chapters: "chapters/" });
  const more = html("a", {}, "The calculator");
  const spoken = speaker();
  const rest = html(
    "div",
    {},
    ...[parts.why, parts.found],
    html("div", { class: "live-code" }, html("pre", { tabindex: 0 }, parts.torch)),
    html("p", { class: "live-note" }, more, " has all criteria and rules in use, cosines, masks."),
  );
  const update = once(() => {
    const trouble = form.trouble();
    rest.hidden = trouble !== "";
    if (trouble) parts.answer.textContent = trouble;
    else {
      const found = scales(state);
      show(found, chosenOf(found, state));
      more.href = `chapters/calculator.html${writeAddress(state)}`;
    }
    spoken.say(`${parts.answer.textContent} ${trouble ? "" : parts.reach}`);
  });
  form.show();
  update();
  const box = html("form", { onsubmit: (event) => event.preventDefault() }, ...form.elements);
  return [box, parts.answer, rest, spoken.element];
}

/** Return the calculator, and keep it and the address in step. */
export function calculator() {
  const state = { ...START };
  let changed = false; // the address is the reader's until then
  let typing = false; // leave the α field alone while its reader is at it
  let wrongAlpha = "";
  const results = {
    criteria: html("tbody"),
    policies: html("tbody"),
    note: html("p", { class: "live-note" }),
    pictures: html("div", { class: "live-pictures" }),
    readings: html("p", { class: "live-note" }),
    scaleNote: html("p", { class: "live-problem", "aria-live": "polite" }),
  };
  const change = (part) => {
    Object.assign(state, part);
    changed = true;
    results.scaleNote.textContent = "";
    update();
  };
  const form = questions(state, change);
  const { parts, show: showAnswer } = answering(state, { change, chapters: "" });
  const spoken = speaker();
  const alpha = numberField({
    label: "α",
    hint: "The standard deviation of the logits, not what multiplies q·k.",
    ...{ to: 10, step: 0.01, check: (value) => problemOfAlpha(value, largestAlpha(state)) },
    use: (own) => {
      typing = true;
      wrongAlpha = "";
      change({ scale: OWN, own });
    },
    refuse: (problem) => {
      wrongAlpha = `No answer yet. α: ${problem}`;
      update();
    },
  });
  const { root, shown } = page({ form, parts, results, alpha: alpha.element, spoken });
  const allScales = remembered((asked) => scales(asked));
  const row = remembered(sampleRow);
  const points = remembered((n, end) => pointsOf(n, row(n), end));
  const fillTables = remembered((asked, found) => {
    const withWeight = asked.known !== "nothing";
    for (const head of root.querySelectorAll("th[data-weight]")) head.hidden = !withWeight;
    const line = (scale) => tableLine(scale, change, withWeight, scale.name === found.recommended.name);
    results.criteria.replaceChildren(...found.criteria.map(line));
    results.policies.replaceChildren(...found.policies.map(line));
  });

  /** Return the chosen scale; where there is none of that name the α stays where it was. */
  const choose = (found) => {
    const chosen = chosenOf(found, state) ?? { name: state.scale, alpha: null };
    if (chosen.alpha === null) {
      results.scaleNote.textContent = `${missing(chosen)}: α stays where it was.`;
      state.scale = OWN;
    } else if (chosen.alpha > largestAlpha(state)) {
      Object.assign(state, { scale: OWN, own: Number(largestAlpha(state).toPrecision(4)) });
      results.scaleNote.textContent =
        `α = ${digits(chosen.alpha)}: ${problemOfAlpha(chosen.alpha, largestAlpha(state))} ` +
        "Shown is what it does there.";
    } else return chosen;
    return chosenOf(found, state);
  };

  const update = once(() => {
    const bad = form.trouble() || wrongAlpha;
    for (const part of shown) part.hidden = bad !== "";
    if (bad) {
      parts.answer.textContent = bad;
      return later();
    }
    const { scale, own, ...rest } = state;
    const found = allScales(rest);
    const chosen = choose(found);
    state.own = chosen.alpha;
    fillTables(rest, found);
    for (const input of root.querySelectorAll("input[name=live-scale]")) {
      input.checked = input.value === chosen.name;
      input.closest("tr").classList.toggle("live-chosen", input.checked);
    }
    const end = Math.min(Math.max(2.2 * criticalAlpha(state.n), 1.1 * chosen.alpha), largestAlpha(state));
    if (!typing) {
      alpha.range(0, end);
      alpha.show(Number(chosen.alpha.toPrecision(4)));
    }
    typing = false;
    showAnswer(found, chosen);
    const seen = weigh(row(state.n), chosen.alpha);
    results.note.textContent = meaningOf(state, chosen);
    results.readings.textContent = measures(seen);
    results.pictures.replaceChildren(
      picture(points(state.n, end), found, chosen, { end, n: state.n }),
      bars(seen.weights, {
        name: "The largest weights of a sample row, sorted.",
        highest: HEIGHTS.find((top) => top >= seen.weights[0]),
      }).root,
    );
    return later();
  });

  let settling;
  const later = () => {
    const bad = shown[0].hidden;
    spoken.say(`${parts.answer.textContent} ${bad ? "" : parts.reach}`);
    clearTimeout(settling);
    // Not at every step of a slider: browsers refuse to write the address too often.
    if (changed && !bad)
      settling = setTimeout(() => history.replaceState(null, "", writeAddress(state)), PAUSE);
  };

  const adopt = () => {
    const read = readAddress(location.hash);
    Object.assign(state, read.state);
    wrongAlpha = "";
    form.show(read.problems);
    update();
    results.scaleNote.textContent = read.problems.scale?.problem ?? "";
  };
  addEventListener("hashchange", () => {
    if (location.hash.includes("=")) adopt();
  });
  adopt();
  return [root];
}

function missing({ name, rule }) {
  if (name === "entropy") return "So few keys cannot have the entropy of 512";
  return rule ? "It belongs to other q and k than were measured" : "No scale does that for such a key";
}

/** Return the calculator's elements in their order, and those that are hidden without an answer. */
function page({ form, parts, results, alpha, spoken }) {
  const table = (first, body) => {
    const names = [first, "α, std of the logits", "multiply"];
    const heads = names.map((text) => html("th", { scope: "col" }, text));
    heads.push(html("th", { scope: "col", "data-weight": true, hidden: true }, "weight on the key"));
    return html("table", { class: "live-table" }, html("thead", {}, html("tr", {}, ...heads)), body);
  };
  const told = html(
    "div",
    {},
    results.note,
    html("h2", {}, "The code to paste"),
    codeBlock("PyTorch", parts.torch),
    codeBlock("attnlib", parts.attnlib),
    parts.found,
  );
  const below = html(
    "div",
    {},
    legend([
      ["line exact", "exact mean; dots: criteria"],
      ["line approximation", "approximation"],
      ["line sample", "the sample row"],
    ]),
    results.pictures,
    results.readings,
    html("h2", {}, "All scales"),
    table("criterion", results.criteria),
    table("in use", results.policies),
    html("p", { class: "live-note" }, "The address of this page holds your settings: share it, or keep it."),
  );
  const root = html(
    "form",
    { class: "live-calculator", onsubmit: (event) => event.preventDefault() },
    html("fieldset", {}, html("legend", {}, "Your attention"), ...form.elements),
    ...[parts.answer, parts.why, spoken.element, told],
    html("h2", {}, "What a scale does"),
    html("div", { class: "live-fields" }, alpha),
    ...[results.scaleNote, below],
  );
  return { root, shown: [parts.why, told, below] };
}

/** Return lines of code under a title, with a button that copies them. */
export function codeBlock(title, lines) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(lines.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(lines);
      copy.textContent = "Selected";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return html(
    "div",
    { class: "live-code" },
    html("p", {}, title, " ", copy),
    html("pre", { tabindex: 0 }, lines),
  );
}

/** Return in words what a scale is, and what it is under a mask. */
function meaningOf({ causal }, chosen) {
  const { title, meaning, varies } = chosen;
  const last = causal && isByQuery(chosen);
  return [
    meaning && `${title}: ${meaning}`,
    last && "Under the mask each position has its own; this is the last one’s.",
    causal && varies && !last && "It is one number for the whole context.",
  ]
    .filter(Boolean)
    .join(" ");
}

const measures = ({ weights, collision, gradient }) =>
  `The largest key of the sample row has ${percent(weights[0])} of the weight, Σp² is ${digits(collision)}, ` +
  `as with ${digits(1 / collision)} equal keys, and the row’s gradient is ${digits(gradient)}.`;

function symbolOf({ applied_to }) {
  return applied_to === "cosine" ? "cos" : "q·k";
}

function tableLine({ name, title, meaning, alpha, scale, weight, applied_to }, change, withWeight, best) {
  const none = alpha === null;
  const input = html("input", {
    type: "radio",
    name: "live-scale",
    value: name,
    disabled: none,
    onchange: () => change({ scale: name }),
  });
  const label = html("label", { title: meaning }, input, " ", best ? `${title}: recommended` : title);
  return html(
    "tr",
    {},
    html("th", { scope: "row" }, label),
    html("td", {}, none ? "none" : digits(alpha)),
    html("td", {}, none ? "—" : `${symbolOf({ applied_to })} × ${digits(scale)}`),
    ...(withWeight ? [html("td", {}, none ? "—" : percent(weight))] : []),
  );
}

/** Return the points of the curves for α from 0 to an end. */
function pointsOf(n, row, end) {
  const alphas = Array.from({ length: POINTS + 1 }, (_, i) => (end * i) / POINTS);
  const points = (gradient) => alphas.map((alpha) => [alpha, gradient(alpha)]);
  return {
    exact: points((alpha) => meanGradient(alpha, n)),
    approximation: points((alpha) => annealedGradient(alpha, n)),
    sample: points((alpha) => weigh(row, alpha).gradient),
  };
}

/** Draw the approximate gradient, the exact mean and the sample row's, with the criteria as dots. */
function picture({ exact, approximation, sample }, found, chosen, { end, n }) {
  const highest = 1.08 * Math.max(...[...exact, ...sample].map(([, g]) => g));
  const view = chart({
    x: { from: 0, to: end, name: "α", ticks: ticks(0, end) },
    y: { from: 0, to: highest, name: "gradient G", ticks: ticks(0, highest) },
    name:
      "The gradient against α: the approximation, the exact mean and the sample row, " +
      "with the criteria as dots on the exact mean and a line at the chosen α.",
  });
  view.upright(chosen.alpha, "thin");
  view.curve(sample, "line sample");
  view.curve(approximation, "line approximation");
  view.curve(exact, "line exact");
  for (const { alpha, title } of found.criteria)
    if (alpha !== null && alpha <= end) {
      const dot = view.dot(alpha, meanGradient(alpha, n), "dot hollow");
      dot.append(svg("title", {}, `${title}: α = ${digits(alpha)}`));
    }
  view.dot(chosen.alpha, meanGradient(chosen.alpha, n), "dot exact");
  return view.root;
}

/** Draw the needle's mean weight against n, with the half, and the n that is looked at. */
function reachPicture({ points, weight }, n) {
  const [from, to] = TABLE.limits.n.map(Math.log10);
  const view = chart({
    x: { from, to, name: "number of keys n", ticks: powersOfTen(1, 3, 5, 7) },
    y: { from: 0, to: 1, name: "weight on the key", ticks: [0, 0.5, 1] },
    height: 230,
    name: "The mean weight of the key to be found against n, a line at one half, and your n.",
  });
  view.graph(() => 0.5, "thin dashed", [from, to], 1);
  view.upright(Math.log10(n), "thin");
  view.curve(
    points.map(([keys, height]) => [Math.log10(keys), height]),
    "line exact",
  );
  view.dot(Math.log10(n), weight, "dot exact");
  return view.root;
}

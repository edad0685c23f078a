// The calculator: n, d, law and mask in; curves, scales, a row and lines of code out.

import { choice, numberField, once } from "./controls.js";
import { criteria, effectiveKeys } from "./criteria.js";
import {
  bars,
  chart,
  digits,
  grouped,
  html,
  legend,
  percent,
  SHOWN,
  svg,
  ticks,
} from "./drawing.js";
import {
  annealedGradient,
  causalGradient,
  criticalAlpha,
  deviation,
  meanGradient,
} from "./laws.js";
import { bestAlpha, leastAlpha, meanGap, needleWeight, reachOf } from "./needle.js";
import { POLICIES, policyAlpha, policyScale } from "./policies.js";
import { sampleRow, weigh, withNeedle } from "./rows.js";
import { TABLE } from "./table.js";

const START = {
  n: 4096,
  d: 128,
  law: "dot product",
  causal: false,
  needle: "none",
  strength: 6,
  scale: "annealed",
  own: 1,
};
const NEEDLES = [
  ["none", "nothing"],
  ["gap", "its gap Δ: its score is exactly so far above the mean"],
  ["theta", "its strength θ: its score varies, with the density of the others times e^(θs)"],
];
const STRONGEST = 30;
const LAWS = [
  ["dot product", "dot products"],
  ["cosine", "cosines"],
  ["normal", "normal, as dot products for d → ∞"],
];
const POINTS = 90;
const HEIGHTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
const OWN = "own";

/** Milliseconds without a change after which the address is written and the result is spoken. */
const PAUSE = 400;

// --- what is wrong with an input -----------------------------------------------------------------

/** Return what is wrong with a number of keys, or nothing. */
export function problemOfN(value) {
  const [fewest, most] = TABLE.limits.n;
  if (!Number.isInteger(value)) return "n counts keys: it must be a whole number.";
  if (value === 1) return "One key has all the weight at every scale: n must be at least 2.";
  if (value < fewest) return "n counts keys: it must be at least 2.";
  if (value > most)
    return `The tables of this page end at n = ${grouped(most)}; attnlib has larger n.`;
  return "";
}

/** Return what is wrong with a dimension, or nothing. */
export function problemOfD(value) {
  const [fewest, most] = TABLE.limits.d;
  if (!Number.isInteger(value)) return "d counts dimensions: it must be a whole number.";
  if (value < 1) return "d counts dimensions: it must be positive.";
  if (value < fewest)
    return `The tables of this page start at d = ${fewest}; attnlib has smaller d.`;
  if (value > most) return `The tables of this page end at d = ${grouped(most)}.`;
  return "";
}

/** Return what is wrong with a scale, or nothing. */
export function problemOfAlpha(value, largest) {
  if (value < 0) return "A negative α would prefer the worst keys: α must be at least 0.";
  if (value > largest)
    return `Here α ends at ${digits(largest)}, ${TABLE.gradient.reach} times the α of freezing.`;
  return "";
}

/** Return what is wrong with a needle's gap or θ in standard deviations, or nothing. */
export function problemOfStrength(value, { needle, law, d }) {
  if (value < 0) return "Such a key would be hidden below the others: it must be at least 0.";
  if (value > STRONGEST) return `On this page it ends at ${STRONGEST} standard deviations.`;
  if (needle === "gap" && law === "cosine" && value > Math.sqrt(d))
    return `A cosine is at most 1: the gap is at most √d = ${digits(Math.sqrt(d))}.`;
  return "";
}

// --- the address ---------------------------------------------------------------------------------

/** Return the state that the part of an address behind # describes, and what it cannot mean. */
export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...START };
  const problems = {};
  for (const [name, problemOf] of [
    ["n", problemOfN],
    ["d", problemOfD],
  ]) {
    if (!given.has(name)) continue;
    const text = given.get(name).trim();
    const value = Number(text);
    const problem =
      text === "" || !Number.isFinite(value) ? "This is not a number." : problemOf(value);
    if (problem) problems[name] = { text, problem };
    else state[name] = value;
  }
  const law = given.get("law")?.replace(/[-_+]/g, " ");
  if (law !== undefined && LAWS.some(([name]) => name === law)) state.law = law;
  else if (law !== undefined) problems.law = { text: law, problem: `There is no law “${law}”.` };
  state.causal = given.get("causal") === "1";
  for (const [needle] of NEEDLES.slice(1)) {
    if (!given.has(needle)) continue;
    const text = given.get(needle).trim();
    const value = text === "" ? NaN : Number(text);
    const problem = Number.isFinite(value)
      ? problemOfStrength(value, { ...state, needle })
      : "This is not a number.";
    if (problem) problems.strength = { text, problem };
    else state.strength = value;
    state.needle = needle;
  }
  const scale = given.get("scale");
  if (scale !== null) {
    const found = state.needle === "none" ? [] : TABLE.criteria.needle;
    const known = [...TABLE.criteria.list, ...found, ...POLICIES].some(({ name }) => name === scale);
    const value = scale.trim() === "" ? NaN : Number(scale);
    const problem = problemOfAlpha(value, largestAlpha(state));
    if (known) state.scale = scale;
    else if (Number.isNaN(value))
      problems.scale = { text: "", problem: `There is no scale “${scale}”.` };
    else if (problem) problems.scale = { text: scale, problem };
    else Object.assign(state, { scale: OWN, own: value });
  }
  return { state, problems };
}

/** Return the part of an address behind # for a state. */
export function writeAddress({ n, d, law, causal, needle, strength, scale, own }) {
  const values = { n, d, law: law.replace(" ", "-"), causal: causal ? 1 : 0 };
  if (needle !== "none") values[needle] = Number(strength.toPrecision(4));
  values.scale = scale === OWN ? Number(own.toPrecision(4)) : scale;
  return `#${new URLSearchParams(values)}`;
}

// --- what is computed ----------------------------------------------------------------------------

function lawOf({ law, d }) {
  return { kind: law, d };
}

/** Return the needle of a state, or null: nothing is known, or what cannot be. */
function needleOf(state) {
  const { needle, strength } = state;
  if (needle === undefined || needle === "none" || problemOfStrength(strength, state)) return null;
  return { kind: needle, strength };
}

/** Return the α of freezing in standard deviations. */
function freezing(state) {
  const law = lawOf(state);
  return criticalAlpha(law, state.n) * deviation(law);
}

function largestAlpha(state) {
  return TABLE.gradient.reach * freezing(state);
}

/**
 * Return every scale for a state: what it multiplies and with what, and its α, which on this page
 * is the standard deviation that it gives the logits of random q and k, whatever the law.
 */
export function scales(state) {
  const { n, d, causal } = state;
  const law = lawOf(state);
  const cosine = law.kind === "cosine";
  const target = {
    applied_to: cosine ? "cosine" : "dot product",
    factor: cosine ? Math.sqrt(d) : 1 / Math.sqrt(d),
  };
  const withScale = (alpha) => ({
    alpha,
    applied_to: target.applied_to,
    scale: alpha === null ? null : alpha * target.factor,
  });
  const found = criteria(law, n, causal).map(({ name, meaning, alpha }) => ({
    name,
    title: name,
    meaning,
    ...withScale(alpha === null ? null : alpha * deviation(law)),
  }));
  const meant = needleOf(state);
  if (meant) {
    const alphas = { finding: bestAlpha(law, meant, n), least: leastAlpha(law, meant, n) };
    for (const { name, meaning } of TABLE.criteria.needle)
      found.push({ name, title: name, meaning, ...withScale(alphas[name]) });
  }
  const inUse = POLICIES.map((policy) => ({
    ...policy,
    alpha: policyAlpha(policy, n, d),
    scale: policyScale(policy, n, d),
  }));
  const own = { name: OWN, title: "your own α", meaning: "", ...withScale(state.own) };
  return { criteria: found, policies: inUse, own, keys: effectiveKeys(n, causal) };
}

/** Return gradients as functions of α: the exact mean, the approximation, and the sample row's. */
export function gradients(state) {
  const law = lawOf(state);
  const unit = deviation(law);
  const keys = effectiveKeys(state.n, state.causal);
  const exact = (state.causal ? causalGradient : meanGradient)(law, state.n);
  const row = sampleRow(law, state.n);
  return {
    exact: (alpha) => unit * exact(alpha / unit),
    approximation: (alpha) => unit * annealedGradient(law, alpha / unit, keys),
    row: (alpha) => {
      const seen = weigh(row, alpha / unit);
      return { ...seen, gradient: unit * seen.gradient };
    },
  };
}

/**
 * Return what becomes of a needle under a scale: its mean weight here and as points against n, the
 * largest n at which it has half, and a sample row with it; null without a needle. A criterion is
 * one α for every n, a scale in use follows its rule.
 */
export function finding(state, chosen) {
  const meant = needleOf(state);
  if (!meant) return null;
  const law = lawOf(state);
  const rule = (n) => policyAlpha(chosen, n, state.d);
  const varies = "rule" in chosen && TABLE.limits.n.some((n) => rule(n) !== chosen.alpha);
  const row = withNeedle(sampleRow(law, state.n - 1), meanGap(law, meant) * deviation(law));
  return {
    ...reachOf(law, meant, varies ? rule : chosen.alpha),
    weight: needleWeight(law, meant, chosen.alpha)(state.n),
    seen: weigh(row, chosen.alpha / deviation(law)),
    place: row.place,
  };
}

/** Return in words how far a scale finds the needle. */
export function reachInWords({ points, reach, weight, seen, place }, n) {
  const lost = points.some(([keys, height]) => keys < reach && height < 0.5 - 1e-6);
  const end = grouped(TABLE.limits.n[1]);
  const until = {
    [true]: `up to n = ${grouped(reach)}`,
    [reach === Infinity]: `in all rows of this page, which end at n = ${end}`,
    [reach < 2]: "in no row",
  }.true;
  return (
    `The key to be found has ${percent(weight)} of the weight among ${grouped(n)} keys, in the ` +
    `mean, and half or more ${until}${lost ? ", though not in all shorter ones" : ""}. ` +
    `In the sample row it has ${percent(seen.weights[place])}` +
    (place < SHOWN ? ": the bar in another colour." : ", less than the keys that are drawn.")
  );
}

/** Return the lines of code for a scale: with PyTorch alone, and with attnlib. */
export function code(chosen, state) {
  const cosine = chosen.applied_to === "cosine";
  const number = (value) => Number(value.toPrecision(4));
  const call = (name, ...options) => [
    `out = ${name}(`,
    "    q, k, v,",
    ...options.filter(Boolean).map((option) => `    ${option},`),
    ")",
  ];
  const causal = state.causal && "is_causal=True";
  const torch = [
    "import torch.nn.functional as F",
    ...(cosine ? ["q = F.normalize(q, dim=-1)", "k = F.normalize(k, dim=-1)"] : []),
    ...call("F.scaled_dot_product_attention", `scale=${number(chosen.scale)}`, causal),
  ];
  const what = "rule" in chosen ? `policy="${chosen.name}"` : `scale=${number(chosen.scale)}`;
  const attnlib = [
    "from attnlib.attention import attend",
    ...call("attend", what, cosine && "normalize_qk=True", causal),
  ];
  return { torch: torch.join("\n"), attnlib: attnlib.join("\n") };
}

// --- the page ------------------------------------------------------------------------------------

/** Return the calculator, and keep it and the address in step. */
export function calculator() {
  let { state, problems } = readAddress(location.hash);
  const results = {
    criteria: html("tbody"),
    policies: html("tbody"),
    note: html("p", { class: "live-note" }),
    pictures: html("div", { class: "live-pictures" }),
    found: html("div", { hidden: true }),
    reach: html("p", { class: "live-note" }),
    reachPictures: html("div", { class: "live-pictures" }),
    readings: html("p", { class: "live-note" }),
    torch: html("code"),
    attnlib: html("code"),
    answer: html("p", { class: "live-answer" }),
    spoken: html("p", { class: "live-spoken", role: "status" }),
    scaleNote: html("p", { class: "live-problem", "aria-live": "polite" }),
  };

  let changed = false; // the address is the reader's until then
  let typing = false; // leave the α field alone while its reader is at it
  const change = (part) => {
    state = { ...state, ...part };
    changed = true;
    results.scaleNote.textContent = "";
    if (part.law) law.say("");
    update();
  };
  const fields = {
    n: numberField({
      label: "Number of keys n",
      hint: "Those that a query sees.",
      from: TABLE.limits.n[0],
      to: TABLE.limits.n[1],
      step: 1,
      scale: "logarithmic",
      check: problemOfN,
      use: (n) => change({ n }),
    }),
    d: numberField({
      label: "Dimension d",
      hint: "Of one head.",
      from: TABLE.limits.d[0],
      to: TABLE.limits.d[1],
      step: 1,
      scale: "logarithmic",
      check: problemOfD,
      use: (d) => change({ d }),
    }),
    alpha: numberField({
      label: "α",
      from: 0,
      to: 10,
      step: 0.01,
      check: (value) => problemOfAlpha(value, largestAlpha(state)),
      use: (own) => {
        typing = true;
        change({ scale: OWN, own });
      },
    }),
  };
  const law = choice({
    legend: "Scores of random q and k",
    name: "live-law",
    options: LAWS,
    use: (value) => change({ law: value }),
  });
  const needle = choice({
    legend: "What is known of a key that should be found",
    name: "live-needle",
    options: NEEDLES,
    use: (value) => change({ needle: value }),
  });
  const strength = numberField({
    label: "Its gap Δ or strength θ",
    hint: "In standard deviations of a score.",
    from: 0,
    to: 12,
    step: 0.1,
    check: (value) => problemOfStrength(value, state),
    use: (value) => change({ strength: value }),
  });
  let impossible = "";
  const causal = html("input", {
    type: "checkbox",
    onchange: () => change({ causal: causal.checked }),
  });

  let known = {}; // what α does not change
  const update = once(() => {
    const found = scales(state);
    const all = [...found.criteria, ...found.policies, found.own];
    let chosen = all.find(({ name }) => name === state.scale);
    strength.element.hidden = state.needle === "none";
    const problem = state.needle === "none" ? "" : problemOfStrength(state.strength, state);
    if (problem !== impossible) strength.say((impossible = problem));
    if (!chosen || chosen.alpha === null) {
      if (chosen)
        results.scaleNote.textContent =
          chosen.name === "entropy"
            ? "So few keys cannot have the entropy of 512: α stays where it was."
            : "No scale does that for such a key: α stays where it was.";
      state = { ...state, scale: OWN };
      chosen = scales(state).own;
    }
    if (!(chosen.alpha <= largestAlpha(state))) {
      state = { ...state, scale: OWN, own: Number(largestAlpha(state).toPrecision(4)) };
      results.scaleNote.textContent =
        `α = ${digits(chosen.alpha)} is beyond ${TABLE.gradient.reach} times the α of freezing: ` +
        "shown is what it does there.";
      chosen = scales(state).own;
    }
    state.own = chosen.alpha;
    show(found, chosen);
  });

  const show = (found, chosen) => {
    const key = JSON.stringify([state.n, state.d, state.law, state.causal]);
    if (key !== known.key) {
      known = { key, curves: gradients(state) };
    }
    const listed = JSON.stringify([key, state.needle, state.strength]);
    if (listed !== known.listed) {
      known.listed = listed;
      fillTables(found, known.curves.exact);
    }
    mark();
    const { curves } = known;
    const end = Math.min(Math.max(2.2 * freezing(state), 1.1 * chosen.alpha), largestAlpha(state));
    if (!typing) {
      fields.alpha.range(0, end);
      fields.alpha.show(Number(chosen.alpha.toPrecision(4)));
    }
    typing = false;
    if (end !== known.end) Object.assign(known, { end, points: pointsOf(curves, end) });
    results.note.textContent = meaningOf(chosen);
    const seen = curves.row(chosen.alpha);
    results.pictures.replaceChildren(
      picture(known, found, chosen),
      bars(seen.weights, {
        name: "The largest weights of a sample row, sorted.",
        highest: HEIGHTS.find((top) => top >= seen.weights[0]),
      }).root,
    );
    results.answer.textContent = answerOf(chosen, seen);
    showFinding(chosen);
    results.readings.textContent = measures(seen);
    const lines = code(chosen, state);
    results.torch.textContent = lines.torch;
    results.attnlib.textContent = lines.attnlib;
    clearTimeout(settling);
    settling = setTimeout(settle, PAUSE);
  };

  const showFinding = (chosen) => {
    const rule = "rule" in chosen ? chosen.name : chosen.alpha;
    const key = JSON.stringify([known.key, state.needle, state.strength, rule]);
    if (key === known.finding) return;
    known.finding = key;
    const found = finding(state, chosen);
    results.found.hidden = !found;
    results.reach.textContent = found ? reachInWords(found, state.n) : "";
    if (!found) return;
    results.reachPictures.replaceChildren(
      reachPicture(found, state.n),
      bars(found.seen.weights, {
        name: "The largest weights of a sample row with the key to be found, sorted.",
        highest: HEIGHTS.find((top) => top >= found.seen.weights[0]),
        marked: found.place,
      }).root,
    );
  };

  let settling;
  const settle = () => {
    const [answer, reach] = [results.answer.textContent, results.reach.textContent];
    results.spoken.textContent = reach ? `${answer} ${reach}` : answer;
    // Not at every step of a slider: browsers refuse to write the address too often.
    if (changed) history.replaceState(null, "", writeAddress(state));
  };

  const answerOf = (chosen, seen) =>
    `For n = ${grouped(state.n)}, d = ${grouped(state.d)}, ${chosen.title}: multiply ` +
    `${symbolOf(chosen)} by ${digits(chosen.scale, 4)}. Then the logits have standard deviation ` +
    `α = ${digits(chosen.alpha)}, and the largest weight is ${percent(seen.weights[0])}.`;

  const pick = (name) => change({ scale: name });

  const fillTables = (found, mean) => {
    const lines = (list) => list.map((scale) => tableLine(scale, mean, pick));
    results.criteria.replaceChildren(...lines(found.criteria));
    results.policies.replaceChildren(...lines(found.policies));
  };

  const mark = () => {
    for (const input of root.querySelectorAll("input[name=live-scale]"))
      input.checked = input.value === state.scale;
  };

  const meaningOf = (chosen) => {
    const { name, title, meaning, rule } = chosen;
    const masked = state.causal && rule === undefined && name !== OWN;
    const last = state.causal && rule !== undefined;
    const keys = digits(effectiveKeys(state.n, true));
    return [
      meaning && `${title}: ${meaning}`,
      masked && `Under the mask it is one constant for all positions, that of ${keys} keys.`,
      last && "Under the mask this is its value at the last position.",
    ]
      .filter(Boolean)
      .join(" ");
  };

  const measures = (seen) =>
    `The largest key has ${percent(seen.weights[0])} of the weight, Σp² is ${digits(seen.collision)}, ` +
    `as with ${digits(1 / seen.collision)} equal keys, and the row’s gradient is ${digits(seen.gradient)}.` +
    (state.causal ? " It is the last row of the mask, which sees all keys." : "");

  const root = page({ fields, law, causal, needle, strength, results });
  const adopt = () => {
    ({ state, problems } = readAddress(location.hash));
    fields.n.show(state.n);
    fields.d.show(state.d);
    law.show(state.law);
    causal.checked = state.causal;
    needle.show(state.needle);
    strength.show(state.strength);
    impossible = "";
    update();
    for (const [name, field] of [
      ["n", fields.n],
      ["d", fields.d],
    ])
      if (problems[name]) {
        field.entry.value = problems[name].text;
        field.say(problems[name].problem);
      }
    if (problems.strength) {
      strength.entry.value = problems.strength.text;
      strength.say(problems.strength.problem);
    }
    law.say(problems.law?.problem ?? "");
    results.scaleNote.textContent = problems.scale?.problem ?? "";
    root.querySelector("details").open ||= POLICIES.some(({ name }) => name === state.scale);
  };
  addEventListener("hashchange", () => {
    if (location.hash.includes("=")) adopt();
  });
  adopt();
  return [root];
}

/** Return the calculator's elements in their order. */
function page({ fields, law, causal, needle, strength, results }) {
  const columns = (first) =>
    html(
      "thead",
      {},
      html(
        "tr",
        {},
        ...[first, "α", "scale", "gradient"].map((text) => html("th", { scope: "col" }, text)),
      ),
    );
  const copy = (code) => {
    const button = html("button", { type: "button", class: "live-button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    return button;
  };
  const lines = (title, code) =>
    html(
      "div",
      { class: "live-code" },
      html("p", {}, title, " ", copy(code)),
      html("pre", { tabindex: 0 }, code),
    );
  results.found.append(
    html("h3", {}, "What it finds"),
    results.reach,
    legend([["line exact", "mean weight of the key to be found, against n"]]),
    results.reachPictures,
  );
  return html(
    "form",
    { class: "live-calculator", onsubmit: (event) => event.preventDefault() },
    html(
      "fieldset",
      {},
      html("legend", {}, "Your attention"),
      html("div", { class: "live-fields" }, fields.n.element, fields.d.element),
      law.element,
      html("label", { class: "live-check" }, causal, " causal mask"),
      needle.element,
      strength.element,
    ),
    results.answer,
    results.spoken,
    html(
      "fieldset",
      {},
      html("legend", {}, "The scale"),
      html("table", { class: "live-table" }, columns("criterion"), results.criteria),
      html(
        "details",
        {},
        html("summary", {}, `Scales in use (${POLICIES.length})`),
        html("table", { class: "live-table" }, columns("in use"), results.policies),
      ),
    ),
    results.note,
    html("h3", {}, "What a scale does"),
    html("div", { class: "live-fields" }, fields.alpha.element),
    results.scaleNote,
    legend([
      ["line exact", "exact mean; dots: criteria"],
      ["line approximation", "approximation"],
      ["line sample", "the sample row"],
    ]),
    results.pictures,
    results.readings,
    results.found,
    html("h3", {}, "The code to paste"),
    lines("PyTorch", results.torch),
    lines("attnlib", results.attnlib),
    html(
      "p",
      { class: "live-note" },
      "The address of this page holds your settings: share it, or keep it.",
    ),
  );
}

function symbolOf({ applied_to }) {
  return applied_to === "cosine" ? "cos" : "q·k";
}

function tableLine(scale, mean, pick) {
  const none = scale.alpha === null;
  const input = html("input", {
    type: "radio",
    name: "live-scale",
    value: scale.name,
    disabled: none,
    onchange: () => pick(scale.name),
  });
  return html(
    "tr",
    {},
    html("th", { scope: "row" }, html("label", { title: scale.meaning }, input, " ", scale.title)),
    html("td", {}, none ? "none" : digits(scale.alpha)),
    html("td", {}, none ? "—" : `${digits(scale.scale)} × ${symbolOf(scale)}`),
    html("td", {}, none ? "—" : digits(mean(scale.alpha))),
  );
}

/** Return the points of the curves for α from 0 to an end. */
function pointsOf(gradients, end) {
  const alphas = Array.from({ length: POINTS + 1 }, (_, i) => (end * i) / POINTS);
  const points = (gradient) => alphas.map((alpha) => [alpha, gradient(alpha)]);
  return {
    exact: points(gradients.exact),
    approximation: points(gradients.approximation),
    sample: points((alpha) => gradients.row(alpha).gradient),
  };
}

/** Draw the approximate gradient, the exact mean and the sample row's, with the criteria as dots. */
function picture({ curves, points, end }, found, chosen) {
  const { exact, approximation, sample } = points;
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
      const dot = view.dot(alpha, curves.exact(alpha), "dot hollow");
      dot.append(svg("title", {}, `${title}: α = ${digits(alpha)}`));
    }
  view.dot(chosen.alpha, curves.exact(chosen.alpha), "dot exact");
  return view.root;
}

/** Draw the needle's mean weight against n, with the half, and the n that is looked at. */
function reachPicture({ points, weight }, n) {
  const [from, to] = TABLE.limits.n.map(Math.log10);
  const view = chart({
    x: { from, to, name: "number of keys n", ticks: [1, 3, 5, 7].map((k) => [k, POWERS[k]]) },
    y: { from: 0, to: 1, name: "weight on the key", ticks: [0, 0.5, 1] },
    name: "The mean weight of the key to be found against n, a line at one half, and your n.",
  });
  view.curve(
    [
      [from, 0.5],
      [to, 0.5],
    ],
    "thin dashed",
  );
  view.upright(Math.log10(n), "thin");
  view.curve(
    points.map(([keys, height]) => [Math.log10(keys), height]),
    "line exact",
  );
  view.dot(Math.log10(n), weight, "dot exact");
  return view.root;
}

const POWERS = { 1: "10", 3: "1000", 5: "10⁵", 7: "10⁷" };

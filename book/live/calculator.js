// The calculator: what is known, n, d, law and mask in; the book's advice, code, curves and scales out.

import {
  chosenOf,
  finding,
  gradients,
  reachInFigures,
  reachInWords,
  reachOfEach,
  reason,
  scales,
} from "./advice.js";
import { choice, numberField, once } from "./controls.js";
import { effectiveKeys } from "./criteria.js";
import { bars, chart, digits, grouped, html, legend, percent, svg, ticks } from "./drawing.js";
import {
  freezing,
  KNOWN,
  largestAlpha,
  LAWS,
  OWN,
  problemOfAlpha,
  problemOfD,
  problemOfGap,
  problemOfN,
  problemOfStrength,
  problemOfVariance,
  problemsOfKnown,
  readAddress,
  RECOMMENDED,
  writeAddress,
} from "./inputs.js";
import { code, isByQuery } from "./snippets.js";
import { TABLE } from "./table.js";

const POINTS = 90;
const HEIGHTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** Milliseconds without a change after which the address is written, the result is spoken, and the
 *  reach of all scales is computed. */
const PAUSE = 400;

/** Return the calculator, and keep it and the address in step. */
export function calculator() {
  let { state, problems } = readAddress(location.hash);
  const results = {
    all: [], // what is hidden while there is no answer
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
    why: html("p", { class: "live-note" }),
    spoken: html("p", { class: "live-spoken", role: "status" }),
    scaleNote: html("p", { class: "live-problem", "aria-live": "polite" }),
  };

  let changed = false; // the address is the reader's until then
  let typing = false; // leave the α field alone while its reader is at it
  const wrong = {}; // by field, what cannot be used: until it is put right there is no answer
  const change = (part) => {
    state = { ...state, ...part };
    changed = true;
    results.scaleNote.textContent = "";
    if (part.law) law.say("");
    update();
  };
  const field = (name, { use, ...options }) =>
    numberField({
      ...options,
      use: (value) => {
        delete wrong[name];
        if (use) use(value);
        else change({ [name]: value });
      },
      refuse: (problem) => {
        wrong[name] = problem;
        update();
      },
    });
  const [whole, logarithmic] = [{ step: 1 }, { scale: "logarithmic" }];
  const fields = {
    n: field("n", {
      label: "Number of keys n",
      hint: "Those that a query sees.",
      from: TABLE.limits.n[0],
      to: TABLE.limits.n[1],
      check: problemOfN,
      ...whole,
      ...logarithmic,
    }),
    d: field("d", {
      label: "Dimension d",
      hint: "Of one head.",
      from: TABLE.limits.d[0],
      to: TABLE.limits.d[1],
      check: problemOfD,
      ...whole,
      ...logarithmic,
    }),
    strength: field("strength", {
      label: "Its gap Δ or strength θ",
      hint: "In standard deviations of a score.",
      from: 0,
      to: 12,
      step: 0.1,
      check: (value) => problemOfStrength(value, state),
    }),
    g: field("g", {
      label: "Gap g",
      hint: "How far the logit of the key that is meant lies above the mean of the others.",
      from: 0,
      to: 40,
      step: 0.1,
      check: (value) => problemOfGap(value, state),
    }),
    v: field("v", {
      label: "Variance v",
      hint: "Of the other logits, in a row, under 1/√d (for cosines √d).",
      from: 0.05,
      to: 50,
      step: 0.01,
      check: problemOfVariance,
      ...logarithmic,
    }),
    alpha: field("alpha", {
      label: "α",
      hint: "The standard deviation of the logits, not what multiplies q·k.",
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
  const known = choice({
    legend: "What do you know of what your attention should find?",
    name: "live-known",
    options: KNOWN,
    use: (value) => {
      for (const name of ["strength", "g", "v"])
        if (wrong[name]) {
          delete wrong[name];
          fields[name].show(state[name]);
        }
      change({ known: value, scale: RECOMMENDED });
    },
  });
  const causal = html("input", {
    type: "checkbox",
    onchange: () => change({ causal: causal.checked }),
  });

  /** Say what is wrong, also with fields that became impossible by others; return the first. */
  const trouble = () => {
    const impossible = problemsOfKnown(state);
    for (const name of ["strength", "g", "v"]) {
      fields[name].element.hidden = !(name in impossible);
      if (name in impossible && !wrong[name]) fields[name].say(impossible[name]);
    }
    const problems = Object.entries({ ...impossible, ...wrong });
    const [name, problem] = problems.find(([, text]) => text) ?? [];
    return problem && { label: fields[name].label, problem };
  };

  let drawn = {}; // what α does not change
  const update = once(() => {
    const bad = trouble();
    for (const part of results.all) part.hidden = Boolean(bad);
    if (bad) {
      results.answer.textContent = `No answer yet. ${bad.label}: ${bad.problem}`;
      return later();
    }
    const found = scales(state);
    let chosen = chosenOf(found, state);
    if (!chosen || chosen.alpha === null) {
      if (chosen) results.scaleNote.textContent = `${missing(chosen)}: α stays where it was.`;
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
    return show(found, chosen);
  });

  const missing = ({ name, rule }) => {
    if (name === "entropy") return "So few keys cannot have the entropy of 512";
    return rule
      ? "It belongs to other q and k than were measured"
      : "No scale does that for such a key";
  };

  const show = (found, chosen) => {
    const key = JSON.stringify([state.n, state.d, state.law, state.causal]);
    if (key !== drawn.key) drawn = { key, curves: gradients(state) };
    const listed = JSON.stringify([key, state.known, state.strength, state.g, state.v]);
    if (listed !== drawn.listed) {
      Object.assign(drawn, { listed, found, reaches: null });
      fillTables(found);
    }
    mark(found);
    const { curves } = drawn;
    const end = Math.min(Math.max(2.2 * freezing(state), 1.1 * chosen.alpha), largestAlpha(state));
    if (!typing) {
      fields.alpha.range(0, end);
      fields.alpha.show(Number(chosen.alpha.toPrecision(4)));
      delete wrong.alpha;
    }
    typing = false;
    if (end !== drawn.end) Object.assign(drawn, { end, points: pointsOf(curves, end) });
    results.note.textContent = meaningOf(chosen);
    const seen = curves.row(chosen.alpha);
    results.pictures.replaceChildren(
      picture(drawn, found, chosen),
      bars(seen.weights, {
        name: "The largest weights of a sample row, sorted.",
        highest: HEIGHTS.find((top) => top >= seen.weights[0]),
      }).root,
    );
    results.answer.textContent = answerOf(chosen, seen);
    showReason(found, chosen);
    showFinding(chosen);
    results.readings.textContent = measures(seen);
    const lines = code(chosen, state);
    results.torch.textContent = lines.torch;
    results.attnlib.textContent = lines.attnlib;
    later();
  };

  const showReason = (found, chosen) => {
    const parts = reason(state, found).map((part) =>
      Array.isArray(part) ? html("a", { href: part[1] }, part[0]) : part,
    );
    const { recommended } = found;
    if (state.scale === RECOMMENDED || chosen.name === recommended.name)
      return results.why.replaceChildren("The book recommends it. ", ...parts);
    const take = html(
      "button",
      { type: "button", class: "live-button", onclick: () => change({ scale: RECOMMENDED }) },
      `Take ${recommended.title}`,
    );
    return results.why.replaceChildren(
      `The book recommends ${recommended.title}, α = ${digits(recommended.alpha)}: `,
      `${digits(recommended.scale, 4)} × ${symbolOf(recommended)}. `,
      ...parts,
      " ",
      take,
    );
  };

  const showFinding = (chosen) => {
    const rule = chosen.varies ? chosen.name : chosen.alpha;
    const key = JSON.stringify([drawn.listed, rule, chosen.alpha]);
    if (key === drawn.finding) return;
    drawn.finding = key;
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
  const later = () => {
    clearTimeout(settling);
    settling = setTimeout(settle, PAUSE);
  };
  const settle = () => {
    const [answer, reach] = [results.answer.textContent, results.reach.textContent];
    const none = results.all[0].hidden;
    results.spoken.textContent = reach && !none ? `${answer} ${reach}` : answer;
    // Not at every step of a slider: browsers refuse to write the address too often.
    if (changed && !none) history.replaceState(null, "", writeAddress(state));
    if (none || state.known === "nothing" || drawn.reaches) return;
    drawn.reaches = reachOfEach(state, drawn.found);
    for (const cell of root.querySelectorAll("td[data-reach]")) {
      const reached = drawn.reaches[cell.dataset.reach];
      cell.textContent = reached === undefined ? "—" : reachInFigures(reached);
    }
  };

  const answerOf = (chosen, seen) =>
    `For n = ${grouped(state.n)}, d = ${grouped(state.d)}, ${chosen.title}: multiply ` +
    `${symbolOf(chosen)} by ${digits(chosen.scale, 4)}` +
    (state.causal && isByQuery(chosen) ? " at the last position. " : ". ") +
    `Then the logits have standard deviation α = ${digits(chosen.alpha)}, ` +
    (state.known === "head"
      ? `${digits(chosen.alpha / Math.sqrt(state.v))} times what was measured.`
      : `and the largest weight is ${percent(seen.weights[0])}.`);

  const pick = (name) => change({ scale: name });

  const fillTables = (found) => {
    const withReach = state.known !== "nothing";
    for (const head of root.querySelectorAll("th[data-reach]")) head.hidden = !withReach;
    const lines = (list) =>
      list.map((scale) => tableLine(scale, pick, withReach, scale.name === found.recommended.name));
    results.criteria.replaceChildren(...lines(found.criteria));
    results.policies.replaceChildren(...lines(found.policies));
  };

  const mark = (found) => {
    const name = state.scale === RECOMMENDED ? found.recommended.name : state.scale;
    for (const input of root.querySelectorAll("input[name=live-scale]")) {
      input.checked = input.value === name;
      input.closest("tr").classList.toggle("live-chosen", input.checked);
    }
  };

  const meaningOf = (chosen) => {
    const { name, title, meaning, rule } = chosen;
    const masked = state.causal && rule === undefined && name !== OWN;
    const last = state.causal && isByQuery(chosen);
    const keys = digits(effectiveKeys(state.n, true));
    return [
      meaning && `${title}: ${meaning}`,
      masked && `Under the mask it is one constant for all positions, that of ${keys} keys.`,
      last && "Under the mask each position has its own; this is the last one’s.",
      state.causal && chosen.varies && !last && "It is one number for the whole context.",
    ]
      .filter(Boolean)
      .join(" ");
  };

  const measures = (seen) =>
    `The largest key has ${percent(seen.weights[0])} of the weight, Σp² is ${digits(seen.collision)}, ` +
    `as with ${digits(1 / seen.collision)} equal keys, and the row’s gradient is ${digits(seen.gradient)}.` +
    (state.causal ? " It is the last row of the mask, which sees all keys." : "");

  const root = page({ fields, law, causal, known, results });
  const adopt = () => {
    ({ state, problems } = readAddress(location.hash));
    for (const name of Object.keys(wrong)) delete wrong[name];
    for (const name of ["n", "d", "strength", "g", "v"]) {
      fields[name].show(state[name]);
      if (!problems[name]) continue;
      wrong[name] = problems[name].problem;
      fields[name].entry.value = problems[name].text;
      fields[name].say(problems[name].problem);
    }
    law.show(state.law);
    causal.checked = state.causal;
    known.show(state.known);
    update();
    law.say(problems.law?.problem ?? "");
    results.scaleNote.textContent = problems.scale?.problem ?? "";
  };
  addEventListener("hashchange", () => {
    if (location.hash.includes("=")) adopt();
  });
  adopt();
  return [root];
}

/** Return the calculator's elements in their order. */
function page({ fields, law, causal, known, results }) {
  const columns = (first) =>
    html(
      "thead",
      {},
      html(
        "tr",
        {},
        ...[first, "α, std of the logits", "multiply"].map((text) =>
          html("th", { scope: "col" }, text),
        ),
        html("th", { scope: "col", "data-reach": true, hidden: true }, "finds up to n ="),
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
    html("h2", {}, "What it finds"),
    results.reach,
    legend([["line exact", "mean weight of the key to be found, against n"]]),
    results.reachPictures,
  );
  const told = html(
    "div",
    {},
    results.note,
    html("h2", {}, "The code to paste"),
    lines("PyTorch", results.torch),
    lines("attnlib", results.attnlib),
    results.found,
  );
  const shown = html(
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
    html("table", { class: "live-table" }, columns("criterion"), results.criteria),
    html("table", { class: "live-table" }, columns("in use"), results.policies),
    html(
      "p",
      { class: "live-note" },
      "The address of this page holds your settings: share it, or keep it.",
    ),
  );
  results.all.push(results.why, told, shown);
  return html(
    "form",
    { class: "live-calculator", onsubmit: (event) => event.preventDefault() },
    html(
      "fieldset",
      {},
      html("legend", {}, "Your attention"),
      known.element,
      html(
        "div",
        { class: "live-fields" },
        fields.strength.element,
        fields.g.element,
        fields.v.element,
      ),
      html("div", { class: "live-fields" }, fields.n.element, fields.d.element),
      law.element,
      html("label", { class: "live-check" }, causal, " causal mask"),
    ),
    results.answer,
    results.why,
    results.spoken,
    told,
    html("h2", {}, "What a scale does"),
    html("div", { class: "live-fields" }, fields.alpha.element),
    results.scaleNote,
    shown,
  );
}

function symbolOf({ applied_to }) {
  return applied_to === "cosine" ? "cos" : "q·k";
}

function tableLine(scale, pick, withReach, recommended) {
  const none = scale.alpha === null;
  const input = html("input", {
    type: "radio",
    name: "live-scale",
    value: scale.name,
    disabled: none,
    onchange: () => pick(scale.name),
  });
  const title = recommended ? `${scale.title}: recommended` : scale.title;
  return html(
    "tr",
    {},
    html("th", { scope: "row" }, html("label", { title: scale.meaning }, input, " ", title)),
    html("td", {}, none ? "none" : digits(scale.alpha)),
    html("td", {}, none ? "—" : `${symbolOf(scale)} × ${digits(scale.scale)}`),
    ...(withReach ? [html("td", { "data-reach": scale.name }, none ? "—" : "…")] : []),
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

// What the calculator is told: what is wrong with it, and the address that keeps it.

import { digits, grouped } from "./drawing.js";
import { criticalAlpha } from "./normal.js";
import { POLICIES } from "./policies.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

export const START = {
  ...{ n: 4096, d: 128, unit: false, causal: false },
  ...{ known: "nothing", theta: 6, g: 12, v: 4 },
  ...{ scale: "recommended", own: 1 },
};
export const KNOWN = [
  ["nothing", "nothing: a new model"],
  ["theta", "how far the key to find stands out"],
  ["head", "a trained head, measured by the probe"],
];
export const VECTORS = [
  ["any", "as they are, or RMS-normed: what is multiplied is q·k"],
  ["unit", "of length 1: what is multiplied is their cosine"],
];
export const OWN = "own";
export const RECOMMENDED = "recommended";

const STRONGEST = 30;
const LARGEST_LOGITS = 1000;

/** Largest α on the page, in units of that of freezing. */
const FURTHEST = 30;

// --- what is wrong with an input -----------------------------------------------------------------

/** Return what is wrong with a number of keys, or nothing. */
export function problemOfN(value) {
  const [fewest, most] = TABLE.limits.n;
  if (!Number.isInteger(value)) return "n counts keys: it must be a whole number.";
  if (value === 1) return "One key has all the weight at every scale: n must be at least 2.";
  if (value < fewest) return "n counts keys: it must be at least 2.";
  if (value > most) return `This page ends at n = ${grouped(most)}; attnlib has larger n.`;
  return "";
}

/** Return what is wrong with a dimension, or nothing. */
export function problemOfD(value) {
  const [fewest, most] = TABLE.limits.d;
  if (!Number.isInteger(value)) return "d counts dimensions: it must be a whole number.";
  if (value < 1) return "d counts dimensions: it must be positive.";
  if (value < fewest) return `This page starts at d = ${fewest}; attnlib has smaller d.`;
  if (value > most) return `This page ends at d = ${grouped(most)}.`;
  return "";
}

/** Return what is wrong with an α, or nothing. */
export function problemOfAlpha(value, largest) {
  if (value < 0) return "A negative α would prefer the worst keys: α must be at least 0.";
  if (value > largest)
    return `Here α ends at ${digits(largest)}, ${FURTHEST} times the α of freezing.`;
  return "";
}

/** Return what is wrong with how far a key stands out in standard deviations, or nothing. */
export function problemOfTheta(value) {
  if (value < 0) return "Such a key would be hidden below the others: it must be at least 0.";
  return value > STRONGEST ? `On this page it ends at ${STRONGEST} standard deviations.` : "";
}

/** Return what is wrong with the gap of a head's logits, or nothing. */
export function problemOfGap(value, v) {
  if (value < 0) return "Such a key would be hidden below the others: g must be at least 0.";
  const most = STRONGEST * Math.sqrt(v);
  return value > most ? `With this noise the page ends at g = ${digits(most)}.` : "";
}

/** Return what is wrong with the noise of a head's logits, or nothing. */
export function problemOfNoise(value) {
  if (value <= 0) return "Logits without noise are all equal: v must be above 0.";
  return value > LARGEST_LOGITS ? `On this page v ends at ${LARGEST_LOGITS}.` : "";
}

/** Return, by field, what is asked for and what is wrong with it. */
export function problemsOfKnown({ known, theta, g, v }) {
  if (known === "nothing") return {};
  if (known === "theta") return { theta: problemOfTheta(theta) };
  return { g: problemOfGap(g, v), v: problemOfNoise(v) };
}

/** Return the largest α of the page. */
export function largestAlpha({ n }) {
  return FURTHEST * criticalAlpha(n);
}

// --- the address ---------------------------------------------------------------------------------

/** Return the state that the part of an address behind # describes, and what it cannot mean. */
export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...START };
  const problems = {};
  const read = (name, problemOf) => {
    if (!given.has(name)) return;
    const text = given.get(name).trim();
    const value = text === "" ? NaN : Number(text);
    const problem = Number.isFinite(value) ? problemOf(value) : "This is not a number.";
    if (problem) problems[name] = { text, problem };
    else state[name] = value;
  };
  read("n", problemOfN);
  read("d", problemOfD);
  state.unit = given.get("unit") === "1";
  state.causal = given.get("causal") === "1";
  if (given.has("theta")) state.known = "theta";
  if (given.has("g") || given.has("v")) state.known = "head";
  read("theta", problemOfTheta);
  read("v", problemOfNoise);
  read("g", (value) => problemOfGap(value, state.v));
  const scale = given.get("scale");
  if (scale !== null) {
    const names = [RECOMMENDED, ...[...TABLE.criteria.list, ...POLICIES].map(({ name }) => name)];
    const value = scale.trim() === "" ? NaN : Number(scale);
    const problem = problemOfAlpha(value, largestAlpha(state));
    if (names.includes(scale)) state.scale = scale;
    else if (Number.isNaN(value)) problems.scale = { problem: `There is no scale “${scale}”.` };
    else if (problem) problems.scale = { problem };
    else Object.assign(state, { scale: OWN, own: value });
  }
  return { state, problems };
}

/** Return the part of an address behind # for a state. */
export function writeAddress(state) {
  const short = (value) => Number(value.toPrecision(4));
  const { n, d, unit, causal, known, scale, own } = state;
  const values = { n, d, ...(unit && { unit: 1 }), ...(causal && { causal: 1 }) };
  for (const name of Object.keys(problemsOfKnown(state))) values[name] = short(state[name]);
  return `#${new URLSearchParams({ ...values, scale: scale === OWN ? short(own) : scale })}`;
}

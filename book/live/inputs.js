// What the calculator is told: its fields, what is wrong with them, and the address that keeps them.

import { digits, grouped } from "./drawing.js";
import { criticalAlpha, deviation } from "./laws.js";
import { meanGap } from "./needle.js";
import { POLICIES } from "./policies.js";
import { TABLE } from "./table.js";

export const START = {
  n: 4096,
  d: 128,
  law: "dot product",
  causal: false,
  known: "nothing",
  strength: 6,
  g: 12,
  v: 4,
  scale: "recommended",
  own: 1,
};
export const KNOWN = [
  ["nothing", "nothing: a model at its start"],
  ["gap", "a gap Δ: the key to find is exactly so far above the mean"],
  ["theta", "a strength θ: it is about so far above, and varies as the others do"],
  ["head", "a measured head: gap and variance of its logits"],
];
export const LAWS = [
  ["dot product", "dot products"],
  ["cosine", "cosines"],
  ["normal", "normal, as dot products for d → ∞"],
];
export const OWN = "own";
export const RECOMMENDED = "recommended";

const STRONGEST = 30;
const LARGEST_LOGITS = 1000;
const NUMBERLESS = "This is not a number.";

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

/** Return what is wrong with an α, or nothing. */
export function problemOfAlpha(value, largest) {
  if (value < 0) return "A negative α would prefer the worst keys: α must be at least 0.";
  if (value > largest)
    return `Here α ends at ${digits(largest)}, ${TABLE.gradient.reach} times the α of freezing.`;
  return "";
}

/** Return what is wrong with a key's gap or strength in standard deviations, or nothing. */
export function problemOfStrength(value, { known, law, d }) {
  if (value < 0) return "Such a key would be hidden below the others: it must be at least 0.";
  if (value > STRONGEST) return `On this page it ends at ${STRONGEST} standard deviations.`;
  if (known === "gap" && law === "cosine" && value > Math.sqrt(d))
    return `A cosine is at most 1: the gap is at most √d = ${digits(Math.sqrt(d))}.`;
  return "";
}

/** Return what is wrong with the gap of a head's logits, or nothing. */
export function problemOfGap(value, { v, law, d }) {
  if (value < 0) return "Such a key would be hidden below the others: g must be at least 0.";
  const most = Math.sqrt(v) * meanGap({ kind: law, d }, { kind: "theta", strength: STRONGEST });
  if (value > most)
    return `With this variance the page ends at g = ${digits(most)}: it knows no stronger key.`;
  return "";
}

/** Return what is wrong with the variance of a head's logits, or nothing. */
export function problemOfVariance(value) {
  if (value <= 0) return "Logits without variance are all equal: v must be above 0.";
  if (value > LARGEST_LOGITS) return `On this page v ends at ${LARGEST_LOGITS}.`;
  return "";
}

/** Return what cannot be among what is known of the key to find, by field. */
export function problemsOfKnown(state) {
  const { known } = state;
  if (known === "nothing") return {};
  if (known !== "head") return { strength: problemOfStrength(state.strength, state) };
  return { g: problemOfGap(state.g, state), v: problemOfVariance(state.v) };
}

/** Return the law of a state's scores. */
export function lawOf({ law, d }) {
  return { kind: law, d };
}

/** Return the α of freezing in standard deviations. */
export function freezing(state) {
  const law = lawOf(state);
  return criticalAlpha(law, state.n) * deviation(law);
}

/** Return the largest α of the tables. */
export function largestAlpha(state) {
  return TABLE.gradient.reach * freezing(state);
}

// --- the address ---------------------------------------------------------------------------------

/** Return the state that the part of an address behind # describes, and what it cannot mean. */
export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...START };
  const problems = {};
  const read = (name, problemOf, into = name) => {
    if (!given.has(name)) return;
    const text = given.get(name).trim();
    const value = text === "" ? NaN : Number(text);
    const problem = Number.isFinite(value) ? problemOf(value) : NUMBERLESS;
    if (problem) problems[into] = { text, problem };
    else state[into] = value;
  };
  read("n", problemOfN);
  read("d", problemOfD);
  const law = given.get("law")?.replace(/[-_+]/g, " ");
  if (law !== undefined && LAWS.some(([name]) => name === law)) state.law = law;
  else if (law !== undefined) problems.law = { text: law, problem: `There is no law “${law}”.` };
  state.causal = given.get("causal") === "1";
  for (const known of ["gap", "theta"])
    if (given.has(known)) {
      state.known = known;
      read(known, (value) => problemOfStrength(value, state), "strength");
    }
  if (given.has("g") || given.has("v")) {
    state.known = "head";
    read("v", problemOfVariance);
    read("g", (value) => problemOfGap(value, state));
  }
  const scale = given.get("scale");
  if (scale !== null) {
    const found = state.known === "nothing" ? [] : TABLE.criteria.needle;
    const listed = [{ name: RECOMMENDED }, ...TABLE.criteria.list, ...found, ...POLICIES];
    const value = scale.trim() === "" ? NaN : Number(scale);
    const problem = problemOfAlpha(value, largestAlpha(state));
    if (listed.some(({ name }) => name === scale)) state.scale = scale;
    else if (Number.isNaN(value))
      problems.scale = { text: "", problem: `There is no scale “${scale}”.` };
    else if (problem) problems.scale = { text: scale, problem };
    else Object.assign(state, { scale: OWN, own: value });
  }
  return { state, problems };
}

/** Return the part of an address behind # for a state. */
export function writeAddress({ n, d, law, causal, known, strength, g, v, scale, own }) {
  const short = (value) => Number(value.toPrecision(4));
  const values = { n, d, law: law.replace(" ", "-"), causal: causal ? 1 : 0 };
  if (known === "head") Object.assign(values, { g: short(g), v: short(v) });
  else if (known !== "nothing") values[known] = short(strength);
  values.scale = scale === OWN ? short(own) : scale;
  return `#${new URLSearchParams(values)}`;
}

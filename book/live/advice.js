// The calculator's numbers: every scale for a state, the one that the book recommends and why, and how
// far a scale finds a key. Scores are normal; α is the standard deviation of the logits: of random q
// and k, or of the head that was measured, under 1/√d, and would then get this scale.

import { criteria } from "./criteria.js";
import { digits, grouped, percent } from "./drawing.js";
import { OWN, problemsOfKnown, RECOMMENDED } from "./inputs.js";
import { leastAlpha, needleAt, reachOf } from "./normal.js";
import { POLICIES, policyAlpha, policyScale } from "./policies.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

/** Return the key to find, of a strength in standard deviations; null: none is known, or can be. */
export function needleOf(state) {
  const { known, theta, g, v } = state;
  const problems = Object.values(problemsOfKnown(state));
  if (!problems.length || problems.some(Boolean)) return null;
  return { kind: "theta", strength: known === "head" ? g / Math.sqrt(v) : theta };
}

/** Return the standard deviation of the logits at 1/√d, or √d on cosines: 1 for random q and k. */
export function unitOf({ known, v }) {
  return known === "head" ? Math.sqrt(v) : 1;
}

/** Return an α of a state as a scale: what it multiplies q·k or the cosine with. */
function scaleOf(state, name, meaning, alpha) {
  const factor = (state.unit ? Math.sqrt(state.d) : 1 / Math.sqrt(state.d)) / unitOf(state);
  const applied_to = state.unit ? "cosine" : "dot product";
  return { name, title: name, meaning, alpha, applied_to, scale: alpha === null ? null : alpha * factor };
}

/** Return every scale for a state, with the mean weight that it gives the key to be found. */
export function scales(state) {
  const { n, d } = state;
  const unit = unitOf(state);
  const meant = needleOf(state);
  const weighed = (scale) => ({
    ...scale,
    weight: meant && scale.alpha !== null ? needleAt(meant, scale.alpha).weight(n) : null,
  });
  const alphas = {
    ...criteria(n),
    ...(meant && { finding: meant.strength, least: leastAlpha(meant.strength, n) }),
  };
  const found = TABLE.criteria.list
    .filter(({ name }) => name in alphas)
    .map(({ name, meaning }) => weighed(scaleOf(state, name, meaning, alphas[name])));
  const inUse = POLICIES.map((policy) => {
    const foreign = state.known === "head" && (policy.applied_to === "cosine") !== state.unit;
    const alpha = (keys) => unit * policyAlpha(policy, keys, d);
    return weighed({
      ...policy,
      alpha: foreign ? null : alpha(n),
      scale: foreign ? null : policyScale(policy, n, d),
      varies: TABLE.limits.n.some((keys) => alpha(keys) !== alpha(n)),
    });
  });
  const advised = { theta: "finding", head: state.unit ? "qk_norm" : "transformer" };
  const advice = (meant && advised[state.known]) ?? "variance";
  const recommended = [...found, ...inUse].find(({ name }) => name === advice);
  return { criteria: found, policies: inUse, recommended };
}

/** Return the scale of a state's name, or undefined. */
export function chosenOf(found, state) {
  if (state.scale === OWN) return { ...scaleOf(state, OWN, "", state.own), title: "your own α" };
  if (state.scale === RECOMMENDED) return found.recommended;
  return [...found.criteria, ...found.policies].find(({ name }) => name === state.scale);
}

/** Return in words why the book recommends its scale, as texts and [text, page] pairs. */
export function reason({ known, unit, d, g, v }) {
  if (known === "nothing")
    return [
      `It is ${unit ? "√d on the cosine" : "1/√d"}: α = 1 in heads of every size, for every n. In a `,
      ["decoder of four layers with 64-dimensional heads", "training_details"],
      unit
        ? ", at one learning rate, it trained as well as 1/√d on q·k."
        : ", at one learning rate, none of the four other scales that we tried trained better.",
      ...(d < 256 || unit ? [] : [" A decoder with ", ["one head of 256", "unscaled"], " trained slightly better with 1/d."]),
    ];
  if (known === "theta")
    return [
      "It has the ",
      ["least mean loss", "retrieval"],
      ", α = Δ, for every number of keys, if the key’s score varies as the others do: no rule in n is needed. " +
        `A new model with many heads begins at ${unit ? "√d on the cosine" : "1/√d"} all the same; `,
      ["measure", "calibration"],
      " a trained one.",
    ];
  return [
    `It leaves the head as it is, if ${unit ? "√d multiplies its cosines" : "1/√d is its scale"}, until you measure `,
    ["the model’s own loss", "calibration"],
    `. For this target alone, in normal noise, ${digits(g / v)} times the logits would have the least `,
    ["loss of finding it", "retrieval"],
    " (finding, below), but a head may do more than find one key: in SmolLM2 ",
    ["such factors did not predict", "calibration"],
    " where the model’s loss falls.",
  ];
}

/**
 * Return what becomes of the key to find under a scale: its mean weight here and as points against
 * n, and the largest n at which it has half; null where none is known. A rule follows n.
 */
export function finding(state, chosen) {
  const meant = needleOf(state);
  if (!meant) return null;
  const rule = (n) => unitOf(state) * policyAlpha(chosen, n, state.d);
  return {
    ...reachOf(meant, chosen.varies ? rule : chosen.alpha, TABLE.limits.n),
    weight: needleAt(meant, chosen.alpha).weight(state.n),
  };
}

/** Return in words how far a scale finds the key. */
export function reachInWords({ points, reach, weight }, n) {
  const lost = points.some(([keys, height]) => keys < reach && height < 0.5 - 1e-6);
  let until = `up to n = ${grouped(Number(reach.toPrecision(3)))}`;
  if (reach === Infinity) until = `in all rows of this page, which end at n = ${grouped(TABLE.limits.n[1])}`;
  if (reach < 2) until = "in no row";
  return (
    `The key to be found has ${percent(weight)} of the weight among ${grouped(n)} keys, in the ` +
    `mean, and half or more ${until}${lost ? ", though not in all shorter ones" : ""}.`
  );
}

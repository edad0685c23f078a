// The calculator's numbers: every scale for a state, the one that the book recommends and why, what
// a scale does to a sample row, and how far it finds a key.

import { criteria, effectiveKeys } from "./criteria.js";
import { digits, grouped, percent, SHOWN } from "./drawing.js";
import { lawOf, OWN, problemsOfKnown, RECOMMENDED } from "./inputs.js";
import { annealedGradient, causalGradient, deviation, meanGradient, root } from "./laws.js";
import { bestAlpha, leastAlpha, meanGap, needleWeight, reaches, reachOf } from "./needle.js";
import { POLICIES, policyAlpha, policyScale } from "./policies.js";
import { sampleRow, weigh, withNeedle } from "./rows.js";
import { TABLE } from "./table.js";

/** Return the key to find, of a strength in standard deviations; null: none is known, or can be. */
export function needleOf(state) {
  const { known, strength, g, v } = state;
  if ((known ?? "nothing") === "nothing") return null;
  if (Object.values(problemsOfKnown(state)).some(Boolean)) return null;
  if (known !== "head") return { kind: known, strength };
  const [law, gap] = [lawOf(state), g / Math.sqrt(v)];
  if (law.kind !== "cosine") return { kind: "theta", strength: gap };
  const above = (theta) => meanGap(law, { kind: "theta", strength: theta }) - gap;
  return { kind: "theta", strength: gap > 0 ? root(above, 0, 31) : 0 };
}

/** Return the standard deviation of the logits at 1/√d, or √d on cosines: 1 for random q and k. */
export function unitOf({ known, v }) {
  return known === "head" ? Math.sqrt(v) : 1;
}

/**
 * Return every scale for a state: what it multiplies and with what, and its α, which on this page
 * is always the standard deviation of the logits: of random q and k, or of the head that was
 * measured, under 1/√d, and would then get this scale.
 */
export function scales(state) {
  const { n, d, causal } = state;
  const law = lawOf(state);
  const unit = unitOf(state);
  const cosine = law.kind === "cosine";
  const applied_to = cosine ? "cosine" : "dot product";
  const factor = (cosine ? Math.sqrt(d) : 1 / Math.sqrt(d)) / unit;
  const withScale = (alpha) => ({
    alpha,
    applied_to,
    scale: alpha === null ? null : alpha * factor,
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
  const inUse = POLICIES.map((policy) => {
    const foreign = state.known === "head" && policy.applied_to !== applied_to;
    const alpha = (keys) => unit * policyAlpha(policy, keys, d);
    return {
      ...policy,
      alpha: foreign ? null : alpha(n),
      scale: foreign ? null : policyScale(policy, n, d),
      varies: TABLE.limits.n.some((keys) => alpha(keys) !== alpha(n)),
    };
  });
  const own = { name: OWN, title: "your own α", meaning: "", ...withScale(state.own) };
  const best = found.find(({ name }) => name === (meant ? "finding" : "variance"));
  const other = found.find(({ name, alpha }) => name === "least" && alpha !== null);
  const recommended = best.alpha === null ? (other ?? found[0]) : best;
  return {
    criteria: found,
    policies: inUse,
    own,
    recommended,
    keys: effectiveKeys(n, causal),
  };
}

/** Return the scale of a state's name, or undefined. */
export function chosenOf(found, { scale }) {
  if (scale === RECOMMENDED) return found.recommended;
  return [...found.criteria, ...found.policies, found.own].find(({ name }) => name === scale);
}

/** Return in words why the book recommends its scale, as texts and [text, page] pairs. */
export function reason(state, { recommended }) {
  if (state.known === "nothing")
    return [
      `It is ${state.law === "cosine" ? "√d on the cosine" : "1/√d"}. `,
      "No other scale is seen to train better in the small model of ",
      ["the chapter on training", "training.html"],
      ", and a scale that suits random rows says nothing of what a head should find.",
    ];
  if (state.known === "gap")
    return [
      "It has the ",
      ["least mean loss", "needle.html"],
      " for a key whose own score does not vary: Δ itself among very many keys, up to 2Δ among few.",
    ];
  if (state.known === "theta")
    return [
      "It has the ",
      ["least mean loss", "needle.html"],
      ", α = θ, for every number of keys: no law in n is needed.",
    ];
  const { g, v, law } = state;
  const factor = recommended.alpha / Math.sqrt(v);
  const measure =
    law === "cosine"
      ? "For cosines the gap is to be κ′(1), the slope of the other logits"
      : `Gap over variance is ${digits(g / v)}`;
  const larger = factor * factor;
  return [
    `${measure}: its logits want the `,
    ["factor", "needle.html"],
    ` ${digits(factor)}, the same at every length. `,
    factor > 1
      ? `A law in n that multiplies them by r is better than none only where r < ${digits(larger)}, `
      : "A law in n makes it worse, ",
    ["as trained heads show", "length.html"],
    ". If its gap grows with the length, so should its scale.",
  ];
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

/** Return α as a function of n under a scale: a criterion is one for every n. */
function ruleOf(state, chosen) {
  return chosen.varies ? (n) => unitOf(state) * policyAlpha(chosen, n, state.d) : chosen.alpha;
}

/**
 * Return what becomes of the key to find under a scale: its mean weight here and as points against
 * n, the largest n at which it has half, and a sample row with it; null where none is known.
 */
export function finding(state, chosen) {
  const meant = needleOf(state);
  if (!meant) return null;
  const law = lawOf(state);
  const row = withNeedle(sampleRow(law, state.n - 1), meanGap(law, meant) * deviation(law));
  return {
    ...reachOf(law, meant, ruleOf(state, chosen)),
    weight: needleWeight(law, meant, chosen.alpha)(state.n),
    seen: weigh(row, chosen.alpha / deviation(law)),
    place: row.place,
  };
}

/** Return the reach of each scale by its name; nothing where no key is known. */
export function reachOfEach(state, found) {
  const meant = needleOf(state);
  if (!meant) return {};
  const known = [...found.criteria, ...found.policies].filter(({ alpha }) => alpha !== null);
  const rules = known.map((scale) => ruleOf(state, scale));
  const each = reaches(lawOf(state), meant, rules);
  return Object.fromEntries(known.map(({ name }, i) => [name, each[i]]));
}

/** Return a reach in figures, three of them where it is long: columns of a phone are narrow. */
export function reachInFigures(reach) {
  if (reach === Infinity) return `>\u00a0${reachInFigures(TABLE.limits.n[1])}`;
  if (reach < 2) return "none";
  const [mantissa, power] = reach.toExponential(2).split("e+");
  return reach < 1e5 ? grouped(reach) : `${mantissa}·10${"⁰¹²³⁴⁵⁶⁷⁸⁹"[power]}`;
}

/** Return in words how far a scale finds the key. */
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

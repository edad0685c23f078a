// The three laws of a score: critical α, the approximate gradient, the exact mean gradient.
// The formulas are those of attnlib; a law is {kind: "normal", "dot product" or "cosine", d}.

import { contract, evaluate, interpolate, place, unpack } from "./chebyshev.js";
import { TABLE } from "./table.js";

const GRADIENT = unpack(TABLE.gradient);
const DEBYE = TABLE.debye.map((values) => ({
  values,
  slopes: values.slice(1).map((coefficient, i) => coefficient * (i + 1)),
}));

/** The order from which on the expansion of the Bessel function I in DEBYE is used. */
const LARGE_ORDER = 25;

/** α over that of freezing, x, is x/(1 + x) in the tables; this is its largest value there. */
const LARGEST_SHARE = TABLE.gradient.reach / (1 + TABLE.gradient.reach);

/** Positions of a causal mask that are counted one by one. */
const FEW = 24;

/** Points through which the polynomial for a causal mask goes. */
const MASK_POINTS = 40;

/** Return the standard deviation of a score. */
export function deviation(law) {
  return law.kind === "cosine" ? 1 / Math.sqrt(law.d) : 1;
}

/**
 * Return where an increasing function is 0, between low and high, or the end at which it is not on
 * the other side. False position, the value at an end that stays halved (the Illinois method), and
 * every fourth step a bisection, so that it is never slow.
 */
export function root(f, low, high) {
  let [below, above, stayed] = [f(low), f(high), 0];
  if (below >= 0) return low;
  if (above <= 0) return high;
  for (let step = 0; step < 200 && high - low > Number.EPSILON * Math.abs(low + high); step++) {
    let middle = (low * above - high * below) / (above - below);
    if (step % 4 === 3 || !(middle > low && middle < high)) middle = (low + high) / 2;
    const value = f(middle);
    if (value > 0) {
      [high, above] = [middle, value];
      if (stayed < 0) below /= 2;
      stayed = -1;
    } else {
      [low, below] = [middle, value];
      if (stayed > 0) above /= 2;
      stayed = 1;
    }
  }
  return (low + high) / 2;
}

function polynomial(coefficients, x) {
  return coefficients.reduceRight((sum, c) => sum * x + c, 0);
}

/**
 * For κ(α) = log E exp(α cos) return α − κ, κ′ and 1 − κ′, as attnlib.special does: at a large order
 * the uniform expansion of I, from there down by recurrence.
 */
export function cosineMoments(d, alpha) {
  const order = d / 2 - 1;
  const steps = Math.max(0, Math.ceil(LARGE_ORDER - order));
  let mu = order + steps;
  const x = alpha / mu;
  const r = Math.hypot(1, x);
  const p = 1 / r;
  const delta = (x * x) / (1 + r);
  let [value, slope, atOne] = [0, 0, 0];
  for (const [k, u] of DEBYE.entries()) {
    value += polynomial(u.values, p) / mu ** k;
    slope += polynomial(u.slopes, p) / mu ** k;
    atOne += polynomial(u.values, 1) / mu ** k;
  }
  let deficit = mu * ((delta + x) / (r + x) + Math.log1p(delta / 2));
  deficit += Math.log(r) / 2 - Math.log(value / atOne);
  const correction = ((-slope * x * p ** 3) / value - (x * p * p) / 2) / mu;
  let first = x / (1 + r) + correction;
  let complement = (1 + 1 / (r + x)) / (1 + r) - correction;
  for (let step = 0; step < steps; step++, mu--) {
    const turn = (2 * mu) / alpha;
    const lower = 1 / (first + turn);
    complement = (turn - complement) * lower;
    deficit += Math.log(turn * lower);
    first = lower;
  }
  return { deficit, first, complement };
}

/** Return the α where rows of so many keys freeze: ακ′ − κ = log(keys). */
export function criticalAlpha(law, keys) {
  const logKeys = Math.log(keys);
  if (law.kind !== "cosine" || keys <= 1) return Math.sqrt(2 * logKeys);
  const excess = (logAlpha) => {
    const alpha = Math.exp(logAlpha);
    const at = cosineMoments(law.d, alpha);
    return at.deficit - alpha * at.complement - logKeys;
  };
  const low = Math.log(2 * logKeys) / 2;
  return Math.exp(root(excess, low, Math.log(law.d) + 2 + (2 * logKeys) / (law.d - 1)));
}

// --- the approximation ---------------------------------------------------------------------------

/** Return R(α) = log(n Σp²) of the approximation. */
function logRatio({ kind, d }, alpha) {
  if (alpha === 0) return 0;
  if (kind === "normal") return alpha * alpha;
  if (kind === "cosine")
    return 2 * cosineMoments(d, alpha).deficit - cosineMoments(d, 2 * alpha).deficit;
  const share = (2 * alpha * alpha) / d;
  return share < 1 ? (-d / 2) * Math.log1p(-share) : Infinity;
}

/** Return the approximate gradient α(1 − e^R/n). */
export function annealedGradient(law, alpha, keys) {
  return alpha === 0 ? 0 : -alpha * Math.expm1(logRatio(law, alpha) - Math.log(keys));
}

/** Return the α that maximises the approximate gradient: R + log(1 + αR′) = log n. */
export function annealedBestAlpha(law, keys) {
  const logKeys = Math.log(keys);
  if (law.kind === "normal")
    return Math.sqrt(root((y) => y + Math.log1p(2 * y) - logKeys, 0, logKeys));
  if (law.kind === "dot product") {
    const balance = (y) => (law.d * y) / 2 + Math.log1p(law.d * Math.expm1(y)) - logKeys;
    return Math.sqrt((-law.d / 2) * Math.expm1(-root(balance, 0, (2 * logKeys) / law.d)));
  }
  const balance = (logAlpha) => {
    const alpha = Math.exp(logAlpha);
    const [one, two] = [cosineMoments(law.d, alpha), cosineMoments(law.d, 2 * alpha)];
    const rise = one.first < 0.5 ? two.first - one.first : one.complement - two.complement;
    return 2 * one.deficit - two.deficit + Math.log1p(2 * alpha * rise) - logKeys;
  };
  const middle = Math.log(Math.sqrt(law.d));
  return Math.exp(root(balance, middle - 7, Math.log(criticalAlpha(law, keys)) + 1));
}

// --- the exact mean ------------------------------------------------------------------------------

/** Return the exact mean gradient of rows of n keys as a function of α. */
export function meanGradient(law, n) {
  return gradientOf(law, seriesOf(law)(n), criticalAlpha(law, n));
}

/** Return the exact mean gradient over the positions of a causal mask as a function of α. */
export function causalGradient(law, n) {
  const series = seriesOf(law);
  const rows = positions(n).map(({ keys, weight }) => ({
    weight,
    series: series(keys),
    unit: criticalAlpha(law, keys),
  }));
  const unit = criticalAlpha(law, n);
  const mean = interpolate((v) => {
    const share = ((v + 1) / 2) * LARGEST_SHARE;
    const x = share / (1 - share);
    const add = (sum, row) => sum + row.weight * complement(row.series, (x * unit) / row.unit);
    return Math.log((1 + x) * rows.reduce(add, 0));
  }, MASK_POINTS);
  return gradientOf(law, mean, unit);
}

/** Return a function of n that returns log[(1 + x) E(1 − Σp²)] as a polynomial in x's place. */
function seriesOf(law) {
  const { inverse_d, root_log_n } = TABLE.gradient;
  const ofLaw = contract(GRADIENT, place(law.kind === "cosine" ? 1 / law.d : 0, inverse_d));
  return (n) => contract(ofLaw, place(Math.sqrt(Math.log(n)), root_log_n));
}

/** Return E(1 − Σp²) at α = x units. Beyond the reach of the tables the gradient stays as it is. */
function complement(series, x) {
  const near = Math.min(x, TABLE.gradient.reach);
  const logarithm = evaluate(series, place(near / (1 + near), [0, LARGEST_SHARE]));
  return (Math.exp(logarithm) / (1 + near)) * (x > near ? near / x : 1);
}

/** Return the gradient as a function of α; dot products are normal scores given the query. */
function gradientOf(law, series, unit) {
  const queries = law.kind === "dot product" ? queryLengths(law.d) : [{ length: 1, weight: 1 }];
  return (alpha) => {
    const add = (sum, { length, weight }) =>
      sum + weight * complement(series, (alpha * length) / unit);
    return alpha * queries.reduce(add, 0);
  };
}

/** Return lengths |q|/√d of a random query with their weights: given it, scores are normal. */
export function queryLengths(d, count = 29) {
  const low = -9 / d - 4.2 / Math.sqrt(2 * d);
  const high = 4.2 / Math.sqrt(2 * d);
  const points = Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
  const weights = points.map((w) => Math.exp(d * (w - Math.exp(2 * w) / 2 + 0.5)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return points.map((w, i) => ({ length: Math.exp(w), weight: weights[i] / total }));
}

/**
 * Return numbers of keys with weights, to average over the positions of a causal mask. The first
 * position has one key and no gradient. Beyond a few the sum is an integral over the logarithm.
 */
function positions(n) {
  const result = [];
  for (let keys = 2; keys <= Math.min(n, FEW); keys++) result.push({ keys, weight: 1 / n });
  if (n <= FEW) return result;
  const [low, high] = [Math.log(FEW + 0.5), Math.log(n + 0.5)];
  const steps = 2 * Math.ceil(2 * (high - low)); // Simpson's rule wants an even number
  for (let i = 0; i <= steps; i++) {
    const keys = Math.exp(low + ((high - low) * i) / steps);
    const part = i === 0 || i === steps ? 1 : i % 2 ? 4 : 2;
    result.push({ keys, weight: ((part * (high - low)) / (3 * steps)) * (keys / n) });
  }
  return result;
}

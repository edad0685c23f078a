// One key that is meant: its mean weight, the scale that finds it, and how far a scale reaches.
// The integrals are those of attnlib.retrieval, by the trapezoidal rule on one grid of αs and u.

import { EULER_GAMMA } from "./criteria.js";
import { cosineMoments, criticalAlpha, deviation, queryLengths } from "./laws.js";
import { TABLE } from "./table.js";

/** Step of the grid of u, and the longest of the grid of scores, in standard deviations. */
const STEP = 0.5;
const LONGEST = 0.4;
const LONGEST_IN_FEW_DIMENSIONS = 0.1;

/** Scores so far below u add nothing to E[1 − exp(−e^{αs−u})], and those above add all. */
const BELOW = -40;
const ABOVE = 5;

/** Below this α the grids would fill the memory; what is asked for is no longer moved by it. */
const SMALLEST = 1e-3;

const POINTS = 64;

/** Return how far above the other keys the needle is in the mean, in standard deviations. */
export function meanGap(law, { kind, strength }) {
  if (kind === "gap" || law.kind !== "cosine" || strength === 0) return strength;
  return cosineMoments(law.d, strength * Math.sqrt(law.d)).first * Math.sqrt(law.d);
}

/** Return the α, in standard deviations, from which on the needle outweighs n others, or null. */
export function leastAlpha(law, needle, n) {
  const gap = meanGap(law, needle);
  const left = gap * gap - 2 * Math.log(n);
  return gap > 0 && left >= 0 ? (2 * Math.log(n)) / (gap + Math.sqrt(left)) : null;
}

/** Return the α of the least mean loss, in standard deviations; null beyond the tables' reach. */
export function bestAlpha(law, needle, n) {
  if (needle.kind === "theta") return needle.strength;
  if (needle.strength <= 0) return 0;
  const slope = (alpha) => {
    const add = (sum, part) => sum + part.weight * part.rows().slope(n);
    return partsOf(law, needle, alpha).reduce(add, 0);
  };
  let [low, high] = [0, 1];
  const largest = TABLE.gradient.reach * criticalAlpha(law, n) * deviation(law);
  while (slope(high) <= 0) {
    if (high >= largest) return null;
    [low, high] = [high, Math.min(2 * high, largest)];
  }
  while (high - low > 1e-6 * high) {
    const middle = (low + high) / 2;
    if (slope(middle) > 0) high = middle;
    else low = middle;
  }
  return (low + high) / 2;
}

/** Return the needle's mean weight as a function of n, at an α in standard deviations. */
export function needleWeight(law, needle, alpha) {
  if (alpha === 0) return (n) => 1 / n;
  const parts = partsOf(law, needle, alpha).map(({ weight, rows }) => ({ weight, rows: rows() }));
  return (n) => parts.reduce((sum, { weight, rows }) => sum + weight * rows.mean(n), 0);
}

/** Return the mean loss −log p of the needle as a function of n, at an α of independent scores. */
export function meanLoss(law, needle, alpha) {
  if (alpha === 0) return (n) => Math.log(n);
  return independent(law, needle.kind, needle.strength, alpha).loss;
}

/**
 * Return the mean weight as points [n, weight] under a rule, a function of n or a number, and the
 * largest whole n with half of the weight: Infinity if that is beyond the limits.
 */
export function reachOf(law, needle, rule, limits = TABLE.limits.n) {
  const constant = typeof rule === "number" && needleWeight(law, needle, rule);
  const weight = (n) => (constant || needleWeight(law, needle, rule(n)))(n);
  const [first, end] = limits.map(Math.log);
  const points = Array.from({ length: POINTS + 1 }, (_, i) => {
    const n = Math.exp(first + ((end - first) * i) / POINTS);
    return [n, weight(n)];
  });
  const last = points.findLastIndex(([, height]) => height >= 0.5 - 1e-9);
  if (last === POINTS) return { points, reach: Infinity };
  if (last < 0) return { points, reach: 1 };
  let [low, high] = [points[last][0], points[last + 1][0]];
  while (Math.floor(high) > Math.floor(low) && high / low > 1 + 1e-6) {
    const middle = Math.sqrt(low * high);
    if (weight(middle) >= 0.5 - 1e-9) low = middle;
    else high = middle;
  }
  return { points, reach: Math.floor(low * (1 + 1e-6)) };
}

/** Points in log α between which the reach is interpolated, and how far apart they are at most. */
const COARSE = 0.16;
const SMALLEST_ALPHA = 0.02;

/**
 * Return for each rule, a function of n or a number, the largest whole n with half of the weight, as
 * `reachOf`: all from the reach of some αs, since at one α the weight only falls with n.
 */
export function reaches(law, needle, rules) {
  const [first, end] = TABLE.limits.n.map(Math.log);
  const places = Array.from({ length: POINTS + 1 }, (_, i) => first + ((end - first) * i) / POINTS);
  const at = (rule, logN) => (typeof rule === "number" ? rule : rule(Math.exp(logN)));
  const alphas = rules.flatMap((rule) => places.map((logN) => Math.max(at(rule, logN), 1e-9)));
  const low = Math.log(Math.max(Math.min(...alphas), SMALLEST_ALPHA));
  const high = Math.max(Math.log(Math.max(...alphas)), low + COARSE);
  const steps = Math.max(Math.ceil((high - low) / COARSE), 3);
  const logs = Array.from({ length: steps + 1 }, (_, i) =>
    logReach(law, needle, Math.exp(low + ((high - low) * i) / steps), end + 4),
  );
  const excess = (rule, logN) => {
    const place = ((Math.log(Math.max(at(rule, logN), 1e-9)) - low) / (high - low)) * steps;
    return cubic(logs, Math.min(Math.max(place, 0), steps)) - logN + 1e-9;
  };
  return rules.map((rule) => {
    const last = places.findLastIndex((logN) => excess(rule, logN) >= 0);
    if (last === POINTS) return Infinity;
    if (last < 0) return 1;
    let [from, to] = [places[last], places[last + 1]];
    while (to - from > 1e-7 && Math.floor(Math.exp(to)) > Math.floor(Math.exp(from))) {
      const middle = (from + to) / 2;
      if (excess(rule, middle) >= 0) from = middle;
      else to = middle;
    }
    return Math.floor(Math.exp(from) * (1 + 1e-6));
  });
}

/** Return the logarithm of the n at which the needle has half of the weight, at most `end`. */
function logReach(law, needle, alpha, end) {
  const weight = needleWeight(law, needle, alpha);
  let [low, high] = [0, end];
  if (weight(Math.exp(high)) >= 0.5) return high;
  while (high - low > 1e-8) {
    const middle = (low + high) / 2;
    if (weight(Math.exp(middle)) >= 0.5) low = middle;
    else high = middle;
  }
  return low;
}

/** Return the cubic through the four values around a place among them. */
function cubic(values, place) {
  const first = Math.min(Math.max(Math.floor(place) - 1, 0), values.length - 4);
  let total = 0;
  for (let i = 0; i < 4; i++) {
    let term = values[first + i];
    for (let j = 0; j < 4; j++) if (j !== i) term *= (place - first - j) / (i - j);
    total += term;
  }
  return total;
}

/** Return the parts of a mixture: weights, and functions that return the rows of one part. */
function partsOf(law, { kind, strength }, alpha) {
  if (law.kind !== "dot product") {
    const rows = () => independent(law, kind, strength, alpha);
    return [{ weight: 1, rows }];
  }
  return queryLengths(law.d, law.d < 64 ? 57 : 29).map(({ length, weight }) => ({
    weight,
    rows: () =>
      independent(
        { kind: "normal" },
        kind,
        kind === "gap" ? strength / length : strength * length,
        alpha * length,
      ),
  }));
}

/** Return functions of n for independent scores, in units of their standard deviation. */
function independent(law, kind, strength, alpha) {
  const scale = Math.max(alpha, SMALLEST);
  const share = law.kind === "cosine" ? meanGap(law, { kind, strength }) ** 2 / law.d : 0;
  const narrow = kind === "theta" ? 1 - share : 1; // towards the end of the cosines' range
  const longest = law.kind === "cosine" && law.d < 40 ? LONGEST_IN_FEW_DIMENSIONS : LONGEST;
  const fine = Math.max(1, Math.ceil(STEP / (longest * narrow * scale)));
  const h = STEP / fine;
  const others = lattice(law, 0, scale, h);
  const tilted = kind === "theta" && lattice(law, strength, scale, h);
  const level = scale * strength;
  const [lowest, highest] = [Math.round(BELOW / h), Math.round(ABOVE / h)];
  const [missed, density] = [new Float64Array(highest - lowest), new Float64Array(highest - lowest)];
  for (let m = lowest; m < highest; m++) {
    const power = Math.exp(m * h);
    missed[m - lowest] = -Math.expm1(-power);
    density[m - lowest] = power * Math.exp(-power);
  }
  const top = tilted ? (tilted.first + tilted.masses.length) * h : Math.max(level, 8 * scale);
  const bottom = tilted ? tilted.first * h : level;
  const from = Math.floor((bottom - ABOVE) / STEP);
  const count = Math.ceil((top + 30) / STEP) - from;
  const [beaten, own, bent, below] = [0, 0, 0, 0].map(() => new Float64Array(count));
  const survived = new Float64Array(count);
  for (let j = 0; j < count; j++) {
    const u = (from + j) * STEP;
    const start = (from + j) * fine + lowest;
    beaten[j] = average(others, missed, start) + others.above(start + missed.length);
    bent[j] = average(others, density, start, (i) => i * h - level);
    own[j] = tilted ? average(tilted, density, start) : Math.exp(level - u - Math.exp(level - u));
    survived[j] = Math.exp(-Math.exp(level - u));
    below[j] = tilted
      ? 1 - average(tilted, missed, start) - tilted.above(start + missed.length)
      : survived[j];
  }
  const among = (chance, keys) => Math.exp(keys * Math.log1p(-Math.min(chance, 1 - 1e-16)));
  const sum = (values, keys) => {
    let total = 0;
    for (let j = 0; j < count; j++)
      total += values[j] * among(beaten[j], keys);
    return STEP * total;
  };
  const middle = scale * meanGap(law, { kind, strength });
  return {
    mean: (n) => sum(own, n - 1),
    // E log Z is Euler's γ less than the mean of the largest αs + X, X as Gumbel's variables.
    loss: (n) => {
      const largest = below.reduce((total, p, j) => {
        const beyond = 1 - p * among(beaten[j], n - 1);
        return total + (j ? beyond : beyond / 2);
      }, from);
      return STEP * largest - EULER_GAMMA - middle;
    },
    slope: (n) => sum(bent.map((value, j) => value * survived[j]), Math.max(n - 2, 0)),
  };
}

/** Return E Σp² of n normal scores, n ∫ E[w²e^(−w)] φ^(n−1) du with w = e^(αs−u), at any n. */
export function meanCollision(alpha, n) {
  if (alpha === 0) return 1 / n;
  const scale = Math.max(alpha, SMALLEST);
  const fine = Math.max(1, Math.ceil(STEP / (LONGEST * scale)));
  const h = STEP / fine;
  const scores = lattice({ kind: "normal" }, 0, scale, h);
  const lowest = Math.round(BELOW / h);
  const powers = Float64Array.from({ length: Math.round(ABOVE / h) - lowest }, (_, i) =>
    Math.exp((lowest + i) * h),
  );
  const missed = powers.map((w) => -Math.expm1(-w));
  const squared = powers.map((w) => w * w * Math.exp(-w));
  let total = 0;
  for (let j = Math.floor(-ABOVE / STEP); j * STEP < 12 * scale + 45; j++) {
    const start = j * fine + lowest;
    const beaten = average(scores, missed, start) + scores.above(start + missed.length);
    if (beaten < 1) total += average(scores, squared, start) * Math.exp((n - 1) * Math.log1p(-beaten));
  }
  return n * STEP * total;
}

/** Return Σ masses × kernel where the kernel starts at an index of the lattice. */
function average({ first, masses }, kernel, start, factor) {
  let total = 0;
  const end = Math.min(masses.length, start + kernel.length - first);
  for (let i = Math.max(start - first, 0); i < end; i++) {
    const term = masses[i] * kernel[i + first - start];
    total += factor ? term * factor(i + first) : term;
  }
  return total;
}

/** Return the masses of scores with the density f(s)e^{θs} at the multiples of h of αs. */
function lattice(law, theta, alpha, h) {
  const cosine = law.kind === "cosine";
  const root = Math.sqrt(law.d);
  const middle = meanGap(law, { kind: "theta", strength: theta });
  const low = Math.max(middle - 8.5, cosine ? -root : -Infinity);
  const high = Math.min(middle + (theta ? 8.5 : 12), cosine ? root : Infinity);
  const first = Math.ceil((alpha * low) / h);
  const size = Math.floor((alpha * high) / h) - first + 1;
  const masses = new Float64Array(size);
  const logDensity = (s) =>
    cosine
      ? ((law.d - 3) / 2) * Math.log1p(Math.max((-s * s) / law.d, -1)) + theta * s
      : -((s - theta) ** 2) / 2;
  const peak = logDensity(middle);
  let total = 0;
  for (let i = 0; i < size; i++) {
    masses[i] = Math.exp(logDensity(((first + i) * h) / alpha) - peak);
    total += masses[i];
  }
  for (let i = 0; i < size; i++) masses[i] /= total;
  const tail = new Float64Array(size + 1);
  for (let i = size - 1; i >= 0; i--) tail[i] = tail[i + 1] + masses[i];
  const above = (index) => tail[Math.min(Math.max(index - first, 0), size)];
  return { first, masses, above };
}

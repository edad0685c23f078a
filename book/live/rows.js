// A sample row of any length: its largest scores one by one, all others by their density.

import { TABLE } from "./table.js";

const KEPT = TABLE.arrivals.length - 1;
const STEPS = 1600;

/**
 * Return the scores of a sample row of n keys, the largest first, and the others as points with
 * masses. The same arrivals S of a Poisson process serve every law and n: the k-th largest of n
 * uniform numbers has 1 − S_k/S_{n+1} below it, so a row of n keys has the scores with those
 * chances. Given the query, of length √d here, dot products are normal.
 */
export function sampleRow(law, n) {
  const grid = density(law);
  const S = TABLE.arrivals;
  const total = n < S.length ? S[n] : S[KEPT - 1] + n + 1 - KEPT;
  const count = Math.min(n, KEPT);
  const scores = Array.from({ length: count }, (_, k) => quantile(grid, S[k] / total));
  const others = { scores: [], masses: [] };
  if (n > count) {
    const edge = scores[count - 1];
    let missing = n * (1 - S[count - 1] / total);
    for (let i = 0; grid.scores[i] < edge; i++) {
      others.scores.push(grid.scores[i]);
      others.masses.push(n * grid.masses[i]);
      missing -= n * grid.masses[i];
    }
    others.scores.push(edge); // what the last step of the grid has too much or too little
    others.masses.push(missing);
  }
  return { n, scores, others };
}

/** Return a row with one key more, of a given score, and its place among the largest. */
export function withNeedle(row, score) {
  const { scores } = row;
  const before = scores.findIndex((other) => other <= score);
  const place = before < 0 ? scores.length : before;
  const together = [...scores.slice(0, place), score, ...scores.slice(place)];
  return { ...row, n: row.n + 1, scores: together, place };
}

/** Return the weights of a row's largest keys at α, and what measures the row. */
export function weigh({ n, scores, others }, alpha) {
  const powers = scores.map((s) => Math.exp(alpha * (s - scores[0])));
  const rest = others.scores.map((s) => Math.exp(alpha * (s - scores[0])));
  const sum = (terms) => terms.reduce((a, b) => a + b, 0);
  const Z = sum(powers) + sum(rest.map((power, i) => others.masses[i] * power));
  const squares = sum(powers.map((p) => p * p)) + sum(rest.map((p, i) => others.masses[i] * p * p));
  const collision = squares / (Z * Z);
  return {
    n,
    weights: powers.map((power) => power / Z),
    collision,
    gradient: alpha * (1 - collision),
  };
}

/** Return a fine grid of scores with their masses, and the mass above each. */
function density({ kind, d }) {
  const cosine = kind === "cosine";
  const reach = cosine ? Math.sqrt(60 / (d - 1)) + 30 / (d - 1) : 8;
  const points = Array.from({ length: STEPS + 1 }, (_, i) => reach * ((2 * i) / STEPS - 1));
  // With s = tanh v the density of a cosine is a power of 1/cosh v, without ends.
  const heights = points.map((v) =>
    cosine ? Math.exp((1 - d) * Math.log(Math.cosh(v))) : Math.exp((-v * v) / 2),
  );
  const total = heights.reduce((a, b) => a + b, 0);
  const masses = heights.map((height) => height / total);
  const above = new Float64Array(STEPS + 1);
  for (let i = STEPS - 1; i >= 0; i--) above[i] = above[i + 1] + (masses[i] + masses[i + 1]) / 2;
  return { scores: cosine ? points.map(Math.tanh) : points, masses, above };
}

/** Return the score that is exceeded with a given chance. */
function quantile({ scores, above }, chance) {
  let [low, high] = [0, STEPS - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (above[middle] > chance) low = middle;
    else high = middle;
  }
  const part = Math.log(above[low] / chance) / Math.log(above[low] / above[high]);
  return scores[low] + part * (scores[high] - scores[low]);
}

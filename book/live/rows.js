// A sample row of normal scores of any length: its largest one by one, all others by their density.

// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const STEPS = 1600;
const WIDEST = 8;

/** Scores on a fine grid with their masses, and the chance of a larger one. */
const SCORES = Array.from({ length: STEPS + 1 }, (_, i) => WIDEST * ((2 * i) / STEPS - 1));
const HEIGHTS = SCORES.map((s) => Math.exp((-s * s) / 2));
const TOTAL = HEIGHTS.reduce((a, b) => a + b, 0);
const MASSES = HEIGHTS.map((height) => height / TOTAL);
const LARGER = new Float64Array(STEPS + 1);
for (let i = STEPS - 1; i >= 0; i--) LARGER[i] = LARGER[i + 1] + (MASSES[i] + MASSES[i + 1]) / 2;

/** Return the score that is exceeded with a given chance. */
function quantile(chance) {
  let [low, high] = [0, STEPS - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (LARGER[middle] > chance) low = middle;
    else high = middle;
  }
  const part = Math.log(LARGER[low] / chance) / Math.log(LARGER[low] / LARGER[high]);
  return SCORES[low] + part * (SCORES[high] - SCORES[low]);
}

/**
 * Return a sample row of n keys: scores, the largest first, how many keys each stands for, and how
 * many stand for one. The same arrivals S of a Poisson process serve every n: the k-th largest of n
 * uniform numbers has 1 − S_k/S_{n+1} below it, so a row has the scores with those chances.
 */
export function sampleRow(n, S = TABLE.arrivals) {
  const kept = Math.min(n, S.length - 1);
  const total = n < S.length ? S[n] : S[kept - 1] + n + 1 - kept;
  const scores = S.slice(0, kept).map((arrival) => quantile(arrival / total));
  const masses = scores.map(() => 1);
  if (n > kept) {
    const edge = scores[kept - 1];
    const density = (n - kept) / (1 - S[kept - 1] / total); // all masses add up to n
    let missing = n - kept;
    for (let i = 0; SCORES[i] < edge; i++) {
      scores.push(SCORES[i]);
      masses.push(density * MASSES[i]);
      missing -= density * MASSES[i];
    }
    scores.push(edge); // what the last step of the grid has too much or too little
    masses.push(missing);
  }
  return { scores, masses, kept };
}

/** Return a row with one key more, of a given score: also its place in the lists, and its rank. */
export function withNeedle({ scores, masses, kept }, score) {
  const before = scores.slice(0, kept).findIndex((other) => other <= score);
  const placed = before < 0 ? scores.length : before;
  const above = masses.filter((_, i) => scores[i] > score).reduce((a, b) => a + b, 0);
  return {
    scores: scores.toSpliced(placed, 0, score),
    masses: masses.toSpliced(placed, 0, 1),
    kept: before < 0 ? kept : kept + 1,
    placed,
    rank: Math.round(above) + 1,
  };
}

/** Return the weight of each score of a row at α, Σp², and the gradient α(1 − Σp²). */
export function weigh({ scores, masses }, alpha) {
  const powers = scores.map((s) => Math.exp(alpha * (s - scores[0])));
  const Z = powers.reduce((total, power, i) => total + masses[i] * power, 0);
  const collision = powers.reduce((total, power, i) => total + masses[i] * power * power, 0) / (Z * Z);
  return { weights: powers.map((power) => power / Z), collision, gradient: alpha * (1 - collision) };
}

/** Return the weights of the keys of a row with these scores, written out. */
export function softmax(scores, alpha) {
  const largest = Math.max(...scores);
  const powers = [...scores].map((s) => Math.exp(alpha * (s - largest)));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

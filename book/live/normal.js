// Rows of independent normal scores: best scales, exact means, and one key to be found. The formulas
// are those of attnlib.annealed, exact and retrieval; the integrals, by the trapezoidal rule.

const EULER_GAMMA = 0.5772156649015329;

/** Step of u, and of the scores at most, in standard deviations. */
const STEP = 0.5;
const LONGEST = 0.4;

/** Where scores end, in standard deviations; and e^{αs−u} below and above which it is 0 or ∞. */
const [LOWEST, HIGHEST] = [-9, 12];
const [BELOW, ABOVE] = [-40, 5];

/** Below this α the grids would fill the memory; what is asked for is no longer moved by it. */
const SMALLEST = 1e-3;

const POINTS = 64;

function sum(count, term) {
  let total = 0;
  for (let i = 0; i < count; i++) total += term(i);
  return total;
}

/** Return the α where rows of n keys freeze. */
export function criticalAlpha(n) {
  return Math.sqrt(2 * Math.log(n));
}

/** Return the approximate gradient α(1 − e^{α²}/n). */
export function annealedGradient(alpha, n) {
  return -alpha * Math.expm1(alpha * alpha - Math.log(n));
}

/** Return the α of its maximum: y + log(1 + 2y) = log n with y = α², by Newton's steps. */
export function annealedBestAlpha(n) {
  let y = Math.log(n) / 3;
  for (let step = 0; step < 30; step++)
    y -= (y + Math.log1p(2 * y) - Math.log(n)) / (1 + 2 / (1 + 2 * y));
  return Math.sqrt(y);
}

/** Functions of w: 1 − e^{−w}, w e^{−w} and w² e^{−w}. */
const BEATEN = (w) => -Math.expm1(-w);
const ONCE = (w) => w * Math.exp(-w);
const SQUARED = (w) => w * w * Math.exp(-w);

/**
 * Return, at so many u from `first` on, the means over a normal score s of BEATEN and the other
 * `wanted` functions of w = e^{αs−u}. The scores lie where αs − u is a multiple of a step, so that
 * each function of w is a list.
 */
function smoothed(alpha, first, count, ...wanted) {
  const fine = Math.max(1, Math.ceil(STEP / (LONGEST * alpha)));
  const h = STEP / fine;
  const powers = new Float64Array(Math.round((ABOVE - BELOW) / h)).map((_, k) => Math.exp(BELOW + k * h));
  const kernels = [BEATEN, ...wanted].map((kernel) => powers.map(kernel));
  const start = Math.ceil((alpha * LOWEST - first) / h);
  const size = Math.floor((alpha * HIGHEST - first) / h) - start + 1;
  const masses = new Float64Array(size).map((_, i) =>
    Math.exp(-(((first + (start + i) * h) / alpha) ** 2) / 2),
  );
  const total = masses.reduce((a, b) => a + b, 0);
  const beyond = new Float64Array(size + 1);
  for (let i = size - 1; i >= 0; i--) beyond[i] = beyond[i + 1] + (masses[i] /= total);
  const found = kernels.map(() => new Float64Array(count));
  for (let j = 0; j < count; j++) {
    const offset = j * fine - start + Math.round(BELOW / h); // of the first power among the masses
    const [from, to] = [Math.max(offset, 0), Math.min(offset + powers.length, size)];
    kernels.forEach((kernel, which) => {
      let mean = 0;
      for (let i = from; i < to; i++) mean += masses[i] * kernel[i - offset];
      found[which][j] = mean;
    });
    found[0][j] += beyond[Math.min(Math.max(offset + powers.length, 0), size)];
  }
  return found;
}

/** Return where u begins and how many there are, for scores and a needle's mean level. */
function gridOf(alpha, level) {
  const first = STEP * Math.floor((alpha * LOWEST + Math.min(level, 0) - ABOVE) / STEP);
  return [first, Math.ceil((alpha * HIGHEST + Math.max(level, 0) + 35 - first) / STEP)];
}

/** Return the chance that none of so many keys has done what one does with a chance. */
const none = (chance, keys) => Math.exp(keys * Math.log1p(-Math.min(chance, 1 - 1e-16)));

/** Return E Σp² = n ∫ E[w² e^{−w}] (E e^{−w})^{n−1} du. */
export function meanCollision(alpha, n) {
  if (alpha === 0) return 1 / n;
  const scale = Math.max(alpha, SMALLEST);
  const [first, count] = gridOf(scale, 0);
  const [beaten, squared] = smoothed(scale, first, count, SQUARED);
  return n * STEP * sum(count, (j) => squared[j] * none(beaten[j], n - 1));
}

/** Return the exact mean gradient. */
export function meanGradient(alpha, n) {
  return alpha * (1 - meanCollision(alpha, n));
}

/**
 * Return functions of n for a key to be found: its mean weight and its mean loss −log p. Its score
 * is normal about its `strength` (kind "theta"), or that number itself (kind "gap").
 */
export function needleAt({ kind, strength }, alpha) {
  if (alpha === 0) return { weight: (n) => 1 / n, loss: Math.log };
  const scale = Math.max(alpha, SMALLEST);
  const level = scale * strength;
  const [first, count] = gridOf(scale, level);
  const [beaten] = smoothed(scale, first, count);
  let [own, survived] = [[], []];
  if (kind === "theta") {
    const [missed, once] = smoothed(scale, first - level, count, ONCE);
    [own, survived] = [once, missed.map((chance) => 1 - chance)];
  } else {
    const powers = Array.from({ length: count }, (_, j) => Math.exp(level - first - j * STEP));
    [own, survived] = [powers.map(ONCE), powers.map((w) => Math.exp(-w))];
  }
  return {
    weight: (n) => STEP * sum(count, (j) => own[j] * none(beaten[j], n - 1)),
    // log Z is the largest αs + X in the mean, X as Gumbel's variables, less Euler's γ.
    loss: (n) => {
      const beyond = (j) => 1 - survived[j] * none(beaten[j], n - 1);
      return first + STEP * (sum(count, beyond) - beyond(0) / 2) - EULER_GAMMA - level;
    },
  };
}

/** Return the α from which on the needle outweighs n others, or null. */
export function leastAlpha(gap, n) {
  const left = gap * gap - 2 * Math.log(n);
  return gap > 0 && left >= 0 ? (2 * Math.log(n)) / (gap + Math.sqrt(left)) : null;
}

/**
 * Return the mean weight as points [n, weight] under a rule, a function of n or a number, and the
 * largest whole n with half of the weight: Infinity if that is beyond the limits.
 */
export function reachOf(needle, rule, limits, count = POINTS) {
  const constant = typeof rule === "number" && needleAt(needle, rule).weight;
  const weight = (n) => (constant || needleAt(needle, rule(n)).weight)(n);
  const [from, to] = limits.map(Math.log);
  const points = Array.from({ length: count + 1 }, (_, i) => {
    const n = Math.exp(from + ((to - from) * i) / count);
    return [n, weight(n)];
  });
  const last = points.findLastIndex(([, height]) => height >= 0.5 - 1e-9);
  if (last === count) return { points, reach: Infinity };
  if (last < 0) return { points, reach: 1 };
  let [low, high] = [points[last][0], points[last + 1][0]];
  while (Math.floor(high) > Math.floor(low) && high / low > 1 + 1e-6) {
    const middle = Math.sqrt(low * high);
    if (weight(middle) >= 0.5 - 1e-9) low = middle;
    else high = middle;
  }
  return { points, reach: Math.floor(low * (1 + 1e-6)) };
}

// One scale by each criterion, as attnlib.criteria.alphas.

import { evaluate, place, unpack } from "./chebyshev.js";
import { annealedBestAlpha, criticalAlpha, deviation } from "./laws.js";
import { TABLE } from "./table.js";

const { held, entropy, typical } = TABLE.criteria;
const [HELD, ENTROPY, TYPICAL] = [held, entropy, typical].map((tables) => ({
  cosine: unpack(tables.cosine),
  "dot product": unpack(tables["dot product"]),
}));

export const EULER_GAMMA = 0.5772156649015329;

/** Return n, or under a causal mask the harmonic mean of 1, …, n. */
export function effectiveKeys(n, causal) {
  if (!causal) return n;
  let sum = 0;
  if (n < 1000) for (let k = n; k > 0; k--) sum += 1 / k;
  else sum = Math.log(n) + EULER_GAMMA + 1 / (2 * n) - 1 / (12 * n * n);
  return n / sum;
}

/** Return name, meaning and α of each criterion; α is null where there is none. */
export function criteria(law, n, causal) {
  const keys = effectiveKeys(n, causal);
  const alphas = {
    variance: 1 / deviation(law),
    annealed: annealedBestAlpha(law, keys),
    typical: typicalAlpha(law, keys),
    freezing: criticalAlpha(law, keys),
    entropy: entropyAlpha(law, Math.max(2, Math.round(keys))),
  };
  return TABLE.criteria.list.map((criterion) => ({ ...criterion, alpha: alphas[criterion.name] }));
}

/** The normal law is the limit of both others: 1/d = 0 in either's table. */
function inTable(law) {
  const { inverse_d } = TABLE.gradient;
  return law.kind === "normal"
    ? { kind: "cosine", u: place(0, inverse_d) }
    : { kind: law.kind, u: place(1 / law.d, inverse_d) };
}

function typicalAlpha(law, keys) {
  const { largest } = TABLE.criteria.typical;
  const rounded = Math.max(2, Math.round(keys));
  const count = Math.min(rounded, largest);
  const { kind, u } = inTable(law);
  const ratio = evaluate(TYPICAL[kind], u, place(1 / Math.log(count), typical.inverse_log_n));
  return ratio * criticalAlpha(law, rounded < largest ? count : keys);
}

function entropyAlpha(law, n) {
  const { kind, u } = inTable(law);
  const wanted = evaluate(HELD[kind], u);
  const excess = Math.log(n) - wanted;
  if (excess <= 0) return null;
  const v = place(excess / (Math.log(TABLE.limits.n[1]) - wanted), [0, 1]);
  return Math.sqrt(excess * Math.exp(evaluate(ENTROPY[kind], u, v))) / deviation(law);
}

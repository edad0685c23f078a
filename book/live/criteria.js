// One scale by each criterion, for rows of normal scores, as attnlib.criteria.all_criteria.

import { evaluate, place, unpack } from "./chebyshev.js";
import { annealedBestAlpha, criticalAlpha } from "./normal.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

const { entropy, typical } = TABLE.criteria;
const [ENTROPY, TYPICAL] = [unpack(entropy), unpack(typical)];

/** Return the α of the largest gradient of a typical row; beyond the simulations it grows as α_c. */
export function typicalAlpha(n) {
  const inverse = 1 / Math.log(Math.min(n, typical.largest));
  return evaluate(TYPICAL, place(inverse, typical.inverse_log_n)) * criticalAlpha(n);
}

/** Return the α that holds the entropy, null for so few keys that none does. */
function entropyAlpha(n) {
  const excess = Math.log(n) - entropy.held;
  if (excess <= 0) return null;
  return Math.sqrt(excess * Math.exp(evaluate(ENTROPY, place(excess, entropy.excess))));
}

/** Return α by each criterion's name; null where there is none. */
export function criteria(n) {
  return {
    variance: 1,
    annealed: annealedBestAlpha(n),
    typical: typicalAlpha(n),
    freezing: criticalAlpha(n),
    entropy: entropyAlpha(n),
  };
}

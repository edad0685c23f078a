// The scales in use. Names, constants and meanings come from attnlib.policies; the rules are here
// once more, under the same names, and tests compare.

import { evaluate, place, unpack } from "./chebyshev.js";
import { annealedBestAlpha } from "./normal.js";
// table.js is not in git: book/live/script.py makes it.
import { TABLE } from "./table.js";

export const POLICIES = TABLE.policies;

const { inverse_d, root_log_n, ...coefficients } = TABLE.cosine;
const COSINE = unpack(coefficients);

/** Return the best α of the approximation for cosines, in standard deviations, from the table. */
function cosineAlpha(n, d) {
  const places = [place(1 / d, inverse_d), place(Math.sqrt(Math.log(n)), root_log_n)];
  return annealedBestAlpha(n) * Math.exp(evaluate(COSINE, ...places));
}

const extension = (n, length) => Math.max(n / length, 1);

const RULES = {
  over_root: ({ d, multiplier = 1 }) => multiplier / Math.sqrt(d),
  times_root: ({ d, multiplier = 1 }) => multiplier * Math.sqrt(d),
  times_dimension: ({ d, multiplier = 1 }) => multiplier * d,
  over_layer: ({ d, layer }) => 1 / (layer * Math.sqrt(d)),
  over_dimension: ({ d, multiplier }) => multiplier / d,
  constant_scale: ({ scale }) => scale,
  clipped: ({ initial, largest }) => Math.min(initial, largest),
  fixed_root: ({ scalar }) => 1 / Math.sqrt(scalar),
  pairs: ({ n }) => Math.log2(Math.max(n, 2)) + Math.log2(Math.max(n, 2) - 1),
  other_classes: ({ n }) => Math.SQRT2 * Math.log(Math.max(n, 2) - 1),
  entropy_invariance: ({ n, d, reference, floor }) =>
    Math.log(Math.max(n, floor)) / Math.log(reference) / Math.sqrt(d),
  log_position: ({ d, position, train_length }) =>
    Math.max(Math.log(position + 1) / Math.log(train_length), 1) / Math.sqrt(d),
  log_place: ({ d, position, start }) =>
    Math.max(Math.log(position) / Math.log(start), 1) / Math.sqrt(d),
  best_normal: ({ n, d }) => annealedBestAlpha(n) / Math.sqrt(d),
  best_cosine: ({ n, d }) => Math.sqrt(d) * cosineAlpha(n, d),
  log_length: ({ n, d, s = 1 }) => (s * Math.log(n)) / Math.sqrt(d),
  root_log_length: ({ n, d, train_length }) => Math.sqrt(Math.log(n) / Math.log(train_length) / d),
  log_beyond: ({ position, coefficient, floor }) =>
    1 + coefficient * Math.log(Math.max((position + 1) / floor, 1)),
  power_position: ({ d, position, exponent, length }) =>
    (1 + (position + 1) / length) ** exponent * Math.sqrt(d),
  yarn: ({ n, d, coefficient, train_length }) =>
    (coefficient * Math.log(extension(n, train_length)) + 1) ** 2 / Math.sqrt(d),
  deepseek: ({ d, coefficient, factor }) =>
    (coefficient * Math.log(factor) + 1) ** 2 / Math.sqrt(d),
  longrope: ({ n, d, train_length }) =>
    (1 + Math.log(extension(n, train_length)) / Math.log(train_length)) / Math.sqrt(d),
  llama_4: ({ d, position, coefficient, floor }) =>
    (1 + coefficient * Math.log1p(Math.floor((position + 1) / floor))) / Math.sqrt(d),
  ministral_3: ({ d, position, coefficient, floor }) =>
    (1 + coefficient * Math.log1p(Math.floor(position / floor))) / Math.sqrt(d),
  infoscale: ({ n, d, train_length }) => {
    const share = (length) => -Math.expm1((-2 * Math.log(length)) / d);
    return Math.sqrt(share(n) / share(train_length)) / Math.sqrt(d);
  },
};

/** Return what a policy multiplies q·k or the cosine with, at the last position. */
export function policyScale(policy, n, d) {
  return RULES[policy.rule]({ n, d, position: n - 1, ...policy.constants });
}

/** Return the standard deviation of the logits under it, for random q and k. */
export function policyAlpha(policy, n, d) {
  const scale = policyScale(policy, n, d);
  return policy.applied_to === "cosine" ? scale / Math.sqrt(d) : scale * Math.sqrt(d);
}

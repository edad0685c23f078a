// Polynomials in several variables by their Chebyshev coefficients, as table.js has them.

/** Return a table with its coefficients as numbers: the text has integers, times its unit. */
export function unpack({ shape, unit, values }) {
  return { shape, values: values.split(",").map((text) => unit * Number(text)) };
}

/** Return where a value lies in a range, from -1 to 1. */
export function place(value, [low, high]) {
  return Math.min(Math.max((2 * (value - low)) / (high - low) - 1, -1), 1);
}

/** Return the polynomial in the other variables that is left with the first one at x. */
function contract({ shape: [terms, ...shape], values }, x) {
  const size = values.length / terms;
  const result = new Array(size).fill(0);
  for (let k = 0, before = x, now = 1; k < terms; k++) {
    for (let i = 0; i < size; i++) result[i] += now * values[k * size + i];
    [before, now] = [now, 2 * x * now - before];
  }
  return { shape, values: result };
}

/** Return the value of a polynomial with each of its variables given. */
export function evaluate(table, ...variables) {
  return variables.reduce(contract, table).values[0];
}

// A thousand dot products of normal vectors while their length d grows, with and without ÷ √d.

import { figure, whole } from "./controls.js";
import { chart, digits } from "./drawing.js";
import { normals } from "./mean_vs_typical.js";

const PAIRS = 1000;
const LONGEST = 512;
const BINS = 40;
const WIDEST = 80;

/** Return a function that gives for each pair of vectors the dot product of their first d entries. */
export function growingProducts(pairs, seed) {
  const normal = normals(seed);
  const products = [new Float64Array(pairs)];
  return (d) => {
    while (products.length <= d)
      products.push(products.at(-1).map((sum) => sum + normal() * normal()));
    return products[d];
  };
}

/** Return mean, variance and the variance's standard error of dot products of length d. */
export function momentsAt(values, d) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1);
  // The fourth moment of such a product is 3d² + 6d.
  return { mean, variance, error: Math.sqrt((2 * d * d + 6 * d) / values.length) };
}

/** Return what the live figure shows. */
export function scoreHistogramFigure() {
  const products = growingProducts(PAIRS, 1);
  return figure({
    state: { d: 64 },
    fields: { d: { label: "Length of the vectors d", ...whole("d", 1, LONGEST) } },
    grow: { label: "Let d grow", name: "d" },
    lines: [
      ["line bars", `${PAIRS} pairs q, k`],
      ["line approximation", "normal with the predicted variance"],
    ],
    draw: ({ d }) => {
      const found = products(d);
      const { variance, error } = momentsAt(found, d);
      const root = Math.sqrt(d);
      const divided = found.map((value) => value / root);
      return {
        pictures: [histogram(found, root, WIDEST, "q·k"), histogram(divided, 1, 4, "q·k/√d")],
        readings: [
          ["variance of q·k, measured", `${digits(variance)} ± ${digits(error, 2)}`],
          ["predicted: d", String(d)],
          ["variance of q·k/√d", `${digits(variance / d)} ± ${digits(error / d, 2)}`],
        ],
      };
    },
  });
}

/** Draw how often each value occurs, as a density, and the normal one with a standard deviation. */
function histogram(found, deviation, widest, name) {
  const width = (2 * widest) / BINS;
  const density = new Array(BINS).fill(0);
  for (const value of found) {
    const bin = Math.floor((value + widest) / width);
    if (bin >= 0 && bin < BINS) density[bin] += 1 / (found.length * width);
  }
  const peak = 1 / (deviation * Math.sqrt(2 * Math.PI));
  const highest = 1.15 * Math.max(peak, ...density);
  const view = chart({
    x: { from: -widest, to: widest, name, ticks: [-widest, -widest / 2, 0, widest / 2, widest] },
    y: { from: 0, to: highest, name: "density", ticks: [0] },
    name: `Histogram of ${name} for ${PAIRS} pairs, with the normal density of the predicted variance.`,
  });
  for (const [i, height] of density.entries())
    view.bar(width * i - widest, width * (i + 1) - widest, height);
  view.graph((x) => peak * Math.exp(-((x / deviation) ** 2) / 2), "line approximation");
  return view;
}

// Three figures that ask first.

import { whole } from "./controls.js";
import { digits, grouped, superscript } from "./drawing.js";
import { guessFigure } from "./guess.js";
import { meanGradient, root } from "./laws.js";
import { exactReach } from "./reaching.js";
import { TABLE } from "./table.js";

const { largest, share } = TABLE.guesses;
const NORMAL = { kind: "normal" };
const points = (from, to, f) =>
  Array.from({ length: 121 }, (_, i) => {
    const place = from + ((to - from) * i) / 120;
    return [place, f(place)];
  });

/** Return how many times too many or too few a guess is, in words. */
export function byFactor(guess, answer, [more, less] = ["many", "few"]) {
  const factor = guess / answer;
  if (Math.max(factor, 1 / factor) < 1.1) return "within a tenth of it";
  return factor > 1 ? `${digits(factor, 2)} times too ${more}` : `${digits(1 / factor, 2)} times too ${less}`;
}

const said = (guess, text, off) => (guess === null ? "" : ` Your guess of ${text} is ${off}.`);

/** The d from which on the median of 512 weights' largest is one half, between the table's points. */
export function halfDimension() {
  const above = largest.weight.findIndex((weight) => weight > 0.5);
  const [[a, p], [b, q]] = [above - 1, above].map((i) => [largest.d[i], largest.weight[i]]);
  return a * (b / a) ** ((0.5 - p) / (q - p));
}

const log = Math.log2;

export const oneHotGuess = guessFigure({
  question:
    "A row of 512 keys is not divided by √d. From which d on has the best key half of the weight, " +
    "in half of the rows? Place your guess.",
  field: {
    label: "Your guess for d",
    ...whole("d", 4, 1024),
  },
  x: {
    from: 2,
    to: 10.5,
    name: "d",
    ticks: [2, 4, 6, 8, 10].map((power) => [power, String(2 ** power)]),
  },
  y: { from: 0, to: 1, name: "largest weight, median", ticks: [0, 0.5, 1] },
  name: "The largest weight of the median unscaled row against d",
  shown: log,
  guessed: (place) => Math.min(Math.round(2 ** place), 1024),
  known: (view) =>
    view.curve(
      [
        [2, 0.5],
        [10.5, 0.5],
      ],
      "thin",
    ),
  curve: (view) =>
    view.curve(
      largest.d.map((d, i) => [log(d), largest.weight[i]]),
      "line approximation",
    ),
  answer: halfDimension,
  verdict: (guess, answer) =>
    `From about d = ${Math.round(answer)} on.${said(guess, guess, byFactor(guess, answer, ["large", "small"]))}`,
});

const KEYS = share.n;
const STEEPEST = 12;

/** The α at which the mean gradient has nine tenths of its limit. */
export function ninetyPercent() {
  const gradient = meanGradient(NORMAL, KEYS);
  return root((alpha) => gradient(alpha) - 0.9 * share.limit, 0, STEEPEST);
}

export const gradientGuess = guessFigure({
  question:
    `The mean gradient of ${KEYS} normal scores rises for ever, towards the dotted limit. At which ` +
    "α has it nine tenths of that? Place your guess.",
  field: {
    label: "Your guess for α",
    from: 0,
    to: STEEPEST,
    step: 0.1,
    check: (value) => (value < 0 || value > STEEPEST ? `Here α goes from 0 to ${STEEPEST}.` : ""),
  },
  x: { from: 0, to: STEEPEST, name: "α", ticks: [0, 4, 8, 12] },
  y: { from: 0, to: 4, name: "mean gradient G", ticks: [0, 1, 2, 3, 4] },
  name: `The exact mean gradient of ${KEYS} keys against α`,
  shown: (guess) => guess,
  guessed: (place) => Number(place.toFixed(1)),
  known: (view) =>
    view.curve(
      [
        [0, share.limit],
        [STEEPEST, share.limit],
      ],
      "thin dotted",
    ),
  curve: (view) => view.curve(points(0, STEEPEST, meanGradient(NORMAL, KEYS)), "line exact"),
  answer: ninetyPercent,
  verdict: (guess, answer) => {
    const off = guess - answer;
    const distance = `${digits(Math.abs(off), 2)} too ${off > 0 ? "large" : "small"}`;
    return (
      `At α = ${digits(answer)}.` +
      said(guess, guess, Math.abs(off) < 0.05 ? "right" : distance) +
      " All the rest of the axis does not bring the last tenth."
    );
  },
});

const GAP = 6;
const FURTHEST = 10;

export const reachGuess = guessFigure({
  question:
    `A key lies ${GAP} standard deviations above all others in the mean, and the scale is the ` +
    "Transformer’s, α = 1. Among how many keys does it keep half of the weight? Place your guess.",
  field: {
    label: "Your guess for n",
    ...whole("n", 2, 10 ** FURTHEST, "10¹⁰"),
  },
  x: {
    from: Math.log10(2),
    to: FURTHEST,
    name: "number of keys n",
    ticks: [1, 3, 5, 7, 9].map((power) => [power, `10${superscript(power)}`]),
  },
  y: { from: 0, to: 1, name: "weight of the needle", ticks: [0, 0.5, 1] },
  name: "The weight of the needle against the number of keys",
  shown: Math.log10,
  guessed: (place) => Math.round(Number((10 ** place).toPrecision(2))),
  known: (view) =>
    view.curve(
      [
        [Math.log10(2), 0.5],
        [FURTHEST, 0.5],
      ],
      "thin",
    ),
  curve: (view) => {
    const drawn = (alpha, style) =>
      view.curve(
        exactReach(GAP, alpha).points.flatMap(([n, p]) =>
          n <= 10 ** FURTHEST ? [[Math.log10(n), p]] : [],
        ),
        style,
      );
    drawn(GAP, "line sample");
    drawn(1, "line exact");
  },
  answer: () => exactReach(GAP, 1).reach,
  verdict: (guess, answer) =>
    `Among ${grouped(answer)}.` +
    said(guess, guess && grouped(guess), byFactor(guess, answer)) +
    " The dashed curve is what α = Δ does for the same key.",
});

// The search: which sections answer what was typed, in which order, and which words of them to show.

import { INDEX } from "./index.js";

const GREEK = {
  ...{ α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon", θ: "theta", κ: "kappa" },
  ...{ λ: "lambda", μ: "mu", π: "pi", ρ: "rho", σ: "sigma", τ: "tau", φ: "phi", η: "eta" },
};
const WORD = /√|[\p{L}\p{N}]+/gu;

/** Words that ask and say nothing of what is asked for. */
const SMALL = new Set(
  "a an and are as at be by can do does for from how i in is it me my of on or should than that the this to use using vs what when where which why with".split(
    " ",
  ),
);

/** Points of a section whose title has a word, whose chapter's title has it, and whose text has. */
const [IN_TITLE, ABOVE, IN_TEXT] = [6, 2.5, 3];

/** A synonym that is all of what was typed has so many points, each of its places less. */
const [SYNONYM, NEXT] = [200, 30];

/** Return a word in small Latin letters, without accents: μP is mup, and √ sqrt. */
export function folded(word) {
  if (word === "√") return "sqrt";
  const letters = word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return letters.replace(/[α-ω]/g, (letter) => GREEK[letter] ?? letter);
}

/** Return a word without the endings of plurals and of verbs. */
function stem(word) {
  if (word.length === 4) return word.replace(/s$/, "");
  const cut = word.replace(/(?:ies|y)$/, "i").replace(/(?:ing|ed|es|s|e)$/, "");
  return word.length > 4 && cut.length > 2 ? cut : word;
}

/** Return the words of a text: each folded, with its stem and its place. */
export function wordsOf(text) {
  return [...text.matchAll(WORD)].map((found) => {
    const word = folded(found[0]);
    return { word, stem: stem(word), from: found.index, to: found.index + found[0].length };
  });
}

/** Return those of words that are not small, or all where there is no other. */
function telling(words) {
  const found = words.filter(({ word }) => !SMALL.has(word));
  return found.length ? found : words;
}

/** Return how well a word of a text answers one that was asked for: 1, less, or 0. */
function fit(asked, found) {
  if (found.word === asked.word) return 1;
  if (found.stem === asked.stem) return 0.9;
  return asked.word.length > 2 && found.word.startsWith(asked.word) ? 0.5 : 0;
}

const best = (asked, words) => Math.max(0, ...words.map((one) => fit(asked, one)));

let prepared;

/** Return the sections with their words counted, which takes a moment, once. */
export function sections() {
  prepared ??= INDEX.sections.map(([page, anchor, named, text], number) => {
    const [address, chapter, worth] = INDEX.pages[page];
    const title = named || anchor;
    const file = address.replace(/^.*\/|\.html$/g, "").replaceAll("_", " ");
    const words = wordsOf(text);
    const counts = new Map();
    for (const { word } of words) counts.set(word, (counts.get(word) ?? 0) + 1);
    return {
      ...{ number, title, text, chapter: anchor ? chapter : "" },
      href: anchor ? `${address}#${anchor}` : address,
      worth: anchor ? worth : 1.3 * worth,
      titles: telling(wordsOf(title)),
      above: wordsOf(anchor ? chapter : file),
      counts: [...counts].map(([word, count]) => ({ word, stem: stem(word), count })),
      size: words.length,
      line: ` ${words.map(({ word }) => word).join(" ")} `,
    };
  });
  return prepared;
}

/**
 * Return the points of sections by the synonyms that the words name, wherever these begin, also
 * without the spaces between them or before their end is typed; and how much of what was typed the
 * longest of them is.
 */
function meant(words) {
  const joined = words.map(({ word }) => word).join("");
  const starts = words.map((_, i) => words.slice(0, i).reduce((sum, { word }) => sum + word.length, 0));
  const ends = new Set([...starts, joined.length]);
  const letters = telling(words).reduce((sum, { word }) => sum + word.length, 0);
  const points = new Map();
  let most = 0;
  for (const [phrase, numbers] of INDEX.synonyms) {
    const name = wordsOf(phrase).map(({ word }) => word).join("");
    for (const from of starts) {
      const rest = joined.slice(from, from + name.length);
      const after = from + rest.length;
      const whole = rest === name && (ends.has(after) || (joined[after] === "s" && ends.has(after + 1)));
      const begun = rest.length > 0.6 * name.length && name.startsWith(rest) && after === joined.length;
      if (!whole && !begun) continue;
      const share = Math.min(1, rest.length / letters);
      most = Math.max(most, share);
      for (const [place, number] of numbers.entries()) {
        const own = share * (SYNONYM + name.length - NEXT * place);
        points.set(number, Math.max(points.get(number) ?? 0, own));
      }
    }
  }
  return { points, most };
}

/** Return how well a section answers: 0 where it lacks a word, unless `some` will do. */
function score(section, words, rarity, some) {
  let sum = 0;
  for (const [i, word] of words.entries()) {
    const [title, above] = [best(word, section.titles), best(word, section.above)];
    const text = section.counts.reduce((total, one) => total + one.count * fit(word, one), 0);
    if (!title && !above && !text && !some) return 0;
    const often = text / (text + 0.5 + section.size / 150);
    sum += rarity[i] * (IN_TITLE * title + ABOVE * above + IN_TEXT * often);
  }
  if (words.length > 1 && section.line.includes(` ${words.map(({ word }) => word).join(" ")} `)) sum *= 1.4;
  if (words.every((word) => best(word, section.titles)))
    sum *= words.length < section.titles.length ? 1.5 : 2.8; // 2.8: it is the title
  return sum * section.worth;
}

/**
 * Return the sections that answer what was typed, best first, and whether they have all of its
 * words: if none has, those with some.
 */
export function find(typed) {
  const typedWords = wordsOf(typed);
  const words = telling(typedWords);
  if (!words.length) return { words, all: true, found: [] };
  const every = sections();
  const has = (section, word) => [section.counts, section.titles, section.above].some((part) => best(word, part));
  const rarity = words.map((word) =>
    Math.log(1 + every.length / (1 + every.filter((section) => has(section, word)).length)),
  );
  const synonyms = meant(typedWords);
  const ranked = (some) =>
    every
      .map((section) => [section, score(section, words, rarity, some)])
      .filter(([{ number }, own]) => own > 0 || synonyms.points.has(number))
      .map(([section, own]) => [section, own + (synonyms.points.get(section.number) ?? 0)])
      .sort(([, a], [, b]) => b - a)
      .map(([section]) => section);
  const full = ranked(false);
  const all = synonyms.most === 1 || full.length > synonyms.points.size;
  return { words, all, found: all ? full : ranked(true).slice(0, 10) };
}

/** Return a text in pieces, each with whether it is one of the words asked for. */
export function marked(text, words) {
  const hits = wordsOf(text).filter((one) => words.some((word) => fit(word, one)));
  const pieces = hits.flatMap(({ from, to }, i) => [
    [text.slice(hits[i - 1]?.to ?? 0, from), false],
    [text.slice(from, to), true],
  ]);
  return [...pieces, [text.slice(hits.at(-1)?.to ?? 0), false]].filter(([piece]) => piece);
}

/** Return some two hundred characters of a text with as many of the words as can be. */
export function excerpt(text, words, length = 220) {
  const hits = wordsOf(text)
    .map((one) => ({ from: one.from, which: words.findIndex((word) => fit(word, one)) }))
    .filter(({ which }) => which >= 0);
  const different = ({ from }) =>
    new Set(hits.filter((hit) => hit.from >= from && hit.from < from + length - 40).map(({ which }) => which)).size;
  const first = hits.reduce((a, b) => (different(b) > different(a) ? b : a), hits[0] ?? { from: 0 });
  // From the beginning of a sentence, if one is near.
  const starts = [0, ...[...text.matchAll(/[.?!:…] (?=\P{Ll})/gu)].map((one) => one.index + 2)];
  const sentence = starts.findLast((place) => place <= first.from);
  const word = text.lastIndexOf(" ", first.from - 40) + 1;
  const start = first.from - sentence < length - 60 ? sentence : word;
  const before = start === sentence ? "" : "… ";
  if (text.length <= start + length + 20) return before + text.slice(start);
  const cut = text.slice(start, start + length);
  return `${before}${cut.slice(0, cut.lastIndexOf(" "))} …`;
}

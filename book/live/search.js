// The search: which sections answer what was typed, in which order, and which words of them to show.

import { INDEX } from "./index.js";

const GREEK = {
  ...{ α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon", θ: "theta", κ: "kappa" },
  ...{ λ: "lambda", μ: "mu", π: "pi", ρ: "rho", ϱ: "rho", σ: "sigma", τ: "tau", φ: "phi" },
  ...{ ψ: "psi", ω: "omega", ξ: "xi", χ: "chi", η: "eta", ζ: "zeta", ν: "nu", ς: "sigma" },
};
const WORD = /√|[\p{L}\p{N}]+/gu;

/** Words that ask and say nothing of what is asked for. */
const SMALL = new Set(
  "a an and are as at be by can do does for from how i in is it me my of on or should than that the this to use using vs what when where which why with".split(
    " ",
  ),
);

/** Return a word in small Latin letters, without accents: μP is mup, and √ sqrt. */
export function folded(word) {
  if (word === "√") return "sqrt";
  const letters = word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return letters.replace(/[α-ϱ]/g, (letter) => GREEK[letter] ?? letter);
}

/** Return a word without the endings of plurals and of verbs. */
export function stem(word) {
  const cut = word.replace(/(?:ies|y)$/, "i").replace(/(?:ing|ed|es|s|e)$/, "");
  return word.length > 4 && cut.length > 2 ? cut : word.length === 4 ? word.replace(/s$/, "") : word;
}

/** Return the words of a text: each folded, with its stem and its place. */
export function wordsOf(text) {
  return [...text.matchAll(WORD)].map((found) => {
    const word = folded(found[0]);
    return { word, stem: stem(word), from: found.index, to: found.index + found[0].length };
  });
}

/** Return how well a word of a text answers one that was asked for: 1, less, or 0. */
function fit(asked, found) {
  if (found.word === asked.word) return 1;
  if (found.stem === asked.stem) return 0.9;
  return asked.word.length > 2 && found.word.startsWith(asked.word) ? (asked.last ? 0.6 : 0.4) : 0;
}

let prepared;

/** Return the sections with their words counted, which takes a moment, once. */
export function sections() {
  prepared ??= INDEX.sections.map(([page, anchor, named, text], number) => {
    const [address, chapter, value] = INDEX.pages[page];
    const title = named || anchor;
    const file = anchor ? "" : address.replace(/^.*\/|\.html$/g, "").replaceAll("_", " ");
    const worth = anchor ? value : 1.3 * value;
    const counts = new Map();
    const texts = wordsOf(text);
    for (const { word } of texts) counts.set(word, (counts.get(word) ?? 0) + 1);
    const unique = [...counts].map(([word, count]) => ({ word, stem: stem(word), count }));
    return {
      ...{ number, title, text, chapter: anchor ? chapter : "", worth, size: texts.length },
      ...{ href: anchor ? `${address}#${anchor}` : address, counts: unique },
      ...{ titles: telling(wordsOf(title)), above: telling(wordsOf(anchor ? chapter : file)) },
      file: wordsOf(file),
      line: ` ${texts.map(({ word }) => word).join(" ")} `,
    };
  });
  return prepared;
}

/** Return those of words that are not small, or all where there is no other. */
function telling(words) {
  const found = words.filter(({ word }) => !SMALL.has(word));
  return found.length ? found : words;
}

/**
 * Return the sections of synonyms that the words name, best first, each with its points, and how
 * much of what was typed the longest of these synonyms is.
 */
function meant(words) {
  const found = new Map();
  let most = 0;
  const letters = (some) => telling(some).reduce((sum, { word }) => sum + word.length, 0);
  for (const [phrase, numbers] of INDEX.synonyms) {
    const parts = phrase.split(" ").map(folded);
    const name = parts.join("");
    const whole = parts.map((_, i) => parts.slice(0, i).join("")); // beginnings that say too little
    for (let from = 0; from < words.length; from++)
      for (let to = from + 1; to <= words.length; to++) {
        const some = words.slice(from, to);
        const said = some.map(({ word }) => word).join("");
        const begun = words[to - 1].last && said.length > 0.6 * name.length && !whole.includes(said);
        if (said !== name && !stemmed(said, name) && !(begun && name.startsWith(said))) continue;
        const share = letters(some) / letters(words);
        most = Math.max(most, share);
        for (const [place, number] of numbers.entries()) {
          const points = share * (200 + name.length - 30 * place);
          found.set(number, Math.max(found.get(number) ?? 0, points));
        }
      }
  }
  return { found, most };
}

/** Return how much of a name the words are, 0 where they have others. */
function covered(words, names) {
  const all = names.length && words.every((word) => names.some((one) => fit(word, one)));
  return all ? words.length / Math.max(words.length, names.length) : 0;
}

const stemmed = (said, name) => said.length > 4 && stem(said) === stem(name);

/** Return how well one section answers: 0 where it lacks a word, unless `some` will do. */
function score(section, words, rarity, some) {
  let sum = 0;
  for (const [i, word] of words.entries()) {
    const inTitle = Math.max(0, ...section.titles.map((one) => fit(word, one)));
    const above = Math.max(0, ...section.above.map((one) => fit(word, one)));
    const inText = section.counts.reduce((total, one) => total + one.count * fit(word, one), 0);
    if (!inTitle && !above && !inText && !some) return 0;
    const often = inText / (inText + 0.5 + section.size / 150);
    sum += rarity[i] * (6 * inTitle + 2.5 * above + 3 * often);
  }
  return sum;
}

/**
 * Return the sections that answer what was typed, best first, and whether they have all of its
 * words: if none has, those with some.
 */
export function find(typed) {
  const typedWords = wordsOf(typed).map((one) => ({ ...one, last: one.to === typed.length }));
  const words = telling(typedWords);
  if (!words.length) return { words, all: true, found: [] };
  const every = sections();
  const has = (section, word) =>
    section.counts.some((one) => fit(word, one)) ||
    section.titles.some((one) => fit(word, one)) ||
    section.above.some((one) => fit(word, one));
  const rarity = words.map((word) =>
    Math.log(1 + every.length / (1 + every.filter((section) => has(section, word)).length)),
  );
  const synonyms = meant(typedWords);
  const phrase = words.map(({ word }) => word).join(" ");
  const ranked = (some) =>
    every
      .map((section) => {
        let points = score(section, words, rarity, some) * section.worth;
        if (words.length > 1 && section.line.includes(` ${phrase} `)) points *= 1.4;
        const named = Math.max(covered(words, section.titles), covered(words, section.file));
        if (named) points *= named === 1 ? 2.8 : 1.2 + 0.8 * named;
        full ||= points > 0;
        return { section, points: points + (synonyms.found.get(section.number) ?? 0) };
      })
      .filter(({ points }) => points > 0)
      .sort((a, b) => b.points - a.points);
  let full = synonyms.most === 1;
  let found = ranked(false);
  const all = full;
  if (!all) found = ranked(true).slice(0, 10);
  return { words, all, found: found.map(({ section }) => section) };
}

/** Return a text in pieces, each with whether it is one of the words asked for. */
export function marked(text, words) {
  const pieces = [];
  let end = 0;
  for (const one of wordsOf(text)) {
    if (!words.some((word) => fit(word, one))) continue;
    if (one.from > end) pieces.push([text.slice(end, one.from), false]);
    pieces.push([text.slice(one.from, one.to), true]);
    end = one.to;
  }
  if (end < text.length) pieces.push([text.slice(end), false]);
  return pieces;
}

/** Return some two hundred characters of a text with as many of the words as can be. */
export function excerpt(text, words, length = 220) {
  const hits = wordsOf(text)
    .map((one) => ({ from: one.from, which: words.findIndex((word) => fit(word, one) > 0) }))
    .filter(({ which }) => which >= 0);
  let best = { from: 0, different: 0, many: 0 };
  for (const [i, { from }] of hits.entries()) {
    const within = hits.slice(i).filter((hit) => hit.from < from + length - 40);
    const different = new Set(within.map(({ which }) => which)).size;
    if (different > best.different || (different === best.different && within.length > best.many + 1))
      best = { from, different, many: within.length };
  }
  // From the beginning of a sentence, if one is near; and not only the end of the text.
  const latest = Math.min(best.from, Math.max(0, text.length - length));
  const starts = [...text.matchAll(/[.?!:…] (?=\P{Ll})/gu)].map((one) => one.index + 2);
  const sentence = starts.filter((place) => place <= latest).at(-1) ?? 0;
  const word = text.lastIndexOf(" ", best.from - 40) + 1;
  const start = best.from - sentence < length - 60 ? sentence : word;
  if (text.length <= start + length + 20) {
    const whole = start === 0 || start === sentence;
    return (whole ? "" : "… ") + text.slice(start);
  }
  const cut = text.slice(start, start + length);
  const full = cut.lastIndexOf(". ");
  const shown = full > length * 0.6 ? cut.slice(0, full + 1) : `${cut.slice(0, cut.lastIndexOf(" "))} …`;
  return (start === 0 || start === sentence ? "" : "… ") + shown;
}

// What a title, a part of it or an entry of the index names in all the words of a query, in any order,
// comes before what only has the words, if they are half of its own. Of equals the first in the
// contents comes first. The rest is ordered by how many of the words its title has. Sphinx copies this file into its search, before the index is there.
"use strict";

{
  const { _performSearch, htmlToText } = Search;
  const stemmer = new Stemmer();

  const words = (text) => new Set(
    splitQuery(text.toLowerCase().replaceAll("√", " sqrt "))
      .filter((word) => !stopwords.includes(word))
      .map((word) => stemmer.stemWord(word)),
  );

  const likeness = (typed, name) => Math.max(
    ...[name, ...name.split(/[:?] /)].map(words).map((part) =>
      [...typed].every((word) => part.has(word)) ? typed.size / part.size : 0),
  );

  // An excerpt is text: without their signs √d would be d, and d² would be d2.
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const root of page.querySelectorAll("msqrt")) root.prepend("√");
    for (const power of page.querySelectorAll("msup, msubsup")) power.lastElementChild.prepend("^");
    for (const fraction of page.querySelectorAll("mfrac")) fraction.lastElementChild.prepend("/");
    return htmlToText(page.documentElement.outerHTML, anchor);
  };

  // The best is the last, as in Sphinx's own results.
  Search._performSearch = (query, ...terms) => {
    const found = _performSearch(query, ...terms);
    const typed = words(query);
    if (typed.size === 0) return found;
    const { alltitles, docnames, filenames, indexentries, titles } = Search._index;
    const named = new Map();
    for (const [name, places] of [indexentries, alltitles].flatMap(Object.entries)) {
      const score = Math.round(100 * likeness(typed, name));
      if (score < 50) continue;
      for (const [file, id, main = true] of places) {
        const page = docnames[file];
        const anchor = id ? `#${id}` : "";
        const title = alltitles[name] && id ? `${titles[file]} > ${name}` : titles[file];
        if (main && !(named.get(page + anchor)?.[4] > score))
          named.set(page + anchor, [page, title, anchor, null, score, filenames[file]]);
      }
    }
    const links = document.querySelectorAll("nav.bd-links a");
    const contents = Array.from(links, (link) => link.getAttribute("href"));
    const position = ([page]) => contents.indexOf(`${page}.html`);
    const shared = ([, title]) => [...words(title)].filter((word) => typed.has(word)).length;
    return [
      ...found.filter(([page, , anchor]) => !named.has(page + anchor))
        .sort((a, b) => shared(a) - shared(b)),
      ...[...named.values()].sort((a, b) => a[4] - b[4] || position(b) - position(a)),
    ];
  };
}

// Filters for the ledger, by verdict, source and chapter. Without them all is shown.

import { button, whenWhole } from "./controls.js";
import { html } from "./drawing.js";

/** What a claim is asked for. */
const KINDS = ["verdict", "source", "chapter"];

/** Return whether a claim has all that is chosen; an empty choice asks nothing. */
function fits(item, chosen) {
  return KINDS.every((kind) => !chosen[kind] || item[kind] === chosen[kind]);
}

/** Return the claims of the page: their elements, and what each box says of its claim. */
function listed(article) {
  return [...article.querySelectorAll(".claim[id]")].map((box) => ({
    element: box.closest("div.output") ?? box,
    verdict: box.querySelector(".claim-title strong").textContent,
    source: box.querySelector(".claim-place").textContent.match(/\d+/)[0],
    chapter: box.querySelector(".claim-evidence a").getAttribute("href").replace(/\.html.*$/, ""),
  }));
}

/** Return the names of chapters as the contents of the book have them, by file, in their order. */
function chapterNames() {
  const links = [...document.querySelectorAll("nav.bd-docs-nav a[href]")];
  const name = (link) => link.getAttribute("href").replace(/^.*\/|\.html.*$/g, "");
  return new Map(links.map((link) => [name(link), link.firstChild.textContent.trim()]));
}

/** Give the page's list its filters. */
function ledger(article) {
  const items = listed(article);
  const groups = [...article.querySelectorAll("section section")]
    .map((element) => ({ element, items: items.filter((item) => element.contains(item.element)) }))
    .filter((group) => group.items.length);
  const chapters = chapterNames();
  const heading = (value) => article.querySelector(`section:has(> #source-${value}) > h2`)?.firstChild.textContent;
  const names = {
    source: (value) => heading(value)?.replace("Source ", "") ?? value,
    chapter: (value) => chapters.get(value) ?? value,
  };
  const order = { source: (value) => Number(value), chapter: (value) => [...chapters.keys()].indexOf(value) };
  const address = new URLSearchParams(location.search);
  const valuesOf = (kind) => new Set(items.map((item) => item[kind]));
  let chosen = Object.fromEntries(
    KINDS.map((kind) => [kind, valuesOf(kind).has(address.get(kind)) ? address.get(kind) : ""]),
  );
  const status = html("p", { class: "ledger-count", role: "status" });
  const fields = KINDS.map((kind) => {
    const select = html("select", {
      id: `ledger-${kind}`,
      onchange: () => choose({ ...chosen, [kind]: select.value }),
    });
    const label = html("label", { for: select.id }, kind[0].toUpperCase() + kind.slice(1));
    const values = [...valuesOf(kind)];
    if (order[kind]) values.sort((a, b) => order[kind](a) - order[kind](b));
    return { kind, select, values, box: html("div", { class: "live-field" }, label, select) };
  });
  const show = () => {
    for (const { kind, select, values } of fields) {
      const count = (value) => items.filter((item) => fits(item, { ...chosen, [kind]: value })).length;
      const options = ["", ...values].map((value) => {
        const name = value ? (names[kind]?.(value) ?? value) : "all";
        return html("option", { value }, `${name} (${count(value)})`);
      });
      select.replaceChildren(...options);
      select.value = chosen[kind];
    }
    for (const item of items) item.element.classList.toggle("ledger-out", !fits(item, chosen));
    for (const { element, items: inside } of groups)
      element.classList.toggle("ledger-out", !inside.some((item) => fits(item, chosen)));
    status.textContent = `${items.filter((item) => fits(item, chosen)).length} of ${items.length} claims`;
    all.hidden = !Object.values(chosen).some(Boolean);
  };
  const choose = (next) => {
    chosen = next;
    show();
    const said = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
    try {
      history.replaceState(null, "", location.pathname + (said && `?${said}`) + location.hash);
    } catch {
      // A page opened as a file may not say so in its address.
    }
  };
  const nothing = { verdict: "", source: "", chapter: "" };
  const all = button("Show all", () => {
    choose(nothing);
    fields[0].select.focus();
  });
  const place = article.querySelector(".ledger-filters");
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Filter the claims");
  place.append(
    html("div", { class: "live-fields" }, ...fields.map(({ box }) => box)),
    html("div", { class: "live-buttons" }, status, all),
  );
  show();
  // Who follows a link to what is filtered out sees it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.closest(".ledger-out")) return;
    choose(nothing);
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  reveal();
}

whenWhole(() => ledger(document.querySelector("article.bd-article")));

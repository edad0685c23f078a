// Filters for the ledger and the errata, by verdict, source and chapter. Without them all is shown.

import { html } from "./drawing.js";
import { VERDICTS } from "./verdicts.js";

/** What a claim is asked for, in the order of its entry. */
export const KINDS = ["verdict", "source", "chapter"];

/** Return whether one of an item's claims has all that is chosen; an empty choice asks nothing. */
export function fits(item, chosen) {
  return item.claims.some((claim) => KINDS.every((kind, i) => !chosen[kind] || claim[i] === chosen[kind]));
}

/** Return, for each value of a kind, how many items there are under the other choices. */
export function counted(items, chosen, kind) {
  const others = { ...chosen, [kind]: "" };
  const counts = new Map();
  for (const value of new Set(items.flatMap((item) => item.claims.map((c) => c[KINDS.indexOf(kind)]))))
    counts.set(value, items.filter((item) => fits(item, { ...others, [kind]: value })).length);
  return counts;
}

/** Return what an address chooses, and nothing that no claim has. */
export function chosenBy(search, items) {
  const asked = new URLSearchParams(search);
  return Object.fromEntries(
    KINDS.map((kind, i) => {
      const value = asked.get(kind) ?? "";
      const known = items.some((item) => item.claims.some((claim) => claim[i] === value));
      return [kind, known ? value : ""];
    }),
  );
}

/** Return the part of an address that says what is chosen. */
export function address(chosen) {
  const said = KINDS.filter((kind) => chosen[kind]).map((kind) => [kind, chosen[kind]]);
  return said.length ? `?${new URLSearchParams(said)}` : "";
}

/** Return what the page lists: elements, each with the claims that it is about. */
function listed(article) {
  const claims = VERDICTS.claims;
  const boxes = [...article.querySelectorAll(".claim[id]")];
  if (boxes.length)
    return boxes.map((box) => ({
      element: box.closest("div.output") ?? box,
      claims: [claims[box.id.replace("claim-", "")]],
    }));
  return [...article.querySelectorAll("section section")]
    .map((element) => {
      const codes = [...(element.querySelector("p")?.querySelectorAll("code") ?? [])];
      return { element, claims: codes.map((code) => claims[code.textContent]).filter(Boolean) };
    })
    .filter((item) => item.claims.length);
}

/** Return the names of chapters as the contents of the book have them, by file. */
function chapterNames() {
  const links = [...document.querySelectorAll("nav.bd-docs-nav a[href]")];
  return new Map(
    links.map((link) => [
      link.getAttribute("href").replace(/^.*\/|\.html.*$/g, ""),
      [...link.childNodes].find((node) => node.nodeType === Node.TEXT_NODE)?.textContent.trim(),
    ]),
  );
}

/** Give the page's list its filters. */
export function ledger(article, noun) {
  const items = listed(article).filter(({ claims }) => claims.every(Boolean));
  if (!items.length) return;
  const groups = [...article.querySelectorAll("section section")].filter((section) =>
    items.some(({ element }) => section.contains(element)),
  );
  const chapters = chapterNames();
  const order = [...chapters.keys()];
  const name = {
    verdict: (value) => value,
    source: (value) => `${value}: ${VERDICTS.sources[value] ?? ""}`,
    chapter: (value) => chapters.get(value) ?? value,
  };
  let chosen = chosenBy(location.search, items);
  const status = html("p", { class: "ledger-count", role: "status" });
  const all = html("button", { type: "button", class: "live-button" }, "Show all");
  const fields = KINDS.map((kind) => {
    const select = html("select", { id: `ledger-${kind}` });
    const label = html("label", { for: select.id }, kind[0].toUpperCase() + kind.slice(1));
    select.addEventListener("change", () => choose({ ...chosen, [kind]: select.value }));
    return { kind, select, box: html("div", { class: "live-field" }, label, select) };
  });
  const show = () => {
    for (const { kind, select } of fields) {
      const counts = [...counted(items, chosen, kind)];
      counts.sort(([a], [b]) =>
        kind === "chapter" ? order.indexOf(a) - order.indexOf(b) : kind === "source" ? a.localeCompare(b) : 0,
      );
      const any = items.filter((item) => fits(item, { ...chosen, [kind]: "" })).length;
      const options = [["", `all (${any})`], ...counts.map(([v, n]) => [v, `${name[kind](v)} (${n})`])];
      select.replaceChildren(...options.map(([value, text]) => html("option", { value }, text)));
      select.value = chosen[kind];
    }
    let shown = 0;
    for (const item of items) {
      const fit = fits(item, chosen);
      item.element.classList.toggle("ledger-out", !fit);
      shown += fit;
    }
    for (const group of groups) {
      const inside = items.filter(({ element }) => group.contains(element));
      group.classList.toggle("ledger-out", !inside.some((item) => fits(item, chosen)));
    }
    status.textContent = `${shown} of ${items.length} ${noun}`;
    all.hidden = !address(chosen);
  };
  const choose = (next) => {
    chosen = next;
    show();
    try {
      history.replaceState(null, "", location.pathname + address(chosen) + location.hash);
    } catch {
      // A page opened as a file may not say so in its address.
    }
  };
  all.addEventListener("click", () => {
    choose({});
    fields[0].select.focus();
  });
  const place = article.querySelector(".ledger-filters");
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", `Filter the ${noun}`);
  place.append(
    html("div", { class: "live-fields" }, ...fields.map(({ box }) => box)),
    html("div", { class: "live-buttons" }, status, all),
  );
  show();
  // Who follows a link to what is filtered out sees it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.closest(".ledger-out")) return;
    choose({});
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  reveal();
}

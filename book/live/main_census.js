// Makes the table of the census searchable, also by kind, and puts two families side by side.

import { html } from "./drawing.js";
import { whenWhole } from "./controls.js";
import { listing } from "./listing.js";

/** Return a choice among families. */
function choice(id, label, names, onchange) {
  const options = ["", ...names].map((name) => html("option", { value: name }, name));
  const select = html("select", { id, onchange }, ...options);
  return [select, html("label", { for: id }, label), select];
}

/** Put two families side by side above the table: a column for each of their layers. */
function beside(table, rows) {
  const family = (row) => row.cells[0].textContent;
  const names = [...new Set(rows.map(family))];
  const shown = html("div", { class: "listing" });
  const show = () => {
    const chosen = [one.value, two.value].filter(Boolean);
    const columns = chosen.flatMap((name) => rows.filter((row) => family(row) === name));
    const lines = [...table.tHead.rows[0].cells].map((heading, i) => {
      const cells = columns.map((row) => html("td", { class: "word" }, row.cells[i].textContent));
      return html("tr", {}, html("th", { scope: "row" }, heading.textContent), ...cells);
    });
    shown.replaceChildren(...(columns.length ? [html("table", {}, ...lines)] : []));
  };
  const [one, ...first] = choice("census-one", "Compare", names, show);
  const [two, ...second] = choice("census-two", "with", names, show);
  const bar = html("div", { class: "live live-search" }, ...first, ...second);
  (table.closest(".listing") ?? table).before(bar, shown);
}

/** Put a choice among the kinds of layers beside the search: it adds its word to what is asked. */
function byKind(rows) {
  const search = document.getElementById("census-search");
  const kinds = [...new Set(rows.flatMap((row) => row.dataset.words.split(" ")))];
  const [one, ...shown] = choice("census-kind", "Kind", kinds, () => {
    const words = search.value.split(/\s+/).filter((word) => !kinds.includes(word));
    search.value = [...words, one.value].filter(Boolean).join(" ");
    search.dispatchEvent(new Event("input"));
  });
  search.after(...shown);
}

whenWhole(() => {
  const table = document.getElementById("census");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  beside(table, rows);
  listing(table, {
    noun: "layers",
    hint:
      "Words and conditions, such as: norm alpha>1, or cap, or sink window. A heading orders the " +
      "table, and again the other way.",
  });
  byKind(rows);
});

// Search and order for a long table, which is whole without this script.

import { html } from "./drawing.js";

const RELATIONS = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "=": (a, b) => a === b,
  "≤": (a, b) => a <= b,
  "≥": (a, b) => a >= b,
};

/** Return what a cell holds: a number, or its words. */
export function valueOf(text) {
  const plain = text.trim().replace("−", "-");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : text.trim();
}

/**
 * Return a function that tells whether a row has all that is asked for: words, parts of words, and
 * conditions such as first>0.9, on the columns by their names. Of what makes no sense, `problem`
 * says so.
 */
export function matcher(asked, names) {
  const words = asked.toLowerCase().replaceAll("<=", "≤").replaceAll(">=", "≥");
  const parts = words.replace(/\s*([<>=≤≥])\s*/g, "$1").split(/\s+/).filter(Boolean);
  let problem = "";
  const tests = parts.map((part) => {
    const found = part.match(/^(.*?)([<>=≤≥])(.*)$/);
    if (!found) return (cells) => cells.some((text) => text.toLowerCase().includes(part));
    const [, name, relation, wanted] = found;
    const column = names.indexOf(name);
    const number = valueOf(wanted);
    if (column < 0) problem = `There is no column “${name}”: they are ${names.join(", ")}.`;
    else if (typeof number !== "number") problem = `“${wanted}” is not a number.`;
    else
      return (cells) => {
        const value = valueOf(cells[column]);
        return typeof value === "number" && RELATIONS[relation](value, number);
      };
    return () => true;
  });
  return { fits: (cells) => tests.every((test) => test(cells)), problem };
}

/** Return the order of two cells: numbers first, by size, then words; empty ones last. */
export function compare(a, b) {
  const [one, two] = [valueOf(a), valueOf(b)];
  if (one === "" || two === "") return (one === "") - (two === "");
  if (typeof one === "number" && typeof two === "number") return one - two;
  return String(one).localeCompare(String(two), "en", { numeric: true });
}

/** Give the table with this id, if the page has it, a field to search it and headings to order it. */
export function listing(id) {
  const table = document.getElementById(id);
  if (!table) return;
  const headings = [...table.tHead.rows[0].cells];
  const names = headings.map((cell) => cell.dataset.name);
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, [...row.cells].map((cell) => cell.textContent)]));
  const count = html("p", { class: "live-note", role: "status" });
  const problem = html("p", { id: `${id}-problem`, class: "live-problem" });
  const entry = html("input", {
    id: `${id}-search`,
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": `${id}-hint ${id}-problem`,
  });
  const search = () => {
    const { fits, problem: wrong } = matcher(entry.value, names);
    problem.textContent = wrong;
    entry.setAttribute("aria-invalid", String(wrong !== ""));
    if (wrong) return;
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(texts.get(row));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} heads`;
  };
  const order = (column) => {
    const heading = headings[column];
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const cell of headings) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    const empty = (row) => texts.get(row)[column].trim() === "";
    const sorted = [...rows].sort(
      (a, b) =>
        empty(a) - empty(b) || sign * compare(texts.get(a)[column], texts.get(b)[column]),
    );
    table.tBodies[0].append(...sorted);
  };
  for (const [column, cell] of headings.entries()) {
    const button = html("button", { type: "button", onclick: () => order(column) });
    button.append(...cell.childNodes);
    cell.append(button);
  }
  entry.addEventListener("input", search);
  const box = table.closest(".listing") ?? table;
  box.before(
    html(
      "div",
      { class: "live live-search" },
      html("label", { for: entry.id }, "Search"),
      entry,
      html(
        "p",
        { id: `${id}-hint`, class: "live-hint" },
        "Words and conditions, such as: smollm2 layer=18, or first>0.5 keys<2. A heading orders the table, and again the other way.",
      ),
      problem,
      count,
    ),
  );
  search();
}

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
  const plain = text.trim().replace("−", "-").replace("\u202f", "");
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
    return (cells) => {
      const value = valueOf(cells[column]);
      return typeof value === "number" && RELATIONS[relation](value, number);
    };
  });
  return { fits: (cells) => tests.every((test) => test(cells)), problem };
}

/** Return the order of two cells: numbers first, by size, then words. */
export function compare(a, b) {
  const [one, two] = [valueOf(a), valueOf(b)];
  if (typeof one === "number" && typeof two === "number") return one - two;
  return String(one).localeCompare(String(two), "en", { numeric: true });
}

/** So many rows are in the page until all are asked for: a browser is slow with thousands of cells. */
const FEW = 200;

const texts = (row) => [...row.cells].map((cell) => cell.textContent);

/**
 * Give a table a field to search it and headings to order it. Cells are read when they are needed, so
 * they may change. Conditions are on columns whose headings have a `data-name`; a row's
 * `data-words` are searched, too.
 */
export function listing(table, { noun, hint }) {
  const id = table.id;
  const headings = [...table.tHead.rows[0].cells];
  const names = headings.map((cell) => cell.dataset.name);
  const rows = [...table.tBodies[0].rows];
  const count = html("p", { class: "live-note", role: "status" });
  const problem = html("p", { id: `${id}-problem`, class: "live-problem" });
  const entry = html("input", {
    id: `${id}-search`,
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": `${id}-hint ${id}-problem`,
  });
  const box = table.closest(".listing") ?? table;
  let fitting = rows;
  let most = FEW;
  const showAll = () => {
    most = rows.length;
    show();
    box.focus();
  };
  const all = html("button", { type: "button", onclick: showAll });
  const show = () => {
    table.tBodies[0].replaceChildren(...fitting.slice(0, most));
    all.textContent = `Show all ${fitting.length}`;
    all.hidden = fitting.length <= most;
  };
  const search = () => {
    const { fits, problem: wrong } = matcher(entry.value, names);
    problem.textContent = wrong;
    entry.setAttribute("aria-invalid", String(wrong !== ""));
    if (wrong) return;
    fitting = rows.filter((row) => fits([...texts(row), row.dataset.words ?? ""]));
    count.textContent = `${fitting.length} of ${rows.length} ${noun}`;
    show();
  };
  const order = (column) => {
    const heading = headings[column];
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const cell of headings) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const cells = new Map(rows.map((row) => [row, texts(row)[column]]));
    const empty = (row) => cells.get(row).trim() === "";
    const sign = down ? -1 : 1;
    const before = (a, b) => empty(a) - empty(b) || sign * compare(cells.get(a), cells.get(b));
    for (const some of [rows, fitting]) some.sort(before);
    show();
  };
  for (const [column, cell] of headings.entries()) {
    const button = html("button", { type: "button", onclick: () => order(column) });
    button.append(...cell.childNodes);
    cell.append(button);
  }
  entry.addEventListener("input", search);
  box.before(
    html(
      "div",
      { class: "live live-search" },
      html("label", { for: entry.id }, "Search"),
      entry,
      html("p", { id: `${id}-hint`, class: "live-hint" }, hint),
      problem,
      count,
    ),
  );
  box.after(all);
  search();
}

// Answers in each field of the search while one types.

import { html } from "./drawing.js";
import { excerpt, find, marked, sections } from "./search.js";

const SHOWN = 30;
const WAIT = 120;

const root = document.documentElement.dataset.content_root ?? "./";
const pieces = (text, words) =>
  marked(text, words).map(([piece, hit]) => (hit ? html("mark", {}, piece) : piece));

/** Return a section that was found as an item of the list. */
function item(section, words) {
  const place = section.chapter ? [html("span", { class: "found-chapter" }, `${section.chapter} › `)] : [];
  const link = html("a", { href: root + section.href }, ...place, ...pieces(section.title, words));
  return html("li", {}, link, html("p", {}, ...pieces(excerpt(section.text, words), words)));
}

/** Return in words how much was found. */
function countOf({ words, all, found }) {
  if (!words.length) return "";
  if (!found.length) return "Nothing found. The contents and the index list all there is.";
  if (!all) return "No section has all of these words. These have some of them.";
  const number = `${found.length} section${found.length === 1 ? "" : "s"}`;
  return found.length > SHOWN ? `${number}; these are the first ${SHOWN}` : number;
}

/** Answer in a form: what is found stands in `box`. */
function answer(form, box, keep = () => {}) {
  const entry = form.querySelector("input");
  const count = html("p", { class: "found-count", role: "status" });
  const list = html("ol", { class: "found" });
  box.replaceChildren(count, list);
  const show = () => {
    const result = find(entry.value);
    count.textContent = countOf(result);
    list.replaceChildren(...result.found.slice(0, SHOWN).map((section) => item(section, result.words)));
    keep(entry.value);
  };
  let waiting;
  entry.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, WAIT);
  });
  // Arrows go from the field into the list and back.
  const move = (event) => {
    const places = [entry, ...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = step && places[places.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  for (const part of [form, box]) part.addEventListener("keydown", move);
  if (entry.value) show();
}

const dialog = document.getElementById("pst-search-dialog");
if (dialog) {
  const box = html("div", { class: "found-box" });
  dialog.append(box);
  answer(dialog.querySelector("form"), box);
  dialog.addEventListener("click", ({ target }) => target.closest(".found a") && dialog.close());
}

const results = document.getElementById("search-results");
if (results) {
  const form = document.querySelector(".bd-search-container form");
  form.querySelector("input").value = new URLSearchParams(location.search).get("q") ?? "";
  form.addEventListener("submit", (event) => event.preventDefault());
  answer(form, results, (typed) => {
    try {
      history.replaceState(null, "", typed ? `?q=${encodeURIComponent(typed)}` : location.pathname);
    } catch {
      // A page opened as a file may not say so in its address.
    }
  });
}

setTimeout(sections); // before the first word is typed

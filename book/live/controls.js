// Fields that explain what they cannot use, and what the live figures share.

import { grouped, html } from "./drawing.js";

let fields = 0;

/**
 * Return a number field with a slider beside it. `scale` maps the slider: "linear" or "logarithmic".
 * `check(value)` returns what is wrong with a number, or nothing; `use(value)` gets good ones, and
 * `refuse(problem)` what is wrong with others.
 */
export function numberField({
  label,
  hint,
  from,
  to,
  step,
  scale = "linear",
  check,
  use,
  refuse = () => {},
}) {
  const id = `live-${++fields}`;
  const logarithmic = scale === "logarithmic";
  const forward = logarithmic ? Math.log2 : (value) => value;
  const backward = (place) => {
    const value = logarithmic ? 2 ** place : place;
    return step >= 1 ? Math.round(value) : Number(value.toPrecision(4));
  };
  const entry = html("input", {
    id,
    type: "number",
    inputmode: "decimal",
    step: step >= 1 ? step : "any",
    "aria-describedby": hint ? `${id}-hint ${id}-problem` : `${id}-problem`,
  });
  const slider = html("input", { type: "range", "aria-label": `${label}, slider` });
  const problem = html("p", { id: `${id}-problem`, class: "live-problem", "aria-live": "polite" });

  const say = (text) => {
    problem.textContent = text;
    entry.setAttribute("aria-invalid", String(text !== ""));
  };
  const place = (value) => {
    slider.value = forward(value);
    slider.setAttribute("aria-valuetext", String(value));
  };
  const range = (low, high) => {
    slider.min = forward(low);
    slider.max = forward(high);
    slider.step = logarithmic ? 1 / 16 : step;
  };
  const show = (value) => {
    entry.value = value;
    place(value);
    say("");
  };
  /** Take what the entry holds, or say why not. */
  const take = () => {
    const text = entry.value.trim();
    const value = Number(text);
    const wrong =
      text === "" || !Number.isFinite(value) ? "This is not a number." : check(value) || "";
    say(wrong);
    if (wrong) return refuse(wrong);
    place(value);
    return use(value);
  };
  range(from, to);
  entry.addEventListener("input", take);
  slider.addEventListener("input", () => {
    const value = backward(Number(slider.value));
    show(value);
    use(value);
  });
  const element = html(
    "div",
    { class: "live-field" },
    html("label", { for: id }, label),
    html("div", { class: "live-entry" }, entry, slider),
    ...(hint ? [html("p", { id: `${id}-hint`, class: "live-hint" }, hint)] : []),
    problem,
  );
  return { label, element, show, range, entry, slider, say, take };
}

/** Return what a field of a whole number needs; `most` says in words to what it goes. */
export function whole(letter, from, to, most = grouped(to)) {
  const check = (value) =>
    !Number.isInteger(value) || value < from || value > to
      ? `Here ${letter} is a whole number from ${from} to ${most}.`
      : "";
  return { from, to, step: 1, scale: "logarithmic", check };
}

/** Return a field of a number of keys. */
export function keysField({ from = 2, to, most, use }) {
  return numberField({ label: "Number of keys n", ...whole("n", from, to, most), use });
}

/**
 * Return a field of a number from 0 to `to`, how to move it, and a button that lets α grow. Over the
 * chart that `view` returns, in a stage, it is dragged along x. `results` are those of `player`.
 */
export function draggedField({ letter, label = letter, to, step = 0.05, use, stage, view, results }) {
  const check = (value) =>
    value < 0 || value > to ? `Here ${letter} goes from 0 to ${to}.` : "";
  const field = numberField({ label, from: 0, to, step, check, use });
  const move = (value) => {
    const rounded = Number(value.toFixed(2));
    field.show(rounded);
    use(rounded);
  };
  dragged(stage, view, ([x]) => move(x));
  const play = player({ label: "Let α grow", results, move: (part) => move(to * part) });
  return { ...field, move, play };
}

/** Return a group of radio buttons; `use` gets the value of the chosen one. */
export function choice({ legend, name, options, use }) {
  const problem = html("p", { class: "live-problem", "aria-live": "polite" });
  const buttons = options.map(([value, text]) => {
    const input = html("input", { type: "radio", name, value, onchange: () => use(value) });
    return { value, input, element: html("label", {}, input, " ", text) };
  });
  return {
    element: html(
      "fieldset",
      { class: "live-choice" },
      html("legend", {}, legend),
      ...buttons.map(({ element }) => element),
      problem,
    ),
    show(value) {
      for (const button of buttons) button.input.checked = button.value === value;
    },
    say(text) {
      problem.textContent = text;
    },
  };
}

/** Return a function that does its work once before the next picture, however often it is called. */
export function once(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

/** Do a work for each item, some at a time while it is `wanted`, so that the page answers meanwhile. */
export function inTurns(items, work, wanted, several = 20) {
  if (!items.length || !wanted()) return;
  items.slice(0, several).forEach(work);
  setTimeout(() => inTurns(items.slice(several), work, wanted, several));
}

/** Of a motion that is shown step by step, where the reader's system asks for less motion. */
const STEPS = 8;

/**
 * Return a button that moves a value from 0 to 1 in some seconds, and stops when pressed again. A
 * screen reader hears of the `results` only when it has stopped. With reduced motion each press is
 * one step.
 */
export function player({ label, seconds = 7, move, results }) {
  let start = null;
  let part = 0;
  const button = html("button", { type: "button", class: "live-button" }, label);
  const stop = () => {
    start = null;
    button.textContent = label;
    results.setAttribute("aria-live", "polite");
    move(part);
  };
  const frame = (time) => {
    if (start === null) return;
    start ||= time;
    part = Math.min((time - start) / (1000 * seconds), 1);
    move(part);
    if (part < 1) requestAnimationFrame(frame);
    else stop();
  };
  let step = 0;
  button.addEventListener("click", () => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      step = (step % STEPS) + 1;
      return move(step / STEPS);
    }
    if (start !== null) return stop();
    start = 0;
    part = 0;
    button.textContent = "Stop";
    results.setAttribute("aria-live", "off");
    return requestAnimationFrame(frame);
  });
  return button;
}

/**
 * Let a pointer be dragged over a chart, which `view` returns and which may be drawn anew meanwhile:
 * `use` gets [x, y] in the units of its axes. A field beside it does the same by keyboard. A finger
 * must still be able to scroll the page: where only x counts, by moving up or down; in a plane,
 * anywhere but on the handle.
 */
export function dragged(stage, view, use, { plane = false } = {}) {
  stage.classList.add(plane ? "live-plane" : "live-across");
  let pointer = null;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !view().root.contains(event.target)) return;
    if (plane && event.pointerType === "touch" && !event.target.matches(".handle, .dot")) return;
    pointer = event.pointerId;
    stage.setPointerCapture(pointer);
    use(view().at(event));
  });
  stage.addEventListener("pointermove", (event) => {
    if (event.pointerId === pointer) use(view().at(event));
  });
  for (const end of ["pointerup", "pointercancel"])
    stage.addEventListener(end, () => {
      pointer = null;
    });
}

/** Do something when the whole page is there. */
export function whenWhole(work) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", work);
  else work();
}

/**
 * Put live figures in the place of the stills in the figures with their ids, as far as the page has
 * them. The script runs where the first of them stands, before what follows is there and would be
 * moved; the others come when the page is whole.
 */
export function place(figures) {
  const all = () => Object.entries(figures).forEach(([id, build]) => mount(id, build));
  all();
  whenWhole(all);
}

/** The builder gets a function that says whether the still is to be seen with the live figure. */
function mount(id, build) {
  const figure = document.getElementById(id);
  const still = figure?.querySelector("img");
  const shown = still?.closest("a") ?? still;
  if (!shown || figure.querySelector(".live")) return;
  const withStill = (seen) => shown.classList.toggle("live-still", !seen);
  const stage = html("div", { class: "live" }, ...build(withStill));
  withStill(false);
  shown.before(stage);
}

/** Return a definition list of names and values. */
export function readings(pairs) {
  return pairs.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]);
}

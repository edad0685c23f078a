// Fields that explain what they cannot use, and what the live figures share.

import { grouped, html, legend } from "./drawing.js";

let fields = 0;

/**
 * Return a number field with a slider beside it. `scale` maps the slider: "linear" or "logarithmic".
 * `check(value)` returns what is wrong with a number, or nothing; `use(value)` gets good ones, and
 * `refuse(problem)` what is wrong with others.
 */
export function numberField({
  label,
  hint,
  letter = label,
  from = 0,
  to,
  step = 0.05,
  scale = "linear",
  check = (value) => (value < from || value > to ? `Here ${letter} goes from ${from} to ${to}.` : ""),
  use,
  refuse = () => {},
}) {
  const id = `live-${++fields}`;
  const logarithmic = scale === "logarithmic";
  const forward = logarithmic ? Math.log2 : (value) => value;
  const backward = (place) => {
    const value = logarithmic ? 2 ** place : place;
    if (step >= 1) return Math.round(value);
    return Number(logarithmic ? value.toPrecision(4) : value.toFixed(2));
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
  let ends = [];

  const say = (text) => {
    problem.textContent = text;
    entry.setAttribute("aria-invalid", String(text !== ""));
  };
  const place = (value) => {
    slider.value = forward(value);
    slider.setAttribute("aria-valuetext", String(value));
  };
  const range = (low, high) => {
    ends = [low, high].map(forward);
    [slider.min, slider.max] = ends;
    slider.step = logarithmic ? 1 / 16 : step;
  };
  const show = (value) => {
    entry.value = value;
    place(value);
    say("");
  };
  const move = (value) => {
    show(value);
    use(value);
  };
  range(from, to);
  entry.addEventListener("input", () => {
    const text = entry.value.trim();
    const value = Number(text);
    const wrong =
      text === "" || !Number.isFinite(value) ? "This is not a number." : check(value) || "";
    say(wrong);
    if (wrong) refuse(wrong);
    else {
      place(value);
      use(value);
    }
  });
  slider.addEventListener("input", () => move(backward(Number(slider.value))));
  // A finger that scrolls the page from here leaves the number as it was.
  let before = NaN;
  slider.addEventListener("pointerdown", () => (before = Number(entry.value)));
  slider.addEventListener("pointercancel", () => {
    if (!check(before)) move(before);
  });
  const element = html(
    "div",
    { class: "live-field" },
    html("label", { for: id }, label),
    html("div", { class: "live-entry" }, entry, slider),
    ...(hint ? [html("p", { id: `${id}-hint`, class: "live-hint" }, hint)] : []),
    problem,
  );
  return {
    ...{ label, element, entry, show, range, say },
    /** Put the value at a share of the slider's way, and return the share of the present one. */
    moveTo: (part) => move(backward(ends[0] + part * (ends[1] - ends[0]))),
    part: () => (Number(slider.value) - ends[0]) / (ends[1] - ends[0]),
  };
}

/** Return what a field of a whole number needs; `most` says in words to what it goes. */
export function whole(letter, from, to, most = grouped(to)) {
  const check = (value) =>
    !Number.isInteger(value) || value < from || value > to
      ? `Here ${letter} is a whole number from ${from} to ${most}.`
      : "";
  return { from, to, step: 1, scale: "logarithmic", check };
}

/** Return a group of radio buttons; `use` gets the value of the chosen one. */
export function choice({ legend, name, options, use }) {
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
    ),
    show(value) {
      for (const button of buttons) button.input.checked = button.value === value;
    },
  };
}

/** Return a button; `press` is called when it is pressed. */
export function button(text, press) {
  return html("button", { type: "button", class: "live-button", onclick: press }, text);
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

/** Return a function that keeps its last result, for as long as it is asked the same. */
export function remembered(work) {
  let [key, value] = [null, null];
  return (...asked) => {
    const now = JSON.stringify(asked);
    if (now !== key) [key, value] = [now, work(...asked)];
    return value;
  };
}

/** Seconds in which a motion goes from one end to the other; with less motion wished, its steps. */
const SECONDS = 7;
const STEPS = 8;

/**
 * Return a button that moves a field from its smallest value to its largest, and stops when pressed
 * again. A screen reader hears of the `results` only when it has stopped. Where the reader's system
 * asks for less motion, each press is one step on.
 */
function player({ label, field, results }) {
  let start = null;
  const stop = () => {
    start = null;
    play.textContent = label;
    results.setAttribute("aria-live", "polite");
  };
  const frame = (time) => {
    if (start === null) return;
    start ||= time;
    const part = Math.min((time - start) / (1000 * SECONDS), 1);
    if (part === 1) stop();
    else requestAnimationFrame(frame);
    field.moveTo(part);
  };
  const play = button(label, () => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      const next = Math.floor(STEPS * field.part() + 1e-6) + 1;
      return field.moveTo(next > STEPS ? 0 : next / STEPS);
    }
    if (start !== null) return stop();
    start = 0;
    play.textContent = "Stop";
    results.setAttribute("aria-live", "off");
    return requestAnimationFrame(frame);
  });
  return play;
}

/** Pixels by which a finger has to move sideways, before a value follows it. */
const SIDEWAYS = 6;

/**
 * Let a pointer be dragged over a chart, which `view` returns and which may be drawn anew meanwhile:
 * `use` gets [x, y] in the units of its axes. A field beside it does the same by keyboard. A finger
 * must still be able to scroll the page: where only x counts, by moving up or down; in a plane,
 * anywhere but on the handle.
 */
export function dragged(stage, view, use, { plane = false } = {}) {
  stage.classList.add(plane ? "live-plane" : "live-across");
  let held = null;
  const follow = (event) => use(view().at(event));
  stage.addEventListener("pointerdown", (event) => {
    const touch = event.pointerType === "touch";
    if (event.button !== 0 || !view()?.root.contains(event.target)) return;
    if (plane && touch && !event.target.matches(".handle, .dot")) return;
    const { pointerId: id, clientX: x, clientY: y } = event;
    held = { id, x, y, moves: plane || !touch };
    stage.setPointerCapture(id);
    if (held.moves) follow(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (event.pointerId !== held?.id) return;
    const [across, along] = [event.clientX - held.x, event.clientY - held.y].map(Math.abs);
    held.moves ||= across > SIDEWAYS && across > along;
    if (held.moves) follow(event);
  });
  stage.addEventListener("pointerup", (event) => {
    if (event.pointerId === held?.id && !held.moves) follow(event); // a tap
    held = null;
  });
  stage.addEventListener("pointercancel", () => {
    held = null;
  });
}

/**
 * Return the parts of a figure whose fields set a `state`. `fields` has what numberField takes, by
 * the names in the state; `draw(state)` returns what follows from it: `pictures` (charts), `readings`
 * ([name, value] pairs) and a `note`. Beside a number that cannot be used nothing is shown. The first
 * picture is dragged: `across` names the field of its x axis, or `plane` returns the new part of the
 * state for a place. `grow` is the button that moves a field, {label, name}; `buttons` are [text,
 * function of the state] pairs.
 */
export function figure({ state, fields, draw, across, plane, grow, buttons = [], lines = [], hint }) {
  const stage = html("div", { class: "live-pictures" });
  const values = html("dl", { class: "live-readings", "aria-live": "polite" });
  const note = html("p", { class: "live-note", "aria-live": "polite" });
  const wrong = new Set();
  let view = null;
  const update = () => {
    for (const part of [stage, values, note]) part.hidden = wrong.size > 0;
    if (wrong.size) return;
    const { pictures, readings: pairs, note: said = "" } = draw(state);
    [view] = pictures;
    stage.replaceChildren(...pictures.map(({ root }) => root));
    values.replaceChildren(...readings(pairs));
    note.textContent = said;
  };
  const inputs = {};
  for (const [name, options] of Object.entries(fields))
    inputs[name] = numberField({
      ...options,
      use: (value) => {
        wrong.delete(name);
        state[name] = value;
        update();
      },
      refuse: () => {
        wrong.add(name);
        update();
      },
    });
  const set = (part) => {
    for (const [name, value] of Object.entries(part)) {
      inputs[name].show(value);
      wrong.delete(name);
    }
    Object.assign(state, part);
    update();
  };
  if (plane) dragged(stage, () => view, (at) => set(plane(at)), { plane: true });
  if (across) dragged(stage, () => view, ([x]) => set({ [across]: Number(x.toFixed(2)) }));
  set(Object.fromEntries(Object.keys(fields).map((name) => [name, state[name]])));
  const pressed = buttons.map(([text, act]) => button(text, () => update(act(state))));
  if (grow) pressed.unshift(player({ label: grow.label, field: inputs[grow.name], results: values }));
  return [
    ...(hint ? [html("p", { class: "live-hint" }, hint)] : []),
    html("div", { class: "live-fields" }, ...Object.values(inputs).map(({ element }) => element)),
    ...(pressed.length ? [html("div", { class: "live-buttons" }, ...pressed)] : []),
    ...(lines.length ? [legend(lines)] : []),
    ...[stage, values, note],
  ];
}

/** Milliseconds without a change after which a result is spoken. */
export const PAUSE = 400;

/** Return an element that a screen reader reads once a result has stayed for a moment. */
export function speaker() {
  const element = html("p", { class: "live-spoken", role: "status" });
  let waiting;
  return {
    element,
    say(text) {
      clearTimeout(waiting);
      waiting = setTimeout(() => (element.textContent = text), PAUSE);
    },
  };
}

/** Do something when the whole page is there. */
export function whenWhole(work) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", work);
  else work();
}

/**
 * Put live figures in the place of the pictures in the figures with their ids, as far as the page has
 * them; the whole book on one page has its page before an id. The script runs where the first of
 * them stands, before what follows is there and would be moved; the others come when the page is
 * whole.
 */
export function place(figures) {
  const all = () => Object.entries(figures).forEach(([id, build]) => mount(id, build));
  all();
  whenWhole(all);
}

function mount(id, build) {
  const figure = document.querySelector(`#${id}, [id$="-${id}"]`);
  const picture = figure?.querySelector("img");
  const shown = picture?.closest("a") ?? picture;
  if (!shown || figure.querySelector(".live")) return;
  shown.before(html("div", { class: "live" }, ...build()));
  if (picture.src.includes("/live")) shown.remove();
  else shown.classList.add("live-still");
}

/** Return a definition list of names and values. */
export function readings(pairs) {
  return pairs.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]);
}

// A figure that asks first: the reader places a guess on the axis, and then sees the curve.

import { dragged, numberField } from "./controls.js";
import { chart, html } from "./drawing.js";

/**
 * Return a builder of a figure. `x` and `y` are axes as `chart` takes them, x in the units of the
 * picture; `shown` turns a guess into these units and `guessed` a place of the picture into a guess.
 * `field` is what a number field needs, `known` draws what is there from the start, `curve` the
 * rest, `answer` returns where the guess should be, and `verdict` says of a guess how far off it is.
 */
export function guessFigure({ question, field, x, y, name, shown, guessed, known, ...rest }) {
  const { curve, verdict } = rest;
  return (withStill) => {
    const answer = rest.answer();
    const stage = html("div", { class: "live-pictures" });
    const result = html("p", { class: "live-answer", "aria-live": "polite", hidden: true });
    let [guess, asking, view] = [null, true, null];
    const draw = () => {
      view = chart({ x, y, name: asking ? `${name}, still without its curve.` : `${name}.` });
      if (known) known(view);
      if (guess !== null) view.upright(shown(guess), "line guess");
      if (!asking) {
        curve(view);
        view.upright(shown(answer), "thin dotted");
      }
      stage.replaceChildren(view.root);
    };
    const entry = numberField({
      ...field,
      use: (value) => {
        guess = value;
        draw();
      },
    });
    const unplaced = () => {
      const { slider } = entry;
      guess = null;
      entry.entry.value = "";
      slider.value = (Number(slider.min) + Number(slider.max)) / 2;
      slider.setAttribute("aria-valuetext", "no guess yet");
    };
    const reveal = (asked) => {
      asking = !asked;
      for (const box of [entry.element, show, skip]) box.hidden = asked;
      again.hidden = result.hidden = !asked;
      withStill(asked);
      draw();
      (asked ? again : entry.entry).focus({ preventScroll: true });
    };
    const press = (text, onclick) =>
      html("button", { type: "button", class: "live-button", onclick }, text);
    const show = press("Show the curve", () => {
      if (guess === null) return entry.say("Place a guess first, here or by a click in the picture.");
      result.textContent = verdict(guess, answer);
      return reveal(true);
    });
    const skip = press("Show it without a guess", () => {
      guess = null;
      result.textContent = verdict(null, answer);
      reveal(true);
    });
    const again = press("Guess again", () => {
      unplaced();
      reveal(false);
    });
    again.hidden = true;
    dragged(stage, () => view, ([place]) => {
      if (!asking) return;
      guess = guessed(place);
      entry.show(guess);
      draw();
    });
    unplaced();
    draw();
    return [
      html("p", { class: "live-question" }, question),
      html("div", { class: "live-fields" }, entry.element),
      html("div", { class: "live-buttons" }, show, skip, again),
      stage,
      result,
    ];
  };
}

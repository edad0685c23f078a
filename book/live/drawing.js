// SVG and HTML elements, and a chart with axes.

const SVG = "http://www.w3.org/2000/svg";

/** Pixels of the letters of every chart, however wide it is shown. */
const LETTERS = 14;

/** Bars that are drawn of a row. */
export const SHOWN = 24;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Return a new HTML element. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return a new SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return a number with so many digits and no exponent, as 0.0123, 2.41 or 16 800. */
export function digits(value, count = 3) {
  if (!Number.isFinite(value)) return "∞";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= count) return grouped(Math.round(value));
  return value.toFixed(Math.min(Math.max(count - 1 - size, 0), 20));
}

/** Return a whole number, from five digits on in groups of three. */
export function grouped(value) {
  return value < 1e4 ? String(value) : String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Return a whole number as an exponent. */
export function superscript(power) {
  return String(power).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
}

/** Return ticks of an axis of powers of ten. */
export function powersOfTen(...powers) {
  return powers.map((power) => [power, power > 1 ? `10${superscript(power)}` : String(10 ** power)]);
}

/** Return a percentage of two digits. */
export function percent(share) {
  return `${share < 0.995 ? digits(100 * share, 2) : "100"}\u00a0%`;
}

/** Return round numbers between two ends, about so many. */
export function ticks(from, to, count = 5) {
  const raw = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(to / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * Return a chart: an SVG with axes, and functions that draw in its coordinates. x and y are
 * {from, to, name, ticks}, ticks a list of numbers or of [number, text] pairs.
 */
export function chart({ x, y, width = 420, height = 280, name }) {
  const box = { left: 84, right: width - 14, top: 12, bottom: height - 52 };
  const X = (value) => box.left + ((box.right - box.left) * (value - x.from)) / (x.to - x.from);
  const Y = (value) => box.bottom - ((box.bottom - box.top) * (value - y.from)) / (y.to - y.from);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
  new ResizeObserver(([{ contentRect: shown }]) => {
    if (shown.width) root.style.fontSize = `${(LETTERS * width) / shown.width}px`;
  }).observe(root);
  // The font of signs that a system lacks is read late; Chromium sets no text of an SVG again for it.
  const again = () => {
    for (const text of root.querySelectorAll("text")) text.append(...text.childNodes);
  };
  const frame = () => new Promise(requestAnimationFrame);
  document.fonts.load("1em Signs").then(frame).then(frame).then(again);
  const add = (tag, attributes, ...children) => {
    const node = svg(tag, attributes, ...children);
    root.append(node);
    return node;
  };
  const pairs = (list) => list.map((tick) => (Array.isArray(tick) ? tick : [tick, short(tick)]));
  add("path", {
    class: "axis",
    d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`,
  });
  for (const [value, text] of pairs(x.ticks)) {
    add("path", { class: "axis", d: `M${X(value).toFixed(1)} ${box.bottom}v5` });
    add("text", { x: X(value), y: box.bottom + 21, "text-anchor": "middle" }, text);
  }
  for (const [value, text] of pairs(y.ticks)) {
    add("path", { class: "axis", d: `M${box.left} ${Y(value).toFixed(1)}h-5` });
    add("text", { x: box.left - 9, y: Y(value) + 5, "text-anchor": "end" }, text);
  }
  const middle = (box.top + box.bottom) / 2;
  add("text", { x: (box.left + box.right) / 2, y: height - 9, "text-anchor": "middle" }, x.name);
  add(
    "text",
    { x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` },
    y.name,
  );
  const inside = (value) => Number.isFinite(value) && value >= y.from && value <= y.to;
  const pair = (a, b) => `${X(a).toFixed(1)} ${Y(b).toFixed(1)}`;
  /** Where the line from a point inside the axes to one outside crosses their edge. */
  const edge = ([a, b], [c, d]) => {
    const border = d < y.from ? y.from : y.to;
    return pair(a + ((border - b) / (d - b)) * (c - a), border);
  };
  return {
    root,
    box,
    X,
    Y,
    add,
    /** Draw a curve through points [x, y]; it is cut where it leaves the axes. */
    curve(points, style) {
      let path = "";
      for (const [i, point] of points.entries()) {
        const before = points[i - 1];
        const [now, then] = [inside(point[1]), before && inside(before[1])];
        if (now && before && !then) path += `M${edge(point, before)}`;
        if (now) path += `${before ? "L" : "M"}${pair(...point)}`;
        if (then && !now) path += `L${edge(before, point)}`;
      }
      return add("path", { class: style, d: path || "M0 0" });
    },
    /** Draw a function of x. */
    graph(f, style, [from, to] = [x.from, x.to], steps = 120) {
      const places = Array.from({ length: steps + 1 }, (_, i) => from + ((to - from) * i) / steps);
      return this.curve(
        places.map((at) => [at, f(at)]),
        style,
      );
    },
    /** Shade what lies between two functions of x. */
    between(low, high, style, steps = 96) {
      const places = Array.from({ length: steps + 1 }, (_, i) => x.from + ((x.to - x.from) * i) / steps);
      const edge = (f) => places.map((at) => pair(at, f(at)));
      return add("path", { class: style, d: `M${[...edge(low), ...edge(high).reverse()].join("L")}Z` });
    },
    /** Draw a bar from one place to another, up to a height. */
    bar(from, to, height, style = "bar") {
      const [left, right, top] = [X(from), X(to), Y(height)];
      const gap = 0.12 * (right - left);
      return add("rect", {
        class: style,
        x: (left + gap).toFixed(1),
        y: top.toFixed(1),
        width: (right - left - 2 * gap).toFixed(1),
        height: Math.max(box.bottom - top, 0).toFixed(1),
      });
    },
    dot(a, b, style) {
      return add("circle", { class: style, cx: X(a), cy: Y(b), r: 5 });
    },
    /** Draw a dot that a finger can take hold of. */
    handle(a, b, style) {
      add("circle", { class: "handle", cx: X(a), cy: Y(b), r: 24 });
      return this.dot(a, b, style);
    },
    upright(a, style) {
      return add("path", { class: style, d: `M${X(a).toFixed(1)} ${box.top}V${box.bottom}` });
    },
    label(a, b, text, style = "") {
      return add("text", { x: X(a), y: Y(b), class: style }, text);
    },
    /** Return where a pointer is in the units of the axes, and no further than they go. */
    at({ clientX, clientY }) {
      const { left, top, width: shown } = root.getBoundingClientRect();
      const unit = width / shown;
      const part = (value, low, high) => Math.min(Math.max((value - low) / (high - low), 0), 1);
      return [
        x.from + (x.to - x.from) * part(unit * (clientX - left), box.left, box.right),
        y.from + (y.to - y.from) * part(unit * (clientY - top), box.bottom, box.top),
      ];
    },
  };
}

/** Return a number as an axis shows it. */
function short(value) {
  return value >= 1e4 ? grouped(Math.round(value)) : String(Number(value.toPrecision(6)));
}

/** Return a list of lines, as [style, name] pairs, with what each looks like. */
export function legend(lines) {
  const sample = (style) =>
    svg(
      "svg",
      { class: "live-key", viewBox: "0 0 40 8", "aria-hidden": "true" },
      svg("path", { class: style, d: "M0 4H40" }),
    );
  return html(
    "ul",
    { class: "live-legend" },
    ...lines.map(([style, name]) => html("li", {}, sample(style), name)),
  );
}

/** Return bars for the largest weights, up to the height `highest`; one may be marked. */
export function bars(weights, { name, highest = 1, shown = SHOWN, marked = -1 }) {
  const view = chart({
    x: { from: 0, to: shown, name: "keys of the row, largest weight first", ticks: [] },
    y: { from: 0, to: highest, name: "weight", ticks: [0, highest / 2, highest] },
    name,
  });
  for (const [k, weight] of weights.slice(0, shown).entries())
    view.bar(k, k + 1, weight, k === marked ? "bar marked" : "bar");
  return view;
}

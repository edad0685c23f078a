// A switch for the code of all cells, remembered. Without scripts each cell opens by itself.
"use strict";

{
  const KEY = "code";
  const folded = [...document.querySelectorAll("details.code")];

  // The code becomes a part of the page when it is opened.
  const put = (details) => {
    const waiting = details.querySelector("noscript");
    if (!waiting) return;
    waiting.outerHTML = waiting.textContent;
    for (const code of details.querySelectorAll("div.highlight")) addCopy(code);
  };
  const addCopy = (code) => {
    if (!navigator.clipboard) return; // a page that came unprotected over the network has none
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.querySelector("pre").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    code.append(button);
  };
  const open = (details, shown) => {
    if (shown) put(details);
    details.open = shown;
  };
  for (const details of folded) details.addEventListener("toggle", () => put(details));
  for (const code of document.querySelectorAll(".bd-content div.highlight")) addCopy(code);

  // A page that is opened as a file may have no storage.
  const remembered = () => {
    try {
      return localStorage.getItem(KEY) === "shown";
    } catch {
      return false;
    }
  };
  const remember = (shown) => {
    try {
      localStorage.setItem(KEY, shown ? "shown" : "folded");
    } catch {}
  };

  const addSwitch = (header) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn btn-sm code-switch";
    button.textContent = "Code";
    button.title = "Show the code of all cells";
    const set = (shown) => {
      button.setAttribute("aria-pressed", String(shown));
      for (const details of folded) open(details, shown);
    };
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      set(shown);
      remember(shown);
    });
    addEventListener("storage", ({ key }) => {
      if (key === KEY) set(remembered());
    });
    header.prepend(button);
    set(remembered());
  };

  // Paper has the code that a notebook does not hide, whatever is folded on the screen.
  const { dataset } = document.documentElement;
  let opened = [];
  let theme;
  addEventListener("beforeprint", () => {
    theme = dataset.theme;
    dataset.theme = "light"; // browsers print no dark ground, and pale letters on white
    opened = folded.filter((details) => !details.open && !details.matches(".above-input"));
    for (const details of opened) open(details, true);
  });
  addEventListener("afterprint", () => {
    if (theme) dataset.theme = theme;
    for (const details of opened) details.open = false;
  });

  const header = document.querySelector(".article-header-buttons");
  if (folded.length && header) addSwitch(header);
}

// A formula or table wider than its place scrolls there; its edge fades where more is hidden.
{
  const WIDE = ".bd-content :is(div.math, .cell_output .text_html, .pst-scrollable-table-container)";
  const boxes = new Set();

  const stop = (box) => ({
    tabindex: "0",
    role: "group",
    "aria-label": `Wide ${box.matches(".math") ? "formula" : "table"}, scrolls`,
  });

  const mark = (box) => {
    const hidden = box.scrollWidth - box.clientWidth;
    const sides = [];
    if (hidden > 1 && box.scrollLeft > 1) sides.push("left");
    if (hidden > 1 && box.scrollLeft < hidden - 1) sides.push("right");
    if (box.dataset.more === sides.join(" ")) return;
    box.dataset.more = sides.join(" ");
    // Keys scroll what has the focus; what fits is no stop on the way.
    if (sides.length && !box.hasAttribute("tabindex")) {
      box.classList.add("scrolls");
      for (const [name, value] of Object.entries(stop(box))) box.setAttribute(name, value);
    } else if (!sides.length && box.matches(".scrolls")) {
      box.classList.remove("scrolls");
      for (const name of Object.keys(stop(box))) box.removeAttribute(name);
    }
  };

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) mark(target.closest("[data-more]") ?? target);
  });
  const watch = (box) => {
    if (boxes.has(box)) return;
    boxes.add(box);
    box.dataset.more = "";
    box.addEventListener("scroll", () => mark(box), { passive: true });
    sizes.observe(box);
    for (const child of box.children) sizes.observe(child);
  };

  // A formula in a line that is wider than the line gets a line of its own, which scrolls. To measure
  // what is folded would have the browser lay it out.
  const fit = () => {
    for (const formula of document.querySelectorAll(".own-line")) formula.classList.remove("own-line");
    const inline = [...document.querySelectorAll(".bd-content article span.math > math")];
    const wide = inline.filter((formula) => {
      const line = formula.closest("p, li, dt, dd, td, h1, h2, h3, h4");
      if (!line || formula.closest("details:not([open]) > :not(summary)")) return false;
      return formula.getBoundingClientRect().width > line.clientWidth;
    });
    for (const { parentElement } of wide) {
      parentElement.classList.add("own-line");
      watch(parentElement);
    }
    boxes.forEach(mark);
  };

  document.querySelectorAll(WIDE).forEach(watch);
  let waiting;
  const soon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(fit);
  };
  document.fonts.ready.then(soon);
  document.addEventListener("toggle", soon, true);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    fit();
  });
}

// What a link refers to is shown beside it, by pointer or by keyboard focus, and what a letter of a
// formula means, by pointer; Escape hides it.
{
  const SHOWN = ".proof, .exercise, div.math, figure, table.table, .citation, dt";
  const NAMES = /^\s*(Theorem|Lemma|Proposition|Corollary|Definition|Exercise|Fig\.|\(\d)/;
  const LEFT_OUT = ".headerlink, .live, script, .fn-backref, .backrefs";
  const [WAIT, WAIT_FOR_LETTER] = [150, 400];
  const article = document.querySelector("article.bd-article");
  const pages = new Map();
  let tip, owner, waiting;

  // Another page is fetched once. From a file it cannot be; then there is no preview.
  const fetched = (address) => {
    if (!pages.has(address)) {
      const parsed = async () => {
        const answer = await fetch(address);
        if (!answer.ok) throw new Error(answer.status);
        return new DOMParser().parseFromString(await answer.text(), "text/html");
      };
      pages.set(address, parsed().catch(() => null));
    }
    return pages.get(address);
  };

  const target = async (link) => {
    const { origin, pathname, hash } = new URL(link.href);
    const id = decodeURIComponent(hash.slice(1));
    if (!id || origin !== location.origin) return null;
    if (pathname === location.pathname) return { found: document.getElementById(id) };
    if (!NAMES.test(link.textContent) && !/bibliography|glossary/.test(pathname)) return null;
    if (location.protocol === "file:") return null;
    const page = await fetched(pathname);
    return { found: page?.getElementById(id), base: link.href };
  };

  // The page of symbols by what stands there: α*, H₂, and for pᵢ, "q, k" and κ(α) also p, q, k and κ.
  let symbols;
  const read = async () => {
    const root = document.documentElement.dataset.content_root ?? "./";
    const address = new URL(`${root}chapters/notation.html`, location.href);
    const page = location.protocol === "file:" ? null : await fetched(address.pathname);
    const known = new Map();
    for (const entry of page?.querySelectorAll("dt:has(math)") ?? []) {
      const formula = entry.querySelector("math");
      const names = formula.textContent.split(",");
      const [first] = formula.children;
      if (first.matches("msub") && first.lastElementChild.textContent === "i")
        names.push(first.firstElementChild.textContent);
      if (names[0].includes("(")) names.push(first.textContent);
      for (const name of [formula.textContent, ...names])
        if (!known.has(name)) known.set(name, { found: entry, base: address.href });
    }
    return known;
  };
  const meaning = async (letter) => {
    const known = await (symbols ??= read());
    const whole = letter.closest("msub, msup, msubsup") ?? letter;
    return known.get(whole.textContent) ?? known.get(letter.textContent);
  };

  const copy = ({ found, base }) => {
    if (!found?.matches(SHOWN)) return null;
    const pieces = found.matches("dt") ? [found, found.nextElementSibling] : [found];
    const copied = document.createElement("div");
    copied.append(...pieces.map((piece) => document.importNode(piece, true)));
    for (const part of copied.querySelectorAll(LEFT_OUT)) part.remove();
    for (const picture of copied.querySelectorAll("img"))
      picture.src = new URL(picture.getAttribute("src"), base ?? location.href);
    for (const part of copied.querySelectorAll("[id], [tabindex], [data-more], details")) {
      for (const name of ["id", "tabindex", "data-more"]) part.removeAttribute(name);
      if (part.matches("details")) part.open = false;
    }
    // A preview is read, not worked with: its links are words.
    for (const link of copied.querySelectorAll("a")) link.replaceWith(...link.childNodes);
    return copied;
  };

  const place = () => {
    const at = owner.getClientRects()[0] ?? owner.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const above = at.top > tip.offsetHeight + 80 && at.bottom + tip.offsetHeight > innerHeight;
    const top = above ? at.top - tip.offsetHeight - 4 : at.bottom + 4;
    const left = Math.max(8, Math.min(at.left, room - tip.offsetWidth - 8));
    tip.style.top = `${top + scrollY}px`;
    tip.style.left = `${left + scrollX}px`;
  };

  const hide = () => {
    clearTimeout(waiting);
    owner?.removeAttribute("aria-describedby");
    tip?.remove();
    tip = owner = undefined;
  };

  const show = async (wanted, content) => {
    hide();
    owner = wanted;
    const shown = copy((await content) ?? {});
    if (!shown || owner !== wanted) return;
    tip = document.createElement("div");
    tip.id = "preview";
    tip.className = "preview";
    tip.role = "tooltip";
    tip.append(shown);
    tip.addEventListener("pointerleave", leave);
    tip.addEventListener("pointerenter", () => clearTimeout(waiting));
    document.body.append(tip);
    owner.setAttribute("aria-describedby", tip.id);
    place();
  };

  const later = (action, wait = WAIT) => {
    clearTimeout(waiting);
    waiting = setTimeout(action, wait);
  };
  const leave = () => later(hide);

  const linkOf = ({ target }) => target.closest?.("a.reference.internal[href*='#']");
  const letterOf = ({ target }) => target.closest?.("math mi");
  if (article) {
    article.addEventListener("pointerover", (event) => {
      const [link, letter] = [linkOf(event), letterOf(event)];
      if (!(link ?? letter) || event.pointerType !== "mouse") return;
      if ((link ?? letter) === owner) clearTimeout(waiting);
      else if (link) later(() => show(link, target(link)));
      else later(() => show(letter, meaning(letter)), WAIT_FOR_LETTER);
    });
    article.addEventListener("pointerout", (event) => {
      if (linkOf(event) ?? letterOf(event)) leave();
    });
    article.addEventListener("focusin", (event) => {
      const link = linkOf(event);
      if (link?.matches(":focus-visible") && link !== owner) show(link, target(link));
    });
    article.addEventListener("focusout", (event) => {
      if (linkOf(event) === owner) hide();
    });
    addEventListener("keydown", ({ key }) => {
      if (key === "Escape") hide();
    });
  }
}

// An address may name a place that has moved to another page: moved.js knows where it is.
{
  const place = decodeURIComponent(location.hash.slice(1));
  if (place && !document.getElementById(place)) {
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.content_root ?? "./"}_static/moved.js`;
    document.head.append(script);
  }
}

// A switch for the code of all cells, remembered. Without scripts each cell opens by itself.
"use strict";

{
  const KEY = "code";
  const folded = [...document.querySelectorAll("details.code")];

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
      for (const details of folded) details.open = shown;
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
  const printOpen = () => {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = folded.filter((details) => !details.open && !details.matches(".above-input"));
      for (const details of opened) details.open = true;
    });
    addEventListener("afterprint", () => {
      for (const details of opened) details.open = false;
    });
  };

  const header = document.querySelector(".article-header-buttons");
  if (folded.length && header) addSwitch(header);
  printOpen();
}

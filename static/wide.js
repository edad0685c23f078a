// What is wider than its box is a stop of the Tab key, while it is: so the keyboard can scroll it.
{
  const WIDE = "div.math, .pst-scrollable-table-container, .cell_output pre, .cell_output div.text_html";
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth + 1) {
        target.tabIndex = 0;
        target.setAttribute("role", "group");
        target.setAttribute("aria-label", `Wide ${target.matches(".math") ? "formula" : "table"}`);
      } else for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
    }
  });
  for (const box of document.querySelectorAll(WIDE)) sizes.observe(box);
}

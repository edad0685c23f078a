// Loads the search and its index when somebody is about to search.
document.addEventListener("focusin", ({ target }) => {
  if (!target.matches("form.bd-search input") || document.querySelector("script.searching")) return;
  const script = document.createElement("script");
  script.className = "searching";
  script.src = `${document.documentElement.dataset.content_root}_static/search.js`;
  document.head.append(script);
});

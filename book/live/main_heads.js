// Puts the atlas where its page wants it, and makes the table of heads searchable.

import { place, whenWhole } from "./controls.js";
import { headsFigure } from "./heads.js";
import { listing } from "./listing.js";

place({
  "fig-live-heads": headsFigure,
  "fig-models": headsFigure,
});
whenWhole(() => {
  const table = document.getElementById("heads");
  if (table)
    listing(table, {
      noun: "heads",
      hint:
        "Words and conditions, such as: smollm2 layer=18, or first>0.5 keys<2. A heading orders the " +
        "table, and again the other way.",
    });
});

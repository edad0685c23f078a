// Puts the atlas where its page wants it, and makes the table of heads searchable.

import { place, whenWhole } from "./controls.js";
import { headsFigure } from "./heads.js";
import { listing } from "./listing.js";

place({
  "fig-live-heads": headsFigure,
  "fig-models": headsFigure,
});
whenWhole(() => listing("heads"));

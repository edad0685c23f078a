// Puts the atlas where its page wants it, and makes the table of heads searchable.

import { mount } from "./controls.js";
import { headsFigure } from "./heads.js";
import { listing } from "./listing.js";

for (const id of ["fig-live-heads", "fig-models"]) mount(id, headsFigure);
listing("heads");

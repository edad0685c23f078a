// Puts the recorded heads where their page wants them.

import { attendFigure } from "./attend.js";
import { place } from "./controls.js";

place({
  "fig-live-attend": attendFigure,
  "fig-models-attend": attendFigure,
});

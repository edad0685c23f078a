// Puts the recorded heads where their page wants them.

import { attendFigure } from "./attend.js";
import { mount } from "./controls.js";

for (const id of ["fig-live-attend", "fig-models-attend"]) mount(id, attendFigure);

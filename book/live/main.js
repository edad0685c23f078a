// Puts each live figure where its page wants it.

import { calculator, numberForModel } from "./calculator.js";
import { contestFigure } from "./contest.js";
import { place } from "./controls.js";
import { rulesFigure } from "./explorer.js";
import { faceFigure } from "./face.js";
import { findingFigure } from "./finding.js";
import { freezingFigure } from "./freezing.js";
import { jacobianFigure } from "./jacobian.js";
import { landingFigure } from "./landing.js";
import { partingFigure } from "./parting.js";
import { reachingFigure } from "./reaching.js";
import { wideningFigure } from "./widening.js";

place({
  "fig-calculator": calculator,
  "fig-policies-plane": rulesFigure,
  "fig-live-jacobian": jacobianFigure,
  "fig-live-freezing": freezingFigure,
  "fig-live-parting": partingFigure,
  "fig-freezing-contest": contestFigure,
  "fig-live-needle": findingFigure,
  "fig-live-reach": reachingFigure,
  "fig-face": faceFigure,
  "fig-landing": landingFigure,
  "fig-number": numberForModel,
  "fig-live-variance": wideningFigure,
});

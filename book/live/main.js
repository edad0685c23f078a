// Puts each live figure where its page wants it.

import { calculator, numberForModel } from "./calculator.js";
import { contestFigure } from "./contest.js";
import { place } from "./controls.js";
import { rulesFigure } from "./explorer.js";
import { frontPageFigure } from "./front_page.js";
import { targetWeightFigure } from "./target_weight.js";
import { freezingFigure } from "./freezing.js";
import { jacobianFigure } from "./jacobian.js";
import { sixteenKeysFigure } from "./sixteen_keys.js";
import { meanVsTypicalFigure } from "./mean_vs_typical.js";
import { reachingFigure } from "./reaching.js";
import { scoreHistogramFigure } from "./score_histogram.js";

place({
  "fig-calculator": calculator,
  "fig-policies-plane": rulesFigure,
  "fig-live-jacobian": jacobianFigure,
  "fig-live-freezing": freezingFigure,
  "fig-live-parting": meanVsTypicalFigure,
  "fig-freezing-contest": contestFigure,
  "fig-live-needle": targetWeightFigure,
  "fig-live-reach": reachingFigure,
  "fig-face": frontPageFigure,
  "fig-landing": sixteenKeysFigure,
  "fig-number": numberForModel,
  "fig-live-variance": scoreHistogramFigure,
});

// Puts each live figure where its page wants it.

import { calculator } from "./calculator.js";
import { contestFigure } from "./contest.js";
import { mount } from "./controls.js";
import { rulesFigure } from "./explorer.js";
import { findingFigure } from "./finding.js";
import { freezingFigure } from "./freezing.js";
import { gradientGuess, oneHotGuess, reachGuess } from "./guesses.js";
import { jacobianFigure } from "./jacobian.js";
import { landingFigure, numberForModel } from "./landing.js";
import { partingFigure } from "./parting.js";
import { phasesFigure } from "./phases.js";
import { reachingFigure } from "./reaching.js";
import { temperatureFigure } from "./temperature.js";
import { wideningFigure } from "./widening.js";

mount("fig-calculator", calculator);
mount("fig-policies-plane", rulesFigure);
mount("fig-live-jacobian", jacobianFigure);
mount("fig-live-freezing", freezingFigure);
mount("fig-live-parting", partingFigure);
mount("fig-freezing-contest", contestFigure);
mount("fig-freezing-phases", phasesFigure);
mount("fig-live-needle", findingFigure);
mount("fig-live-reach", reachingFigure);
mount("fig-largest", oneHotGuess);
mount("fig-exact-gradient", gradientGuess);
mount("fig-reach-plane", reachGuess);
mount("fig-live-temperature", temperatureFigure);
mount("fig-landing", landingFigure);
mount("fig-number", numberForModel);
mount("fig-live-variance", wideningFigure);

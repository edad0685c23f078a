// Puts each live figure where its page wants it.

import { calculator } from "./calculator.js";
import { mount } from "./controls.js";
import { rulesFigure } from "./explorer.js";
import { freezingFigure } from "./freezing.js";
import { jacobianFigure } from "./jacobian.js";
import { landingFigure, numberForModel } from "./landing.js";
import { temperatureFigure } from "./temperature.js";

mount("fig-calculator", calculator);
mount("fig-policies-plane", rulesFigure);
mount("fig-live-jacobian", jacobianFigure);
mount("fig-live-freezing", freezingFigure);
mount("fig-live-temperature", temperatureFigure);
mount("fig-landing", landingFigure);
mount("fig-number", numberForModel);

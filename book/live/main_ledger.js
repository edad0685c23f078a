// Gives the page of the claims, or of the errata, its filters.

import { ledger } from "./ledger.js";

const article = document.querySelector("article.bd-article");
ledger(article, article.querySelector(".claim") ? "claims" : "errata");

// Places that stand on another page now, by that page. A place whose name is new is written old:new,
// and one whose old name several pages have page/old:new, with the page it was on.
"use strict";

{
  const MOVED = {
    almost_scaled: `proposition-received:thm-output-backward`,
    almost_scaled_training: `a-factor-is-a-start-and-a-learning-rate claim-training.bert claim-training.cause
      claim-training.residual claim-training.scale-dependent claim-training.worse
      does-the-harm-go-away equation-eq-training-branch ex-training-descent
      fig-training-encoder fig-training-longer fig-training-sweep how-far-it-holds
      prop-training-residual prop-training-start-rate prop-training-weight the-source-s-sweep
      the-start-or-the-rate what-the-factor-does-to-training where-it-acts
      should-the-output-have-unit-variance:does-the-harm-go-away
      without-a-mask-the-remark-on-bert`,
    cosine: `claim-cosine.coefficient claim-cosine.density claim-cosine.explains claim-cosine.figure
      claim-cosine.fit claim-cosine.inverse-sqrt claim-cosine.not-elementary claim-cosine.range
      claim-cosine.rmsnorm cosines:one-best-scale-for-each-d-and-n
      equation-eq-cosine-stationary equation-eq-root-law lemma-cosine-density theorem-bessel
      d-or-30-d-after-normalising-q-and-k:the-temperature-of-cosine-similarity
      theorem-one-maximum theorem-power theorem-root-bound`,
    freezing: `scaling_rules/does-any-rule-keep-the-entropy-constant:which-scales-freeze-a-long-row`,
    jacobian: `claim-comments.max-entry claim-comments.max-quarter claim-gradient.jacobian
      claim-jacobian.bounded claim-jacobian.four claim-jacobian.one-hot
      claim-jacobian.scale-variant claim-jacobian.vanishing-chain equation-eq-entry
      fig-live-jacobian proposition-bounds proposition-norms
      proposition-structure section-lost the-jacobian-of-softmax
      the-largest-entry-of-the-jacobian theorem-jacobian what-is-lost-and-what-is-not
      which-norm`,
    normal: `claim-normal.mgf
      the-largest-entry-and-the-power-softmax:the-power-softmax
      why-shrink-scores-and-why-maximise-a-gradient:why-the-book-does-not-advise-it`,
    predictions: `calibration/predictions:the-best-scale-of-smollm2
      models-predictions models/predictions:heads-of-trained-models
      predictions-counted:single-heads-that-learn-to-find section-training-predicted
      trained_heads/predictions:heads-of-trained-models
      training_details/what-was-predicted:the-output-factor
      unscaled/what-was-predicted:models-that-do-not-divide`,
    probe: `a-key-that-is-meant:a-target-key-that-you-know`,
    qk_norm: `fig-undivided-gain fig-undivided-norm where-should-the-gain-begin
      with-queries-and-keys-of-one-length:four-scales-with-qk-norm`,
    questions: `why-is-a-learned-temperature-never-exact:should-the-temperature-be-learned`,
    retrieval_range: `how-many-keys-can-a-head-of-64-or-128-dimensions-tell-apart:counting-rivals
      which-scores-each-rule-assumes:three-rules-three-needles`,
    trained_heads: `after-training:a-small-model-before-and-after-training ex-probe-outlier
      fig-probe-one-head fig-probe-positions fig-probe-training
      long-rows-are-softer-than-their-spread one-key-stands-out
      predict-measure:random-scores-theory-and-measurement prop-probe-spread
      rows-are-not-alike:rows-of-one-head-differ
      the-character-model-before-training:a-small-model-before-and-after-training
      what-a-spread-does-not-say:one-spread-sharp-and-flat-rows
      the-gradient-after-training:a-small-model-before-and-after-training
      what-passes-backward:a-small-model-before-and-after-training`,
    training_details: `a-test-with-other-starts fig-training-branch fig-training-dose from-a-larger-start
      how-large-the-branch-becomes the-exact-factor the-scales-of-the-earlier-chapters`,
    unscaled: `what-becomes-of-a-model-that-does-not-scale-at-all:each-at-its-best-rate`,
    variance: `claim-gradient.variance-any-law
      why-variance-d-and-hence-d-not-d:the-variance-of-a-score`,
  };
  const place = decodeURIComponent(location.hash.slice(1));
  const page = location.pathname.split("/").pop().replace(/\.html$/, "");
  const root = document.documentElement.dataset.content_root ?? "./";
  for (const [goal, places] of Object.entries(MOVED))
    for (const pair of places.split(/\s+/)) {
      const [before, now = before] = pair.split(":");
      if (before === place || before === `${page}/${place}`)
        location.replace(new URL(`${root}chapters/${goal}.html#${now}`, location.href));
    }
}

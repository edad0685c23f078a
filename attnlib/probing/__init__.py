"""Measure the attention of a PyTorch model, fused or with its softmax written out.

    with probe(model) as report:
        model(x)
    print(report)

- `probe` measures the attention of a model inside a context. Its `Report` has one line for each
  layer and head: how sharp attention is, how much gradient passes, and what the exact theory gives
  for random scores of the same size. `DEFINITIONS` says what each column is.
- `Monitor` does that every so many steps of training, on some of the rows, logs it, and raises
  an `Alarm` where there is a reason to look.
- `clip` makes logits smaller that have grown too large.

Its modules: `observer` watches the model; `tokens` knows which tokens a call's queries belong to,
and `sample` chooses some of them; `measure` computes statistics of each row; `random_scores` has
the theory; `report` sums up the rows and shows both, and `summary` says them in words. `monitor` is
made of these and of `alarms`.

Chapter: probe.
"""

from attnlib.extras import extra_packages

with extra_packages("torch"):
    from attnlib.probing.alarms import Alarm
    from attnlib.probing.clipping import clip
    from attnlib.probing.monitor import Monitor
    from attnlib.probing.observer import probe
    from attnlib.probing.random_scores import RANDOM
    from attnlib.probing.report import DEFINITIONS, Report

__all__ = ["DEFINITIONS", "RANDOM", "Alarm", "Monitor", "Report", "clip", "probe"]

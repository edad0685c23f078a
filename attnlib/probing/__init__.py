"""Measure the attention of any model that calls PyTorch's scaled_dot_product_attention.

    with probe(model) as report:
        model(x)
    print(report)

- `probe` measures the attention of a model inside a context. Its `Report` has one line for each
  layer and head: how sharp attention is, how much gradient passes, and what the exact theory gives
  for random scores of the same size. `DEFINITIONS` says what each column is.
- `Monitor` does that every so many steps of training, on some of the rows, logs it, and raises
  an `Alarm` where there is a reason to look.
- `clip` makes logits smaller that have grown too large.

`observer` watches the model, `tokens` knows whose queries a call has and `sample` chooses some of
them, `measure` turns a call into rows and `tally` keeps their sums, `random_scores` has the theory,
and `report` shows both, by `summary` in words; `monitor` is made of them and of `alarms`.

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

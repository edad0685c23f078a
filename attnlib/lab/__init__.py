"""The laboratory: train many small Transformers, and compare them seed by seed.

`data` has the texts, `model` the Transformer and its variants, `train` one run, `sweep` a grid of
runs from a file, `comparison` what its variants cost. Needs torch: `pip install "attnlib[lab]"`.

Source 002. Chapter: training.
"""

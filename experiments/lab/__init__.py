"""The laboratory: train many small Transformers, and compare them seed by seed.

`data` has the texts, `model` the Transformer and its variants, `train` one run, `sweep` a grid of
runs from a file, `results` the file of each run, `comparison` what the variants cost. They need
torch, which `pip install "attnlib[lab]"` brings. `small_models` are trained in NumPy, while a page
loads.

Sources 000, 002 and 003. Chapters: training, gradient, alternatives.
"""

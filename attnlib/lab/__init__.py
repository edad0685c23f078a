"""The laboratory: train many small Transformers, and compare them seed by seed.

`data` has the texts, `model` the Transformer and its variants, `train` one run (or several at
once), `sweep` a grid of runs from a file, `comparison` its variants side by side. They need torch:
`pip install "attnlib[lab]"`. `small_models` are trained in NumPy, while a page loads.

Sources 000, 002 and 003. Chapters: training, gradient, alternatives.
"""

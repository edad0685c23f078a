"""The laboratory: train many small Transformers, and compare them seed by seed.

`data` has the texts, `model` the Transformer and its variants, `train` one run (or several at
once), `sweep` a grid of runs from a file. Only here and above does the library need torch:
`pip install "attnlib[lab]"`.

Source 002. Chapter: training.
"""

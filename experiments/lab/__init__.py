"""The laboratory: train many small Transformers, and compare them seed by seed.

`data` has the texts, `model` the Transformer and its variants, `descent` the loop that trains,
`train` one run on a text, `recall` one run of a task with a needle, `sweep` a grid of runs from a
file, `results` the file of their results, `comparison` what the variants cost. A configuration
checks itself by `fields`. `small_models` are trained in NumPy, while a page loads.

Sources 000, 002 and 003. Chapters: almost_scaled_training, gradient, normal, length_extrapolation.
"""

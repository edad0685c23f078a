"""The laboratory: train many small models, and compare them seed by seed.

`texts` and `batches` are what training reads, `tasks` what there is to find in sequences that are
drawn. `model` is the Transformer with its variants. `descent` is the loop that trains: `train` runs
it on a text, `train_task` on a task, whose rows `head_measures` measures. `sweep` trains a grid of
runs from a file, `results` is the file of their results, and `comparison` says what variants cost.
A configuration checks itself by `fields`. `small_models` are trained in NumPy, while a page loads.

Sources 000, 002 and 003. Chapters: almost_scaled_training, gradient, normal, length_extrapolation.
"""

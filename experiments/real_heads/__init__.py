"""Trained models that come inside packages: what their heads do, look for, and lose.

`inputs` gets models and texts, `rows` measures rows of attention, `parts` says what is measured,
`shown` which heads a reader can look into, and `summary` what of it is recorded. Run as `python -m
experiments.real_heads`.
"""

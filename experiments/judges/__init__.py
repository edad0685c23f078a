"""Judges: what became of predictions that were written before their runs.

A judge reads records and trains nothing. Its functions `judge_NAME` yield the parts of the
predictions in the file NAME: `judging` says what a part is, and when it holds. The other functions
compute what the chapters show of the same records. `predicted` has the list of all predictions,
each with its file and its judge, from predictions/groups.toml.

Some judges are elsewhere, beside what they judge: in `alarms`, `gpu.summary` and
`real_heads.verdicts`.
"""

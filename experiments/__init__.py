"""Computations that take too long for a page: they are run once and recorded.

The files in `sweeps` describe training runs, which `python -m experiments sweep` trains with the
laboratory in `lab`. A recorder is a module or a folder with a command of its own, `python -m
experiments.NAME`, which goes on where it was stopped. Both write into `recorded`, which `records`
reads. The judges in `judges` compare the records with what was predicted in `predictions` and in
the sweeps, and `evidence` has the numbers of the book's headlines.
"""

"""Faults planted in the library, one at a time: `python -m tests.mutants` says which go unseen."""

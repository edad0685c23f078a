"""Faults planted in the library, one at a time: `python -m tests.mutants` says which go unseen.

It is our own because the kept tools do less with more: cosmic-ray runs one command of tests for
every fault, here all 6 minutes of them; mutmut keeps a changed copy of the sources, in which the
tests that read the repository fail. Neither leaves out an argument or a check, and those are the
faults that tests miss.
"""

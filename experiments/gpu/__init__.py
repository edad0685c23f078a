"""Checks and training runs on a rented GPU, in a quarter of an hour.

    python -m experiments gpu checks
    python -m experiments gpu runs

`checks` holds the library on CUDA against the CPU's float64, `runs` trains decoders of 25 million
parameters. They need PyTorch, NumPy, SciPy, pooch, filelock and tqdm alone, end before ten minutes,
write what they have line by line and go on where they were stopped. CONTRIBUTING.md says how to
bring them to a machine that is rented.
"""

"""What is computed once and recorded, because it takes too long for a page.

The TOML files describe training runs, which `python -m experiments sweep` trains with the
laboratory in `lab`. Each other module is a recorder: one command, which goes on where it was
stopped. What they recorded is in `recorded`, and `records` reads all of it.
"""

"""What is computed once and recorded, because it takes too long for a page.

The TOML files describe sweeps of training runs (`attnlib sweep`). Each other module is a recorder:
one command, which goes on where it was stopped. What they recorded is in `recorded`, and `records`
reads all of it.
"""

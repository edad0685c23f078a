"""Reach the attention of models that know nothing of attnlib.

All that knows the insides of torch and transformers is here; README.md tells how it works together.
"""

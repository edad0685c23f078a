"""attnlib: what attention scores should be divided by.

The library behind the book *The Scale of Attention*. Each module can be used on its own::

    from attnlib import annealed, exact, freezing, policies, rows, sampling, scores, typical

Importing the package loads only NumPy and SciPy.
"""

from attnlib import annealed, exact, freezing, policies, rows, sampling, scores, typical

__all__ = ["annealed", "exact", "freezing", "policies", "rows", "sampling", "scores", "typical"]
__version__ = "2.0.0"

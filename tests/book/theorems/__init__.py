"""The theorems of the chapters, each tied to a check by its label.

A check, `@tied("theorem-l1")` over a function, gets the place of the label. It finds formulas on
the page by how they begin, gives the letters numbers, and compares the sides with the library, a
quadrature or a search, at one or two telling points: numbers at which a wrong sign or exponent
shows, and for a bound where it is reached. A label without a check needs a reason in `UNTESTABLE`.
`registry.TIES` has all checks, once the modules are imported, which this does.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)

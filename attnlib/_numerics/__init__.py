"""Compute quadrature rules and Bessel functions of large order, for the other modules alone."""

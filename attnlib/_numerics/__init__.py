"""Numerical plumbing, private: rules of quadrature, and Bessel functions of large order."""

"""Reductions, normalizations, attention, matrix products and Fourier transforms."""

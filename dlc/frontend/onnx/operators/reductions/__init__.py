"""Operators that combine elements: reductions, normalisations, and products of matrices."""

"""Simplification: canonicalization, CSE, DCE, decomposition, and shorter live ranges."""

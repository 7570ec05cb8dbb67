"""Simplification: canonicalization, CSE, DCE, decomposition, rematerialization, and shorter live ranges."""

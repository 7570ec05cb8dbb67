"""Contractions by another algorithm, in another order, or with what is around them in their weights."""

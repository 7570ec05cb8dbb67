"""Operators that act on each element by itself."""

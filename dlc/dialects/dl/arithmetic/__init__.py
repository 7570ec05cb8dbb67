"""Ops on each element by itself, and the numbers that they are drawn from or converted to."""

"""Samples of every op, which several tests check."""

"""Reductions along axes and in windows, and normalizations."""

"""Kernels at the end of the loops stage as text."""

"""Kernels as text in a dialect of C: one emitter, whose dialects are data (syntax.py)."""

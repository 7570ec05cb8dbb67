"""Kernels as text in a dialect of C: one emitter; each dialect is data (syntax.py)."""

"""Ops whose loops are written by hand, on buffers, once for all targets.

`values.py` and `code.py` are the language that they are written in, `write_kernel.py` makes kernels of them. Then the loops:
factors of matrices (`matrices.py`, by `elimination.py`, `reflections.py` and `spectra.py`), running sums (`walks.py`), orders
(`rows.py`), places (`places.py`), boxes (`suppression.py`), trees (`trees.py`).
"""

"""Vectorization of tiles: n-D vectors, and loops over the remaining iterators.

- `vectorize.py` creates vectors and loops.
- `forward_stores.py` forwards stored values to loads, in registers.
- `expand_math.py` expands math functions to arithmetic, with the operators of `formula.py`. Rare operands take a slow
  path (`slow_path.py`).
- `prefetch_panels.py` prefetches packed weights.
- `cse_kernels.py` eliminates common subexpressions; `name_values.py` makes the emitted code readable.
"""

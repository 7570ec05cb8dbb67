"""Vectorization of tiles: n-D vectors, and loops over the remaining iterators.

`vectorize.py` creates them; `forward_stores.py` forwards stored values to loads in registers; `expand_math.py` expands math
functions to arithmetic, with the operators of `formula.py` and a `slow_path.py` for rare operands; `prefetch_panels.py`,
`cse_kernels.py` and `name_values.py` finish the IR for the emitters.
"""

"""Tiles as n-D vectors, and loops over what is left.

`vectorize.py` makes them; `forward_stores.py` keeps what was just stored in registers; `expand_math.py` writes functions as
arithmetic, with the operators of `formula.py` and branches for `rare.py` operands; `prefetch_panels.py`, `cse_kernels.py` and
`name_values.py` leave what the emitters read.
"""

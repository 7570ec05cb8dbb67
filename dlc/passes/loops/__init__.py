"""Vectorization of tiles: n-D vectors, and loops over the remaining iterators.

vectorize.py                   creates vectors and loops
forward_stores.py              forwards stored values to loads, in registers
forward_to_next_iteration.py   forwards them to the next iteration, by loop-carried values (iter_args.py)
unpack_panels.py               unpacks weights once for all register tiles of a panel
unroll_reductions.py           unrolls the innermost loops of contractions; static_loops.py: loops with constant bounds
prefetch_panels.py             prefetches packed weights; next_panel.py: those of the next panel
expand_math.py                 expands math functions to arithmetic (formula.py); slow_path.py: for large or special ones
expand_compress.py             compresses vectors element by element, for targets without an instruction for it
cse_kernels.py                 eliminates common subexpressions
name_values.py                 names values for dumps
"""

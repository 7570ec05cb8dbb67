"""User functions traced into bodies of ops: loops, branches, derivatives and batched functions.

bodies.py           blocks that a function is traced into, and the carry of a loop
derivatives.py      tangents and cotangents of functions inside a trace
leaf_functions.py   functions of the leaves of a pytree
type_agreement.py   abstract values that loops and branches agree on
"""

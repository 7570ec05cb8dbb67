"""Kernels with explicit loops as functions of arrays.

kernel.py                `@dlc.kernel`: traces a function in the language of `dlc.kernels` into a `dl.loops`
tracing_builder.py       a builder that gives ops the location of the user's line
adjoints.py              reverse mode: the body that computes the cotangents of the operands
adjoint_points.py        the adjoint of one point of a grid; adjoint_rules.py: of scalar and vector ops
parallel_dims.py         loads and stores, and the dimensions of a grid along which points access different elements
"""

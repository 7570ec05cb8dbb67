"""Symbolic shapes.

dims.py            symbolic dimensions: polynomials with floor division
polynomials.py     divisibility, degree and asymptotic order of sizes
ranges.py          ranges of symbolic sizes
parsing.py         sizes and ranges from text
guards.py          guards: conditions on symbolic sizes under which a program is valid
domain.py          the sizes for which a compiled program is valid
reshapes.py        the axes of a reshape that hold the same elements
slices.py          bounds of slices, clamped to the axis
traced_dims.py     sizes of traced arrays; their comparisons add guards to the trace
shape_specs.py     shapes as users write them
input_sizes.py     solve for the symbols from the input shapes of a call; match its inputs
size_code.py       sizes as operations, for a Python function or for native code
"""

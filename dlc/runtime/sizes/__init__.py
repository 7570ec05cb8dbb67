"""Symbolic sizes at run time.

input_sizes.py     solve for the symbols from the input shapes of a call
size_function.py   compile sizes to a Python function; size_code.py: to operations for native code
domain.py          the sizes for which a compiled program is valid
"""

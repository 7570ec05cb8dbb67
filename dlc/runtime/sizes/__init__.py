"""Symbolic sizes at run time.

input_sizes.py     solve for the symbols from the input shapes of a call
size_code.py       sizes as operations, for a Python function or for native code
domain.py          the sizes for which a compiled program is valid
"""

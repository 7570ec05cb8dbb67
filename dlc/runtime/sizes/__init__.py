"""Symbolic sizes at run time.

input_sizes.py     solve for the symbols from the input shapes of a call
size_function.py   evaluate sizes, compiled to a Python function; size_code.py: as operations for native code
domain.py          the sizes that one compilation serves
"""

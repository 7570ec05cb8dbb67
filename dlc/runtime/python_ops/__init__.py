"""Ops that are implemented in Python: data-dependent ops, string ops, image decoding, and control flow.

registry.py            data-dependent ops, and the table of all ops by name
string_ops.py          ops on strings; string_pool.py: strings as indices
images.py              image decoding
control.py             loops, error messages of failing branches, and printing
foreign_functions.py   user functions that programs call; native_functions.py: those with a C signature
"""

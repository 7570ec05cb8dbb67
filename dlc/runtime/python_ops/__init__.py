"""Ops that are implemented in Python: data-dependent ops, ops on strings, image decoding, and the semantics of control flow.

registry.py     data-dependent ops, and the table of all ops by name
string_ops.py   ops on strings; string_pool.py: strings as indices
images.py       image decoding
control.py      loops, error messages of failing branches, and printing
"""

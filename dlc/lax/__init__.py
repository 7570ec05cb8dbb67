"""Structured control flow for traced functions: loops and conditionals; collectives. With JAX's names and arguments.

    import dlc.lax

    @dlc.jit
    def halvings(x):
        return dlc.lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]

A Python `if` or `while` is evaluated once, while the function is traced; these are evaluated at run time, on traced values.
Operands and carries are pytrees: arrays, numbers, and nested tuples, lists, dicts and dataclasses of them. The functions passed
to them may close over values of the enclosing function. Outside of a traced function they run as Python loops and branches.
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.lax.associative_scans import associative_scan
from dlc.lax.branches import cond, switch
from dlc.lax.collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    psum,
    psum_scatter,
    pvary,
)  # fmt: skip
from dlc.lax.implicit_functions import custom_linear_solve, custom_root
from dlc.lax.loops import fori_loop, while_loop
from dlc.lax.scans import map, scan

__all__ = [
    "all_gather", "all_to_all", "associative_scan", "axis_index", "axis_size", "cond", "custom_linear_solve", "custom_root",
    "fori_loop", "map", "pmax", "pmean", "pmin", "ppermute", "psum", "psum_scatter", "pvary", "scan", "switch",
    "while_loop",
]  # fmt: skip

validate_arguments(globals())

"""Control flow that data decides: loops and branches of traced functions, with the arguments of JAX's.

    import dlc.lax

    @dlc.jit
    def halvings(x):
        return dlc.lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]

A Python `if` or `while` decides once, when the function is traced; these decide when it runs. What they take and hand on are
arrays, numbers, and nested tuples, lists, dicts and dataclasses of them. The functions that they are given may read any
value of the function around them. Outside of a traced function they are plain Python loops and branches.
"""

from dlc.lax.branches import cond, switch
from dlc.lax.loops import fori_loop, while_loop
from dlc.lax.scans import map, scan
from dlc.misuse import explain_misuse

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "while_loop"]

explain_misuse(globals())

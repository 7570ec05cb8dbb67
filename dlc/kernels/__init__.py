"""The language of kernels: loops, elements and vectors, inside functions of `@dlc.kernel`.

    import dlc.kernels as k

    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def cumulative_maximum(x, y):
        for row in k.grid(x.shape[0]):
            best = k.variable(-np.inf, x.dtype)
            for j in k.range(x.shape[1]):
                best.value = k.maximum(best.value, x[row, j])
                y[row, j] = best.value

The function runs once per signature, on references to its operands and results. Python's loops over `k.grid` and `k.range` run
their body once and emit a loop; operators on elements emit arithmetic. docs/kernels.md teaches the language.
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.kernels.control import grid, range, strips, when
from dlc.kernels.functions import (
    absolute,
    assume_index,
    ceil,
    clip,
    copysign,
    cos,
    dot,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    fma,
    full,
    index,
    iota,
    log,
    log1p,
    log2,
    maximum,
    minimum,
    power,
    round,
    rsqrt,
    select,
    sin,
    sqrt,
    stack,
    tanh,
    trunc,
)
from dlc.kernels.references import buffer
from dlc.kernels.results import Result
from dlc.kernels.variables import variable

__all__ = [
    "Result", "absolute", "assume_index", "buffer", "ceil", "clip", "copysign", "cos", "dot", "erf", "exp", "exp2", "expm1",
    "floor", "fma", "full", "grid", "index", "iota", "log", "log1p", "log2", "maximum", "minimum", "power", "range", "round",
    "rsqrt", "select", "sin", "sqrt", "stack", "strips", "tanh", "trunc", "variable", "when",
]  # fmt: skip

validate_arguments(globals())

"""The array functions to write a traced function with: NumPy's, by their Array API names.

    import dlc.numpy as dnp

    @dlc.jit
    def predict(params, x):
        return dnp.tanh(x @ params["w"] + params["b"])

On plain arrays the functions compute at once, by NumPy. `dlc.numpy.nn` has layers of neural networks.
"""

from numpy import bool_ as bool
from numpy import float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

from dlc.numpy import nn
from dlc.numpy.creation import arange, asarray, eye, full, ones, ones_like, zeros, zeros_like
from dlc.numpy.elementwise import (
    abs,
    add,
    astype,
    ceil,
    clip,
    cos,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    power,
    reciprocal,
    remainder,
    round,
    sign,
    sin,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    where,
)  # fmt: skip
from dlc.numpy.linear import dot, matmul
from dlc.numpy.operators import install
from dlc.numpy.reductions import all, any, argmax, argmin, max, mean, min, prod, std, sum, var
from dlc.numpy.shaping import (
    broadcast_to,
    concat,
    concatenate,
    expand_dims,
    flip,
    matrix_transpose,
    pad,
    permute_dims,
    reshape,
    squeeze,
    stack,
    swapaxes,
    take,
    transpose,
)  # fmt: skip

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

install()

__all__ = [
    "abs", "add", "all", "any", "arange", "argmax", "argmin", "asarray", "astype", "bool", "broadcast_to", "ceil", "clip",
    "concat", "concatenate", "cos", "divide", "dot", "e", "equal", "exp", "expand_dims", "expm1", "eye", "flip", "float16",
    "float32", "float64", "floor", "floor_divide", "full", "greater", "greater_equal", "inf", "int8", "int16", "int32",
    "int64", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "matmul", "matrix_transpose", "max", "maximum", "mean", "min", "minimum", "multiply", "nan", "negative", "newaxis", "nn",
    "not_equal", "ones", "ones_like", "pad", "permute_dims", "pi", "power", "prod", "reciprocal", "remainder", "reshape",
    "round", "sign", "sin", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "tan", "tanh",
    "transpose", "uint8", "uint16", "uint32", "uint64", "var", "where", "zeros", "zeros_like",
]  # fmt: skip

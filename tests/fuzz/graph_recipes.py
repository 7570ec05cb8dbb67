"""Recipes for ONNX operators: matching operands and attributes, in any opset.

Left out are cases that ONNX does not define, such as integer division by zero, and cases in which `onnx.reference` deviates
from the specification and from ONNX Runtime: f64 functions with f32 constants, integer products computed in floats, softmax
over several axes (opsets before 13), logarithms of underflowed values, grouped transposed convolutions, NaN in pooling.
`onnx.reference` also multiplies by zeros where nothing should be multiplied (padding, dilation gaps, the slope of positive
values), and scales by a matrix of one element: there operands are finite, since 0 times infinity would be NaN.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from dlc.dialects.dl.base import Array
from dlc.testing.sample import F32, I8, I64, U8, is_float
from tests.fuzz.graph_arithmetic import ARITHMETIC
from tests.fuzz.graph_movement import MOVEMENT
from tests.fuzz.graph_windows import WINDOWS
from tests.fuzz.random_graph import GraphValue, RandomGraph, Recipe
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

# Products


def _unscaled(g: RandomGraph, *factors: GraphValue) -> list[GraphValue]:
    """Return the factors, or finite ones if one of them has one element, by which NumPy scales."""
    return [g.finite(f) if any(math.prod(f.shape) == 1 for f in factors) else f for f in factors]


def _matmul(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s)
    k, n = x.shape[-1], g.random.choice([1, 2, 5, 16, 17, 33])
    batch = [s if g.flag() else 1 for s in x.shape[:-2]][g.random.choice([0, 2]) :]
    shape = g.random.choice([(k,), (k, n), (k, n), (*batch, k, n)])
    dtype = x.dtype if op == "MatMul" else g.random.choice([I8, U8])
    if op == "MatMulInteger" and len(shape) == 1:
        raise Unsuitable
    return g.add(op, *_unscaled(g, x, g.fresh(dtype, shape, k**-0.5)))


def _gemm(g: RandomGraph, op: str) -> GraphValue:
    m, k, n = (g.random.choice([1, 3, 8, 17]) for _ in range(3))
    dtype, transposed = g.dtype(g.types_of(op)), [g.flag(), g.flag()]
    a, b = _unscaled(
        g, *(g.fresh(dtype, s[::-1] if t else s, k**-0.5) for s, t in zip(((m, k), (k, n)), transposed, strict=True))
    )
    c = [g.fresh(dtype, g.random.choice([(n,), (m, n), (1, n), (m, 1), (1,)]))] if g.opset < 11 or g.flag() else []
    factors = {name: g.random.choice([0.5, 1.0, 2.0]) for name in ("alpha", "beta")}

    def is_in_range(y: Array) -> bool:
        # A fraction of integers beyond the dtype is undefined.
        return is_float(dtype) or not (y == np.iinfo(dtype).min).any()

    transpositions = {"transA": int(transposed[0]), "transB": int(transposed[1])}
    return g.add(op, a, b, *c, **transpositions, **factors, accepted=is_in_range)


def _einsum(g: RandomGraph, op: str) -> GraphValue:
    sizes = dict(zip("ijk", (g.random.choice(SMALL_SIZES) for _ in range(3)), strict=True))
    equation = g.random.choice(
        [
            "ij,jk->ik",
            "ij,kj->ki",
            "ij->ji",
            "ij->i",
            "ij,ij->",
            "i,j->ij",
            "ijk,kj->i",
            "iik->ik",
            "ii->",
            ",->",
            "ij,->j",
            "...ij,...jk->...ik",
            "i...,...j->j...i",
            "...,i->...",
            "...i->...",
        ]
    )
    terms = equation.split("->")[0].split(",")
    dtype, ellipsis_shape = g.dtype(g.types_of(op)), g.random.choices(SMALL_SIZES, k=2)

    def shape(term: str) -> list[int]:
        """Return the shape of a term; an ellipsis stands for trailing axes, which may be broadcast."""
        prefix, dots, suffix = term.partition("...")
        axes = [n if g.random.random() < 0.8 else 1 for n in ellipsis_shape[g.random.choice([0, 0, 1, 2]) :]] if dots else []
        return [*(sizes[c] for c in prefix), *axes, *(sizes[c] for c in suffix)]

    return g.add(op, *(g.fresh(dtype, shape(t)) for t in terms), equation=equation)


# Quantization and creation


def _quantization(g: RandomGraph, op: str) -> GraphValue:
    if op == "DynamicQuantizeLinear":
        return g.add(op, g.tame(F32, lambda s: math.prod(s) > 1), accepted=lambda y: y.any(), results=3)
    dtype = g.random.choice([I8, U8])
    x = g.tame(F32) if op == "QuantizeLinear" else g.any([dtype])
    axis = g.random.randrange(len(x.shape)) if x.shape else 0
    shape = (x.shape[axis],) if x.shape and g.opset >= 13 and g.flag() else ()
    scale = np.asarray(g.rng.choice([0.25, 0.5, 1.0, 0.1, 3.0], shape), np.float32)
    zero = np.asarray(g.rng.integers(0 if dtype.kind == "u" else -3, 4, shape)).astype(dtype)
    more = {"axis": axis} if shape else {}
    return g.add(op, x, g.constant(scale), g.constant(zero), **more)


def _shape(g: RandomGraph, op: str) -> GraphValue:
    return g.add(op, g.any())


def _constant_of_shape(g: RandomGraph, op: str) -> GraphValue:
    value = numpy_helper.from_array(g.random_array(g.dtype(), (1,)))
    return g.add(op, g.shape_operand(np.int64(g.shape(max_elements=64))), value=value)


def _eye(g: RandomGraph, op: str) -> GraphValue:
    x = g.fresh(g.dtype(g.types_of(op)), g.shape(2))
    return g.add(op, x, k=g.random.randint(-2, 2))


def _range(g: RandomGraph, op: str) -> GraphValue:
    dtype = g.random.choice(g.types_of(op))
    start, step = g.random.choice([(0, 1), (7, -3), (1, 2)])
    limit = start + step * g.random.randint(-1, 9)
    if dtype == I64 and g.flag():
        # A distance beyond the dtype.
        start, limit, step = g.random.choice([(-(2**63), 2**63 - 1, 2**62), (2**63 - 1, -(2**63), -(2**62))])
    return g.add(op, *(g.shape_operand(np.asarray(v, dtype)) for v in (start, limit, step)))


RECIPES: dict[str, Recipe] = {
    **ARITHMETIC,
    **MOVEMENT,
    **dict.fromkeys(["MatMul", "MatMulInteger"], _matmul),
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"], _quantization),
    **dict.fromkeys(["Shape", "Size"], _shape),
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye,
    "Range": _range,
    **WINDOWS,
}

"""Products: of vectors, matrices and tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import ShapeError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    convert,
    normalize_axes,
    normalize_axis,
    operand,
    promote,
    refuse,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.comparison import not_equal
from dlc.numpy.functions.elementwise import multiply, subtract
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import stack
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import diagonal, expand_dims, moveaxis, ravel, reshape

__all__ = ["cross", "dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "trace", "vdot", "vecdot", "vecmat"]


def contract(
    a: Operand, b: Operand, lhs: Sequence[int], rhs: Sequence[int], batch: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Any:
    """Return the tensor contraction over pairs of axes: batch axes first, then the remaining axes of `a` and of `b`.

    For bools the result is whether any of the products is true, as in NumPy.
    """
    if a.dtype == np.bool_:
        return not_equal(contract(convert(a, np.int32), convert(b, np.int32), lhs, rhs, batch), 0)
    axes = {"lhs_batch": batch[0], "rhs_batch": batch[1], "lhs_contract": lhs, "rhs_contract": rhs}
    return apply(dl.DotGeneralOp, a, b, **axes)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the matrix product over the last two axes; leading axes broadcast, a vector is a row or a column."""
    a, b = promote(x1, x2)
    if a.dtype == np.bool_:
        return not_equal(apply(dl.MatmulOp, convert(a, np.int32), convert(b, np.int32)), 0)
    return apply(dl.MatmulOp, a, b)


def dot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the sum of products over the last axis of `x1` and the second-to-last (or only) axis of `x2`."""
    a, b = promote(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        return multiply(a, b)
    return contract(a, b, (a.ndim - 1,), (max(b.ndim - 2, 0),))


def inner(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the sum of products over the last axes."""
    a, b = promote(x1, x2)
    return multiply(a, b) if a.ndim == 0 or b.ndim == 0 else contract(a, b, (a.ndim - 1,), (b.ndim - 1,))


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the matrix of all products of an element of `x1` and an element of `x2`, both flattened."""
    return multiply(reshape(ravel(x1), (operand(x1).size, 1)), ravel(x2))


def vdot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the dot product of the flattened arrays."""
    return dot(ravel(x1), ravel(x2))


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    """Return the dot products along `axis`; the other axes broadcast."""
    a, b = (moveaxis(x, axis, -1) for x in promote(x1, x2))
    if a.shape[-1] != b.shape[-1]:
        refuse(ShapeError(f"vecdot: sizes {a.shape[-1]} and {b.shape[-1]} along axis {axis}; expected equal sizes"))
    product = matmul(expand_dims(a, -2), expand_dims(b, -1))
    return reshape(product, product.shape[:-2])


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return matrix-vector products: over the last two axes of `x1` and the last axis of `x2`; other axes broadcast."""
    product = matmul(x1, expand_dims(x2, -1))
    return reshape(product, product.shape[:-1])


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return vector-matrix products: over the last axis of `x1` and the last two axes of `x2`; other axes broadcast."""
    product = matmul(expand_dims(x1, -2), x2)
    return reshape(product, (*product.shape[:-2], product.shape[-1]))


def tensordot(x1: ArrayLike, x2: ArrayLike, /, axes: int | tuple[int | Sequence[int], int | Sequence[int]] = 2) -> Any:
    """Return the contraction of the last `axes` axes of `x1` with the first of `x2`, or of (axes of x1, axes of x2)."""
    a, b = promote(x1, x2)
    if not isinstance(axes, Sequence):
        axes = operator.index(axes)
        if axes > min(a.ndim, b.ndim):
            refuse(
                ShapeError(f"tensordot: {axes} axes of shapes {a.shape} and {b.shape}; expected at most {min(a.ndim, b.ndim)}")
            )
        return contract(a, b, range(a.ndim - axes, a.ndim), range(axes))
    lhs, rhs = normalize_axes("tensordot", a, axes[0]), normalize_axes("tensordot", b, axes[1])
    if [a.shape[k] for k in lhs] != [b.shape[k] for k in rhs]:
        refuse(ShapeError(f"tensordot: axes {axes[0]} of {a.shape} and {axes[1]} of {b.shape} differ in size"))
    return contract(a, b, lhs, rhs)


def kron(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the Kronecker product: a block of `x2` times each element of `x1`."""
    a, b = operand(x1), operand(x2)
    rank = max(a.ndim, b.ndim)
    rows, columns = ((1,) * (rank - x.ndim) + x.shape for x in (a, b))
    expanded_a = reshape(a, [s for n in rows for s in (n, 1)])
    expanded_b = reshape(b, [s for n in columns for s in (1, n)])
    return reshape(multiply(expanded_a, expanded_b), [n * m for n, m in zip(rows, columns, strict=True)])


@componentwise("x")
def trace(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: AnyDType = None) -> Any:
    """Return the sum along a diagonal of two axes."""
    return sum(diagonal(x, offset, axis1, axis2), -1, dtype)


def cross(x1: ArrayLike, x2: ArrayLike, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Return the cross product of 3-vectors along `axis`; the other axes broadcast.

    Without `axis`, the vectors are along `axisa` of `x1` and `axisb` of `x2`, and `axisc` of the result.
    """
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    a, b = promote(x1, x2)
    a, b = moveaxis(a, normalize_axis("cross", a, axisa), -1), moveaxis(b, normalize_axis("cross", b, axisb), -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        refuse(ShapeError(f"cross: sizes {a.shape[-1]} and {b.shape[-1]} along axes {axisa} and {axisb}; expected 3"))

    def element(k: int, m: int) -> Any:
        return multiply(getitem(a, (..., k)), getitem(b, (..., m)))

    components = [subtract(element(k, m), element(m, k)) for k, m in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(stack(components, -1), -1, axisc)

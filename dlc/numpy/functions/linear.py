"""Products of vectors, matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import ShapeError
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, axes_of, axis_of, convert, operand, promote, refuse
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.comparing import not_equal
from dlc.numpy.functions.elementwise import multiply, subtract
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import stack
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shaping import diagonal, expand_dims, moveaxis, ravel, reshape

__all__ = ["cross", "dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "trace", "vdot", "vecdot", "vecmat"]


def contract(
    a: Operand, b: Operand, lhs: Sequence[int], rhs: Sequence[int], batch: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Any:
    """The sum of products over pairs of axes: the batch axes, then what is left of `a`, then what is left of `b`.

    Bools are what NumPy makes of them: whether one of the products is true.
    """
    if a.dtype == np.bool_:
        return not_equal(contract(convert(a, np.int32), convert(b, np.int32), lhs, rhs, batch), 0)
    axes = {"lhs_batch": batch[0], "rhs_batch": batch[1], "lhs_contract": lhs, "rhs_contract": rhs}
    return apply(dl.DotGeneralOp, a, b, **axes)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The matrix product over the last two axes; leading axes broadcast, rank 1 is a row or a column."""
    a, b = promote(x1, x2)
    if a.dtype == np.bool_:
        return not_equal(apply(dl.MatmulOp, convert(a, np.int32), convert(b, np.int32)), 0)
    return apply(dl.MatmulOp, a, b)


def dot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The sum of products over the last axis of `x1` and the last but one (or only) axis of `x2`."""
    a, b = promote(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        return multiply(a, b)
    return contract(a, b, (a.ndim - 1,), (max(b.ndim - 2, 0),))


def inner(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The sum of products over the last axis of both."""
    a, b = promote(x1, x2)
    return multiply(a, b) if a.ndim == 0 or b.ndim == 0 else contract(a, b, (a.ndim - 1,), (b.ndim - 1,))


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The products of each element of `x1` with each of `x2`, both flattened, as a matrix."""
    return multiply(reshape(ravel(x1), (-1, 1) if operand(x1).size else (0, 1)), ravel(x2))


def vdot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The sum of products of the elements of both, flattened."""
    return dot(ravel(x1), ravel(x2))


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    """The sums of products along `axis`; the other axes broadcast."""
    a, b = (moveaxis(x, axis, -1) for x in promote(x1, x2))
    if a.shape[-1] != b.shape[-1]:
        refuse(ShapeError(f"vecdot: sizes {a.shape[-1]} and {b.shape[-1]} along axis {axis} differ"))
    product = matmul(expand_dims(a, -2), expand_dims(b, -1))
    return reshape(product, product.shape[:-2])


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The products of matrices with vectors: the last two axes of `x1`, the last of `x2`; others broadcast."""
    product = matmul(x1, expand_dims(x2, -1))
    return reshape(product, product.shape[:-1])


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The products of vectors with matrices: the last axis of `x1`, the last two of `x2`; others broadcast."""
    product = matmul(expand_dims(x1, -2), x2)
    return reshape(product, (*product.shape[:-2], product.shape[-1]))


def tensordot(x1: ArrayLike, x2: ArrayLike, /, axes: int | tuple[int | Sequence[int], int | Sequence[int]] = 2) -> Any:
    """The sum of products over pairs of axes: the last so many of `x1` with the first of `x2`, or (axes of x1, axes of x2)."""
    a, b = promote(x1, x2)
    if isinstance(axes, int):
        if axes > min(a.ndim, b.ndim):
            refuse(ShapeError(f"tensordot: {axes} axes of {a.shape} and {b.shape}"))
        return contract(a, b, range(a.ndim - axes, a.ndim), range(axes))
    lhs, rhs = axes_of("tensordot", a, axes[0]), axes_of("tensordot", b, axes[1])
    if [a.shape[k] for k in lhs] != [b.shape[k] for k in rhs]:
        refuse(ShapeError(f"tensordot: axes {axes[0]} of {a.shape} and {axes[1]} of {b.shape} have different sizes"))
    return contract(a, b, lhs, rhs)


def kron(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The Kronecker product: blocks of `x2`, one for each element of `x1` and times it."""
    a, b = operand(x1), operand(x2)
    rank = max(a.ndim, b.ndim)
    rows, columns = ((1,) * (rank - x.ndim) + x.shape for x in (a, b))
    left = reshape(a, [s for n in rows for s in (n, 1)])
    right = reshape(b, [s for n in columns for s in (1, n)])
    return reshape(multiply(left, right), [n * m for n, m in zip(rows, columns, strict=True)])


@by_parts("x")
def trace(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: AnyDType = None) -> Any:
    """The sum of a diagonal of two axes."""
    return sum(diagonal(x, offset, axis1, axis2), -1, dtype)


def cross(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1) -> Any:
    """The cross product of vectors of three elements along `axis`; the other axes broadcast."""
    a, b = (moveaxis(x, axis_of("cross", x, axis), -1) for x in promote(x1, x2))
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        refuse(ShapeError(f"cross: sizes {a.shape[-1]} and {b.shape[-1]} along axis {axis}; expected 3"))

    def element(k: int, m: int) -> Any:
        return multiply(getitem(a, (..., k)), getitem(b, (..., m)))

    parts = [subtract(element(k, m), element(m, k)) for k, m in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(stack(parts, -1), -1, axis)

"""Shape helpers of the rules: sums over broadcast axes, zero padding, and static sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import dense_attribute, numpy_dtype
from dlc.dialects.location_text import location_prefix
from dlc.ir import Attribute, SSAValue, UnitAttr
from dlc.passes.autodiff.term import Term
from dlc.shapes.dims import Size, UndecidableError, is_static

# The assumed size of symbolic dimensions in estimates of costs.
_SYMBOLIC_SIZE = 256


def unbroadcast(cotangent: Term, shape: Sequence[Size]) -> Term:
    """Sum a cotangent over the axes that broadcasting from `shape` repeated."""
    leading = len(cotangent.shape) - len(shape)
    broadcast_axes = [a for a, s in enumerate(cotangent.shape) if a < leading or (shape[a - leading] == 1 != s)]
    return cotangent.sum(*broadcast_axes).reshape(*shape)


def zeros(build: DlBuilder, like: SSAValue | Attribute) -> Term:
    """Return zeros of the type of a value, or of a tensor type."""
    return Term(build, build.scalar(0, like=like)).broadcast(*shape_of(like))


def unspecified(build: DlBuilder, like: SSAValue | Attribute) -> SSAValue:
    """Return a tensor of the type of a value, or of a tensor type, on whose elements no result depends."""
    element = element_type_of(like)
    value = dense_attribute(np.zeros((), numpy_dtype(element)), tensor_type((), element))
    return Term(build, build(dl.ConstantOp, value=value, unspecified=UnitAttr())).broadcast(*shape_of(like)).value


def require_static_shape(op: DlOp, value: SSAValue) -> tuple[int, ...]:
    """Return a value's shape, which must be static. Raises UndecidableError for another one."""
    shape = shape_of(value)
    if not is_static(shape):
        sizes_text = ", ".join(map(str, shape))
        problem = f"its transpose rule needs static sizes, got ({sizes_text}); bind the symbolic dimensions (pass bind-dims)"
        raise UndecidableError(f"{location_prefix(op.location)}{op.name}: {problem}")
    return cast("tuple[int, ...]", shape)


def padded(x: Term, low: Sequence[Size], high: Sequence[Size], interior: Sequence[int]) -> Term:
    """Insert zeros between the elements of `x` and around them; a negative static size removes elements."""
    if any(interior):
        x = x.op(dl.DilateOp, 0, interior=interior)
    static_low, static_high = [*low], [*high]
    for axis, amounts in enumerate(zip(low, high, strict=True)):
        if not is_static(amounts):
            before, after = (x.like(0).broadcast(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in amounts)
            x = before.op(dl.ConcatOp, x, after, axis=axis)
            static_low[axis] = static_high[axis] = 0
    return x.op(dl.PadOp, 0, low=static_low, high=static_high) if any((*static_low, *static_high)) else x


def num_bytes(value: SSAValue) -> int:
    """Return the size of a value in bytes; an estimate if it has symbolic dimensions."""
    return math.prod(map(static_size, shape_of(value))) * itemsize(value)


def itemsize(value: SSAValue) -> int:
    """Return the size of an element in bytes."""
    return numpy_dtype(element_type_of(value)).itemsize


def static_size(size: Size) -> int:
    """Return a size, or the assumed size of a symbolic dimension."""
    return int(size) if is_static((size,)) else _SYMBOLIC_SIZE

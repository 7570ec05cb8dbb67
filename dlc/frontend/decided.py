"""Where the elements of a small tensor of integers come from, when they are to be sizes: what only moves them is seen through.

    %s = dl.concat (dl.size n), (dl.reshape %m), …      n, then the element of %m

So that `arange(m)` and `zeros([n, m])` have one size, where %m is computed from data.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, element_type_of, shape_of, sizes
from dlc.dialects.dl.dtypes import is_integer, numpy_dtype
from dlc.dims import UndecidableError, is_static, product
from dlc.frontend import symbolic
from dlc.ir import SSAValue

# What has more elements holds no shape.
_MOST_ELEMENTS = 64
# A number of fewer is what is left of a size.
_LEAST_BYTES = 4


@dataclass(frozen=True)
class Element:
    """A computed number: the element of `value` at `place`, in row-major order."""

    value: SSAValue
    place: int


def may_be_sizes(value: SSAValue) -> bool:
    """Whether the elements of a value may be sizes: a few integers, with room for any size there is."""
    element = element_type_of(value)
    return _is_small(value) and is_integer(element) and numpy_dtype(element).itemsize >= _LEAST_BYTES


def elements_of(value: SSAValue) -> Array:
    """The elements of a value that may be sizes, as objects: the size that one is, or what computes it."""
    op = value.owner
    match op:
        case dl.ConstantOp():
            return op.evaluate()[0].astype(object)
        case dl.SizeOp():
            return symbolic.object_array(sizes(op.size)[0])
        case dl.CastOp() if may_be_sizes(op.operands[0]) and may_be_sizes(value):
            return elements_of(op.operands[0])
        case dl.GatherOp() if all(map(may_be_sizes, op.operands)):
            source, places = map(elements_of, op.operands)
            if all(isinstance(place, int) for place in places.flat):
                return np.asarray(op.reference(source, places.astype(np.int64)), object)
        case dl.ReshapeOp() | dl.TransposeOp() | dl.BroadcastToOp() | dl.SliceOp() | dl.ReverseOp() | dl.ConcatOp():
            if all(map(may_be_sizes, op.operands)):
                return np.asarray(op.reference(*map(elements_of, op.operands)), object)
        case DlOp() if type(op) in symbolic.ELEMENTWISE and all(map(_is_small, op.operands)):
            return _elementwise(op, value)
        case _:
            pass
    return _own(value)


def _elementwise(op: DlOp, value: SSAValue) -> Array:
    """The elements of an op place by place: those that follow from known ones."""
    made = _own(value)
    operands = np.broadcast_arrays(*map(elements_of, op.operands), made)[:-1]
    for place in np.ndindex(made.shape):
        # What computes an element is no number: it takes part in no arithmetic.
        with suppress(UndecidableError, TypeError):
            made[place] = symbolic.ELEMENTWISE[type(op)](*(operand[place] for operand in operands))
    return made


def _own(value: SSAValue) -> Array:
    made = np.empty(int(product(shape_of(value))), object)
    made[:] = [Element(value, k) for k in range(made.size)]
    return made.reshape([int(size) for size in shape_of(value)])


def _is_small(value: SSAValue) -> bool:
    shape = shape_of(value)
    return is_static(shape) and product(shape) <= _MOST_ELEMENTS

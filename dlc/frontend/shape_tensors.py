"""Shape tensors: trace the elements of a small integer tensor back to the sizes that they hold.

    %s = dl.concat (dl.size n), (dl.reshape %m), …      n, then the element of %m

The analysis looks through data-movement ops, so that `arange(m)` and `zeros([n, m])` have the same symbolic size where %m
is computed from data.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, element_type_of, shape_of, sizes
from dlc.dialects.dl.dtypes import is_integer, numpy_dtype
from dlc.frontend import symbolic_arithmetic
from dlc.ir import SSAValue
from dlc.shapes.dims import UndecidableError, is_static, product

# A tensor with more elements is not a shape.
_MAX_SHAPE_TENSOR_ELEMENTS = 64


@dataclass(frozen=True)
class ComputedElement:
    """An element that is computed at run time: the element of `value` at the flat, row-major index `index`."""

    value: SSAValue
    index: int


def may_be_shape_tensor(value: SSAValue) -> bool:
    """Return whether the elements of a value may be sizes: few integers, wide enough for any size."""
    element = element_type_of(value)
    return _is_small(value) and is_integer(element) and numpy_dtype(element).itemsize >= symbolic_arithmetic.MIN_SIZE_BYTES


def shape_tensor_elements(value: SSAValue) -> Array:
    """Return the elements of a shape tensor as an object array: an int or `Dim` where it is known, else a ComputedElement."""
    op = value.owner
    match op:
        case dl.ConstantOp():
            return op.evaluate()[0].astype(object)
        case dl.SizeOp():
            return symbolic_arithmetic.object_array(sizes(op.size)[0])
        case dl.CastOp() if may_be_shape_tensor(op.operands[0]) and may_be_shape_tensor(value):
            return shape_tensor_elements(op.operands[0])
        case dl.GatherOp() if all(map(may_be_shape_tensor, op.operands)):
            source, indices = map(shape_tensor_elements, op.operands)
            if all(isinstance(index, int) for index in indices.flat):
                return np.asarray(op.reference(source, indices.astype(np.int64)), object)
        case dl.ReshapeOp() | dl.TransposeOp() | dl.BroadcastToOp() | dl.SliceOp() | dl.ReverseOp() | dl.ConcatOp():
            if all(map(may_be_shape_tensor, op.operands)):
                return np.asarray(op.reference(*map(shape_tensor_elements, op.operands)), object)
        case DlOp() if type(op) in symbolic_arithmetic.ELEMENTWISE and all(map(_is_small, op.operands)):
            return _elementwise(op, value)
        case _:
            pass
    return _computed_elements(value)


def _elementwise(op: DlOp, value: SSAValue) -> Array:
    """Evaluate an elementwise op element by element where its operands are constant."""
    elements = _computed_elements(value)
    operands = np.broadcast_arrays(*map(shape_tensor_elements, op.operands), elements)[:-1]
    for index in np.ndindex(elements.shape):
        # A ComputedElement supports no arithmetic.
        with suppress(UndecidableError, TypeError):
            result = symbolic_arithmetic.ELEMENTWISE[type(op)](*(operand[index] for operand in operands))
            if symbolic_arithmetic.is_representable(result, numpy_dtype(element_type_of(value))):
                elements[index] = result
    return elements


def _computed_elements(value: SSAValue) -> Array:
    elements = np.empty(int(product(shape_of(value))), object)
    elements[:] = [ComputedElement(value, k) for k in range(elements.size)]
    return elements.reshape([int(size) for size in shape_of(value)])


def _is_small(value: SSAValue) -> bool:
    shape = shape_of(value)
    return is_static(shape) and product(shape) <= _MAX_SHAPE_TENSOR_ELEMENTS

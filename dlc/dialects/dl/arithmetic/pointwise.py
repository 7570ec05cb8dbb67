"""Base classes of elementwise ops: operands of one element type that broadcast, a NumPy formula, a scalar body."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, broadcast_shapes, element_type_of, is_storage_only, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Elementwise
from dlc.errors import DTypeError
from dlc.ir import Attribute, Operation, SSAValue, TensorType, i1, operand_def, result_def

MathOp: TypeAlias = Callable[[SSAValue], Operation]


def kind_of(element_type: Attribute) -> str:
    """Return the kind of an element type: float, integer, bool or storage-only."""
    if is_storage_only(element_type):
        return "storage-only"
    return "float" if is_float(element_type) else "bool" if is_bool(element_type) else "integer"


def common_element_type(op: DlOp, values: Sequence[SSAValue], kinds: Sequence[str]) -> Attribute:
    """Return the common element type of `values`; raise DTypeError if types differ or the kind is not among `kinds`."""
    types = list(dict.fromkeys(element_type_of(v) for v in values))
    if len(types) > 1:
        raise DTypeError(f"{op.name}: operands have element types {', '.join(map(str, types))}; cast them to one")
    if kind_of(types[0]) not in kinds:
        raise DTypeError(f"{op.name}: element type {types[0]}, expected {' or '.join(kinds)}")
    return types[0]


def widen_array(array: Array) -> Array:
    """Return 16-bit floats as f32, other arrays unchanged: formulas compute in f32 and round once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


class Pointwise(Elementwise, ABC):
    """An elementwise op whose operands have the same element type.

    (C1) the operands have the same element type, of a kind that the op accepts; (C2) their shapes broadcast to the result's.
    Sizes of zero give an empty result.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer")
    result = result_def(TensorType)

    @property
    def element(self) -> Attribute:
        """The element type of the operands; unlike the scalars of a body, it has a signedness."""
        return element_type_of(self.operands[-1])

    def result_element(self) -> Attribute:
        """Return the element type of the result."""
        return self.element

    def infer(self) -> Sequence[Tensor]:
        common_element_type(self, self.operands, self.KINDS)
        return [tensor_type(broadcast_shapes(self.name, *map(shape_of, self.operands)), self.result_element())]

    def compute_array(self, formula: Callable[..., Array], operands: Sequence[Array]) -> Array:
        """Return the value of a formula in the result's dtype, without NumPy's warnings about overflow and division by zero."""
        with np.errstate(all="ignore"):
            return np.asarray(formula(*map(widen_array, operands))).astype(numpy_dtype(self.result_element()))


class Unary(Pointwise, ABC):
    """An elementwise op on one operand."""

    x = operand_def(TensorType)

    @abstractmethod
    def numpy(self, x: Array) -> Array:
        """Compute the formula with NumPy; 16-bit floats arrive as f32."""

    @abstractmethod
    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        """Emit the formula on scalars."""

    def reference(self, *operands: Array) -> Array:
        return self.compute_array(self.numpy, operands)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return self.emit(body, *elements)


class Binary(Pointwise, ABC):
    """An elementwise op on two operands."""

    x = operand_def(TensorType)
    y = operand_def(TensorType)

    @abstractmethod
    def numpy(self, x: Array, y: Array) -> Array:
        """Compute the formula with NumPy; 16-bit floats arrive as f32."""

    @abstractmethod
    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        """Emit the formula on scalars."""

    def reference(self, *operands: Array) -> Array:
        return self.compute_array(self.numpy, operands)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return self.emit(body, *elements)


class FloatFunction(Unary, ABC):
    """A function of one float; `MATH` is its op of the `math` dialect, if there is one."""

    KINDS: ClassVar[tuple[str, ...]] = ("float",)
    MATH: ClassVar[MathOp | None] = None

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        math_op = type(self).MATH
        assert math_op is not None
        return body(math_op(x))


class Comparison(Binary, ABC):
    """A comparison, with a bool result."""

    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool")
    # One of eq, ne, lt, le, gt, ge.
    PREDICATE: ClassVar[str]

    def result_element(self) -> Attribute:
        return i1

    def numpy(self, x: Array, y: Array) -> Array:
        return getattr(operator, self.PREDICATE)(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.compare(body, self.PREDICATE, x, y, self.element)

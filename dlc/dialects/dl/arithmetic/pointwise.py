"""What elementwise ops are made of: operands of one element type that broadcast, a NumPy formula and a scalar body."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, broadcast_shapes, element_type_of, is_narrow, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Elementwise
from dlc.errors import DTypeError
from dlc.ir import Attribute, Operation, SSAValue, TensorType, i1, operand_def, result_def

MathOp: TypeAlias = Callable[[SSAValue], Operation]


def kind_of(element_type: Attribute) -> str:
    """What an element type is: float, integer, bool or narrow."""
    if is_narrow(element_type):
        return "narrow"
    return "float" if is_float(element_type) else "bool" if is_bool(element_type) else "integer"


def common_element_type(op: DlOp, values: Sequence[SSAValue], kinds: Sequence[str]) -> Attribute:
    """The element type that `values` share; raises DTypeError if they do not, or if it is of none of the kinds."""
    types = list(dict.fromkeys(element_type_of(v) for v in values))
    if len(types) > 1:
        raise DTypeError(f"{op.name}: operands have element types {', '.join(map(str, types))}; cast them to one")
    if kind_of(types[0]) not in kinds:
        raise DTypeError(f"{op.name}: element type {types[0]}, expected {' or '.join(kinds)}")
    return types[0]


def widened(array: Array) -> Array:
    """16-bit floats as f32, other arrays as they are: formulas compute there and round once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


class Pointwise(Elementwise, ABC):
    """An elementwise op on operands of one element type.

    (C1) the operands have one element type, of the kinds that the op takes; (C2) their shapes broadcast to the result's.
    Sizes of zero give an empty result.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer")
    result = result_def(TensorType)

    @property
    def element(self) -> Attribute:
        """The operands' element type, which knows signedness where scalar bodies do not."""
        return element_type_of(self.operands[-1])

    def result_element(self) -> Attribute:
        """The element type of the result."""
        return self.element

    def infer(self) -> Sequence[Tensor]:
        common_element_type(self, self.operands, self.KINDS)
        return [tensor_type(broadcast_shapes(self.name, *map(shape_of, self.operands)), self.result_element())]

    def computed(self, formula: Callable[..., Array], operands: Sequence[Array]) -> Array:
        """The formula's value in the result's dtype, without NumPy's warnings about overflow and division by zero."""
        with np.errstate(all="ignore"):
            return np.asarray(formula(*map(widened, operands))).astype(numpy_dtype(self.result_element()))


class Unary(Pointwise, ABC):
    """An elementwise op on one operand."""

    x = operand_def(TensorType)

    @abstractmethod
    def numpy(self, x: Array) -> Array:
        """The formula in NumPy; 16-bit floats come as f32."""

    @abstractmethod
    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        """The formula on scalars."""

    def reference(self, *operands: Array) -> Array:
        return self.computed(self.numpy, operands)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return self.emit(body, *elements)


class Binary(Pointwise, ABC):
    """An elementwise op on two operands."""

    x = operand_def(TensorType)
    y = operand_def(TensorType)

    @abstractmethod
    def numpy(self, x: Array, y: Array) -> Array:
        """The formula in NumPy; 16-bit floats come as f32."""

    @abstractmethod
    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        """The formula on scalars."""

    def reference(self, *operands: Array) -> Array:
        return self.computed(self.numpy, operands)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return self.emit(body, *elements)


class FloatFunction(Unary, ABC):
    """A function of one float; those of the `math` dialect name their op."""

    KINDS: ClassVar[tuple[str, ...]] = ("float",)
    MATH: ClassVar[MathOp | None] = None

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        make = type(self).MATH
        assert make is not None
        return body(make(x))


class Comparison(Binary, ABC):
    """A comparison: the result is bool."""

    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool")
    # eq, ne, lt, le, gt or ge
    PREDICATE: ClassVar[str]

    def result_element(self) -> Attribute:
        return i1

    def numpy(self, x: Array, y: Array) -> Array:
        return getattr(operator, self.PREDICATE)(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.compare(body, self.PREDICATE, x, y, self.element)

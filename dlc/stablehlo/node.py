"""What a converter sees of one StableHLO op: its operands as values, and its attributes by the names of both forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_bool
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dims import Dim, Size
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, parts_of
from dlc.frontend.decided import Element, elements_of
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, SSAValue
from dlc.stablehlo.syntax import OPEN, Op, Region, Type

# What MLIR calls element types, by NumPy's name.
_ELEMENTS = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip


def element_of(type: Type, where: str) -> Attribute:
    """The element type of a tensor type. Raises UnsupportedError for one that dlc has not."""
    if type.element not in _ELEMENTS:
        raise UnsupportedError(f"{where}: tensors of {type.element} are not supported; expected {', '.join(_ELEMENTS)}")
    return ELEMENT_TYPES[_ELEMENTS[type.element]]


def is_of(value: SSAValue, type: Type, where: str, *, of_arrays: bool = False) -> bool:
    """Whether a value is of a type, `of_arrays` if only its elements are to be."""
    shape = shape_of(value)
    fits = len(shape) == len(type.shape) and all(said in (OPEN, size) for said, size in zip(type.shape, shape, strict=True))
    return element_type_of(value) == element_of(type, where) and (of_arrays or fits)


# What a name stands for: an array, or the arrays of both parts of complex numbers.
Value: TypeAlias = "SSAValue | Complex"
# Runs a region on values: what it returns.
Inline: TypeAlias = Callable[[Region, Sequence[Value]], Sequence[Value]]
Converter: TypeAlias = "Callable[[Node], Value | Sequence[Value]]"


class Node:
    """One op: `node.b` builds, `node[0]` is the first operand; `node.arrays` are the operands for functions of `dlc.numpy`."""

    def __init__(self, op: Op, values: Sequence[Value], trace: Trace, inline: Inline, where: str) -> None:
        self.op, self.values, self.trace, self.inline, self.where = op, values, trace, inline, where
        self.operands = [v for v in values if not isinstance(v, Complex)]

    @property
    def b(self) -> Build:
        return self.trace.build

    @property
    def arrays(self) -> list[Any]:
        return [v if isinstance(v, Complex) else self.array(v) for v in self.values]

    def array(self, value: Any) -> Tracer:
        """A value of real numbers, as functions of `dlc.numpy` take it."""
        return Tracer(self.trace, value)

    @property
    def has_complex(self) -> bool:
        """Whether complex numbers are among what it takes or gives."""
        return len(self.operands) < len(self.values) or any(t.part is not None for t in self.op.types)

    def of_parts(self, *parts: Any) -> Node:
        """The same op of real numbers: these arrays."""
        types = tuple(t.part or t for t in self.op.types)
        return Node(replace(self.op, types=types), [*map(self.value, parts)], self.trace, self.inline, self.where)

    def value(self, array: Any) -> Any:
        """What a function of `dlc.numpy` gave, as a value; a value as it is."""
        if isinstance(array, Complex):
            return Complex(*map(self.trace.value, parts_of(array)))
        return self.trace.value(array).value if not isinstance(array, SSAValue) else cast(SSAValue, array)

    def __getitem__(self, k: int) -> SSAValue:
        if not -len(self.operands) <= k < len(self.operands):
            raise ModelError(f"{self.where}: operand {k} of {len(self.operands)}")
        return self.operands[k]

    @property
    def element(self) -> Attribute:
        """The element type of its first result."""
        return element_of(self.op.types[0], self.where)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.types[0].shape

    @property
    def is_bool(self) -> bool:
        return is_bool(self.element)

    def get(self, *names: str, default: Any = None) -> Any:
        """An attribute by its name in either form. Raises ModelError where it is missing and there is no default."""
        for name in names:
            if name in self.op.attributes:
                return self.op.attributes[name]
        if default is None:
            raise ModelError(f"{self.where}: the attribute '{names[0]}' is missing")
        return default

    def integers(self, *names: str, default: Sequence[int] | None = None) -> list[int]:
        found: Any = self.get(*names, default=default)
        if not isinstance(found, list) or not all(isinstance(n, int) for n in cast("list[Any]", found)):
            raise ModelError(f"{self.where}: '{names[0]}' must be integers, got {found}")
        return list(cast("list[int]", found))

    def word(self, names: Sequence[str], *attributes: str) -> str:
        """One of some words, written by itself or as an attribute, `#stablehlo<comparison_direction LT>`."""
        said = [*self.get("words", default=[""]), *(str(self.op.attributes.get(a, "")) for a in attributes)]
        found = [word for text in said for word in re.findall(r"\w+", text) if word in names]
        if not found:
            raise self.unsupported(f"expected one of {', '.join(names)}, got {' '.join(said)}")
        return found[0]

    def unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {message}")

    # Shorthands

    def scalar(self, number: int | float | bool, like: SSAValue) -> SSAValue:
        return self.b.scalar(number, like=like)

    def number(self, size: Size) -> SSAValue:
        """A size as an i64 without axes."""
        return self.trace.value(size if isinstance(size, Dim) else np.int64(size)).value

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.b(ReshapeOp, x, shape=tuple(shape))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        return x if list(permutation) == sorted(permutation) else self.b(TransposeOp, x, permutation=tuple(permutation))

    def broadcast(self, x: SSAValue, shape: Sequence[Size]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.b(BroadcastToOp, x, shape=tuple(shape))


def leaves_of(values: Sequence[Value]) -> list[SSAValue]:
    """The arrays of values, of complex numbers those of both parts."""
    return [leaf for v in values for leaf in ([part.value for part in parts_of(v)] if isinstance(v, Complex) else [v])]


def of_leaves(types: Sequence[Type], leaves: Iterator[SSAValue], trace: Trace) -> list[Value]:
    """The values of these types whose arrays these are."""

    def one() -> Tracer:
        return Tracer(trace, next(leaves))

    return [next(leaves) if type.part is None else Complex(one(), one()) for type in types]


def parts_in(types: Sequence[Type]) -> list[Type]:
    """The types of the arrays of values of these types."""
    return [part for t in types for part in ((t,) if t.part is None else (t.part, t.part))]


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """A value's shape. Open sizes do arithmetic as numbers do; a question that has no answer for all is an UndecidableError."""
    return cast("tuple[int, ...]", shape_of(value))


def shape_in(node: Node, k: int) -> tuple[int, ...]:
    """The shape that an operand is. Raises UnsupportedError for one that follows from no shape."""
    return shape_of_elements(node, node[k], f"operand {k}")


def shape_of_elements(node: Node, value: SSAValue, what: str) -> tuple[int, ...]:
    """The same of a value that is called so."""
    sizes = list(elements_of(value).flat)
    if any(isinstance(size, Element) for size in sizes):
        raise node.unsupported(f"{what} is a shape that follows from no size of an argument")
    return cast("tuple[int, ...]", tuple(sizes))


def fields_of(text: Any) -> dict[str, list[int]]:
    """The lists of integers in an attribute such as `#stablehlo.dot<lhs_contracting_dimensions = [1], …>`."""
    found = re.findall(r"(\w+) = (\[[\d, ]*\]|\d+)", str(text))
    return {name: [int(n) for n in re.findall(r"\d+", numbers)] for name, numbers in found}

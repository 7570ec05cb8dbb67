"""The converter API of StableHLO ops: an op's operands, and its attributes by their names in generic and pretty form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_bool
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, real_and_imaginary
from dlc.frontend.shape_tensors import ComputedElement, shape_tensor_elements
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, SSAValue
from dlc.shapes.dims import Dim, Size
from dlc.stablehlo.syntax import DYNAMIC, Op, Region, Type

_DTYPE_NAMES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "i2": "int2", "i4": "int4", "ui2": "uint2", "ui4": "uint4", "f4E2M1FN": "float4_e2m1fn",
    "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
}  # fmt: skip
# Element types by their names in StableHLO.
STABLEHLO_ELEMENTS: Mapping[str, Attribute] = {name: ELEMENT_TYPES[dtype] for name, dtype in _DTYPE_NAMES.items()}


def element_of(type: Type, where: str) -> Attribute:
    """Return the element type of a tensor type. Raises UnsupportedError for an unsupported one."""
    if type.element not in STABLEHLO_ELEMENTS:
        raise UnsupportedError(f"{where}: tensors of {type.element} are not supported; convert them to another type")
    return STABLEHLO_ELEMENTS[type.element]


def has_type(value: SSAValue, type: Type, where: str, *, elements_only: bool = False) -> bool:
    """Return whether a value has a type; with `elements_only`, compare only the element type."""
    shape = shape_of(value)
    is_same_shape = len(shape) == len(type.shape) and all(
        declared in (DYNAMIC, size) for declared, size in zip(type.shape, shape, strict=True)
    )
    return element_type_of(value) == element_of(type, where) and (elements_only or is_same_shape)


# The value of a name: an array, or the real and imaginary parts of a complex array.
StableHloValue: TypeAlias = "SSAValue | Complex"
# (region, arguments) -> results: inlines a region.
Inline: TypeAlias = Callable[[Region, Sequence[StableHloValue]], Sequence[StableHloValue]]
Converter: TypeAlias = "Callable[[StableHloNode], StableHloValue | Sequence[StableHloValue]]"


class StableHloNode:
    """One op: `node.build` builds, `node[0]` is the first operand; `node.arrays` are operands for functions of `dlc.numpy`."""

    def __init__(self, op: Op, values: Sequence[StableHloValue], trace: Trace, inline: Inline, where: str) -> None:
        self.op, self.values, self.trace, self.inline, self.where = op, values, trace, inline, where
        self.operands = [v for v in values if not isinstance(v, Complex)]

    @property
    def build(self) -> DlBuilder:
        return self.trace.build

    @property
    def arrays(self) -> list[Any]:
        return [v if isinstance(v, Complex) else self.array(v) for v in self.values]

    def array(self, value: Any) -> Tracer:
        """Return a real value as a Tracer, for functions of `dlc.numpy`."""
        return Tracer(self.trace, value)

    @property
    def has_complex(self) -> bool:
        """Return whether an operand or result is complex."""
        return len(self.operands) < len(self.values) or any(t.component is not None for t in self.op.types)

    def from_parts(self, *parts: Any) -> StableHloNode:
        """Return the same op with these real operands."""
        return StableHloNode(_real_part(self.op), [*map(self.value, parts)], self.trace, self.inline, self.where)

    def value(self, array: Any) -> Any:
        """Convert a result of a `dlc.numpy` function to a value; values are returned unchanged."""
        if isinstance(array, Complex):
            return Complex(*map(self.trace.value, real_and_imaginary(array)))
        return self.trace.value(array).value if not isinstance(array, SSAValue) else cast(SSAValue, array)

    def __getitem__(self, k: int) -> SSAValue:
        if not -len(self.operands) <= k < len(self.operands):
            raise ModelError(f"{self.where}: operand {k} of {len(self.operands)}")
        return self.operands[k]

    @property
    def element(self) -> Attribute:
        """The element type of the first result."""
        return element_of(self.op.types[0], self.where)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.types[0].shape

    @property
    def is_bool(self) -> bool:
        return is_bool(self.element)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return an attribute by its name in generic or pretty form. Raises ModelError if it is missing without a default."""
        for name in names:
            if name in self.op.attributes:
                return self.op.attributes[name]
        if default is None:
            raise ModelError(f"{self.where}: the attribute '{names[0]}' is missing")
        return default

    def integers(self, *names: str, default: Sequence[int] | None = None) -> list[int]:
        entries: Any = self.get(*names, default=default)
        if not isinstance(entries, list) or not all(isinstance(n, int) for n in cast("list[Any]", entries)):
            raise ModelError(f"{self.where}: '{names[0]}' must be integers, got {entries}")
        return list(cast("list[int]", entries))

    def keyword(self, names: Sequence[str], *attributes: str) -> str:
        """Return the first of the keywords `names` that is present, by itself or in one of these attributes.

        An attribute that contains a keyword is, for example, `#stablehlo<comparison_direction LT>`.
        """
        texts = [*self.get("words", default=[""]), *(str(self.op.attributes.get(a, "")) for a in attributes)]
        matches = [keyword for text in texts for keyword in re.findall(r"\w+", text) if keyword in names]
        if not matches:
            raise self.unsupported(f"expected one of {', '.join(names)}, got {' '.join(texts)}")
        return matches[0]

    def unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {message}")

    # Shorthands

    def scalar(self, number: int | float | bool, like: SSAValue) -> SSAValue:
        return self.build.scalar(number, like=like)

    def number(self, size: Size) -> SSAValue:
        """Return a size as a rank-0 i64."""
        return self.trace.value(size if isinstance(size, Dim) else np.int64(size)).value

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.build(ReshapeOp, x, shape=tuple(shape))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        return x if list(permutation) == sorted(permutation) else self.build(TransposeOp, x, permutation=tuple(permutation))

    def broadcast(self, x: SSAValue, shape: Sequence[Size]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.build(BroadcastToOp, x, shape=tuple(shape))


def _real_part(op: Op) -> Op:
    """Return an op with the real component type for each complex type, in its regions as well."""
    regions = tuple(
        Region(tuple(replace(a, type=a.type.component or a.type) for a in region.arguments), tuple(map(_real_part, region.ops)))
        for region in op.regions
    )
    return replace(op, regions=regions, types=tuple(t.component or t for t in op.types))


def flatten_complex(values: Sequence[StableHloValue]) -> list[SSAValue]:
    """Return the arrays of values: one for a real value, two for a complex one."""
    return [
        leaf
        for v in values
        for leaf in ([component.value for component in real_and_imaginary(v)] if isinstance(v, Complex) else [v])
    ]


def unflatten_complex(types: Sequence[Type], leaves: Iterator[SSAValue], trace: Trace) -> list[StableHloValue]:
    """Build the values of these types from their arrays."""

    def next_tracer() -> Tracer:
        return Tracer(trace, next(leaves))

    return [next(leaves) if type.component is None else Complex(next_tracer(), next_tracer()) for type in types]


def leaf_types(types: Sequence[Type]) -> list[Type]:
    """Return the types of the arrays of values of these types."""
    return [component for t in types for component in ((t,) if t.component is None else (t.component, t.component))]


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """Return the shape of a value. Symbolic sizes support arithmetic; undecided comparisons raise UndecidableError."""
    return cast("tuple[int, ...]", shape_of(value))


def shape_in(node: StableHloNode, k: int) -> tuple[int, ...]:
    """Return the shape that an operand holds. Raises UnsupportedError if it is not computed from shapes."""
    return shape_of_elements(node, node[k], f"operand {k}")


def shape_of_elements(node: StableHloNode, value: SSAValue, description: str) -> tuple[int, ...]:
    """Return the shape that a value holds; `description` names it in messages."""
    sizes = list(shape_tensor_elements(value).flat)
    if any(isinstance(size, ComputedElement) for size in sizes):
        raise node.unsupported(f"{description} is a shape that is not computed from sizes of the arguments")
    return cast("tuple[int, ...]", tuple(sizes))


def parse_fields(text: Any) -> dict[str, list[int]]:
    """Return the integer lists of an attribute such as `#stablehlo.dot<lhs_contracting_dimensions = [1], …>`."""
    fields = re.findall(r"(\w+) = (\[[\d, ]*\]|\d+)", str(text))
    return {name: [int(n) for n in re.findall(r"\d+", numbers)] for name, numbers in fields}

"""Base classes of `dl` ops: type inference as verification, a NumPy reference implementation, one textual syntax.

An op class declares operands, properties and two methods. `infer` returns the result types for operand types and properties;
verification compares them with the types in the IR. `reference` computes the results with NumPy. The interfaces that passes
query (elementwise, reduction, …) are in `interfaces.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.dims_attribute import DimsAttr
from dlc.errors import DeviceError, DTypeError, ShapeError
from dlc.ir import (
    DYNAMIC_INDEX,
    Attribute,
    Block,
    BoolAttr,
    DenseArrayBase,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    IRDLOperation,
    Parser,
    Printer,
    Pure,
    SSAValue,
    StringAttr,
    TensorType,
    VerifyException,
    attach_results,
    f64,
    i1,
    i64,
    memo_table,
    traits_def,
)
from dlc.shapes import dims
from dlc.shapes.dims import Dim, Size

_STORAGE_ONLY_FLOATS = (
    Float4E2M1FNType, Float8E4M3FNType, Float8E4M3FNUZType, Float8E5M2Type, Float8E5M2FNUZType, Float8E8M0FNUType,
)  # fmt: skip

Array: TypeAlias = NDArray[Any]
Op = TypeVar("Op", bound=IRDLOperation)
# The tensor types of the `dl` dialect; a symbolic size is `?` in the type, its polynomial in the `#dl.dims` encoding.
Tensor: TypeAlias = TensorType[Attribute]
# The Python values that a property accepts; `attribute` converts them to the stored attribute.
PropertyValue: TypeAlias = Attribute | bool | int | float | str | Sequence[int] | Sequence[Size]


def tensor_type(shape: Iterable[Size], element_type: Attribute) -> Tensor:
    """Return the `dl` tensor type with these sizes."""
    return _tensor_type(tuple(shape), element_type)


@lru_cache(maxsize=4096)  # A program has few distinct types, and every op queries its own.
def _tensor_type(sizes: tuple[Size, ...], element_type: Attribute) -> Tensor:
    if dims.is_static(sizes):
        return _static_type(cast(tuple[int, ...], sizes), element_type)
    return TensorType(element_type, [s if isinstance(s, int) else DYNAMIC_INDEX for s in sizes], DimsAttr.of(sizes))


@lru_cache(maxsize=4096)
def _static_type(shape: tuple[int, ...], element_type: Attribute) -> Tensor:
    return TensorType(element_type, shape)


def tensor_of(value: SSAValue | Attribute) -> Tensor:
    """Return the tensor type of an SSA value."""
    # `isinstance` would take longer than the rest of the function, which is on the hot path of every query about a value.
    t = getattr(value, "type", value)
    if type(t) is not TensorType:
        raise DTypeError(f"expected a tensor type, got {t}")
    return t


def shape_of(value: SSAValue | Attribute) -> tuple[Size, ...]:
    """Return the sizes of a tensor value or type; symbolic ones are `Dim`."""
    t = tensor_of(value)
    encoding = t.encoding
    return encoding.sizes if type(encoding) is DimsAttr else t.get_shape()


def has_symbolic_dims(value: SSAValue) -> bool:
    """Return whether a tensor has a symbolic dimension."""
    return type(tensor_of(value).encoding) is DimsAttr


def element_type_of(value: SSAValue | Attribute) -> Attribute:
    """Return the element type of a tensor value or type."""
    return tensor_of(value).element_type


def is_storage_only(element_type: Attribute) -> bool:
    """Return whether an element type is stored but not computed with: 8- and 4-bit floats, 4- and 2-bit integers."""
    kind = type(element_type)
    if kind is IntegerType:
        return 1 < int(cast("IntegerType", element_type).width.data) < 8
    return kind in _STORAGE_ONLY_FLOATS


def rank_of(value: SSAValue | Attribute) -> int:
    return tensor_of(value).get_num_dims()


def broadcast_shapes(error_prefix: str | None, *shapes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the broadcast shape by NumPy's rules; a static size takes precedence over a symbolic one.

    Raises ShapeError for shapes that do not broadcast, and UndecidableError for symbolic ones that do only if a size is 1.
    Errors begin with `error_prefix`; None if the caller adds the context.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Size] = []
    for axis in range(rank):
        size: Size = 1
        for s in shapes:
            k = axis - (rank - len(s))
            if k < 0 or dims.is_same(s[k], 1):
                continue
            if not dims.is_same(size, 1) and dims.is_known_different(size, s[k]):
                problem = f"shapes {' and '.join(map(str, shapes))} do not broadcast: {size} against {s[k]}"
                problem = problem if error_prefix is None else f"{error_prefix}: {problem}"
                if any(isinstance(n, Dim) and not dims.is_nonnegative(n - 2) for n in (size, s[k])):
                    raise dims.UndecidableError(f"{problem}, unless one of them is 1")
                raise ShapeError(problem)
            if not isinstance(size, int) or size == 1:
                size = s[k]
        result.append(size)
    return tuple(result)


def broadcasts_to(error_prefix: str | None, shape: Sequence[Size], target: Sequence[Size]) -> bool:
    """Return whether `shape` broadcasts to exactly `target`; if that depends on symbolic sizes, equalities become guards.

    Errors begin with `error_prefix`, as in `broadcast_shapes`.
    """
    return compatible(broadcast_shapes(error_prefix, shape, target), target)


def compatible(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Return whether two shapes may be equal: of equal rank, and no sizes are known to differ."""
    return len(a) == len(b) and not any(dims.is_known_different(m, n) for m, n in zip(a, b, strict=True))


def normalized_axes(error_prefix: str | None, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, in the same order; raise ShapeError if one is out of range or repeated.

    Errors begin with `error_prefix`; None if the caller adds the context.
    """
    result = tuple(a + rank if a < 0 else a for a in axes)
    if any(not 0 <= a < rank for a in result) or len(set(result)) != len(result):
        problem = f"axes {tuple(axes)} are not distinct axes of a rank-{rank} tensor"
        raise ShapeError(problem if error_prefix is None else f"{error_prefix}: {problem}")
    return result


def attribute(value: PropertyValue) -> Attribute:
    """Return the attribute that stores a Python value as a property."""
    if type(value) is tuple:
        return _array(cast("tuple[Size, ...]", value))
    match value:
        case Attribute():
            return value
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return _integer(value)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case _:
            return _array(tuple(value))


@lru_cache(maxsize=4096)  # As with types, ops share few distinct values.
def _integer(value: int) -> Attribute:
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _array(entries: tuple[Size, ...]) -> Attribute:
    if any(isinstance(e, dims.Dim) for e in entries):
        return DimsAttr.of(entries)
    return DenseArrayBase.from_list(i64, [int(e) for e in entries])


def ints(value: Attribute | None) -> tuple[int, ...]:
    """Return the integers of an array property; empty if it is absent."""
    return cast("DenseArrayBase[Any]", value).get_values() if value is not None else ()


def sizes(value: Attribute | None) -> tuple[Size, ...]:
    """Return the sizes of a property that may be symbolic."""
    return value.sizes if isinstance(value, DimsAttr) else ints(value)


def number(value: Attribute | None) -> Any:
    """Return the value of an integer, float or bool property."""
    if isinstance(value, FloatAttr):
        return value.value.data
    if isinstance(value, IntegerAttr):
        return bool(value.value.data) if value.type == i1 else value.value.data
    raise DTypeError(f"expected a number, got {value}")


def flag(value: Attribute | None) -> bool:
    """Return the value of a bool property; False if it is absent."""
    return value is not None and bool(number(value))


class PlainOp(IRDLOperation):
    """An op with the generic syntax of `dl`: operands, properties, types, bodies, as in `dl.add %x {axis = 1} : (…) -> …`."""

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks of the op's bodies, one per region."""
        return [region.block for region in self.regions]

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_operand)
        if self.properties:
            printer.print_string(" ")
            printer.print_attr_dict(self.properties)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)
        for region in self.regions:
            printer.print_string(" ")
            printer.print_region(region)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        properties = parser.parse_optional_attr_dict()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        position = parser.pos
        function_type = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(unresolved or [], function_type.inputs.data, position),
            result_types=function_type.outputs.data,
            properties=properties,
            attributes=attributes.data if attributes else {},
            regions=[parser.parse_region() for _ in cls.get_irdl_definition().regions],
        )


class DlOp(PlainOp, ABC):
    """Base of the `dl` ops that compute: pure functions from tensors to tensors."""

    traits = traits_def(Pure())
    # Whether operands may have storage-only element types, which are copied and converted but not computed with.
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = False

    @abstractmethod
    def infer(self) -> Sequence[Tensor]:
        """Return the result types that operands and properties imply; raise ShapeError or DTypeError if there are none."""

    @abstractmethod
    def reference(self, *operands: Array) -> Array | tuple[Array, ...]:
        """Compute the results for these operand values with NumPy: the executable definition of the op."""

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        """Return (shape, broadcast shape) of each operand that is broadcast, trailing axes aligned."""
        return ()

    @classmethod
    def make(cls, *operands: SSAValue, **properties: PropertyValue | None) -> Self:
        """Create the op with these operands and inferred result types."""
        op = cls.create(
            operands=operands,
            properties={k: attribute(v) for k, v in properties.items() if v is not None},
        )
        op.set_result_types(op.inferred())
        return op

    def inferred(self) -> Sequence[Tensor]:
        """Return the result types by `infer`, memoized: they depend on operand types and properties only.

        Raises ShapeError or DTypeError if there are none, or if an operand has a storage-only type that the op does not accept.
        """
        if not self._operands:
            return self.infer()
        signature_attributes = (*[v.type for v in self._operands], *self.properties.values())
        key = (type(self), *self.properties, *map(id, signature_attributes))
        entry = _inferred.get(key)
        if entry is None:
            self._require_wide_operands()
            if len(_inferred) >= _MAX_MEMO_ENTRIES:
                _inferred.clear()
            entry = _inferred[key] = tuple(self.infer()), signature_attributes
        return entry[0]

    def _require_wide_operands(self) -> None:
        """Raise DTypeError for an operand with a storage-only element type if the op would compute with it."""
        if self.ACCEPTS_STORAGE_ONLY:
            return
        if narrow := [v for v in self.operands if is_storage_only(element_type_of(v))]:
            raise DTypeError(f"{self.name}: element type {element_type_of(narrow[0])} is storage-only; dl.cast it first")

    def set_result_types(self, types: Sequence[Tensor]) -> None:
        """Attach results of these types to a new op."""
        attach_results(self, types)

    def verify_(self) -> None:
        try:
            expected = list(self.inferred())
        except (ShapeError, DTypeError) as error:
            raise VerifyException(str(error)) from error
        got = [r.type for r in self.results]
        if len(expected) != len(got) or not all(map(_is_inferred, got, expected)):
            raise VerifyException(f"{self.name}: result types {list(map(str, got))}, inferred {list(map(str, expected))}")

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """Return the reference's results, always as a tuple of arrays; raise DeviceError if there is not enough memory."""
        try:
            result = self.reference(*operands)
        except MemoryError as error:
            results = ", ".join(str(r.type) for r in self.results)
            raise DeviceError(f"{self.name}: not enough memory for its result {results}; make it smaller: {error}") from error
        return tuple(np.asarray(o) for o in (result if isinstance(result, tuple) else (result,)))


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def memoize_by_signature(
    compute: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """Memoize a query about an op whose answer depends only on its class, properties and types: equal ops share one result."""
    # Values hold the attributes whose ids are in the key, which keeps them alive and their ids unique.
    table: dict[tuple[Any, ...], tuple[Result, tuple[Attribute, ...]]] = memo_table()

    @wraps(compute)
    def memoized(op: DlOp, *arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        operands, results, properties = op.operands, op.results, op.properties
        signature_attributes = (*[v.type for v in operands], *[v.type for v in results], *properties.values())
        key: tuple[Any, ...] = (
            type(op),
            len(results),
            arguments,
            *keywords.items(),
            *properties,
            *map(id, signature_attributes),
        )
        entry = table.get(key)
        if entry is None:
            if len(table) >= _MAX_MEMO_ENTRIES:
                table.clear()
            entry = table[key] = compute(op, *arguments, **keywords), signature_attributes
        return entry[0]

    return memoized


# Inferred result types by op class, property names, and the ids of operand types and property values. The values of the table
# hold these attributes, so that an id is not reused while its entry exists.
_inferred: dict[tuple[type | str | int, ...], tuple[Sequence[Tensor], tuple[Attribute, ...]]] = memo_table()
_MAX_MEMO_ENTRIES = 1 << 14


def _is_inferred(got: Attribute, expected: Tensor) -> bool:
    """Return whether a type matches the inferred one; in kernels a symbol may stand for a size with a floor division."""
    if got == expected or element_type_of(got) != element_type_of(expected):
        return got == expected
    pairs = zip(shape_of(got), shape_of(expected), strict=False)
    matches = all(g == e or (isinstance(e, dims.Dim) and e.is_divided and isinstance(g, dims.Dim)) for g, e in pairs)
    return matches and rank_of(got) == rank_of(expected)


def has_symbolic_sizes(op: IRDLOperation) -> bool:
    """Return whether a property of the op contains symbolic sizes."""
    return DimsAttr in map(type, op.properties.values())

"""What every `dl` op is made of: inference as verification, a NumPy reference, one syntax.

An op class declares operands, properties and two methods: `infer` gives the result types from operand types and properties
(verification compares them with the types in the IR), `reference` computes the results with NumPy. Structure that passes
ask for (elementwise, reduction, …) comes from `interfaces.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dlc import dims
from dlc.dims import Size
from dlc.errors import DeviceError, DTypeError, ShapeError
from dlc.ir import (
    DYNAMIC_INDEX,
    ArrayAttr,
    Attribute,
    AttrParser,
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
    IntAttr,
    IntegerAttr,
    IntegerType,
    IRDLOperation,
    ParametrizedAttribute,
    Parser,
    Printer,
    Pure,
    SSAValue,
    StringAttr,
    TensorType,
    VerifyException,
    f64,
    give_results,
    i1,
    i64,
    irdl_attr_definition,
    param_def,
    remembered,
    traits_def,
)

_NARROW_FLOATS = (
    Float4E2M1FNType, Float8E4M3FNType, Float8E4M3FNUZType, Float8E5M2Type, Float8E5M2FNUZType, Float8E8M0FNUType,
)  # fmt: skip

Array: TypeAlias = NDArray[Any]
Op = TypeVar("Op", bound=IRDLOperation)
# The tensor types of the `dl` dialect; a symbolic size is `?` in the type, its polynomial in the `#dl.dims` encoding.
Tensor: TypeAlias = TensorType[Attribute]
# What a property may be given as; `attribute` says how it is stored.
PropertyValue: TypeAlias = Attribute | bool | int | float | str | Sequence[int] | Sequence[Size]


@irdl_attr_definition
class DimsAttr(ParametrizedAttribute):
    """A list of sizes, symbolic ones as text: `#dl.dims<"batch", 3, "past + 1">`."""

    name = "dl.dims"
    entries: ArrayAttr[IntAttr | StringAttr] = param_def()

    @staticmethod
    def of(sizes: Iterable[Size]) -> DimsAttr:
        return DimsAttr(ArrayAttr([IntAttr(int(s)) if not isinstance(s, dims.Dim) else StringAttr(str(s)) for s in sizes]))

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(e.data if isinstance(e, IntAttr) else dims.parse(e.data) for e in self.entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def entry() -> IntAttr | StringAttr:
            text = parser.parse_optional_str_literal()
            return StringAttr(text) if text is not None else IntAttr(parser.parse_integer())

        return [ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry))]

    def print_parameters(self, printer: Printer) -> None:
        def entry(e: IntAttr | StringAttr) -> None:
            printer.print_string(str(e.data)) if isinstance(e, IntAttr) else printer.print_string_literal(e.data)

        with printer.in_angle_brackets():
            printer.print_list(self.entries.data, entry)


def tensor_type(shape: Iterable[Size], element_type: Attribute) -> Tensor:
    """The `dl` tensor type with these sizes."""
    return _tensor_type(tuple(shape), element_type)


@lru_cache(maxsize=4096)  # a program has few types, and each op is told its own
def _tensor_type(sizes: tuple[Size, ...], element_type: Attribute) -> Tensor:
    if dims.is_static(sizes):
        return _static_type(cast(tuple[int, ...], sizes), element_type)
    return TensorType(element_type, [s if isinstance(s, int) else DYNAMIC_INDEX for s in sizes], DimsAttr.of(sizes))


@lru_cache(maxsize=4096)
def _static_type(shape: tuple[int, ...], element_type: Attribute) -> Tensor:
    return TensorType(element_type, shape)


def tensor_of(value: SSAValue | Attribute) -> Tensor:
    """The tensor type of an SSA value."""
    # Without asking whose instance it is, which takes longer than the rest: every question about a value asks this.
    t = getattr(value, "type", value)
    if type(t) is not TensorType:
        raise DTypeError(f"expected a tensor, got {t}")
    return t


def shape_of(value: SSAValue | Attribute) -> tuple[Size, ...]:
    """The sizes of a tensor value or type, symbolic ones as `Dim`."""
    t = tensor_of(value)
    encoding = t.encoding
    return encoding.sizes if type(encoding) is DimsAttr else t.get_shape()


def is_open(value: SSAValue) -> bool:
    """Whether a size of a tensor is symbolic."""
    return type(tensor_of(value).encoding) is DimsAttr


def element_type_of(value: SSAValue | Attribute) -> Attribute:
    """The element type of a tensor value or type."""
    return tensor_of(value).element_type


def is_narrow(element_type: Attribute) -> bool:
    """Whether an element type is one that is stored but not computed with: floats of 8 and 4 bits, integers of 4 and 2."""
    kind = type(element_type)
    if kind is IntegerType:
        return 1 < int(cast("IntegerType", element_type).width.data) < 8
    return kind in _NARROW_FLOATS


def rank_of(value: SSAValue | Attribute) -> int:
    return tensor_of(value).get_num_dims()


def broadcast_shapes(where: str | None, *shapes: Sequence[Size]) -> tuple[Size, ...]:
    """NumPy's broadcasting of shapes; a symbol against another size other than 1 takes the known one.

    Errors begin with `where`; None: whoever catches them knows.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Size] = []
    for axis in range(rank):
        size: Size = 1
        for s in shapes:
            k = axis - (rank - len(s))
            if k < 0 or s[k] == 1 or s[k] == size:
                continue
            if size == 1 or not isinstance(size, int):
                size = s[k]
            elif isinstance(s[k], int):
                problem = f"shapes {' and '.join(map(str, shapes))} do not broadcast: {size} against {s[k]}"
                raise ShapeError(problem if where is None else f"{where}: {problem}")
        result.append(size)
    return tuple(result)


def broadcasts_to(where: str | None, shape: Sequence[Size], target: Sequence[Size]) -> bool:
    """Whether `shape` broadcasts to exactly `target`. Raises UndecidableError where only a call says it.

    Errors begin with `where`, as those of `broadcast_shapes` do.
    """
    together = broadcast_shapes(where, shape, target)
    if len(together) != len(target):
        return False
    apart = [(size, wanted) for size, wanted in zip(together, target, strict=True) if size != wanted]
    if not apart or any(dims.is_static(pair) for pair in apart):
        return not apart
    size, wanted = apart[0]
    raise dims.UndecidableError(f"is {size} == {wanted}?")


def normalized_axes(where: str | None, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in the order given; raises ShapeError outside the rank or twice the same.

    Errors begin with `where`; None: whoever catches them knows.
    """
    result = tuple(a + rank if a < 0 else a for a in axes)
    if any(not 0 <= a < rank for a in result) or len(set(result)) != len(result):
        problem = f"axes {tuple(axes)} are not distinct axes of a rank-{rank} tensor"
        raise ShapeError(problem if where is None else f"{where}: {problem}")
    return result


def attribute(value: PropertyValue) -> Attribute:
    """A Python value as the property that stores it."""
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


@lru_cache(maxsize=4096)  # as with types: each op is told its own
def _integer(value: int) -> Attribute:
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _array(entries: tuple[Size, ...]) -> Attribute:
    if any(isinstance(e, dims.Dim) for e in entries):
        return DimsAttr.of(entries)
    return DenseArrayBase.from_list(i64, [int(e) for e in entries])


def ints(value: Attribute | None) -> tuple[int, ...]:
    """The integers of an array property; empty when it is absent."""
    return cast("DenseArrayBase[Any]", value).get_values() if value is not None else ()


def sizes(value: Attribute | None) -> tuple[Size, ...]:
    """The sizes of a property that may be symbolic."""
    return value.sizes if isinstance(value, DimsAttr) else ints(value)


def number(value: Attribute | None) -> Any:
    """The number of an integer, float or bool property."""
    if isinstance(value, FloatAttr):
        return value.value.data
    if isinstance(value, IntegerAttr):
        return bool(value.value.data) if value.type == i1 else value.value.data
    raise DTypeError(f"expected a number, got {value}")


def flag(value: Attribute | None) -> bool:
    """The value of a bool property; False when it is absent."""
    return value is not None and bool(number(value))


class PlainOp(IRDLOperation):
    """An op of the one syntax: its operands, its properties, their types and its bodies, `dl.add %x {axis = 1} : (…) -> …`."""

    @property
    def blocks(self) -> Sequence[Block]:
        """The bodies."""
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
    """Base of the `dl` ops that compute: pure, tensors in and out."""

    traits = traits_def(Pure())
    # Whether its operands may be narrow numbers, which are moved and converted but not computed with.
    TAKES_NARROW: ClassVar[bool] = False

    @abstractmethod
    def infer(self) -> Sequence[Tensor]:
        """The result types that operands and properties imply; raises ShapeError or DTypeError where there are none."""

    @abstractmethod
    def reference(self, *operands: Array) -> Array | tuple[Array, ...]:
        """The results for these operand values, by NumPy: the op's definition in code."""

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        """What is repeated along axes of one element, trailing axes aligned: its sizes, and those that it is repeated to."""
        return ()

    @classmethod
    def make(cls, *operands: SSAValue, **properties: PropertyValue | None) -> Self:
        """The op over these operands, with inferred result types."""
        op = cls.create(
            operands=operands,
            properties={k: attribute(v) for k, v in properties.items() if v is not None},
        )
        op.set_result_types(op.inferred())
        return op

    def inferred(self) -> Sequence[Tensor]:
        """What `infer` says of wide operands, which hangs on types and properties alone: of equal ops it is asked once.

        Raises ShapeError or DTypeError where there are no such types.
        """
        if not self._operands:
            return self.infer()
        held = (*[v.type for v in self._operands], *self.properties.values())
        key = (type(self), *self.properties, *map(id, held))
        known = _inferred.get(key)
        if known is None:
            self._require_wide_operands()
            if len(_inferred) >= _MOST_INFERRED:
                _inferred.clear()
            known = _inferred[key] = tuple(self.infer()), held
        return known[0]

    def _require_wide_operands(self) -> None:
        """Raises DTypeError for an operand of narrow numbers where the op would compute with them."""
        if self.TAKES_NARROW:
            return
        if narrow := [v for v in self.operands if is_narrow(element_type_of(v))]:
            raise DTypeError(f"{self.name}: {element_type_of(narrow[0])} is stored, not computed with; dl.cast it")

    def set_result_types(self, types: Sequence[Tensor]) -> None:
        """Gives a new op its results."""
        give_results(self, types)

    def verify_(self) -> None:
        try:
            expected = list(self.inferred())
        except (ShapeError, DTypeError) as error:
            raise VerifyException(str(error)) from error
        got = [r.type for r in self.results]
        if len(expected) != len(got) or not all(map(_is_inferred, got, expected)):
            raise VerifyException(f"{self.name}: result types {list(map(str, got))}, inferred {list(map(str, expected))}")

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """The reference's results, always as a tuple of arrays; raises DeviceError without the memory for them."""
        try:
            out = self.reference(*operands)
        except MemoryError as error:
            results = ", ".join(str(r.type) for r in self.results)
            raise DeviceError(f"{self.name}: no memory for its result {results}; make it smaller: {error}") from error
        return tuple(np.asarray(o) for o in (out if isinstance(out, tuple) else (out,)))


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def of_equal_ops(
    question: Callable[Concatenate[Any, Asked], Answer],
) -> Callable[Concatenate[Any, Asked], Answer]:
    """A question about an op whose answer hangs on its kind, properties and types alone: of equal ops it is asked once."""
    # With what the keys name, so that it stays.
    known: dict[tuple[Any, ...], tuple[Answer, tuple[Attribute, ...]]] = remembered()

    @wraps(question)
    def asked(op: DlOp, *arguments: Asked.args, **named: Asked.kwargs) -> Answer:
        operands, results, properties = op.operands, op.results, op.properties
        held = (*[v.type for v in operands], *[v.type for v in results], *properties.values())
        key: tuple[Any, ...] = (type(op), len(results), arguments, *named.items(), *properties, *map(id, held))
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_INFERRED:
                known.clear()
            found = known[key] = question(op, *arguments, **named), held
        return found[0]

    return asked


# What was inferred of ops, by their classes, names of properties, and types and properties, which stand for themselves while
# they are here.
_inferred: dict[tuple[type | str | int, ...], tuple[Sequence[Tensor], tuple[Attribute, ...]]] = remembered()
_MOST_INFERRED = 1 << 14


def _is_inferred(got: Attribute, expected: Tensor) -> bool:
    """Whether a type is the inferred one; a size that is divided may have a name, as kernels give it one."""
    if got == expected or element_type_of(got) != element_type_of(expected):
        return got == expected
    pairs = zip(shape_of(got), shape_of(expected), strict=False)
    named = all(g == e or (isinstance(e, dims.Dim) and e.is_divided and isinstance(g, dims.Dim)) for g, e in pairs)
    return named and rank_of(got) == rank_of(expected)


def has_open_sizes(op: IRDLOperation) -> bool:
    """Whether a property says sizes that come with a call."""
    return DimsAttr in map(type, op.properties.values())

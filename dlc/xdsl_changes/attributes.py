"""What an attribute is and holds: found once, and kept beside it; `__dict__` would make a dictionary for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FunctionType,
    MemRefType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.ir.affine import AffineExpr, AffineMap

from dlc.xdsl_changes.classes import with_derived


def _hashed_once(compute: Callable[[Any], int]) -> Callable[[Any], int]:
    def hash_of(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            _set(self, "_hash", known := compute(self))
            return known

    return hash_of


def _of_its_class(compute: Callable[[Any], int]) -> Callable[[Any], int]:
    """The hash of an attribute, of what it is too: those without parameters all have that of the empty tuple otherwise."""

    def hash_of(self: object) -> int:
        return hash((type(self), compute(self)))

    return hash_of


def _hold(self: ParametrizedAttribute, *parameters: Any) -> None:
    for (name, converter), parameter in zip(_fields(type(self)), parameters, strict=True):
        _set(self, name, parameter if converter is None else converter(parameter))
    self.__post_init__()


@cache
def _fields(kind: type[ParametrizedAttribute]) -> Sequence[tuple[str, Callable[[Any], Attribute] | None]]:
    return [(name, parameter.converter) for name, parameter in kind.get_irdl_definition().parameters]


def _refer(self: SymbolRefAttr, root: str | StringAttr, nested: Sequence[Any] = ()) -> None:
    """A reference to a name, and names in it; one to a name alone is right."""
    if not nested and isinstance(root, str):
        _set(self, "root_reference", StringAttr(root))
        _set(self, "nested_references", _NO_NAMES)
        return
    inside = ArrayAttr([StringAttr(name) if isinstance(name, str) else name for name in nested]) if nested else _NO_NAMES
    _hold(self, StringAttr(root) if isinstance(root, str) else root, inside)


_NO_NAMES = ArrayAttr[StringAttr](())


def _same_or(equal: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def equals(self: Any, other: Any) -> bool:
        return self is other or equal(self, other)

    return equals


@lru_cache(maxsize=1 << 12)
def _function_type(inputs: tuple[Attribute, ...], outputs: tuple[Attribute, ...]) -> FunctionType:
    return _function_type_of(inputs, outputs)


def _from_lists(inputs: Iterable[Attribute], outputs: Iterable[Attribute]) -> FunctionType:
    return _function_type(tuple(inputs), tuple(outputs))


def _values(self: Any) -> tuple[Any, ...]:
    try:
        return self._values
    except AttributeError:
        _set(self, "_values", known := _unpacked(self))
        return known


def _shape(self: Any) -> tuple[int, ...]:
    try:
        return self._shape
    except AttributeError:
        _set(self, "_shape", known := tuple([size.data for size in self.shape.data]))
        return known


_set = object.__setattr__
_function_type_of = FunctionType.from_lists
_unpacked: Any = cast(Any, DenseArrayBase).get_values


def change_attributes() -> None:
    """Hashes, numbers of arrays, sizes of types and affine maps are made once."""
    for kind in with_derived(Attribute):
        if own := kind.__dict__.get("__hash__"):
            cast(Any, kind).__hash__ = _hashed_once(_of_its_class(own))
        if own := kind.__dict__.get("__eq__"):
            cast(Any, kind).__eq__ = _same_or(own)
    for kind in (AffineMap, *with_derived(AffineExpr)):
        if own := kind.__dict__.get("__hash__"):
            cast(Any, kind).__hash__ = _hashed_once(own)
    for kind, name in ((AffineMap, "identity"), (AffineExpr, "dimension")):
        setattr(kind, name, staticmethod(lru_cache(maxsize=1 << 10)(getattr(kind, name))))
    cast(Any, AffineMap).compose = lru_cache(maxsize=1 << 12)(AffineMap.compose)
    cast(Any, ParametrizedAttribute).__init__, cast(Any, SymbolRefAttr).__init__ = _hold, _refer
    cast(Any, FunctionType).from_lists = staticmethod(_from_lists)
    cast(Any, DenseArrayBase).get_values = _values
    for kind in (TensorType, MemRefType, VectorType):
        cast(Any, kind).get_shape = _shape

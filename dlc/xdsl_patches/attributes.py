"""Attributes that cache their hashes, array values and shapes in fields; `__dict__` caches would cost a dictionary each."""

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

from dlc.xdsl_patches.type_checks import with_derived


def _hash_once(compute: Callable[[Any], int]) -> Callable[[Any], int]:
    def hash_of(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            _set(self, "_hash", value := compute(self))
            return value

    return hash_of


def _hash_with_class(compute: Callable[[Any], int]) -> Callable[[Any], int]:
    """Include the class in the hash of an attribute; attributes without parameters would all have the hash of ()."""

    def hash_of(self: object) -> int:
        return hash((type(self), compute(self)))

    return hash_of


def _initialize(self: ParametrizedAttribute, *parameters: Any) -> None:
    """Set the parameters of an attribute, with the converters of its class."""
    for (name, converter), parameter in zip(_fields(type(self)), parameters, strict=True):
        _set(self, name, parameter if converter is None else converter(parameter))
    self.__post_init__()


@cache
def _fields(cls: type[ParametrizedAttribute]) -> Sequence[tuple[str, Callable[[Any], Attribute] | None]]:
    return [(name, parameter.converter) for name, parameter in cls.get_irdl_definition().parameters]


def _initialize_symbol_ref(self: SymbolRefAttr, root: str | StringAttr, nested: Sequence[Any] = ()) -> None:
    """Initialize a symbol reference; a fast path for a name without nested names."""
    if not nested and isinstance(root, str):
        _set(self, "root_reference", StringAttr(root))
        _set(self, "nested_references", _NO_NESTED_NAMES)
        return
    names = ArrayAttr([StringAttr(name) if isinstance(name, str) else name for name in nested]) if nested else _NO_NESTED_NAMES
    _initialize(self, StringAttr(root) if isinstance(root, str) else root, names)


_NO_NESTED_NAMES = ArrayAttr[StringAttr](())


def _identical_or(equal: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
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
        _set(self, "_values", values := _get_values(self))
        return values


def _shape(self: Any) -> tuple[int, ...]:
    try:
        return self._shape
    except AttributeError:
        _set(self, "_shape", shape := tuple([size.data for size in self.shape.data]))
        return shape


_set = object.__setattr__
_function_type_of = FunctionType.from_lists
_get_values: Any = cast(Any, DenseArrayBase).get_values


def patch_attributes() -> None:
    """Compute hashes, array values, shapes and common affine maps once."""
    for cls in with_derived(Attribute):
        if method := cls.__dict__.get("__hash__"):
            cast(Any, cls).__hash__ = _hash_once(_hash_with_class(method))
        if method := cls.__dict__.get("__eq__"):
            cast(Any, cls).__eq__ = _identical_or(method)
    for cls in (AffineMap, *with_derived(AffineExpr)):
        if method := cls.__dict__.get("__hash__"):
            cast(Any, cls).__hash__ = _hash_once(method)
    for cls, name in ((AffineMap, "identity"), (AffineExpr, "dimension")):
        setattr(cls, name, staticmethod(lru_cache(maxsize=1 << 10)(getattr(cls, name))))
    cast(Any, AffineMap).compose = lru_cache(maxsize=1 << 12)(AffineMap.compose)
    cast(Any, ParametrizedAttribute).__init__, cast(Any, SymbolRefAttr).__init__ = _initialize, _initialize_symbol_ref
    cast(Any, FunctionType).from_lists = staticmethod(_from_lists)
    cast(Any, DenseArrayBase).get_values = _values
    for cls in (TensorType, MemRefType, VectorType):
        cast(Any, cls).get_shape = _shape

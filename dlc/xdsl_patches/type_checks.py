"""Faster `isinstance`, equality by identity for ops and values, and interned attributes."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, cast

from xdsl.dialects.builtin import NoneAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, Use
from xdsl.ir.affine import AffineExpr
from xdsl.irdl import IRDLOperation, VariadicDef

from dlc.xdsl_patches.memo_tables import memo_table

# The maximum number of interned attributes: most are names, which recur soon or never.
_MAX_SHARED_ATTRIBUTES = 1 << 12


class _PlainMeta(ABCMeta):
    """The metaclass of abstract classes without registered virtual subclasses; `isinstance` is that of ordinary classes."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class _SharedMeta(_PlainMeta):
    """The metaclass of interned attributes: equal parameters give the same object while it is in the table."""

    def __call__(cls, *parameters: Any) -> Any:
        try:
            attribute = _shared.get((cls, parameters))
        except TypeError:  # An unhashable parameter, such as a list of names.
            return super().__call__(*parameters)
        if attribute is None:
            if len(_shared) >= _MAX_SHARED_ATTRIBUTES:
                _shared.clear()
            attribute = _shared[cls, parameters] = super().__call__(*parameters)
        return attribute


# The interned attributes.
_shared: dict[tuple[type, tuple[Any, ...]], Any] = memo_table()


def with_derived(base: type) -> Sequence[type]:
    """Return a class and all classes that derive from it, without duplicates."""
    classes = [base]
    for cls in classes:
        classes += [derived for derived in type.__subclasses__(cls) if derived not in classes]
    return classes


def store_as_field(cls: type, name: str, field: str) -> None:
    """Replace a property that reads a field by a field of the property's name, which is read far more often than it is set.

    The old name of the field becomes a property that reads and sets the new one.
    """

    def set_value(self: Any, value: Any) -> None:
        setattr(self, name, value)

    if name in cls.__dict__:
        delattr(cls, name)
    if field in cls.__dict__:
        setattr(cls, name, cls.__dict__[field])
    setattr(cls, field, property(attrgetter(name), set_value))


def patch_type_checks() -> None:
    """Make `isinstance` of xDSL's abstract classes as fast as of ordinary ones, and compare ops and values by identity."""
    for base in (Operation, SSAValue, Attribute, Block, Region, AffineExpr, VariadicDef):
        for derived in with_derived(base):
            if type(derived) is ABCMeta:
                derived.__class__ = _PlainMeta
    for cls in (Operation, IRDLOperation, Block, Region, SSAValue, Use):
        cast(Any, cls).__hash__, cast(Any, cls).__eq__ = object.__hash__, object.__eq__
    for attribute_class in (NoneAttr, StringAttr, SymbolRefAttr):
        cast(Any, attribute_class).__class__ = _SharedMeta

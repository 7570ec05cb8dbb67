"""Whose instance something of xDSL is, and which of its objects are one and the same."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, cast

from xdsl.dialects.builtin import NoneAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, Use
from xdsl.ir.affine import AffineExpr
from xdsl.irdl import IRDLOperation, VariadicDef

from dlc.xdsl_changes.remembered import remembered

# How many attributes are remembered that may be made anew: most are names, which are asked for again soon or never.
_MOST_SHARED = 1 << 12


class _PlainMeta(ABCMeta):
    """Abstract classes whose instances are those of the classes that derive from them, and no registered ones besides."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class _SharedMeta(_PlainMeta):
    """Attributes of a text, or of such ones, that are one object as long as they are made of the same."""

    def __call__(cls, *parameters: Any) -> Any:
        try:
            known = _shared.get((cls, parameters))
        except TypeError:  # a list of names
            return super().__call__(*parameters)
        if known is None:
            if len(_shared) >= _MOST_SHARED:
                _shared.clear()
            known = _shared[cls, parameters] = super().__call__(*parameters)
        return known


# What was made last by the classes of shared attributes.
_shared: dict[tuple[type, tuple[Any, ...]], Any] = remembered()


def with_derived(base: type) -> Sequence[type]:
    """A class and those that derive from it, however far, each once."""
    found = [base]
    for kind in found:
        found += [derived for derived in type.__subclasses__(kind) if derived not in found]
    return found


def keep_as(kind: type, name: str, field: str) -> None:
    """Makes what a class has as a field, and as a property that reads it, a field by the property's name: it is read far more
    often than it is set. By the field's old name it is read and set as before."""

    def put(self: Any, value: Any) -> None:
        setattr(self, name, value)

    if name in kind.__dict__:
        delattr(kind, name)
    if field in kind.__dict__:
        setattr(kind, name, kind.__dict__[field])
    setattr(kind, field, property(attrgetter(name), put))


def change_classes() -> None:
    """`isinstance` of xDSL's abstract classes is that of others; ops and values are told apart as objects are."""
    for base in (Operation, SSAValue, Attribute, Block, Region, AffineExpr, VariadicDef):
        for derived in with_derived(base):
            if type(derived) is ABCMeta:
                derived.__class__ = _PlainMeta
    for same in (Operation, IRDLOperation, Block, Region, SSAValue, Use):
        cast(Any, same).__hash__, cast(Any, same).__eq__ = object.__hash__, object.__eq__
    for kind in (NoneAttr, StringAttr, SymbolRefAttr):
        cast(Any, kind).__class__ = _SharedMeta

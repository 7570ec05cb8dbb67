"""What is asked of ops and attributes: once for what is made of the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast, get_args

import xdsl.irdl
from xdsl.dialects.builtin import (
    ArrayAttr,
    ArrayOfConstraint,
    LocationAttr,
    LocationConstraint,
    LocationsArrayConstraint,
    NoneAttr,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.irdl import AnyAttr, AnyOf, BaseAttr, OpDef, ParamAttrDef, RangeOf, TypeVarConstraint

from dlc.xdsl_changes.remembered import remembered

# How much of what was found right is remembered.
_MOST_KNOWN = 1 << 16


def _check_new(self: Any) -> None:
    """What is asked of a new attribute: of one whose class asks nothing, nothing."""
    kind = self.__class__
    if kind not in _asks:
        _check_any_new(self)
        _asks[kind] = (kind._verify, kind.verify) != _asks_nothing
    elif _asks[kind]:
        self._verify()


_asks: dict[type, bool] = {}
_asks_nothing = (cast(Any, Attribute)._verify, Attribute.verify)


def _by_class(constraint: Any) -> Callable[[Any], bool] | None:
    """What tells by classes alone whether an attribute is right; None where more is asked."""
    if type(constraint) is AnyAttr:
        return lambda value: True
    if type(constraint) is BaseAttr:
        kind = constraint.attr
        return lambda value: isinstance(value, kind)
    if type(constraint) is AnyOf and all(type(one) is BaseAttr for one in constraint.attr_constrs):
        kinds = tuple(cast(Any, one).attr for one in constraint.attr_constrs)
        return lambda value: isinstance(value, kinds)
    if type(constraint) is TypeVarConstraint:
        return _by_class(constraint.base_constraint)
    if type(constraint) is LocationConstraint:
        return lambda value: isinstance(value, _LOCATIONS)
    if type(constraint) is LocationsArrayConstraint:
        return _array_of(_by_class(constraint.location_constraint))
    if type(constraint) is ArrayOfConstraint and type(constraint.elem_range_constraint) is RangeOf:
        return _array_of(_by_class(constraint.elem_range_constraint.constr))
    return None


def _array_of(each: Callable[[Any], bool] | None) -> Callable[[Any], bool] | None:
    return None if each is None else lambda value: type(value) is ArrayAttr and all(map(each, value.data))


_LOCATIONS = (*get_args(LocationAttr), NoneAttr)


def _verify_parametrized(self: ParametrizedAttribute) -> None:
    """The constraints of an attribute's parameters: by their classes where these say all, of others once for the same ones."""
    definition, checks = _checks(type(self))
    asked: list[Attribute] = []
    for name, right in checks:
        if right is None:
            asked.append(getattr(self, name))
        elif not right(getattr(self, name)):
            definition.verify(self)
    key = (id(definition), *map(id, asked))
    if asked and key not in _right:
        definition.verify(self)
        _note_right(key, tuple(asked))
    self.verify()


@cache
def _checks(kind: type[ParametrizedAttribute]) -> tuple[ParamAttrDef, Sequence[tuple[str, Callable[[Any], bool] | None]]]:
    definition = kind.get_irdl_definition()
    return definition, [(name, _by_class(parameter.constr)) for name, parameter in definition.parameters]


# What was found right of ops and attributes: a definition, and what they are made of, which stands for itself while it is here.
_right: dict[tuple[int | str, ...], tuple[Attribute, ...]] = remembered()


def _note_right(key: tuple[int | str, ...], held: tuple[Attribute, ...]) -> None:
    if len(_right) >= _MOST_KNOWN:
        _right.clear()
    _right[key] = held


def _verify(self: OpDef, op: Operation) -> None:
    """The constraints of an op; of one that has only types and properties, those that were not found right before."""
    if op.regions or op.successors or self.attributes:
        _verify_all(self, op)
        return
    named = op.properties
    held = (*[v.type for v in op.operands], *[v.type for v in op.results], *named.values())
    key = (id(self), len(op.operands), len(op.results), *named, *map(id, held))
    if key in _right:
        for trait in self.traits:
            trait.verify(op)
        return
    _verify_all(self, op)
    _note_right(key, held)


_check_any_new = Attribute.__post_init__
_verify_all = OpDef.verify


def change_verification() -> None:
    """An attribute is checked by its class where that says all; between two passes most ops stay as they are."""
    cast(Any, Attribute).__post_init__ = _check_new
    cast(Any, ParametrizedAttribute)._verify = _verify_parametrized
    OpDef.verify = _verify
    # Where `isa` takes it from.
    cast(Any, xdsl.irdl).irdl_to_attr_constraint = cache(xdsl.irdl.irdl_to_attr_constraint)

"""Faster verification of ops and attributes: each combination of types and properties is verified once."""

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

from dlc.xdsl_patches.memo_tables import memo_table

# The maximum number of cached successful verifications.
_MAX_VERIFIED_ENTRIES = 1 << 16


def _check_new(self: Any) -> None:
    """Verify a new attribute; skip classes without a verifier."""
    cls = self.__class__
    if cls not in _has_verifier:
        _xdsl_post_init(self)
        _has_verifier[cls] = (cls._verify, cls.verify) != _NO_VERIFIER
    elif _has_verifier[cls]:
        self._verify()


_has_verifier: dict[type, bool] = {}
_NO_VERIFIER = (cast(Any, Attribute)._verify, Attribute.verify)


def _by_class(constraint: Any) -> Callable[[Any], bool] | None:
    """Return a predicate that checks a constraint by the class of an attribute alone; None if the class is not enough."""
    if type(constraint) is AnyAttr:
        return lambda value: True
    if type(constraint) is BaseAttr:
        cls = constraint.attr
        return lambda value: isinstance(value, cls)
    if type(constraint) is AnyOf and all(type(option) is BaseAttr for option in constraint.attr_constrs):
        classes = tuple(cast(Any, option).attr for option in constraint.attr_constrs)
        return lambda value: isinstance(value, classes)
    if type(constraint) is TypeVarConstraint:
        return _by_class(constraint.base_constraint)
    if type(constraint) is LocationConstraint:
        return lambda value: isinstance(value, _LOCATIONS)
    if type(constraint) is LocationsArrayConstraint:
        return _array_of(_by_class(constraint.location_constraint))
    if type(constraint) is ArrayOfConstraint and type(constraint.elem_range_constraint) is RangeOf:
        return _array_of(_by_class(constraint.elem_range_constraint.constr))
    return None


def _array_of(element_check: Callable[[Any], bool] | None) -> Callable[[Any], bool] | None:
    return None if element_check is None else lambda value: type(value) is ArrayAttr and all(map(element_check, value.data))


_LOCATIONS = (*get_args(LocationAttr), NoneAttr)


def _verify_parametrized(self: ParametrizedAttribute) -> None:
    """Verify the parameters of an attribute: by class where that suffices, else once per combination of parameters."""
    definition, checks = _checks(type(self))
    unchecked_parameters: list[Attribute] = []
    for name, has_right_class in checks:
        if has_right_class is None:
            unchecked_parameters.append(getattr(self, name))
        elif not has_right_class(getattr(self, name)):
            definition.verify(self)
    key = (id(definition), *map(id, unchecked_parameters))
    if unchecked_parameters and key not in _verified:
        definition.verify(self)
        _record_verified(key, tuple(unchecked_parameters))
    self.verify()


@cache
def _checks(cls: type[ParametrizedAttribute]) -> tuple[ParamAttrDef, Sequence[tuple[str, Callable[[Any], bool] | None]]]:
    definition = cls.get_irdl_definition()
    return definition, [(name, _by_class(parameter.constr)) for name, parameter in definition.parameters]


# Verified combinations: ids of a definition and of types and properties. The values reference these attributes, so that an id
# is not reused while its entry exists.
_verified: dict[tuple[int | str, ...], tuple[Attribute, ...]] = memo_table()


def _record_verified(key: tuple[int | str, ...], attributes: tuple[Attribute, ...]) -> None:
    if len(_verified) >= _MAX_VERIFIED_ENTRIES:
        _verified.clear()
    _verified[key] = attributes


def _verify(self: OpDef, op: Operation) -> None:
    """Verify the constraints of an op; one that has only types and properties is verified once per combination of these."""
    if op.regions or op.successors or self.attributes:
        _xdsl_verify(self, op)
        return
    properties = op.properties
    signature_attributes = (*[v.type for v in op.operands], *[v.type for v in op.results], *properties.values())
    key = (id(self), len(op.operands), len(op.results), *properties, *map(id, signature_attributes))
    if key in _verified:
        for trait in self.traits:
            trait.verify(op)
        return
    _xdsl_verify(self, op)
    _record_verified(key, signature_attributes)


_xdsl_post_init = Attribute.__post_init__
_xdsl_verify = OpDef.verify


def patch_verification() -> None:
    """Verify attributes by class where that suffices, and skip ops that are unchanged since their last verification."""
    cast(Any, Attribute).__post_init__ = _check_new
    cast(Any, ParametrizedAttribute)._verify = _verify_parametrized
    OpDef.verify = _verify
    # `isa` looks the function up in this module.
    cast(Any, xdsl.irdl).irdl_to_attr_constraint = cache(xdsl.irdl.irdl_to_attr_constraint)

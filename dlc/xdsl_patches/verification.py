"""Faster verification of ops and attributes: each combination of types and properties is verified once; memoized traits."""

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
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute
from xdsl.irdl import AnyAttr, AnyOf, BaseAttr, OpDef, ParamAttrDef, RangeOf, TypeVarConstraint
from xdsl.traits import IsolatedFromAbove, OpTrait
from xdsl.utils.exceptions import VerifyException

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
# Verified combinations by the values of types and properties.
_verified_signatures: dict[tuple[tuple[int | str, ...], tuple[Attribute, ...]], None] = memo_table()


def _record_verified(key: tuple[int | str, ...], attributes: tuple[Attribute, ...]) -> None:
    if len(_verified) >= _MAX_VERIFIED_ENTRIES:
        _verified.clear()
    _verified[key] = attributes


def _verify(self: OpDef, op: Operation) -> None:
    """Verify the constraints of an op once per combination of types, properties and attributes; verify its traits always."""
    properties, attributes, regions = op.properties, op.attributes, op.regions
    blocks = [region.first_block for region in regions]
    signature_attributes = (
        *[v.type for v in op.operands],
        *[v.type for v in op.results],
        *properties.values(),
        *attributes.values(),
        *[a.type for block in blocks if block is not None for a in block.args],
    )
    structure = (
        id(self),
        len(op.operands),
        len(op.results),
        len(op.successors),
        len(regions),
        *properties,
        len(attributes),
        *attributes,
        *[len(region.blocks) for region in regions],
        *[len(block.args) for block in blocks if block is not None],
    )
    key = (*structure, *map(id, signature_attributes))
    if key not in _verified:
        # Equal attributes are often other objects, which take longer to compare.
        signature = (structure, signature_attributes)
        if signature not in _verified_signatures:
            _xdsl_verify(self, op)
            if len(_verified_signatures) >= _MAX_VERIFIED_ENTRIES:
                _verified_signatures.clear()
            _verified_signatures[signature] = None
            _record_verified(key, signature_attributes)
            return
        _record_verified(key, signature_attributes)
    for verify_trait in _trait_verifiers(self):
        verify_trait(op)


def _trait_verifiers(definition: OpDef) -> Sequence[Callable[[Operation], None]]:
    """Return the verifiers of an op's traits, except the empty ones."""
    traits = definition.traits.traits
    known_traits, verifiers = _verifiers.get(id(definition), (None, ()))
    if known_traits is not traits:  # The first query, or a trait was added.
        verifiers = [trait.verify for trait in traits if type(trait).verify is not OpTrait.verify]
        _verifiers[id(definition)] = traits, verifiers
    return verifiers


# By the id of a definition. Its op class keeps it alive, and with it the id.
_verifiers: dict[int, tuple[frozenset[OpTrait], Sequence[Callable[[Operation], None]]]] = {}


def _verify_isolation(self: IsolatedFromAbove, op: Operation) -> None:
    """Verify that the ops in an op use only values defined in it; nested isolated ops verify their own."""
    blocks = [block for region in op.regions for block in region.blocks]
    inner_blocks: set[object] = set(blocks)
    for block in blocks:
        for child in block.ops:
            for operand in child.operands:
                owner = operand.owner
                definition_block = owner if isinstance(owner, Block) else owner.parent
                if definition_block not in inner_blocks and (owner is op or not op.is_ancestor(owner)):
                    raise VerifyException(f"Operation using value defined out of its IsolatedFromAbove parent: {child}")
            if child.regions and not child.has_trait(IsolatedFromAbove):
                nested_blocks = [nested for region in child.regions for nested in region.blocks]
                blocks += nested_blocks
                inner_blocks.update(nested_blocks)


def _get_trait(cls: Any, trait: Any) -> Any:
    """Return a trait of an op class, by its class or value; memoized."""
    traits = cls.traits.traits
    key = traits, trait
    try:
        return _found_traits[key]
    except KeyError:
        if len(_found_traits) >= _MAX_VERIFIED_ENTRIES:
            _found_traits.clear()
        found = _found_traits[key] = _xdsl_get_trait(cls, trait)
        return found


_found_traits: dict[tuple[frozenset[OpTrait], object], OpTrait | None] = {}
_xdsl_post_init = Attribute.__post_init__
_xdsl_verify = OpDef.verify
_xdsl_get_trait: Any = cast(Any, Operation.get_trait).__func__


def patch_verification() -> None:
    """Install the patches: verify attributes by class where that suffices, and each signature of an op once; memoize traits."""
    cast(Any, Attribute).__post_init__ = _check_new
    cast(Any, ParametrizedAttribute)._verify = _verify_parametrized
    OpDef.verify = _verify
    IsolatedFromAbove.verify = _verify_isolation
    cast(Any, Operation).get_trait = classmethod(_get_trait)
    # `isa` looks the function up in this module.
    cast(Any, xdsl.irdl).irdl_to_attr_constraint = cache(xdsl.irdl.irdl_to_attr_constraint)

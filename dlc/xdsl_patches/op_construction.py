"""Faster construction of ops and access to their operands and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, cast

import xdsl.irdl.operations
from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue, Use
from xdsl.ir.core import IRWithName, SSAValues
from xdsl.irdl import IRDLOperation, OpDef, OptionalDef, VariadicDef
from xdsl.irdl.operations import BeforeVariadicSingleAccessor, VarIRConstruct

from dlc.xdsl_patches.type_checks import store_as_field


def initialize(
    self: Any,
    *,
    operands: Iterable[SSAValue] = (),
    result_types: Sequence[Attribute] = (),
    properties: Mapping[str, Attribute] = {},
    attributes: Mapping[str, Attribute] = {},
    location: Any = None,
    successors: Sequence[Block] = (),
    regions: Sequence[Region] = (),
) -> None:
    if operands:
        operand_values: Any = SSAValues(operands)
        uses: list[Any] = []
        for operand in operand_values:
            use: Any = _allocate(Use)
            use._operation, use._index, use._prev_use = self, len(uses), None
            use._next_use = first = operand.first_use
            if first is not None:
                first._prev_use = use
            operand.first_use = use
            uses.append(use)
        self._operands, self._operand_uses = operand_values, tuple(uses)
    else:
        self._operands, self._operand_uses = _EMPTY_VALUES, ()
    if result_types:
        attach_results(self, result_types)
    else:
        self.results = _EMPTY_VALUES
    self.properties = dict(properties)
    self.attributes = dict(attributes)
    self.location = UNKNOWN_LOC if location is None else location
    if successors:
        self.successors = list(successors)
    self.regions = ()
    for region in regions:
        self.add_region(region)
    self.__post_init__()


def _create(cls: Any, **fields: Any) -> Any:
    op = cls.__new__(cls)
    initialize(op, **fields)
    return op


def attach_results(op: Any, types: Sequence[Attribute]) -> None:
    """Attach results of these types to a new op."""
    results: list[Any] = []
    for type_ in types:
        result: Any = _allocate(OpResult)
        result._name = result.first_use = None
        result.type, result.owner, result.index = type_, op, len(results)
        results.append(result)
    op.results = SSAValues(results) if results else _EMPTY_VALUES


def _flatten_arguments(arguments: Sequence[Any], definitions: Sequence[tuple[str, Any]], cls: type[Any]) -> list[Any] | None:
    """Return operands or regions as one list; None unless each definition has one argument (a sequence if it is variadic)."""
    if len(arguments) != len(definitions):
        return None
    flat: list[Any] = []
    for argument, (_, definition) in zip(arguments, definitions, strict=True):
        if isinstance(argument, cls):
            flat.append(argument)
        elif _is_variadic_argument(definition, argument) and all(map(cls.__instancecheck__, argument)):
            flat += argument
        else:
            return None
    return flat


def _is_variadic_argument(definition: Any, argument: Any) -> bool:
    return (
        isinstance(argument, list | tuple) and isinstance(definition, VariadicDef) and not isinstance(definition, OptionalDef)
    )


def _init_from_definition(self: Any, definition: OpDef, **fields: Any) -> None:
    """Initialize an op from the operands, results and regions of its definition; fall back to xDSL for other arguments."""
    operands = _flatten_arguments(fields["operands"], definition.operands, SSAValue)
    types = _flatten_arguments(fields["result_types"], definition.results, Attribute)
    regions = _flatten_arguments(fields["regions"], definition.regions, Region)
    if definition.options or fields["successors"] or operands is None or types is None or regions is None:
        _xdsl_init(self, definition, **fields)
        return
    nonempty_fields = (
        {name: value for name, value in fields[kind].items() if value is not None} for kind in ("properties", "attributes")
    )
    properties, attributes = nonempty_fields
    initialize(self, operands=operands, result_types=types, properties=properties, attributes=attributes, regions=regions)


@cache
def _defaults(
    op_class: type[IRDLOperation],
) -> tuple[tuple[tuple[str, Attribute], ...], tuple[tuple[str, Attribute], ...]] | None:
    """Return the default values of the properties and attributes of an op class; None if it has none."""
    assert op_class.name
    definition = op_class.get_irdl_definition()

    def default_values(definitions: Mapping[str, Any]) -> tuple[tuple[str, Attribute], ...]:
        required = ((name, d.default_value) for name, d in definitions.items() if not isinstance(d, OptionalDef))
        return tuple((name, value) for name, value in required if value is not None)

    properties, attributes = default_values(definition.properties), default_values(definition.attributes)
    return (properties, attributes) if properties or attributes else None


def _add_default_values(self: IRDLOperation) -> None:
    defaults = _defaults(self.__class__)
    if defaults is not None:
        for name, value in defaults[0]:
            self.properties.setdefault(name, value)
        for name, value in defaults[1]:
            self.attributes.setdefault(name, value)
    # xDSL replaces `__post_init__` while an implicit builder is active.
    current = Operation.__post_init__
    if current is not _post_init:
        current(self)


_OPERAND, _RESULT = VarIRConstruct.OPERAND, VarIRConstruct.RESULT


def _get_single(self: Any, op: Any, kind: Any = None) -> Any:
    """Return the operand or result of an accessor that no variadic definition precedes."""
    if self.construct is _OPERAND:
        return _item_of(op._operands, self.idx)
    if self.construct is _RESULT:
        return _item_of(op.results, self.idx)
    return _xdsl_single(self, op, kind)


def _get_item(self: Any, index: Any) -> Any:
    item: Any = _item_of(self, index)
    return _values_of(item) if type(item) is tuple else item


def _set_item(self: Any, index: int, value: Any) -> None:
    """Replace an operand of the op that owns this tuple of operands."""
    index = range(len(self))[index]
    old = self[index]
    (use,) = (use for use in old.uses if use._index == index and use._operation._operands is self)
    old.remove_use(use)
    value.add_use(use)
    use._operation._operands = SSAValues([*self[:index], value, *self[index + 1 :]])


def _replace_all_uses(self: Any, value: Any) -> None:
    if value is self:
        return
    use = self.first_use
    while use is not None:
        next_use, op = use._next_use, use._operation
        operands = list(op._operands)
        operands[use._index] = value
        op._operands = SSAValues(operands)
        value.add_use(use)
        use = next_use
    self.first_use = None
    if value._name is None:
        value._name = self._name


# Creates instances whose fields the caller sets.
_allocate: Any = object.__new__
_EMPTY_VALUES: Any = SSAValues()
_values_of: Any = SSAValues
_post_init: Any = Operation.__post_init__
_item_of = cast(Any, tuple).__getitem__
_xdsl_init: Any = xdsl.irdl.operations.irdl_op_init
_xdsl_single: Any = cast(Any, BeforeVariadicSingleAccessor).__get__
_valid_name: Any = cast(Any, IRWithName.extract_valid_name).__func__


def patch_op_construction() -> None:
    """Construct ops in one step, store operands as a plain tuple, and cache the validation of name hints."""
    cast(Any, xdsl.irdl.operations).irdl_op_init = _init_from_definition
    cast(Any, Operation).__init__, cast(Any, Operation).create = initialize, classmethod(_create)
    cast(Any, IRDLOperation).__post_init__ = _add_default_values
    cast(Any, BeforeVariadicSingleAccessor).__get__ = _get_single
    cast(Any, SSAValues).__getitem__, cast(Any, SSAValues).__setitem__ = _get_item, _set_item
    cast(Any, Operation).operands = property(attrgetter("_operands"), cast(Any, Operation).operands.fset)
    delattr(SSAValue, "owner")
    for cls, name, field in ((SSAValue, "type", "_type"), (OpResult, "owner", "op"), (BlockArgument, "owner", "block")):
        store_as_field(cls, name, field)
    cast(Any, SSAValue).replace_all_uses_with = _replace_all_uses
    cast(Any, IRWithName).extract_valid_name = classmethod(lru_cache(maxsize=1 << 14)(_valid_name))

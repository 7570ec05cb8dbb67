"""How an op is made, and what it reads and makes is found: without going through all that an op could be."""

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

from dlc.xdsl_changes.classes import keep_as


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
        read: Any = SSAValues(operands)
        uses: list[Any] = []
        for operand in read:
            use: Any = _new(Use)
            use._operation, use._index, use._prev_use = self, len(uses), None
            use._next_use = first = operand.first_use
            if first is not None:
                first._prev_use = use
            operand.first_use = use
            uses.append(use)
        self._operands, self._operand_uses = read, tuple(uses)
    else:
        self._operands, self._operand_uses = _NO_VALUES, ()
    if result_types:
        give_results(self, result_types)
    else:
        self.results = _NO_VALUES
    self.properties = dict(properties)
    self.attributes = dict(attributes)
    self.location = UNKNOWN_LOC if location is None else location
    if successors:
        self.successors = list(successors)
    self.regions = ()
    for region in regions:
        self.add_region(region)
    self.__post_init__()


def _create(cls: Any, **given: Any) -> Any:
    op = cls.__new__(cls)
    initialize(op, **given)
    return op


def give_results(op: Any, types: Sequence[Attribute]) -> None:
    """Gives a new op results of these types."""
    results: list[Any] = []
    for type_ in types:
        result: Any = _new(OpResult)
        result._name = result.first_use = None
        result.type, result.owner, result.index = type_, op, len(results)
        results.append(result)
    op.results = SSAValues(results) if results else _NO_VALUES


def _flat(given: Sequence[Any], defined: Sequence[tuple[str, Any]], kind: type[Any]) -> list[Any] | None:
    """Operands or regions in one list; None for those that are not all there, each where one belongs, all where several do."""
    if len(given) != len(defined):
        return None
    flat: list[Any] = []
    for one, (_, definition) in zip(given, defined, strict=True):
        if isinstance(one, kind):
            flat.append(one)
        elif _takes_several(definition, one) and all(map(kind.__instancecheck__, one)):
            flat += one
        else:
            return None
    return flat


def _takes_several(definition: Any, given: Any) -> bool:
    return isinstance(given, list | tuple) and isinstance(definition, VariadicDef) and not isinstance(definition, OptionalDef)


def _initialize_defined(self: Any, definition: OpDef, **given: Any) -> None:
    """An op of the operands, results and regions that its definition names; whatever is not simply there goes the long way."""
    operands = _flat(given["operands"], definition.operands, SSAValue)
    types = _flat(given["result_types"], definition.results, Attribute)
    regions = _flat(given["regions"], definition.regions, Region)
    if definition.options or given["successors"] or operands is None or types is None or regions is None:
        _initialize_any(self, definition, **given)
        return
    named = ({name: value for name, value in given[kind].items() if value is not None} for kind in ("properties", "attributes"))
    properties, attributes = named
    initialize(self, operands=operands, result_types=types, properties=properties, attributes=attributes, regions=regions)


@cache
def _defaults(kind: type[IRDLOperation]) -> tuple[tuple[tuple[str, Attribute], ...], tuple[tuple[str, Attribute], ...]] | None:
    """What the properties and the attributes of an op are where nothing is said; None where nothing is then."""
    assert kind.name
    definition = kind.get_irdl_definition()

    def stated(named: Mapping[str, Any]) -> tuple[tuple[str, Attribute], ...]:
        required = ((name, d.default_value) for name, d in named.items() if not isinstance(d, OptionalDef))
        return tuple((name, value) for name, value in required if value is not None)

    properties, attributes = stated(definition.properties), stated(definition.attributes)
    return (properties, attributes) if properties or attributes else None


def _fill_in(self: IRDLOperation) -> None:
    defaults = _defaults(self.__class__)
    if defaults is not None:
        for name, value in defaults[0]:
            self.properties.setdefault(name, value)
        for name, value in defaults[1]:
            self.attributes.setdefault(name, value)
    # What xDSL puts there while it builds the body of a named op.
    further = Operation.__post_init__
    if further is not _post_init:
        further(self)


_OPERAND, _RESULT = VarIRConstruct.OPERAND, VarIRConstruct.RESULT


def _single(self: Any, op: Any, kind: Any = None) -> Any:
    """An operand or a result before which all are single ones, by its name."""
    if self.construct is _OPERAND:
        return _item_of(op._operands, self.idx)
    if self.construct is _RESULT:
        return _item_of(op.results, self.idx)
    return _any_single(self, op, kind)


def _item(self: Any, index: Any) -> Any:
    item: Any = _item_of(self, index)
    return _values_of(item) if type(item) is tuple else item


def _set_item(self: Any, index: int, value: Any) -> None:
    """Another operand of the op whose operands these are: the one that reads the old one there."""
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
        following, op = use._next_use, use._operation
        operands = list(op._operands)
        operands[use._index] = value
        op._operands = SSAValues(operands)
        value.add_use(use)
        use = following
    self.first_use = None
    if value._name is None:
        value._name = self._name


# Of classes whose fields are all set then.
_new: Any = object.__new__
_NO_VALUES: Any = SSAValues()
_values_of: Any = SSAValues
_post_init: Any = Operation.__post_init__
_item_of = cast(Any, tuple).__getitem__
_initialize_any: Any = xdsl.irdl.operations.irdl_op_init
_any_single: Any = cast(Any, BeforeVariadicSingleAccessor).__get__
_valid_name: Any = cast(Any, IRWithName.extract_valid_name).__func__


def change_operations() -> None:
    """An op is made in one go; its operands are its tuple of them, not a view; what a hint asks for is found once."""
    cast(Any, xdsl.irdl.operations).irdl_op_init = _initialize_defined
    cast(Any, Operation).__init__, cast(Any, Operation).create = initialize, classmethod(_create)
    cast(Any, IRDLOperation).__post_init__ = _fill_in
    cast(Any, BeforeVariadicSingleAccessor).__get__ = _single
    cast(Any, SSAValues).__getitem__, cast(Any, SSAValues).__setitem__ = _item, _set_item
    cast(Any, Operation).operands = property(attrgetter("_operands"), cast(Any, Operation).operands.fset)
    delattr(SSAValue, "owner")
    for kind, name, field in ((SSAValue, "type", "_type"), (OpResult, "owner", "op"), (BlockArgument, "owner", "block")):
        keep_as(kind, name, field)
    cast(Any, SSAValue).replace_all_uses_with = _replace_all_uses
    cast(Any, IRWithName).extract_valid_name = classmethod(lru_cache(maxsize=1 << 14)(_valid_name))

"""What a compilation does a million times with xDSL 0.74, made as quick as it can be; what it means stays the same.

`isinstance` of xDSL's classes, which are abstract ones, is that of others; ops and values are told apart as objects are, and an
attribute's hash is found once; a walk over what is in an op goes through two generators, not three for each op around; an op is
made, and what it reads and makes is found, without going through all that an op could be; the numbers in an array and the sizes
of a type are unpacked once, a name is checked once, and what a hint asks for is found once. Names and references to them are
one object each, as identities are; maps are composed once; an op's operands are its tuple of them, not a view; what an
attribute is made of is checked by its class where that says all. Constraints of an op are checked once for the same types and
properties: between two passes most ops stay as they are.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, cast

import xdsl.irdl
import xdsl.irdl.operations
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    ArrayOfConstraint,
    DenseArrayBase,
    FunctionType,
    MemRefType,
    NoneAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    BlockOps,
    Operation,
    OpResult,
    ParametrizedAttribute,
    Region,
    SSAValue,
    Use,
)
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.ir.core import IRWithName, RegionBlocks, SSAValues
from xdsl.irdl import (
    AnyAttr,
    AnyOf,
    BaseAttr,
    IRDLOperation,
    OpDef,
    OptionalDef,
    ParamAttrDef,
    RangeOf,
    TypeVarConstraint,
    VariadicDef,
)
from xdsl.irdl.operations import BeforeVariadicSingleAccessor, VarIRConstruct


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
            if len(_shared) >= _MOST_KNOWN:
                _shared.clear()
            known = _shared[cls, parameters] = super().__call__(*parameters)
        return known


# What was made last by the classes of shared attributes.
_shared: dict[tuple[type, tuple[Any, ...]], Any] = {}
_MOST_KNOWN = 1 << 16


def _with_derived(base: type) -> Iterator[type]:
    yield base
    for derived in type.__subclasses__(base):
        yield from _with_derived(derived)


# Walks


def _ops(self: BlockOps) -> Iterator[Operation]:
    """The ops of a block; the one after an op is known before the op is handed out, which may go then."""
    following: Any = self.block.first_op
    while following is not None:
        op, following = following, following._next_op
        yield op


def _blocks(self: RegionBlocks) -> Iterator[Block]:
    """The blocks of a region; the one after a block is known once the next is asked for."""
    block: Any = cast(Any, self)._region._first_block
    while block is not None:
        yield block
        block = block._next_block


def _nested(op: Operation) -> Iterator[Operation]:
    for region in op.regions:
        for block in region.blocks:
            following: Any = block.first_op
            while following is not None:
                inner, following = following, following._next_op
                yield inner


def _walk(self: Operation, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_any(self, reverse=reverse, region_first=region_first)
        return
    yield self
    pending = [_nested(self)]
    while pending:
        for op in pending[-1]:
            yield op
            if op.regions:
                pending.append(_nested(op))
                break
        else:
            pending.pop()


# Ops


def _initialize(
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
    read: Any = SSAValues(operands)
    uses: Any = tuple([Use(self, k) for k in range(len(read))])
    self._operands, self._operand_uses = read, uses
    for operand, use in zip(read, uses, strict=True):
        use._next_use = first = operand.first_use
        if first is not None:
            first._prev_use = use
        operand.first_use = use
    self.results = SSAValues([OpResult(t, self, k) for k, t in enumerate(result_types)])
    self.properties = dict(properties)
    self.attributes = dict(attributes)
    self.location = UNKNOWN_LOC if location is None else location
    if successors:
        self.successors = list(successors)
    self.regions = ()
    for region in regions:
        self.add_region(region)
    self.__post_init__()


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
    _initialize(self, operands=operands, result_types=types, properties=properties, attributes=attributes, regions=regions)


@cache
def _defaults(kind: type[IRDLOperation]) -> tuple[tuple[tuple[str, Attribute], ...], tuple[tuple[str, Attribute], ...]]:
    """What the properties and the attributes of an op are where nothing is said."""
    definition = kind.get_irdl_definition()

    def stated(named: Mapping[str, Any]) -> tuple[tuple[str, Attribute], ...]:
        required = ((name, d.default_value) for name, d in named.items() if not isinstance(d, OptionalDef))
        return tuple((name, value) for name, value in required if value is not None)

    return stated(definition.properties), stated(definition.attributes)


def _fill_in(self: IRDLOperation) -> None:
    properties, attributes = _defaults(type(self))
    for name, value in properties:
        self.properties.setdefault(name, value)
    for name, value in attributes:
        self.attributes.setdefault(name, value)
    # What xDSL puts there while it builds the body of a named op.
    Operation.__post_init__(self)


def _clone_without_regions(
    self: Any,
    value_mapper: dict[SSAValue, SSAValue] | None = None,
    block_mapper: dict[Block, Block] | None = None,
    *,
    clone_name_hints: bool = True,
    clone_operands: bool = True,
) -> Any:
    """A copy of an op, whose results are noted; of one that has regions or successors the long way."""
    if self.regions or self._successors:
        named, operands = clone_name_hints, clone_operands
        return _clone_any(self, value_mapper, block_mapper, clone_name_hints=named, clone_operands=operands)
    values: Any = {} if value_mapper is None else value_mapper
    kind = cast(Any, type)(self)
    copy = kind.__new__(kind)
    _initialize(
        copy,
        operands=[values.get(v, v) for v in self._operands] if clone_operands else (),
        result_types=[r._type for r in self.results],
        properties=self.properties,
        attributes=self.attributes,
        location=self.location,
    )
    for old, new in zip(self.results, copy.results, strict=True):
        values[old] = new
        if clone_name_hints:
            new._name = old._name
    return copy


def _clone(
    self: Operation,
    value_mapper: dict[SSAValue, SSAValue] | None = None,
    block_mapper: dict[Block, Block] | None = None,
    *,
    clone_name_hints: bool = True,
    clone_operands: bool = True,
) -> Operation:
    """A copy of an op and of what is in it; of each op in one go, but for those that read what stands behind them."""
    if not clone_operands:
        return _clone_whole(self, value_mapper, block_mapper, clone_name_hints=clone_name_hints, clone_operands=False)
    values: dict[SSAValue, SSAValue] = {} if value_mapper is None else value_mapper
    blocks: dict[Block, Block] = {} if block_mapper is None else block_mapper
    early: list[tuple[Operation, Operation]] = []
    copy = _copied(self, values, blocks, clone_name_hints, early)
    for old, new in early:
        new.operands = [values.get(v, v) for v in old.operands]
    return copy


def _copied(
    op: Any,
    values: dict[SSAValue, SSAValue],
    blocks: dict[Block, Block],
    named: bool,
    early: list[tuple[Operation, Operation]],
) -> Any:
    known = all([v in values for v in op._operands])
    copy = op.clone_without_regions(values, blocks, clone_name_hints=named)
    if not known:
        early.append((op, copy))
    if not op.regions:
        return copy
    for region, new_region in zip(op.regions, copy.regions, strict=True):
        for block in region.blocks:
            new_block = blocks[block] = Block(arg_types=[a.type for a in block.args])
            new_region.add_block(new_block)
            for argument, new in zip(block.args, new_block.args, strict=True):
                values[argument], new.location = new, argument.location
                if named:
                    new.name_hint = argument.name_hint
        for block in region.blocks:
            add = blocks[block].add_op
            for inner in block.ops:
                add(_copied(inner, values, blocks, named, early))
    return copy


def _erase(self: Any, safe_erase: bool = True, drop_references: bool = True) -> None:
    """An op that is erased has no results any more: they know it, and circles wait for the collector of garbage."""
    assert self.parent is None, "Operation with parents should first be detached before erasure."
    if drop_references:
        self.drop_all_references()
    for result in self.results:
        if result.first_use is not None:
            result.erase(safe_erase=safe_erase)
    self.results = _NO_VALUES


def forget(op: Operation) -> None:
    """Takes apart what is in an op that nobody looks at any more: all of it goes at once, no circles wait for the collector."""
    for inner in cast(list[Any], list(op.walk())):
        for operand, use in zip(inner._operands, inner._operand_uses, strict=True):
            operand.remove_use(use)
        inner.results, inner._operands, inner._operand_uses = _NO_VALUES, _NO_VALUES, ()
        inner.parent = inner._prev_op = inner._next_op = None
        for block in [block for region in inner.regions for block in region.blocks]:
            block.parent, block._args = None, ()
        inner.regions = ()


class Kept:
    """Whoever has it keeps an op: when nobody has it any more, the op is forgotten."""

    def __init__(self, op: Operation) -> None:
        self._op = op

    def __del__(self) -> None:
        forget(self._op)


_NO_VALUES: Any = SSAValues()
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
    return cast(Any, SSAValues)(item) if type(item) is tuple else item


def _set_item(self: Any, index: int, value: Any) -> None:
    """Another operand of the op whose operands these are: the one that reads the old one there."""
    index = range(len(self))[index]
    old = self[index]
    (use,) = (use for use in old.uses if use._index == index and use._operation._operands is self)
    old.remove_use(use)
    value.add_use(use)
    use._operation._operands = SSAValues([*self[:index], value, *self[index + 1 :]])


# Values


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


# Attributes: what is asked of one by `__dict__` costs it a dictionary of its own.


def _hashed_once(compute: Callable[[Any], int]) -> Callable[[Any], int]:
    def hash_of(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            _set(self, "_hash", known := compute(self))
            return known

    return hash_of


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
    if type(constraint) is ArrayOfConstraint and type(constraint.elem_range_constraint) is RangeOf:
        each = _by_class(constraint.elem_range_constraint.constr)
        return None if each is None else lambda value: type(value) is ArrayAttr and all(map(each, value.data))
    return None


def _hold(self: ParametrizedAttribute, *parameters: Any) -> None:
    for (name, converter), parameter in zip(_fields(type(self)), parameters, strict=True):
        _set(self, name, parameter if converter is None else converter(parameter))
    self.__post_init__()


@cache
def _fields(kind: type[ParametrizedAttribute]) -> Sequence[tuple[str, Callable[[Any], Attribute] | None]]:
    return [(name, parameter.converter) for name, parameter in kind.get_irdl_definition().parameters]


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


def _refer(self: SymbolRefAttr, root: str | StringAttr, nested: Sequence[Any] = ()) -> None:
    """A reference to a name, and names in it."""
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


# What was found right of ops and attributes: a definition, and what they are made of, which stands for itself while it is here.
_right: dict[tuple[int | str, ...], tuple[Attribute, ...]] = {}


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


_set = object.__setattr__
_item_of = cast(Any, tuple).__getitem__
_clone_any: Any = Operation.clone_without_regions
_clone_whole: Any = Operation.clone
_walk_any = Operation.walk
_initialize_any: Any = xdsl.irdl.operations.irdl_op_init
_check_any_new = Attribute.__post_init__
_function_type_of = FunctionType.from_lists
_any_single: Any = cast(Any, BeforeVariadicSingleAccessor).__get__
_unpacked: Any = cast(Any, DenseArrayBase).get_values
_verify_all = OpDef.verify
_valid_name: Any = cast(Any, IRWithName.extract_valid_name).__func__


# What is there under another name.
_FIELDS: Sequence[tuple[Any, str, str]] = (
    (Operation, "next_op", "_next_op"),
    (Operation, "prev_op", "_prev_op"),
    (Block, "first_op", "_first_op"),
    (Block, "last_op", "_last_op"),
    (SSAValue, "type", "_type"),
    (OpResult, "owner", "op"),
    (BlockArgument, "owner", "block"),
)


def quicken() -> None:
    """Puts all of it in place; to be called once, before ops are defined elsewhere."""
    for base in (Operation, SSAValue, Attribute, Block, Region, AffineExpr, VariadicDef):
        for derived in _with_derived(base):
            if type(derived) is ABCMeta:
                derived.__class__ = _PlainMeta
    for kind in _with_derived(Attribute):
        if own := kind.__dict__.get("__hash__"):
            cast(Any, kind).__hash__ = _hashed_once(own)
        if own := kind.__dict__.get("__eq__"):
            cast(Any, kind).__eq__ = _same_or(own)
    for kind in (AffineMap, *_with_derived(AffineExpr)):
        if own := kind.__dict__.get("__hash__"):
            cast(Any, kind).__hash__ = _hashed_once(own)
    for kind, name in ((AffineMap, "identity"), (AffineExpr, "dimension")):
        setattr(kind, name, staticmethod(lru_cache(maxsize=1 << 10)(getattr(kind, name))))
    cast(Any, AffineMap).compose = lru_cache(maxsize=1 << 12)(AffineMap.compose)
    for same in (Operation, IRDLOperation, Block, Region, SSAValue, Use):
        cast(Any, same).__hash__, cast(Any, same).__eq__ = object.__hash__, object.__eq__
    for kind in (NoneAttr, StringAttr, SymbolRefAttr):
        cast(Any, kind).__class__ = _SharedMeta
    cast(Any, Attribute).__post_init__ = _check_new
    cast(Any, ParametrizedAttribute).__init__ = _hold
    cast(Any, ParametrizedAttribute)._verify, cast(Any, SymbolRefAttr).__init__ = _verify_parametrized, _refer
    cast(Any, FunctionType).from_lists = staticmethod(_from_lists)
    cast(Any, xdsl.irdl.operations).irdl_op_init = _initialize_defined
    OpDef.verify = _verify
    Operation.walk = _walk
    cast(Any, Operation).__init__ = _initialize
    cast(Any, IRDLOperation).__post_init__ = _fill_in
    cast(Any, Operation).clone_without_regions, cast(Any, Operation).clone = _clone_without_regions, _clone
    cast(Any, Operation).erase = _erase
    cast(Any, BeforeVariadicSingleAccessor).__get__ = _single
    cast(Any, SSAValues).__getitem__, cast(Any, SSAValues).__setitem__ = _item, _set_item
    cast(Any, Operation).operands = property(attrgetter("_operands"), cast(Any, Operation).operands.fset)
    for kind, name, field in _FIELDS:
        setattr(kind, name, property(attrgetter(field)))
    cast(Any, BlockOps).__iter__, cast(Any, RegionBlocks).__iter__ = _ops, _blocks
    cast(Any, SSAValue).replace_all_uses_with = _replace_all_uses
    cast(Any, IRWithName).extract_valid_name = classmethod(lru_cache(maxsize=1 << 14)(_valid_name))
    cast(Any, DenseArrayBase).get_values = _values
    for kind in (TensorType, MemRefType, VectorType):
        cast(Any, kind).get_shape = _shape
    # Where `isa` takes it from.
    cast(Any, xdsl.irdl).irdl_to_attr_constraint = cache(xdsl.irdl.irdl_to_attr_constraint)

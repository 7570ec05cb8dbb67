"""Copies of ops, and the end of those that nobody looks at any more."""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.core import SSAValues

from dlc.xdsl_changes.operations import initialize


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
    initialize(
        copy,
        operands=[values.get(v, v) for v in self._operands] if clone_operands else (),
        result_types=[r.type for r in self.results],
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
    """An op that is erased has no results any more, nor has what is in it: they know it, and circles wait for the collector."""
    assert self.parent is None, "Operation with parents should first be detached before erasure."
    results = self.results
    if not drop_references:
        self.results = _NO_VALUES
    elif self.regions:
        forget(self)
    elif self._successors:
        self.drop_all_references()
        self.results = _NO_VALUES
    else:
        for operand, use in zip(self._operands, self._operand_uses, strict=True):
            operand.remove_use(use)
        self._operand_uses, self.results = (), _NO_VALUES
    for result in results:
        if result.first_use is not None:
            result.erase(safe_erase=safe_erase)


def forget(op: Operation) -> None:
    """Takes apart what is in an op that nobody looks at any more: all of it goes at once, no circles wait for the collector."""
    for inner in cast(list[Any], list(op.walk())):
        for operand, use in zip(inner._operands, inner._operand_uses, strict=True):
            operand.remove_use(use)
        inner.results, inner._operands, inner._operand_uses = _NO_VALUES, _NO_VALUES, ()
        inner.parent = inner.prev_op = inner.next_op = None
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
_clone_any: Any = Operation.clone_without_regions
_clone_whole: Any = Operation.clone


def change_copying() -> None:
    """Copies of ops are made in one go, and what is erased is no part of a circle."""
    cast(Any, Operation).clone_without_regions, cast(Any, Operation).clone = _clone_without_regions, _clone
    cast(Any, Operation).erase = _erase

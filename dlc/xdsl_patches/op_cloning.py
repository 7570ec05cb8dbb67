"""Faster cloning and erasure of ops, and release of unused ops without reference cycles."""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.core import SSAValues

from dlc.xdsl_patches.op_construction import initialize


def _clone_without_regions(
    self: Any,
    value_mapper: dict[SSAValue, SSAValue] | None = None,
    block_mapper: dict[Block, Block] | None = None,
    *,
    clone_name_hints: bool = True,
    clone_operands: bool = True,
) -> Any:
    """Clone an op and record its results in `value_mapper`; ops with regions or successors use xDSL's implementation."""
    if self.regions or self._successors:
        return _xdsl_clone_without_regions(
            self, value_mapper, block_mapper, clone_name_hints=clone_name_hints, clone_operands=clone_operands
        )
    values: Any = {} if value_mapper is None else value_mapper
    cls = cast(Any, type)(self)
    copy = cls.__new__(cls)
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
    """Clone an op with its regions, in one pass; ops that read a value before it is cloned get their operands afterwards."""
    if not clone_operands:
        return _xdsl_clone(self, value_mapper, block_mapper, clone_name_hints=clone_name_hints, clone_operands=False)
    values: dict[SSAValue, SSAValue] = {} if value_mapper is None else value_mapper
    blocks: dict[Block, Block] = {} if block_mapper is None else block_mapper
    forward_references: list[tuple[Operation, Operation]] = []
    copy = _clone_nested(self, values, blocks, clone_name_hints, forward_references)
    for old, new in forward_references:
        new.operands = [values.get(v, v) for v in old.operands]
    return copy


def _clone_nested(
    op: Any,
    values: dict[SSAValue, SSAValue],
    blocks: dict[Block, Block],
    clone_name_hints: bool,
    forward_references: list[tuple[Operation, Operation]],
) -> Any:
    has_cloned_operands = all([v in values for v in op._operands])
    copy = op.clone_without_regions(values, blocks, clone_name_hints=clone_name_hints)
    if not has_cloned_operands:
        forward_references.append((op, copy))
    if not op.regions:
        return copy
    for region, new_region in zip(op.regions, copy.regions, strict=True):
        for block in region.blocks:
            new_block = blocks[block] = Block(arg_types=[a.type for a in block.args])
            new_region.add_block(new_block)
            for argument, new in zip(block.args, new_block.args, strict=True):
                values[argument], new.location = new, argument.location
                if clone_name_hints:
                    new.name_hint = argument.name_hint
        for block in region.blocks:
            add = blocks[block].add_op
            for inner in block.ops:
                add(_clone_nested(inner, values, blocks, clone_name_hints, forward_references))
    return copy


def _erase(self: Any, safe_erase: bool = True, drop_references: bool = True) -> None:
    """Erase an op and detach its results and nested ops, so that reference counting frees them without garbage collection."""
    assert self.parent is None, "Operation with parents should first be detached before erasure."
    results = self.results
    if not drop_references:
        self.results = _NO_VALUES
    elif self.regions:
        release_op(self)
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


def erase_op(op: Operation, *, is_unused: bool = True) -> None:
    """Remove an op from its block and erase it; `is_unused` requires that nothing uses its results."""
    op.detach()
    op.erase(safe_erase=is_unused)


def release_op(op: Operation) -> None:
    """Clear all references of an unused op and its nested ops, so that no cycles are left to the garbage collector."""
    for inner in cast(list[Any], list(op.walk())):
        for operand, use in zip(inner._operands, inner._operand_uses, strict=True):
            operand.remove_use(use)
        inner.results, inner._operands, inner._operand_uses = _NO_VALUES, _NO_VALUES, ()
        inner.parent = inner.prev_op = inner.next_op = None
        for block in [block for region in inner.regions for block in region.blocks]:
            block.parent, block._args = None, ()
        inner.regions = ()


class OpOwner:
    """Owns an op: the op is released when its owner is deleted."""

    def __init__(self, op: Operation) -> None:
        self._op = op

    def __del__(self) -> None:
        release_op(self._op)


_NO_VALUES: Any = SSAValues()
_xdsl_clone_without_regions: Any = Operation.clone_without_regions
_xdsl_clone: Any = Operation.clone


def patch_op_cloning() -> None:
    """Clone ops in one pass, and break the reference cycles of erased ops."""
    cast(Any, Operation).clone_without_regions, cast(Any, Operation).clone = _clone_without_regions, _clone
    cast(Any, Operation).erase = _erase

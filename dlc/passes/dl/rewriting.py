"""The forward rewrite driver and value queries that the `dl` passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite, DataDependent
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.control import Control, has_effect
from dlc.errors import CompileError
from dlc.ir import (
    ArrayAttr,
    Block,
    FusedLoc,
    LocationAttr,
    ModuleOp,
    NoneAttr,
    Operation,
    SSAValue,
    SubclassTest,
    UnknownLoc,
    contains_any,
    erase_op,
    func,
    ops_with_regions,
)
from dlc.shapes.dims import Size, is_static

Op = TypeVar("Op", bound=Operation)
_ERASABLE = SubclassTest((DlOp, Control))
# Maximum rewrites per op of a program; only rules that undo each other exceed it.
_MAX_REWRITES_PER_OP = 100
# A rule returns the values that replace an op's results, or None to keep the op. It inserts ops with `DlBuilder(op)`.
Rule = Callable[[Any], "Sequence[SSAValue] | None"]


def program_blocks(module: ModuleOp) -> Iterator[Block]:
    """Yield the bodies of the module's functions and of their nested loops and branches, outer ones first."""
    yield from nested_blocks(op.body.block for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks)


def nested_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield these blocks and those of nested loops and branches, outer ones first."""
    pending = list(blocks)
    while pending:
        block = pending.pop(0)
        yield block
        for op in ops_with_regions(block):
            if isinstance(op, Control):
                pending += op.blocks


def rewrite_forward(block: Block, rule: Rule, *kinds: type[DlOp]) -> None:
    """Apply `rule` to each `dl` op (of the given kinds, if any) in program order, including the ops that it inserts.

    Operands are therefore rewritten before their users. Producers that a replacement leaves unused are erased, so that a rule
    may rely on use counts. Raises CompileError if the rules do not reach a fixed point.
    """
    is_matching = SubclassTest(kinds := kinds or (DlOp,))
    op, rewrites, max_rewrites = block.first_op if contains_any(block, kinds) else None, 0, 0
    while op is not None:
        next_op = op.next_op
        if is_matching[op.__class__]:
            previous_op = op.prev_op
            values = rule(op)
            if values is not None:
                rewrites += 1
                if rewrites == _MAX_REWRITES_PER_OP:
                    max_rewrites = _MAX_REWRITES_PER_OP * (len(block.ops) + 1)
                if 0 < max_rewrites < rewrites:
                    raise CompileError(f"rewrite rules do not reach a fixed point at {op.name}, {op.location}")
                first_new = previous_op.next_op if previous_op is not None else block.first_op
                next_op = next_op if first_new is op else first_new
                replace(op, values)
        op = next_op


def replace(op: Operation, values: Sequence[SSAValue]) -> None:
    """Replace an op's results and erase it, together with producers that are then unused."""
    for old, new in zip(op.results, values, strict=True):
        # Sizes that a guard makes equal may be different polynomials.
        equal = new if old.type == new.type else DlBuilder(op)(ReshapeOp, new, shape=shape_of(old))
        assert old.type == equal.type, f"{op.name}: {old.type} replaced by {equal.type}"
        old.replace_all_uses_with(equal)
    erase_unused([op])


def decompose_in_place(op: Composite) -> Operation | None:
    """Replace an op by its decomposition; return the first op of it, or the op that followed if it is empty."""
    block, previous_op, next_op = op.parent, op.prev_op, op.next_op
    assert block is not None
    values = op.decompose(*op.operands)
    # The replacement may also erase the previous op, such as a constant that only this op read.
    first = previous_op.next_op if previous_op is not None else block.first_op
    replace(op, values)
    return next_op if first is op else first


def erase_unused(ops: Iterable[Operation]) -> None:
    """Erase the given `dl` ops, loops and branches that have no users, then their producers likewise.

    Ops without results stay: a branch without results exists for its failing body. Producers of data-dependent sizes stay:
    types and sizes of other ops may name these.
    """
    pending = list(ops)
    given = set(pending)
    while pending:
        op = pending.pop()
        if not _ERASABLE[op.__class__] or op.parent is None or not op.results:
            continue
        if not any([r.first_use for r in op.results]) and not has_effect(op) and (op in given or not defines_sizes(op)):
            read_values = dict.fromkeys([v for inner in op.walk() for v in inner.operands] if op.regions else op.operands)
            erase_op(op)
            pending += [owner for v in read_values if isinstance(owner := v.owner, Operation)]


def erase_dead_ops(block: Block) -> None:
    """Erase the ops of a block that have no users, as `erase_unused`; those that define data-dependent sizes stay."""
    erase_unused([op for op in block.ops if not defines_sizes(op)])


def defines_sizes(op: Operation) -> bool:
    """Return whether results of an op have data-dependent sizes; a selection has one even if static: the program checks it."""
    return isinstance(op, SelectionOp) or (isinstance(op, DataDependent) and not is_static(op.data_dependent_sizes))


def defining_op(value: SSAValue, op: type[Op]) -> Op | None:
    """Return the op that defines `value`, if it is of this class."""
    owner = value.owner
    return owner if isinstance(owner, op) else None


def users(value: SSAValue) -> set[Operation]:
    """Return the ops of the defining block that read `value`; a loop or branch represents the ops inside it."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return {ancestor(use.operation, block) for use in value.uses}


def ancestor(op: Operation, block: Block | None) -> Operation:
    """Return the op of `block` that is or contains `op`."""
    while op.parent is not block:
        outer = op.parent_op()
        assert outer is not None
        op = outer
    return op


def splat(value: SSAValue) -> int | float | None:
    """Return the value of a constant whose elements are all equal; None for other values."""
    constant = defining_op(value, ConstantOp)
    if constant is None or len(constant.value) == 0:
        return None
    raw, count = constant.value.data.data, len(constant.value)
    element = raw[: len(raw) // count]
    # Compare bits: 0.0 and -0.0 are different values.
    if raw != element * count:
        return None
    dtype = numpy_dtype(constant.value.type.element_type)
    return bool(element[0]) if dtype == np.bool_ else np.frombuffer(element, dtype)[0].item()


def is_unspecified(value: SSAValue) -> bool:
    """Return whether a value is an unspecified constant, on which no result of the program depends, or a broadcast of one."""
    broadcast = defining_op(value, BroadcastToOp)
    constant = defining_op(value if broadcast is None else broadcast.x, ConstantOp)
    return constant is not None and constant.unspecified is not None


def is_identity(permutation: Sequence[int]) -> bool:
    """Return whether a permutation is the identity."""
    return all(i == p for i, p in enumerate(permutation))


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse permutation."""
    axes = list(permutation)
    return tuple([axes.index(k) for k in range(len(axes))])


def reshaped(build: DlBuilder, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
    """Return `value` reshaped; folds with a reshape that produced it, and is `value` itself if the shape is the same."""
    inner = defining_op(value, ReshapeOp)
    if inner is not None:
        value = inner.x
    return value if shape_of(value) == tuple(shape) else build(ReshapeOp, value, shape=tuple(shape))


def transposed(build: DlBuilder, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
    """Return `value` with its axes permuted; folds with a transpose that produced it, and is `value` for the identity."""
    inner = defining_op(value, TransposeOp)
    if inner is not None:
        value, permutation = inner.x, tuple(inner.axes[a] for a in permutation)
    return value if is_identity(permutation) else build(TransposeOp, value, permutation=tuple(permutation))


def permutes_only_unit_axes(shape: Sequence[Size], permutation: Sequence[int]) -> bool:
    """Return whether a transpose keeps the order of the elements, so that a reshape does the same."""
    non_unit_axes = [a for a in permutation if shape[a] != 1]
    return non_unit_axes == sorted(non_unit_axes)


def fused_location(*ops: Operation) -> LocationAttr:
    """Return one location that lists the locations of several ops, without duplicates, in order."""
    locations: dict[LocationAttr, None] = {}
    for op in ops:
        match op.location:
            case FusedLoc(locations=inner):
                locations |= dict.fromkeys(cast("ArrayAttr[LocationAttr]", inner))
            case UnknownLoc():
                pass
            case location:
                locations[location] = None
    if len(locations) == 1:
        return next(iter(locations))
    return FusedLoc(ArrayAttr(list(locations)), NoneAttr()) if locations else UnknownLoc()

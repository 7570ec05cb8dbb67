"""What the `dl` passes share: one forward walk that rewrites as it goes, and questions about values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.control import Control, has_effect
from dlc.dims import Size, product
from dlc.errors import CompileError
from dlc.ir import (
    ArrayAttr,
    Block,
    Derived,
    FusedLoc,
    LocationAttr,
    ModuleOp,
    NoneAttr,
    Operation,
    SSAValue,
    UnknownLoc,
    func,
    holds_any,
    with_regions,
)

Op = TypeVar("Op", bound=Operation)
_ERASED = Derived((DlOp, Control))
# No program comes near: it is rules in a circle then.
_REWRITES_PER_OP = 100
# The values that replace an op's results, or None to keep the op. New ops go before the op (`Build(op)`).
Rule = Callable[[Any], "Sequence[SSAValue] | None"]


def program_blocks(module: ModuleOp) -> Iterator[Block]:
    """The bodies of the module's functions, and those of loops and branches in them, each after the one that it stands in."""
    yield from with_nested(op.body.block for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks)


def with_nested(blocks: Iterable[Block]) -> Iterator[Block]:
    """These bodies, and those of loops and branches in them, each after the one that it stands in."""
    pending = list(blocks)
    while pending:
        block = pending.pop(0)
        yield block
        for op in with_regions(block):
            if isinstance(op, Control):
                pending += op.blocks


def rewrite_forward(block: Block, rule: Rule, *kinds: type[DlOp]) -> None:
    """Applies `rule` to each `dl` op, of some kinds if they are said, in program order; ops that it makes get their turn before
    the walk goes on.

    Operands are therefore rewritten before their users. Producers that a replacement leaves without users are erased, so
    that a rule may ask whether a value has one use. Raises CompileError if rules undo one another without end.
    """
    asked = Derived(kinds := kinds or (DlOp,))
    op, rewrites, most = block.first_op if holds_any(block, kinds) else None, 0, 0
    while op is not None:
        following = op.next_op
        if asked[op.__class__]:
            before = op.prev_op
            values = rule(op)
            if values is not None:
                rewrites += 1
                if rewrites == _REWRITES_PER_OP:
                    most = _REWRITES_PER_OP * (len(block.ops) + 1)
                if 0 < most < rewrites:
                    raise CompileError(f"rewriting without end at {op.name}, {op.location}")
                first_new = before.next_op if before is not None else block.first_op
                following = following if first_new is op else first_new
                replace(op, values)
        op = following


def replace(op: Operation, values: Sequence[SSAValue]) -> None:
    """Replaces an op's results and erases it, together with producers that then have no users."""
    for old, new in zip(op.results, values, strict=True):
        assert old.type == new.type, f"{op.name}: {old.type} replaced by {new.type}"
        old.replace_all_uses_with(new)
    erase_unused([op])


def decompose_in_place(op: Composite) -> Operation | None:
    """Puts its decomposition in the place of an op; the op that comes there now: the first of it, or what followed."""
    block, before, following = op.parent, op.prev_op, op.next_op
    assert block is not None
    values = op.decompose(*op.operands)
    # What was before may be erased with the op, as the constant that only it has read.
    first = before.next_op if before is not None else block.first_op
    replace(op, values)
    return following if first is op else first


def erase_unused(ops: Iterable[Operation]) -> None:
    """Erases those of the `dl` ops, loops and branches whose results have no users, then their producers likewise.

    What has no results stays: a branch that is there for the error that its other body is.
    """
    pending = list(ops)
    while pending:
        op = pending.pop()
        if not _ERASED[op.__class__] or op.parent is None or not op.results:
            continue
        if not any([r.first_use for r in op.results]) and not has_effect(op):
            read = dict.fromkeys([v for inner in op.walk() for v in inner.operands] if op.regions else op.operands)
            op.detach()
            op.erase()
            pending += [owner for v in read if isinstance(owner := v.owner, Operation)]


def defining(value: SSAValue, op: type[Op]) -> Op | None:
    """The op that defines `value`, if it is of this class."""
    owner = value.owner
    return owner if isinstance(owner, op) else None


def users(value: SSAValue) -> set[Operation]:
    """The ops that read `value`, of the block that has it: a loop or branch stands for what is in it."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return {ancestor(use.operation, block) for use in value.uses}


def ancestor(op: Operation, block: Block | None) -> Operation:
    """The op of `block` that `op` is, or is inside of."""
    while op.parent is not block:
        outer = op.parent_op()
        assert outer is not None
        op = outer
    return op


def splat(value: SSAValue) -> int | float | None:
    """The number that every element of a constant is; None for other values."""
    constant = defining(value, ConstantOp)
    if constant is None or len(constant.value) == 0:
        return None
    raw, count = constant.value.data.data, len(constant.value)
    element = raw[: len(raw) // count]
    # Bits are compared: 0.0 and -0.0 are two numbers.
    if raw != element * count:
        return None
    dtype = numpy_dtype(constant.value.type.element_type)
    return bool(element[0]) if dtype == np.bool_ else np.frombuffer(element, dtype)[0].item()


def is_identity(permutation: Sequence[int]) -> bool:
    """Whether a permutation moves nothing."""
    return all(i == p for i, p in enumerate(permutation))


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes this one."""
    places = list(permutation)
    return tuple([places.index(k) for k in range(len(places))])


def reshaped(b: Build, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
    """`value` in another shape; itself if it has that shape, and the original of a reshape that had it."""
    inner = defining(value, ReshapeOp)
    if inner is not None:
        value = inner.x
    return value if shape_of(value) == tuple(shape) else b(ReshapeOp, value, shape=tuple(shape))


def transposed(b: Build, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
    """`value` with its axes permuted; composed with the transpose that made it, and none where nothing moves."""
    inner = defining(value, TransposeOp)
    if inner is not None:
        value, permutation = inner.x, tuple(inner.axes[a] for a in permutation)
    return value if is_identity(permutation) else b(TransposeOp, value, permutation=tuple(permutation))


def moves_unit_axes_only(shape: Sequence[Size], permutation: Sequence[int]) -> bool:
    """Whether a transpose leaves the order of the elements as it is: a reshape then."""
    moved = [a for a in permutation if shape[a] != 1]
    return moved == sorted(moved)


def reshape_groups(source: Sequence[Size], result: Sequence[Size]) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of adjacent source axes that a reshape makes groups of adjacent result axes of, in order.

    An axis of size 1 without a partner is a group with nothing on the other side. Symbolic sizes match equal ones only; the
    rest is one group, and so is all of an empty tensor.
    """
    if 0 in source:
        return [(list(range(len(source))), list(range(len(result))))]
    groups: list[tuple[list[int], list[int]]] = []
    i, j = 0, 0
    while i < len(source) or j < len(result):
        x, y = source[i] if i < len(source) else None, result[j] if j < len(result) else None
        if x == 1 and y != 1:
            groups.append(([i], []))
            i += 1
        elif y == 1 and x != 1:
            groups.append(([], [j]))
            j += 1
        else:
            first, second = i, j
            i, j = i + 1, j + 1
            while (left := product(source[first:i])) != (right := product(result[second:j])):
                # Symbols: no telling which axes belong together.
                if not isinstance(left, int) or not isinstance(right, int):
                    return [*groups, (list(range(first, len(source))), list(range(second, len(result))))]
                i, j = (i + 1, j) if left < right else (i, j + 1)
            groups.append((list(range(first, i)), list(range(second, j))))
    return groups


def fused_location(*ops: Operation) -> LocationAttr:
    """The origins of several ops as one location, each once, in order."""
    parts: dict[LocationAttr, None] = {}
    for op in ops:
        match op.location:
            case FusedLoc(locations=inner):
                parts |= dict.fromkeys(cast("ArrayAttr[LocationAttr]", inner))
            case UnknownLoc():
                pass
            case location:
                parts[location] = None
    if len(parts) == 1:
        return next(iter(parts))
    return FusedLoc(ArrayAttr(list(parts)), NoneAttr()) if parts else UnknownLoc()

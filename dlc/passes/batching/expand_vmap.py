"""Expand `dl.vmap` into ops on batched values."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, ints
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Composite, DataDependent
from dlc.dialects.dl.movement.index_checks import IndexedOp
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, VmapOp, add_batch_axis
from dlc.dialects.location_text import location_prefix
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import Block, IsTerminator, Operation, SSAValue, erase_op
from dlc.passes.batching import contractions, indexing, rules
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.control_flow import CONTROL
from dlc.passes.dl.rewriting import decompose_in_place
from dlc.plugins.tables import ExtensionTable

# Batching rules by op class or base class; the most derived one applies.
RULES: ExtensionTable[type, rules.Rule] = ExtensionTable(
    "batching_rules", {**rules.RULES, **contractions.RULES, **indexing.RULES}
)
# Ops of plug-ins that have no batching rule, with the reason.
NO_BATCHING: ExtensionTable[type[DlOp], str] = ExtensionTable("no_batching", {})


def expand_vmap(op: VmapOp) -> None:
    """Expand one `dl.vmap`, whose body has no other transformations than functions with custom derivative rules.

        %y = dl.vmap %x, %w {in_axes = [0, -1], …} { ^bb0(%row, %w): %p = dl.matmul %row, %w; dl.yield %p }
    →   %y = dl.matmul %x, %w

    Each op becomes one that computes the whole batch; unbatched values are computed once. Raises ShapeError for a batched
    result without an out axis, UnsupportedError for an op whose result sizes are data-dependent.
    """
    context = BatchingContext(op.batch_size, DlBuilder(op))
    for value, argument, axis in zip(op.arguments, op.block.args, ints(op.in_axes), strict=True):
        is_batched = axis != NOT_BATCHED
        context.map_value(argument, context.move_axis(value, axis, 0) if is_batched else value, is_batched)
    _batch(context, op.block)
    for k, (value, result, axis) in enumerate(zip(op.yielded, op.results, ints(op.out_axes), strict=True)):
        if axis == NOT_BATCHED and context.is_batched(value):
            problem = f"output {k} is batched (batch size {op.batch_size}), but its entry in out_axes is None"
            raise ShapeError(f"{location_prefix(op.location)}dlc.vmap: {problem}; give it an axis in out_axes")
        result.replace_all_uses_with(
            context.lookup(value) if axis == NOT_BATCHED else context.move_axis(context.with_batch_axis(value), 0, axis)
        )
    erase_op(op)


def _batch(context: BatchingContext, block: Block) -> None:
    """Batch the ops of a body."""
    op = block.first_op
    while op is not None and not op.has_trait(IsTerminator):
        with context.build.at_location(op.location):
            is_handled = _batch_op(context, op)
        if is_handled:
            op = op.next_op
            continue
        assert isinstance(op, Composite)
        op = decompose_in_place(op)


def _batch_op(context: BatchingContext, op: Operation) -> bool:
    """Batch an op; return False where its decomposition has to be batched instead."""
    if isinstance(op, IndexedOp) and op.is_checked and context.may_have_inactive:
        indices, is_batched = op.operands[1], context.reads_batched(op)
        with context.override(indices, indexing.mask_inactive_indices(context, indices, is_batched), is_batched):
            return _batch_plain(context, op)
    return _batch_plain(context, op)


def _batch_plain(context: BatchingContext, op: Operation) -> bool:
    control = CONTROL.get(type(op))
    is_batched = context.reads_batched(op)
    if control is not None and (is_batched or context.may_have_inactive):
        control(context, op, _batch)
        return True
    if not is_batched:
        copy = op.clone(context.mapping())
        context.build.insert(copy)
        context.map_values(op.results, copy.results, [False for _ in op.results])
        return True
    assert isinstance(op, DlOp)
    results = _results(context, op)
    if results is None:
        return False
    for old, new in zip(op.results, results, strict=True):
        assert new.type == add_batch_axis(old, 0, context.size), (
            f"{op.name}: {old.type} with batch {context.size} became {new.type}"
        )
        context.map_value(old, new, is_batched=True)
    return True


def _results(context: BatchingContext, op: DlOp) -> list[SSAValue] | None:
    """Return an op's batched results; None where its decomposition has to be batched instead."""
    if isinstance(op, DataDependent) and op.data_dependent_sizes:
        problem = f"{op.name} has data-dependent result sizes, which may differ between batch elements"
        raise UnsupportedError(f"{location_prefix(op.location)}dlc.vmap: {problem}; use a mask and static sizes")
    if context.size == 0:
        return [context.empty(r) for r in op.results]
    rule = next((RULES[c] for c in type(op).__mro__ if c in RULES), None)
    results = None if rule is None else rule(context, op)
    if results is None and not isinstance(op, Composite):
        reason = f": {NO_BATCHING[type(op)]}" if type(op) in NO_BATCHING else ""
        raise UnsupportedError(
            f"{location_prefix(op.location)}dlc.vmap: no batching rule for {op.name}{reason}; add one in dlc/passes/batching/, "
            "or to the batching_rules of its plug-in"
        )
    return None if results is None else list(results)

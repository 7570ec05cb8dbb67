"""`cse-kernels`: common subexpression and dead code elimination in kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from dlc.dialects.compress import CompressOp
from dlc.ir import Attribute, Block, Context, Operation, erase_op, func, memref, vector
from dlc.passes.base import KernelPass

# The hash key of a pure op: class, operands, properties, result types.
Key: TypeAlias = tuple[Any, ...]
_VECTOR_PURE = (vector.BroadcastOp, vector.ExtractOp, vector.FMAOp, vector.ReductionOp, vector.ShuffleOp, CompressOp)
_VIEWS = (memref.SubviewOp, memref.ReinterpretCastOp)
_READS = (memref.LoadOp, vector.TransferReadOp, memref.AllocaOp)
_PURE_DIALECTS = ("arith", "math")


@dataclass(frozen=True)
class CseKernelsPass(KernelPass):
    """Replace an op by an equal one that dominates it, and erase side-effect-free ops whose results are unused.

        %a = arith.addi %i, %c1;  %b = arith.addi %i, %c1;  %u = arith.constant 7   →   %a = arith.addi %i, %c1

    One forward walk with a table per scope, then one backward walk. Loads are erased when unused, but not merged.
    """

    name = "cse-kernels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _merge(kernel.body.block, {})
        erase_unused(kernel.body.block)


def is_pure(op: Operation) -> bool:
    """Return whether an op of the `loops` stage has no side effects and reads no memory."""
    return _is_pure(op.__class__)


@cache
def _is_pure(op_class: type[Operation]) -> bool:
    return op_class.name.partition(".")[0] in _PURE_DIALECTS or issubclass(op_class, _VECTOR_PURE + _VIEWS)


def _merge(block: Block, outer: dict[Key, Operation]) -> None:
    available = dict(outer) if block.parent_op() is not None and not isinstance(block.parent_op(), func.FuncOp) else outer
    for op in list(block.ops):
        if is_pure(op):
            earlier = available.setdefault(_key(op), op)
            if earlier is not op:
                for old, new in zip(op.results, earlier.results, strict=True):
                    old.replace_all_uses_with(new)
                erase_op(op)
        for region in op.regions:
            for inner in region.blocks:
                _merge(inner, available)


def _key(op: Operation) -> Key:
    properties: tuple[tuple[str, Attribute], ...] = tuple(sorted(op.properties.items(), key=lambda p: p[0]))
    results: tuple[Attribute, ...] = tuple([r.type for r in op.results])
    return (type(op), tuple(op.operands), properties, results)


def erase_unused(block: Block) -> None:
    """Erase ops without side effects whose results are unused."""
    for op in reversed(list(block.ops)):
        for region in op.regions:
            for inner in region.blocks:
                erase_unused(inner)
        if (is_pure(op) or isinstance(op, _READS)) and not any(r.first_use for r in op.results):
            erase_op(op)

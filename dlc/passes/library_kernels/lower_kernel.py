"""Lower kernels of one library op to loops on buffers."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import LibraryKernel, is_unsigned, storage_type
from dlc.dialects.dl.programs.program import KernelOp
from dlc.ir import func
from dlc.passes.library_kernels import matrix_factorizations
from dlc.passes.library_kernels.axis_scans import accumulate, arg_extremum
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.decision_trees import forest
from dlc.passes.library_kernels.loop_bodies import inline_body
from dlc.passes.library_kernels.non_max_suppression import non_max_suppression
from dlc.passes.library_kernels.rank_selection import select_ranks
from dlc.passes.library_kernels.sorting import smallest, sort_columns, sort_digits
from dlc.passes.library_kernels.true_indices import true_indices
from dlc.passes.linalg.buffer_functions import function_on_buffers
from dlc.passes.structured import ConstantPool, OpBuilder

# For each op, the function `rule(builder, op, *buffers)` that generates its loops, with a buffer per operand and result.
_RULES: dict[type[LibraryKernel], Callable[..., None]] = {
    dl.AccumulateOp: accumulate,
    dl.ArgExtremumOp: arg_extremum,
    dl.NetworkSortOp: sort_columns,
    dl.RadixSortOp: sort_digits,
    dl.SmallestKOp: smallest,
    dl.OrderStatisticsOp: select_ranks,
    dl.TreeEnsembleOp: forest,
    dl.TrueIndicesOp: true_indices,
    dl.LoopsOp: inline_body,
    dl.SuppressOverlapsOp: matrix_factorizations.batched(non_max_suppression),
    **{op: matrix_factorizations.batched(rule) for op, rule in matrix_factorizations.RULES.items()},
}


def match_library_kernel(kernel: KernelOp) -> LibraryKernel | None:
    """Return the op of a library kernel; None for other kernels."""
    return next((op for op in kernel.body.block.ops if isinstance(op, LibraryKernel)), None)


def lower_library_kernel(kernel: KernelOp, op: LibraryKernel) -> func.FuncOp:
    """Return the function of a library kernel; its arguments are the operands, the results, and the kernel's sizes.

    Raises UndecidableError for matrices of symbolic size; only the batch size may be symbolic.
    """
    function, arguments = function_on_buffers(kernel)
    builder = KernelBuilder(
        OpBuilder(ConstantPool(function), function.body.block, op.location), storage_type(element_type_of(op.operands[0]))
    )
    if any(0 not in shape_of(r) for r in op.results):
        values = (*op.operands, *op.results)
        _RULES[type(op)](builder, op, *(Buffer(builder, arguments[v], not is_unsigned(element_type_of(v))) for v in values))
    builder.op_builder.insert(func.ReturnOp())
    return function

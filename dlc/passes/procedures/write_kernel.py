"""A kernel whose op is a procedure, as loops on buffers."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import Procedure, is_unsigned, storage_type
from dlc.dialects.dl.programs.program import KernelOp
from dlc.ir import func
from dlc.passes.linalg.on_buffers import function_on_buffers
from dlc.passes.procedures import matrices
from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.places import places
from dlc.passes.procedures.ranks import of_ranks
from dlc.passes.procedures.rows import smallest, sort_columns, sort_digits
from dlc.passes.procedures.suppression import suppress
from dlc.passes.procedures.trees import forest
from dlc.passes.procedures.walks import accumulate, extreme_place
from dlc.passes.structured import Constants, Place

# What writes the loops of an op: `rule(code, op, *buffers)`, with a buffer for each operand and each result.
_RULES: dict[type[Procedure], Callable[..., None]] = {
    dl.AccumulateOp: accumulate,
    dl.ExtremePlaceOp: extreme_place,
    dl.SortColumnsOp: sort_columns,
    dl.SortDigitsOp: sort_digits,
    dl.SmallestOp: smallest,
    dl.OfRanksOp: of_ranks,
    dl.ForestOp: forest,
    dl.PlacesOp: places,
    dl.SuppressOp: matrices.along_problems(suppress),
    **{op: matrices.along_problems(rule) for op, rule in matrices.RULES.items()},
}


def procedure_of(kernel: KernelOp) -> Procedure | None:
    """The procedure that a kernel consists of, if it is one."""
    return next((op for op in kernel.body.block.ops if isinstance(op, Procedure)), None)


def written(kernel: KernelOp, op: Procedure) -> func.FuncOp:
    """The function on buffers of a kernel that consists of a procedure: its operands, its results, and sizes of the kernel.

    Raises UndecidableError for matrices of open sizes; how many they are may be open.
    """
    function, arguments = function_on_buffers(kernel)
    code = Code(Place(Constants(function), function.body.block, op.location), storage_type(element_type_of(op.operands[0])))
    if any(0 not in shape_of(r) for r in op.results):
        values = (*op.operands, *op.results)
        _RULES[type(op)](code, op, *(Buffer(code, arguments[v], not is_unsigned(element_type_of(v))) for v in values))
    code.place.insert(func.ReturnOp())
    return function

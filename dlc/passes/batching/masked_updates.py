"""Updates of rows in batched loops, masked by the batch elements that still run."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.movement.indexing import GatherOp, ScatterRowsOp
from dlc.ir import Block, SSAValue, i1

# The modes of updates that can be masked.
_MASKED_MODES = ("none", "add")


def mask_row_updates(parameters: Sequence[SSAValue], next_values: Sequence[SSAValue]) -> tuple[SSAValue, set[int]]:
    """Mask the updates of a loop's states that a step makes by changing some rows.

        %next = dl.scatter_rows %x, %i, %row   →   %old = dl.gather %x, %i;  %masked = dl.select %mask, %row, %old
                                                   %next = dl.scatter_rows %x, %i, %masked

    Returns the mask, which the caller defines, and the indices of these states: they do not change if the mask is false. A
    select of the whole state would take time for all of its rows.
    """
    (mask,), masked = Block(arg_types=[tensor_type((), i1)]).args, set[int]()
    for k, (parameter, value) in enumerate(zip(parameters, next_values, strict=True)):
        updates = _row_updates(parameter, value)
        for op in updates:
            op.operands[2] = _masked_update(op, mask)
        if updates:
            masked.add(k)
    return mask, masked


def _row_updates(parameter: SSAValue, value: SSAValue) -> list[ScatterRowsOp]:
    """Return the row updates that compute the next value of a state from its parameter; empty if other ops compute it."""
    updates: list[ScatterRowsOp] = []
    while value is not parameter:
        op = value.owner
        if not isinstance(op, ScatterRowsOp) or op.mode.data not in _MASKED_MODES or not value.has_one_use():
            return []
        if not isinstance(shape_of(op.x)[0], int) or not shape_of(op.x)[0]:
            return []
        updates.append(op)
        value = op.x
    return updates


def _masked_update(op: ScatterRowsOp, mask: SSAValue) -> SSAValue:
    build = DlBuilder(op)
    if op.mode.data == "add":
        element = element_type_of(op.x)
        # x + -0.0 is x for every float; -0.0 + 0.0 is 0.0.
        unchanged = build.scalar(-0.0 if is_float(element) else 0, like=op.x)
    else:
        names = ("checked", "in_bounds", "reported_axes")
        properties = {name: op.properties[name] for name in names if name in op.properties}
        unchanged = build(GatherOp, op.x, op.indices, axis=0, **properties)
    return build(SelectOp, mask, op.updates, unchanged)

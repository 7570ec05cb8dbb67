"""Slices of constants that a rank takes: its shards of sharded constants.

    %r = dl.axis_index                        %i = dl.constant {value = 1}
    %w = dl.weight @w                    →    %w = dl.weight @w
    %s = dl.gather (dl.reshape %w), %r        %s = dl.gather (dl.reshape %w), %i

For a known rank, constant folding evaluates the slice, so that the rank stores its shard only. Slices of other values keep the
index: simplification for one rank could remove a collective that other ranks run.
"""

from __future__ import annotations

from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.ir import ModuleOp, SSAValue, erase_op, walk_ops
from dlc.runtime.collectives.mesh import Mesh


def sliced_constants(module: ModuleOp) -> list[dl.GatherOp]:
    """Return the ops that slice a constant at the rank index."""
    is_constant: dict[SSAValue, bool] = {}

    def depends_on_constants_only(value: SSAValue) -> bool:
        if value not in is_constant:
            op = value.owner
            is_constant[value] = (
                isinstance(op, DlOp)
                and not isinstance(op, DataDependent)
                and not op.regions
                and all(map(depends_on_constants_only, op.operands))
            )
        return is_constant[value]

    slices = (op for op in walk_ops(module, dl.GatherOp) if isinstance(op.indices.owner, dl.AxisIndexOp))
    return [op for op in slices if depends_on_constants_only(op.x)]


def fix_rank_index(module: ModuleOp, mesh: Mesh, rank: int) -> None:
    """Replace the rank index of slices of constants by the position of one rank."""
    for op in sliced_constants(module):
        index = op.indices.owner
        assert isinstance(index, dl.AxisIndexOp)
        position = DlBuilder(op).scalar(mesh.position(rank, index.mesh_axes), like=op.indices)
        op.operands[list(op.operands).index(op.indices)] = position
        if not index.result.first_use:
            erase_op(index)


def constant_bytes(module: ModuleOp) -> tuple[int, int]:
    """Return the bytes of constants that a rank stores, and those of all constants."""
    slices = sliced_constants(module)
    sliced = {op.x.owner.x if isinstance(op.x.owner, dl.ReshapeOp) else op.x: op for op in slices}
    local = total = 0
    for weight in walk_ops(module, dl.WeightOp):
        total += _bytes_of(weight.result)
        readers = {use.operation for use in weight.result.uses}
        is_split = weight.result in sliced and all(isinstance(op, dl.ReshapeOp) for op in readers)
        local += _bytes_of(sliced[weight.result].result if is_split else weight.result)
    return local, total


def _bytes_of(value: SSAValue) -> int:
    return prod(map(int, shape_of(value))) * numpy_dtype(element_type_of(value)).itemsize

"""Ops at the boundary of `dlc.shard_map`: between global arrays and the shards on which a function runs on each rank.

A module has global values and per-rank values. Ops on global values describe the whole computation, and the partitioner
distributes them. Ops on per-rank values are the program of each rank already. Only `dl.to_shards` and `dl.from_shards` connect
the two.

Note [Varying axes]
A per-rank value varies along a mesh axis if ranks along this axis may have different values: a shard varies along the axes that
split it, and the result of an all_reduce does not vary along its axes. Derivatives depend on it: the cotangent of a value that
does not vary is the sum of the cotangents of all ranks that read it. `dl.vary` marks the readers at which this sum is needed.
Its transpose is an all_reduce, and the transpose of an all_reduce is `dl.vary`. `jax.shard_map` with `check_vma=True` has the
same rules in its types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar

from dlc.dialects.dl.arithmetic.pointwise import Unary
from dlc.dialects.dl.base import Array, Tensor, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.distributed.sharding import spec_of
from dlc.dialects.dl.interfaces import Body, DataDependent
from dlc.dialects.location_text import location_text
from dlc.errors import ShapeError
from dlc.ir import (
    ArrayAttr,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import Size


class ShardMapBoundary(DataDependent):
    """An op between a global array and the shards of the ranks of a mesh, such as `data=2,model=2`."""

    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    spec = prop_def(ArrayAttr[StringAttr])
    mesh = prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def mesh_axes(self) -> tuple[tuple[str, ...], ...]:
        """The mesh axes over which each axis is split."""
        return tuple(axes or () for axes in spec_of(self.spec))

    @property
    def split_axes(self) -> frozenset[str]:
        """The mesh axes over which the array is split."""
        return frozenset(name for axes in self.mesh_axes for name in axes)

    @property
    def parts(self) -> tuple[int, ...]:
        """The number of parts of each axis. Raises ShapeError unless `spec` has one entry per axis."""
        if len(self.spec) != rank_of(self.x):
            raise ShapeError(f"{self.name}: a spec of {len(self.spec)} entries for {rank_of(self.x)} axes (C1)")
        return tuple(map(Mesh.of_text(self.mesh.data).shard_count, self.mesh_axes))

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        label = f"{self.name} at {location_text(self.location)}"
        return {"spec": ";".join(map(" ".join, self.mesh_axes)), "is_split": prod(self.parts) > 1, "label": label}


@irdl_op_definition
class ToShardsOp(ShardMapBoundary):
    """This rank's shard of a global array.

        dl.to_shards %x {spec = ["data", ""], mesh = "data=2"} : (tensor<8x4xf32>) -> (tensor<4x4xf32>)

    (C1) `spec` has one entry per axis, with distinct axes of the mesh; (C2) the parts divide the sizes.
    """

    name = "dl.to_shards"

    def infer(self) -> Sequence[Tensor]:
        shape: list[Size] = []
        for size, parts in zip(shape_of(self.x), self.parts, strict=True):
            if isinstance(size, int) and size % parts:
                raise ShapeError(f"{self.name}: {shape_of(self.x)} in {self.parts} parts; expected multiples (C2)")
            shape.append(size // parts)
        return [tensor_type(shape, element_type_of(self.x))]


@irdl_op_definition
class FromShardsOp(ShardMapBoundary):
    """The global array of the shards of all ranks.

    Its ranks must have equal shards along mesh axes that `spec` does not name, which `passes/sharding` verifies.
    (C1) `spec` has one entry per axis, with distinct axes of the mesh.
    """

    name = "dl.from_shards"

    def infer(self) -> Sequence[Tensor]:
        shape = [size * parts for size, parts in zip(shape_of(self.x), self.parts, strict=True)]
        return [tensor_type(shape, element_type_of(self.x))]


@irdl_op_definition
class VaryOp(Unary):
    """`x`, as a value that varies along the mesh axes `axes`, in groups of `group_size` ranks; see Note [Varying axes]."""

    name = "dl.vary"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool", "storage-only")
    axes = prop_def(StringAttr)
    group_size = prop_def(IntegerAttr)

    def numpy(self, x: Array) -> Array:
        return x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return x

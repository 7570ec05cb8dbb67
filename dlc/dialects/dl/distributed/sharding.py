"""Sharding annotations: which axes of a tensor are split over which axes of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from dlc.dialects.dl.arithmetic.pointwise import Unary
from dlc.dialects.dl.base import Array, Tensor, rank_of
from dlc.dialects.dl.interfaces import Body
from dlc.errors import ShapeError
from dlc.ir import ArrayAttr, SSAValue, StringAttr, irdl_op_definition, prop_def

# For each axis of a tensor the mesh axes over which it is split, the outermost first; None leaves an axis to propagation.
PartialSpec: TypeAlias = Sequence[tuple[str, ...] | None]
_UNCONSTRAINED = "?"
# The attribute that stores the sharding of an argument or result of the entry.
SHARDING = "dl.sharding"
# The attributes of the program of a rank with its mesh, such as "data=2,model=2", and with the rank if it has constants of one.
MESH, RANK = "dl.mesh", "dl.rank"


def spec_attribute(spec: PartialSpec) -> ArrayAttr[StringAttr]:
    """Return the attribute that stores a spec: names of mesh axes separated by spaces, or `?` for an unconstrained axis."""
    return ArrayAttr([StringAttr(_UNCONSTRAINED if axes is None else " ".join(axes)) for axes in spec])


def spec_of(attribute: ArrayAttr[StringAttr]) -> tuple[tuple[str, ...] | None, ...]:
    """Return the spec that an attribute stores."""
    return tuple(None if axes.data == _UNCONSTRAINED else tuple(axes.data.split()) for axes in attribute)


def format_spec(spec: PartialSpec) -> str:
    """Format a spec as the arguments of `dlc.P`."""

    def entry(axes: tuple[str, ...] | None) -> str:
        if axes is None:
            return "P.UNCONSTRAINED"
        return "None" if not axes else repr(axes[0]) if len(axes) == 1 else repr(axes)

    return f"({', '.join(map(entry, spec))})"


@irdl_op_definition
class ShardOp(Unary):
    """`x`, with an annotation: `spec` has the mesh axes over which each axis is split.

        dl.shard %x {spec = ["data", "", "?"]} : (tensor<8x4x2xf32>) -> (tensor<8x4x2xf32>)

    An entry names mesh axes, the outermost first, separated by spaces; the empty text means that the axis is replicated, and
    `?` leaves it to propagation. Without a mesh the op is the identity.
    (C1) `spec` has one entry per axis of `x`.
    """

    name = "dl.shard"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool", "storage-only")
    spec = prop_def(ArrayAttr[StringAttr])

    def infer(self) -> Sequence[Tensor]:
        if len(self.spec) != rank_of(self.x):
            raise ShapeError(f"{self.name}: a spec of {len(self.spec)} entries for {rank_of(self.x)} axes (C1)")
        return super().infer()

    def numpy(self, x: Array) -> Array:
        return x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return x

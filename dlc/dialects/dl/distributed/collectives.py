"""Collectives: ops that exchange data between the ranks of a mesh.

A collective involves the ranks of a group, which differ in their coordinates along `axes` of the mesh only. They are numbered
by position, row-major with the first of `axes` outermost. All ranks of a group run the same collectives in the same order on
tensors of the same type. The partitioner creates these ops (`passes/sharding`); the functions of the same names in
`runtime/collectives/operations.py` run them on the transport of the rank.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from dlc.arrays import format_type
from dlc.dialects.dl.arithmetic.pointwise import widen_array
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_of,
    tensor_type,
)
from dlc.dialects.dl.dtypes import is_bool, numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.location_text import location_text
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    TensorType,
    VerifyException,
    i64,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import product

_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Collective(DataDependent):
    """An op that all ranks of a group run together: each has its operand and its result.

    `axes` are names of mesh axes separated by spaces, `group_size` is the number of ranks along them. A group of one rank
    exchanges nothing.
    """

    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    axes = prop_def(StringAttr)
    group_size = prop_def(IntegerAttr)

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        return tuple(self.axes.data.split())

    @property
    def ranks(self) -> int:
        """The number of ranks of a group."""
        return int(number(self.group_size))

    @property
    def axis_properties(self) -> list[str]:
        """The names of the properties that are axes of the operand."""
        return [name for name in self.properties if name.endswith("axis")]

    @abstractmethod
    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        """Compute the results of all ranks of a group from their operands, by position, with NumPy."""

    @classmethod
    @abstractmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        """Return the number of bytes that each rank of a group sends for an operand, with algorithms of optimal bandwidth."""

    def traffic(self, ranks: int) -> int:
        """Return the number of bytes that each rank of a group of `ranks` sends."""
        return self.traffic_bytes(self.operand_bytes, ranks)

    @property
    def operand_bytes(self) -> int:
        """The size of the operand of one rank."""
        return sum(int(product(shape_of(v))) * numpy_dtype(element_type_of(v)).itemsize for v in self.operands)

    @property
    def label(self) -> str:
        """The collective in messages: `dl.all_reduce at train.py:9: float32[64, 10] over "data"`."""
        arrays = "".join(f"{format_type(numpy_dtype(element_type_of(v)), shape_of(v))} " for v in self.operands)
        return f'{self.name} at {location_text(self.location)}: {arrays}over "{self.axes.data}"'

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"axes": self.axes.data, "group_size": self.ranks, "label": self.label}

    def verify_(self) -> None:
        if not self.mesh_axes or self.ranks < 1:
            raise VerifyException(f"{self.name}: axes {self.axes} with {self.ranks} ranks; expected mesh axes and a rank")
        super().verify_()


class _Exchange(Collective):
    """A collective on one tensor per rank."""

    x = operand_def(TensorType)
    result = result_def(TensorType)

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {**super().settings, **{name: self.axis_of(self.properties[name]) for name in self.axis_properties}}

    def axis_of(self, axis: Attribute) -> int:
        """Return an axis of the operand, counted from the front."""
        return normalized_axes(self.name, [number(axis)], rank_of(self.x))[0]

    def resized(self, *, joined: int | None = None, split: int | None = None) -> Tensor:
        """Return the type of the operand with one axis `group_size` times as long, and another split into `group_size` parts.

        Raises ShapeError for an axis whose size is not a multiple of the group's.
        """
        shape = list(shape_of(self.x))
        if split is not None:
            size = shape[split]
            if isinstance(size, int) and size % self.ranks:
                raise ShapeError(f"{self.name}: axis {split} of size {size} in {self.ranks} parts; expected a multiple")
            shape[split] = size // self.ranks
        if joined is not None:
            shape[joined] = shape[joined] * self.ranks
        return tensor_type(shape, element_type_of(self.x))


class _Reduce(_Exchange):
    """A collective that combines elements of all ranks: `combine` is sum, max or min; 16-bit floats are summed in f32."""

    combine = prop_def(StringAttr)

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {**super().settings, "combine": self.combine.data}

    def require_combinator(self) -> None:
        """Raise DTypeError for a combinator that the element type does not have."""
        combinators = ("max", "min") if is_bool(element_type_of(self.x)) else tuple(_COMBINE)
        if self.combine.data not in combinators:
            raise DTypeError(
                f"{self.name}: combine {self.combine.data!r} of {element_type_of(self.x)}; expected {' or '.join(combinators)}"
            )

    def combined(self, operands: Sequence[Array]) -> Array:
        """Return the elements of all ranks combined."""
        total: Array = reduce(_COMBINE[self.combine.data], map(widen_array, operands))
        return total.astype(operands[0].dtype)


@irdl_op_definition
class AllReduceOp(_Reduce):
    """The elements of all ranks of a group combined: `sum`, `max` or `min`.

    16-bit floats are summed in f32 and rounded once; `max` and `min` propagate NaN.
    (C1) `combine` exists for the element type: bools have no sum.
    """

    name = "dl.all_reduce"

    def infer(self) -> Sequence[Tensor]:
        self.require_combinator()
        return [tensor_of(self.x)]

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        return [self.combined(operands)] * len(operands)

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return 2 * operand_bytes * (ranks - 1) // ranks


@irdl_op_definition
class ReduceScatterOp(_Reduce):
    """The elements of all ranks of a group combined; each rank gets its part of the result along `axis`.

    (C1) as for `dl.all_reduce`; (C2) the size of `axis` is a multiple of `group_size`.
    """

    name = "dl.reduce_scatter"
    axis = prop_def(IntegerAttr)

    def infer(self) -> Sequence[Tensor]:
        self.require_combinator()
        return [self.resized(split=self.axis_of(self.axis))]

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        return np.split(self.combined(operands), len(operands), self.axis_of(self.axis))

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return operand_bytes * (ranks - 1) // ranks


@irdl_op_definition
class AllGatherOp(_Exchange):
    """The tensors of all ranks of a group, concatenated along `axis` by position."""

    name = "dl.all_gather"
    axis = prop_def(IntegerAttr)

    def infer(self) -> Sequence[Tensor]:
        return [self.resized(joined=self.axis_of(self.axis))]

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        return [np.concatenate(operands, self.axis_of(self.axis))] * len(operands)

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return operand_bytes * (ranks - 1)


@irdl_op_definition
class AllToAllOp(_Exchange):
    """Sends each rank of a group its part along `split_axis`, and concatenates the received parts along `concat_axis`.

    (C1) the size of `split_axis` is a multiple of `group_size`.
    """

    name = "dl.all_to_all"
    split_axis = prop_def(IntegerAttr)
    concat_axis = prop_def(IntegerAttr)

    def infer(self) -> Sequence[Tensor]:
        return [self.resized(split=self.axis_of(self.split_axis), joined=self.axis_of(self.concat_axis))]

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        parts = [np.split(operand, len(operands), self.axis_of(self.split_axis)) for operand in operands]
        return [np.concatenate(received, self.axis_of(self.concat_axis)) for received in zip(*parts, strict=True)]

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return operand_bytes * (ranks - 1) // ranks


@irdl_op_definition
class PermuteOp(_Exchange):
    """The tensor of another rank along one mesh axis, or zeros.

    `pairs` lists positions: source₀, target₀, source₁, target₁, … A target gets the tensor of its source; a rank that is no
    target gets zeros.
    (C1) `axes` is one mesh axis; (C2) no two pairs have the same source or target; (C3) positions are below `group_size`.
    """

    name = "dl.permute"
    pairs = prop_def(DenseArrayBase)

    @property
    def routes(self) -> list[tuple[int, int]]:
        """The pairs (source, target)."""
        positions = ints(self.pairs)
        return list(zip(positions[::2], positions[1::2], strict=True))

    def infer(self) -> Sequence[Tensor]:
        positions = ints(self.pairs)
        if len(self.mesh_axes) != 1 or len(positions) % 2 or any(not 0 <= p < self.ranks for p in positions):
            raise ShapeError(f'{self.name}: pairs {positions} over "{self.axes.data}" with {self.ranks} ranks (C1, C3)')
        if any(len(set(ends)) < len(ends) for ends in (positions[::2], positions[1::2])):
            raise ShapeError(f"{self.name}: pairs {positions} repeat a source or a target (C2)")
        return [tensor_of(self.x)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {**super().settings, "pairs": ",".join(map(str, ints(self.pairs)))}

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        sources = {target: source for source, target in self.routes}
        zeros = np.zeros_like(operands[0])
        return [operands[sources[k]] if k in sources else zeros for k in range(len(operands))]

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return operand_bytes


@irdl_op_definition
class AxisIndexOp(Collective):
    """The position of the rank in its group along `axes`, as i64 of rank 0."""

    name = "dl.axis_index"
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type((), i64)]

    def group_reference(self, operands: Sequence[Array]) -> Sequence[Array]:
        return [np.array(k, np.int64) for k in range(self.ranks)]

    @classmethod
    def traffic_bytes(cls, operand_bytes: int, ranks: int) -> int:
        return 0


# The functions of collectives that may be split into a start and a wait.
NONBLOCKING = frozenset(
    op.name.removeprefix("dl.") for op in (AllReduceOp, ReduceScatterOp, AllGatherOp, AllToAllOp, PermuteOp)
)

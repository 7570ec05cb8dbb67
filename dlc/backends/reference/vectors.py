"""`vector` ops: n-D vectors, read from and written to memory in lockstep for all points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, elementwise, rule
from dlc.backends.reference.scalars import fma, signed, unsigned
from dlc.backends.reference.values import Array, MemrefView, Value, describe, expand, gather, rank, scatter, shape_of
from dlc.dialects.compress import CompressOp
from dlc.dialects.shape_cast import ShapeCastOp
from dlc.errors import UnsupportedError
from dlc.ir import AffineConstantExpr, AffineDimExpr, AffineMap, Operation, SSAValue, vector

elementwise({vector.FMAOp: fma})


@dataclass(frozen=True)
class Transfer:
    """The transfer of a vector from or to a buffer; `axes` has the buffer axis of each vector axis, None if it is broadcast."""

    buffer: SSAValue
    indices: tuple[SSAValue, ...]
    axes: tuple[int | None, ...]
    shape: tuple[int, ...]
    in_bounds: tuple[bool, ...]

    def start(self, frame: Frame) -> tuple[MemrefView, list[Array]]:
        """Return the buffer and the indices at which the transfer starts."""
        return frame.view(self.buffer), [frame.array(i) for i in self.indices]

    def extents(self, buffer_rank: int) -> list[int]:
        """Return the number of elements along each buffer axis."""
        extents = [1] * buffer_rank
        for axis, size in zip(self.axes, self.shape, strict=True):
            if axis is not None:
                extents[axis] = size
        return extents

    def strides(self, view: MemrefView) -> tuple[int, ...]:
        """Return the buffer stride along each vector axis."""
        return tuple(0 if axis is None else view.strides[axis] for axis in self.axes)


def resolve_transfer(op: vector.TransferReadOp | vector.TransferWriteOp) -> Transfer:
    """Return the transfer that the op's permutation map describes."""
    value = op.result if isinstance(op, vector.TransferReadOp) else op.vector
    permutation: AffineMap = op.permutation_map.data
    axes: list[int | None] = []
    for e in permutation.results:
        if not isinstance(e, AffineDimExpr | AffineConstantExpr):
            raise UnsupportedError(f"{describe(op)}: permutation map {permutation}; a projected permutation is needed")
        axes.append(e.position if isinstance(e, AffineDimExpr) else None)
    in_bounds = tuple(bool(b.value.data) or a is None for a, b in zip(axes, cast(Any, op.in_bounds), strict=True))
    return Transfer(op.source, tuple(op.indices), tuple(axes), shape_of(cast(SSAValue, value)), in_bounds)


def read(op: Operation, view: MemrefView, indices: Sequence[Array], transfer: Transfer, padding: Array) -> Array:
    """Return the elements of a transfer; elements outside the buffer are `padding`."""
    if all(transfer.in_bounds):
        offset = view.element_offset(op, indices, transfer.extents(len(view.shape)))
        # Copy: later stores must not modify an SSA value.
        values = gather(op, view.base, offset, transfer.shape, transfer.strides(view))
        return values if np.ndim(offset) else np.array(values)
    in_bounds, offsets = clipped_offsets(op, view, indices, transfer)
    return np.where(in_bounds, view.base[offsets], expand(padding, len(transfer.shape)))


def clipped_offsets(op: Operation, view: MemrefView, indices: Sequence[Array], transfer: Transfer) -> tuple[Array, Array]:
    """Return the mask of elements inside the buffer, and all offsets; those outside are replaced by 0."""
    axes = len(transfer.shape)
    unchecked_axes = {a for a, ok in zip(transfer.axes, transfer.in_bounds, strict=True) if not ok}
    checked_indices = [np.asarray(0) if a in unchecked_axes else i for a, i in enumerate(indices)]
    extents = [1 if a in unchecked_axes else n for a, n in enumerate(transfer.extents(len(view.shape)))]
    start: Any = view.element_offset(op, checked_indices, extents)
    for axis in unchecked_axes:
        start = start + indices[cast(int, axis)] * view.strides[cast(int, axis)]
    offsets: Array = expand(np.asarray(start), axes)
    in_bounds: Array = np.ones((1,) * axes, np.bool_)
    for k, (axis, size) in enumerate(zip(transfer.axes, transfer.shape, strict=True)):
        if axis is None:
            continue
        lanes = np.arange(size).reshape((size,) + (1,) * (axes - 1 - k))
        offsets = offsets + lanes * view.strides[axis]
        if axis in unchecked_axes:
            position = expand(indices[axis], axes) + lanes
            in_bounds = in_bounds & (position >= 0) & (position < view.shape[axis])
    shape = (*np.broadcast_shapes(in_bounds.shape, offsets.shape)[: -axes or None], *transfer.shape)
    in_bounds = np.broadcast_to(in_bounds, shape)
    return in_bounds, np.where(in_bounds, offsets, 0)


def write(op: Operation, view: MemrefView, indices: Sequence[Array], transfer: Transfer, values: Array) -> None:
    """Store the elements of a transfer; elements outside the buffer are dropped."""
    if all(transfer.in_bounds):
        offset = view.element_offset(op, indices, transfer.extents(len(view.shape)))
        scatter(op, view.base, offset, transfer.shape, transfer.strides(view), values)
        return
    in_bounds, offsets = clipped_offsets(op, view, indices, transfer)
    # Values may differ between points that have the same indices.
    shape = np.broadcast_shapes(in_bounds.shape, values.shape)
    in_bounds = np.broadcast_to(in_bounds, shape)
    view.base[np.broadcast_to(offsets, shape)[in_bounds]] = np.broadcast_to(values, shape)[in_bounds]


@rule(vector.TransferReadOp)
def transfer_read(op: vector.TransferReadOp, frame: Frame) -> Sequence[Value]:
    transfer = frame.context.memoize(op, resolve_transfer)
    padding = frame.array(op.operands[1 + len(transfer.indices)])
    values = read(op, *transfer.start(frame), transfer, padding)
    if len(op.operands) > 2 + len(transfer.indices):
        values = np.where(frame.array(op.operands[-1]), values, expand(padding, len(transfer.shape)))
    return (values,)


@rule(vector.TransferWriteOp)
def transfer_write(op: vector.TransferWriteOp, frame: Frame) -> Sequence[Value]:
    transfer = frame.context.memoize(op, resolve_transfer)
    if len(op.operands) > 2 + len(transfer.indices):
        raise UnsupportedError(f"{describe(op)}: masked vector.transfer_write is not supported; use in_bounds instead")
    write(op, *transfer.start(frame), transfer, frame.array(op.operands[0]))
    return ()


@rule(vector.BroadcastOp)
def broadcast(op: vector.BroadcastOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.array(op.source), shape_of(op.vector)
    num_point_axes = source.ndim - rank(op.source.type)
    source = source.reshape(
        source.shape[:num_point_axes] + (1,) * (len(shape) - (source.ndim - num_point_axes)) + source.shape[num_point_axes:]
    )
    return (np.broadcast_to(source, source.shape[:num_point_axes] + shape),)


@rule(ShapeCastOp)
def shape_cast(op: ShapeCastOp, frame: Frame) -> Sequence[Value]:
    source = frame.array(op.source)
    num_point_axes = source.ndim - rank(op.source.type)
    return (source.reshape((*source.shape[:num_point_axes], *shape_of(op.result))),)


@rule(CompressOp)
def compress(op: CompressOp, frame: Frame) -> Sequence[Value]:
    mask, source = np.broadcast_arrays(frame.array(op.mask), frame.array(op.source))
    order = np.argsort(~mask, axis=-1, kind="stable")
    return np.take_along_axis(source, order, -1), np.asarray(np.count_nonzero(mask, axis=-1))


@rule(vector.ExtractOp)
def extract(op: vector.ExtractOp, frame: Frame) -> Sequence[Value]:
    if op.dynamic_position:
        raise UnsupportedError(f"{describe(op)}: vector.extract at a dynamic position is not supported")
    x, index = frame.array(op.vector), tuple(int(i) for i in op.static_position.get_values())
    return (x[(..., *index, *(slice(None),) * (rank(op.vector.type) - len(index)))],)


@rule(vector.ShuffleOp)
def shuffle(op: vector.ShuffleOp, frame: Frame) -> Sequence[Value]:
    if rank(op.result.type) != 1:
        raise UnsupportedError(f"{describe(op)}: vector.shuffle is supported for 1-D vectors only")
    a, b = frame.array(op.v1), frame.array(op.v2)
    leading_shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    operands = [np.broadcast_to(x, (*leading_shape, x.shape[-1])) for x in (a, b)]
    return (np.concatenate(operands, -1)[..., list(op.mask.get_values())],)


REDUCTION_FUNCTIONS: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "minsi": np.minimum, "maxsi": np.maximum, "minui": np.minimum, "maxui": np.maximum,
    "minimumf": np.minimum, "maximumf": np.maximum, "minnumf": np.fmin, "maxnumf": np.fmax,
}  # fmt: skip


@rule(vector.ReductionOp)
def reduction(op: vector.ReductionOp, frame: Frame) -> Sequence[Value]:
    x = frame.array(op.vector)
    kind = str(op.kind.data)
    function: np.ufunc = REDUCTION_FUNCTIONS[kind]
    signedness = unsigned if kind.endswith("ui") else signed
    result = function.reduce(signedness(x), axis=-1, dtype=signedness(x).dtype)
    if op.acc is not None:
        result = function(signedness(frame.array(op.acc)), result)
    return (np.asarray(result).astype(x.dtype),)

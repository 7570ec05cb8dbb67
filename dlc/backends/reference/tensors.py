"""`tensor` ops: values are immutable arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, rule
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    Value,
    describe,
    dtype_of,
    min_and_max,
    shape_of,
    uninitialized_marker,
)
from dlc.ir import DenseArrayBase, Operation, SSAValue, tensor

# Marks a dynamic entry in a list of static offsets, sizes or strides.
DYNAMIC = -(2**63)


def mixed_operands(static: DenseArrayBase[Any], dynamic: Sequence[SSAValue]) -> tuple[int | SSAValue, ...]:
    """Merge static entries and operands into one list."""
    operands = iter(dynamic)
    return tuple(next(operands) if v == DYNAMIC else int(v) for v in static.get_values())


def resolve_sizes(frame: Frame, entries: Sequence[int | SSAValue]) -> list[Any]:
    """Return the values of a list of static entries and operands."""
    return [e if isinstance(e, int) else frame.array(e) for e in entries]


@dataclass(frozen=True)
class Slice:
    """The offsets, sizes and strides of a slice op, one entry per axis."""

    offsets: tuple[int | SSAValue, ...]
    sizes: tuple[int | SSAValue, ...]
    strides: tuple[int | SSAValue, ...]


def resolve_slice(op: Any) -> Slice:
    """Return the slice of `tensor.extract_slice`, `tensor.insert_slice`, `memref.subview` and `memref.reinterpret_cast`."""
    return Slice(
        mixed_operands(op.static_offsets, op.offsets),
        mixed_operands(op.static_sizes, op.sizes),
        mixed_operands(op.static_strides, op.strides),
    )


def slices(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, frame: Frame, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the Python slices of a slice op, checked against the shape of the sliced tensor."""
    slice_ = resolve_slice(op)
    offsets, sizes, strides = (resolve_sizes(frame, entries) for entries in (slice_.offsets, slice_.sizes, slice_.strides))
    for axis, (o, n, s, size) in enumerate(zip(offsets, sizes, strides, shape, strict=True)):
        if n and not (0 <= o < size and 0 <= o + (n - 1) * s < size):
            raise EvaluationError(f"{describe(op)}: {n} elements from {o} by {s} of axis {axis}, of size {size}")
    # A slice that ends before index 0 has no stop: Python would count a negative one from the end.
    stops = (o + n * s for o, n, s in zip(offsets, sizes, strides, strict=True))
    return tuple(
        slice(int(o), int(stop) if stop >= 0 else None, int(s)) for o, stop, s in zip(offsets, stops, strides, strict=True)
    )


def result_shape(op: Operation, dynamic: Sequence[SSAValue], frame: Frame) -> tuple[int, ...]:
    """Return the shape of an op's result; its dynamic sizes are operands."""
    operands = iter(dynamic)
    return tuple(int(frame.array(next(operands))) if s == DYNAMIC else s for s in shape_of(op.results[0]))


@rule(tensor.EmptyOp)
def empty(op: tensor.EmptyOp, frame: Frame) -> Sequence[Value]:
    dtype = dtype_of(op.tensor.type)
    return (np.broadcast_to(np.asarray(uninitialized_marker(dtype), dtype), result_shape(op, op.dynamic_sizes, frame)),)


@rule(tensor.ExtractSliceOp)
def extract_slice(op: tensor.ExtractSliceOp, frame: Frame) -> Sequence[Value]:
    source = frame.array(op.source)
    slice_, shape = source[slices(op, frame, source.shape)], shape_of(op.results[0])
    return (slice_ if slice_.ndim == len(shape) else slice_.reshape(shape),)


@rule(tensor.InsertSliceOp)
def insert_slice(op: tensor.InsertSliceOp, frame: Frame) -> Sequence[Value]:
    result = np.array(frame.array(op.dest))
    target = result[slices(op, frame, result.shape)]
    target[...] = frame.array(op.source).reshape(target.shape)
    return (result,)


@rule(tensor.ExpandShapeOp)
def expand_shape(op: tensor.ExpandShapeOp, frame: Frame) -> Sequence[Value]:
    return (frame.array(op.src).reshape(result_shape(op, op.dynamic_output_shape, frame)),)


@rule(tensor.CollapseShapeOp)
def collapse_shape(op: tensor.CollapseShapeOp, frame: Frame) -> Sequence[Value]:
    source = frame.array(op.src)
    groups = [[int(a.value.data) for a in cast(Any, group)] for group in op.reassociation]
    return (source.reshape([prod(source.shape[a] for a in group) for group in groups]),)


@rule(tensor.CastOp)
def cast_shape(op: tensor.CastOp, frame: Frame) -> Sequence[Value]:
    return (frame.array(op.source),)


@rule(tensor.ExtractOp)
def extract(op: tensor.ExtractOp, frame: Frame) -> Sequence[Value]:
    source = frame.array(op.tensor)
    indices = tuple(frame.array(i) for i in op.indices)
    for axis, (i, size) in enumerate(zip(indices, source.shape, strict=True)):
        low, high = min_and_max(i)
        if np.size(i) and (low < 0 or high >= size):
            raise EvaluationError(f"{describe(op)}: index {low}..{high} of axis {axis}, of size {size}")
    return (source[indices],)


@rule(tensor.InsertOp)
def insert(op: tensor.InsertOp, frame: Frame) -> Sequence[Value]:
    result = np.array(frame.array(op.dest))
    result[tuple(int(frame.array(i)) for i in op.indices)] = frame.array(op.scalar)
    return (result,)


@rule(tensor.FromElementsOp)
def from_elements(op: tensor.FromElementsOp, frame: Frame) -> Sequence[Value]:
    elements: list[Array] = [frame.array(e) for e in op.elements]
    return (np.array(elements, dtype_of(op.result.type)).reshape(shape_of(op.results[0])),)


@rule(tensor.SplatOp)
def splat(op: tensor.SplatOp, frame: Frame) -> Sequence[Value]:
    return (np.broadcast_to(frame.array(op.input), shape_of(op.results[0])),)


@rule(tensor.DimOp)
def dim(op: tensor.DimOp, frame: Frame) -> Sequence[Value]:
    return (np.asarray(frame.array(op.source).shape[int(frame.array(op.index))], np.int64),)


@rule(tensor.ConcatOp)
def concat(op: tensor.ConcatOp, frame: Frame) -> Sequence[Value]:
    return (np.concatenate([frame.array(v) for v in op.inputs], axis=int(op.dim.value.data)),)

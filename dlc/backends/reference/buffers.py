"""`memref` ops: views of flat buffers, and loads and stores through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, rule
from dlc.backends.reference.tensors import DYNAMIC, Slice, resolve_sizes, resolve_slice, result_shape
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    MemrefView,
    Value,
    contiguous_strides,
    describe,
    gather,
    scatter,
    shape_of,
)
from dlc.dialects.prefetch import PrefetchOp
from dlc.ir import ArrayAttr, IntegerAttr, memref


@rule(memref.AllocaOp, memref.AllocOp)
def allocate(op: Any, frame: Frame) -> Sequence[Value]:
    return (MemrefView.allocate(op.memref.type, result_shape(op, op.dynamic_sizes, frame), frame.points),)


@rule(memref.DeallocOp)
def deallocate(op: memref.DeallocOp, frame: Frame) -> Sequence[Value]:
    return ()


@rule(memref.SubviewOp)
def subview(op: memref.SubviewOp, frame: Frame) -> Sequence[Value]:
    slice_, kept_axes = frame.context.memoize(op, resolve_subview)
    source = frame.view(op.operands[0])
    sizes = [int(n) for n in resolve_sizes(frame, slice_.sizes)]
    steps = [int(s) for s in resolve_sizes(frame, slice_.strides)]
    extents = [(n - 1) * s + 1 for n, s in zip(sizes, steps, strict=True)]
    offset = source.element_offset(op, resolve_sizes(frame, slice_.offsets), extents)
    return (source.subview(offset, tuple(sizes[a] for a in kept_axes), tuple(source.strides[a] * steps[a] for a in kept_axes)),)


def resolve_subview(op: memref.SubviewOp) -> tuple[Slice, tuple[int, ...]]:
    """Return the slice of a subview, and the axes of the result.

    Axes of size 1 are dropped until the shape matches the result; the choice among adjacent ones makes no
    difference.
    """
    slice_, shape = resolve_slice(op), shape_of(op.result.type)
    kept_axes: list[int] = []
    for axis, size in enumerate(slice_.sizes):
        if len(kept_axes) < len(shape) and shape[len(kept_axes)] in (size, DYNAMIC):
            kept_axes.append(axis)
        elif size != 1:
            break
    if len(kept_axes) != len(shape) or any(n != 1 for a, n in enumerate(slice_.sizes) if a not in kept_axes):
        raise EvaluationError(f"{describe(op)}: sizes {slice_.sizes} do not reduce to {shape}")
    return slice_, tuple(kept_axes)


@rule(memref.ReinterpretCastOp)
def reinterpret_cast(op: memref.ReinterpretCastOp, frame: Frame) -> Sequence[Value]:
    source, slice_ = frame.view(op.operands[0]), frame.context.memoize(op, resolve_slice)
    # The offset is relative to the start of the allocation, even if the source is a view.
    offset = source.origin + resolve_sizes(frame, slice_.offsets)[0]
    sizes = tuple(int(n) for n in resolve_sizes(frame, slice_.sizes))
    return (source.subview(offset, sizes, tuple(int(s) for s in resolve_sizes(frame, slice_.strides))),)


def _groups(reassociation: ArrayAttr[ArrayAttr[IntegerAttr]]) -> list[list[int]]:
    return [[int(i.value.data) for i in group] for group in reassociation]


@rule(memref.ExpandShapeOp)
def expand_shape(op: memref.ExpandShapeOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.view(op.src), shape_of(op.result.type)
    strides: list[int] = []
    for group, stride in zip(_groups(cast(Any, op.reassociation)), source.strides, strict=True):
        strides += [stride * s for s in contiguous_strides([shape[a] for a in group])]
    return (source.subview(source.offset, shape, tuple(strides)),)


@rule(memref.CollapseShapeOp)
def collapse_shape(op: memref.CollapseShapeOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.view(op.src), shape_of(op.result.type)
    strides: list[int] = []
    for group in _groups(cast(Any, op.reassociation)):
        axes = [a for a in group if source.shape[a] != 1] or group[-1:]
        inner = source.strides[axes[-1]]
        expected = [inner * s for s in contiguous_strides([source.shape[a] for a in axes])]
        if [source.strides[a] for a in axes] != expected:
            raise EvaluationError(f"{describe(op)}: axes {group} of strides {source.strides} are not contiguous")
        strides.append(inner)
    return (source.subview(source.offset, shape, tuple(strides)),)


@rule(memref.CastOp)
def cast_type(op: memref.CastOp, frame: Frame) -> Sequence[Value]:
    return (frame[op.source],)


@rule(memref.DimOp)
def dim(op: memref.DimOp, frame: Frame) -> Sequence[Value]:
    return (np.asarray(frame.view(op.source).shape[int(frame.array(op.index))], np.int64),)


@rule(memref.CopyOp)
def copy(op: memref.CopyOp, frame: Frame) -> Sequence[Value]:
    frame.view(op.destination).write(op, frame.view(op.source).read(op))
    return ()


@rule(memref.LoadOp)
def load(op: memref.LoadOp, frame: Frame) -> Sequence[Value]:
    view = frame.view(op.memref)
    offset = view.element_offset(op, [frame.array(i) for i in op.indices])
    return (np.array(gather(op, view.base, offset, (), ())),)


@rule(PrefetchOp)
def prefetch(op: PrefetchOp, frame: Frame) -> Sequence[Value]:
    return ()


@rule(memref.StoreOp)
def store(op: memref.StoreOp, frame: Frame) -> Sequence[Value]:
    view = frame.view(op.memref)
    offset: int | Array = view.element_offset(op, [frame.array(i) for i in op.indices])
    scatter(op, view.base, offset, (), (), frame.array(op.value))
    return ()

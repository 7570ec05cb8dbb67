"""`memref` ops: views of flat buffers, and loads and stores through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlc.backends.reference.machine import Frame, rule
from dlc.backends.reference.tensors import mixed
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    Value,
    View,
    contiguous_strides,
    describe,
    expand,
    gather,
    scatter,
    shape_of,
)
from dlc.ir import ArrayAttr, IntegerAttr, memref


@rule(memref.AllocaOp, memref.AllocOp)
def allocate(op: Any, frame: Frame) -> Sequence[Value]:
    if len(op.dynamic_sizes):
        raise EvaluationError(f"{describe(op)}: buffers have static sizes")
    return (View.allocate(op.memref.type, frame.points),)


@rule(memref.DeallocOp)
def deallocate(op: memref.DeallocOp, frame: Frame) -> Sequence[Value]:
    return ()


@rule(memref.SubviewOp)
def subview(op: memref.SubviewOp, frame: Frame) -> Sequence[Value]:
    source = frame.view(op.source)
    offsets = mixed(frame, op.static_offsets, op.offsets)
    sizes = [int(n) for n in mixed(frame, op.static_sizes, op.sizes)]
    steps = [int(s) for s in mixed(frame, op.static_strides, op.strides)]
    offset = source.place(op, offsets, [(n - 1) * s + 1 for n, s in zip(sizes, steps, strict=True)])
    strides = [a * b for a, b in zip(source.strides, steps, strict=True)]
    return (source.part(offset, *_reduce_rank(op, sizes, strides)),)


def _reduce_rank(op: memref.SubviewOp, sizes: list[int], strides: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Drops axes of size 1 until the shape is the result's; which of several in a row does not matter."""
    shape = shape_of(op.result.type)
    kept: list[int] = []
    for axis, size in enumerate(sizes):
        if len(kept) < len(shape) and size == shape[len(kept)]:
            kept.append(axis)
        elif size != 1:
            break
    if tuple(sizes[a] for a in kept) != shape:
        raise EvaluationError(f"{describe(op)}: sizes {sizes} do not reduce to {shape}")
    return shape, tuple(strides[a] for a in kept)


@rule(memref.ReinterpretCastOp)
def reinterpret_cast(op: memref.ReinterpretCastOp, frame: Frame) -> Sequence[Value]:
    source = frame.view(op.source)
    offset = mixed(frame, op.static_offsets, op.offsets)[0]
    sizes = tuple(int(n) for n in mixed(frame, op.static_sizes, op.sizes))
    strides = tuple(int(s) for s in mixed(frame, op.static_strides, op.strides))
    # Counted from the start of the allocation, wherever in it the source begins.
    return (source.part(source.origin + offset, sizes, strides),)


def _groups(reassociation: ArrayAttr[ArrayAttr[IntegerAttr]]) -> list[list[int]]:
    return [[int(i.value.data) for i in group] for group in reassociation]


@rule(memref.ExpandShapeOp)
def expand_shape(op: memref.ExpandShapeOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.view(op.src), shape_of(op.result.type)
    strides: list[int] = []
    for group, stride in zip(_groups(cast(Any, op.reassociation)), source.strides, strict=True):
        strides += [stride * s for s in contiguous_strides([shape[a] for a in group])]
    return (source.part(source.offset, shape, tuple(strides)),)


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
    return (source.part(source.offset, shape, tuple(strides)),)


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
    offset = view.place(op, [frame.array(i) for i in op.indices])
    return (np.array(gather(op, view.base, offset, (), ())),)


@rule(memref.StoreOp)
def store(op: memref.StoreOp, frame: Frame) -> Sequence[Value]:
    view = frame.view(op.memref)
    offset: int | Array = view.place(op, [frame.array(i) for i in op.indices])
    scatter(op, view.base, offset, (), (), expand(frame.array(op.value), 0))
    return ()

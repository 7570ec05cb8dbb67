"""Windows of buffers, and the ops that fill, copy and combine them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.ir import AffineDimExpr, AffineMap, ArrayAttr, Block, Operation, Region, SSAValue, linalg
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.nests import Stage, combiner_of
from dlc.passes.types import iterator_types, map_attribute, memref_of, segments

# A window of a buffer, and the dimension that each of its axes follows.
Window: TypeAlias = tuple[SSAValue, Sequence[int]]


def element_of(place: Place, window: Window, d: int, index: Index) -> Window:
    """The part of a window at one place along a dimension that it may have."""
    buffer, axes = window
    if d not in axes:
        return window
    axis, shape = list(axes).index(d), memref_of(buffer).get_shape()
    offsets: list[Index] = [index if k == axis else 0 for k in range(len(shape))]
    sizes = [1 if k == axis else size for k, size in enumerate(shape)]
    return place.subview(buffer, offsets, sizes, [axis]), [a for a in axes if a != d]


def combine(place: Place, stage: Stage, source: Window, target: Window) -> None:
    """Adds partial results to others, by the reduction's combiner: along the axes that only `source` has, and elementwise."""
    combiner = combiner_of(stage)
    assert combiner is not None
    (partial, axes), (result, kept) = source, target
    maps = [AffineMap.identity(len(axes)), AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in kept))]
    region = Region(Block(arg_types=[memref_of(partial).element_type] * 2))
    block = region.block
    value = combiner.clone(dict(zip(combiner.operands, block.args, strict=True)))
    block.add_op(value)
    block.add_op(linalg.YieldOp(value.results[0]))
    generic(place, [partial, result], maps, [d not in kept for d in axes], region)


def copy(place: Place, source: Window, target: Window) -> None:
    """Copies a window of a buffer into one of another, whose axes follow the same dimensions in some order."""
    (read, axes), (written, order) = source, target
    t = memref_of(read).element_type
    body = Block(arg_types=[t, t])
    body.add_op(linalg.YieldOp(body.args[0]))
    maps = [AffineMap.identity(len(axes)), AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in order))]
    generic(place, [read, written], maps, [False] * len(axes), Region(body))


def without_units(place: Place, view: SSAValue) -> SSAValue:
    shape = memref_of(view).get_shape()
    return place.subview(view, [0] * len(shape), shape, [i for i, size in enumerate(shape) if size == 1])


def fill(place: Place, value: SSAValue, target: SSAValue) -> None:
    body = Block(arg_types=[value.type, value.type])
    body.add_op(linalg.YieldOp(body.args[0]))
    place.insert(linalg.FillOp.create(operands=[value, target], properties=segments(1, 1), regions=[Region(body)]))


def generic(
    place: Place, operands: Sequence[SSAValue], maps: Sequence[AffineMap], reduced: Sequence[bool], region: Region
) -> Operation:
    return place.insert(
        linalg.GenericOp.create(
            operands=operands,
            properties={
                "indexing_maps": ArrayAttr([map_attribute(m) for m in maps]),
                "iterator_types": iterator_types(tuple(reduced)),
                **segments(len(operands) - 1, 1),
            },
            regions=[region],
        )
    )

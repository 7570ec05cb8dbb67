"""Types and attributes of standard dialects; common ones are memoized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from dlc.ir import (
    DYNAMIC_INDEX,
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    Attribute,
    BlockArgument,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    IteratorTypeAttr,
    MemRefType,
    NoneAttr,
    SSAValue,
    StridedLayoutAttr,
    VectorType,
    i64,
    index,
    memref,
)
from dlc.shapes.dims import Size, row_major
from dlc.shapes.polynomials import quotient

MemRef: TypeAlias = MemRefType[Attribute]
# The memory space of arguments and of private buffers.
PRIVATE = NoneAttr()


@lru_cache(maxsize=4096)
def vector_type(shape: tuple[int, ...], element: Attribute) -> VectorType[Attribute]:
    return VectorType(element, shape)


@lru_cache(maxsize=4096)
def memref_type(
    element: Attribute,
    shape: tuple[Size, ...],
    strides: tuple[Size, ...] | None = None,
    offset: Size | None = 0,
    space: Attribute = PRIVATE,
) -> MemRef:
    """Return a memref type; `strides=None` means row-major, `offset=None` a dynamic offset.

    Symbolic sizes are `?` in the type; `dialects/sizes.py` derives them from the op that defines the memref.
    """
    static_shape = tuple(s if isinstance(s, int) else DYNAMIC_INDEX for s in shape)
    if strides is None or (strides == row_major(shape) and offset == 0):
        return MemRefType(element, static_shape, memory_space=space)
    static_strides = tuple(s if isinstance(s, int) else None for s in strides)
    return MemRefType(
        element, static_shape, StridedLayoutAttr(static_strides, offset if isinstance(offset, int) else None), space
    )


def reshaped_strides(shape: Sequence[Size], strides: Sequence[Size], new: Sequence[Size]) -> tuple[Size, ...] | None:
    """Return the strides of a view of a strided array with the shape `new`; None if a view cannot have this shape.

    Both shapes must have the same, nonzero number of elements.
    """
    # Merged dimensions (size, stride) that are contiguous in each other, the innermost last, without sizes of 1.
    runs: list[tuple[Size, Size]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = runs[-1][0] * size, stride
        else:
            runs.append((size, stride))
    result: list[Size] = []
    for size in reversed(new):
        if size != 1 and runs and runs[-1][0] == 1:
            runs.pop()
        run_size, stride = runs[-1] if runs else (1, 1)
        remaining_size = quotient(run_size, size)
        if remaining_size is None:
            return None
        result.append(stride)
        if runs:
            runs[-1] = remaining_size, stride * size
    return tuple(reversed(result))


def memref_of(value: SSAValue) -> MemRef:
    assert isinstance(value.type, MemRefType)
    return cast(MemRef, value.type)


def viewed_buffer(view: SSAValue) -> SSAValue:
    """Return the buffer from which a view derives."""
    while not isinstance(view, BlockArgument) and isinstance(view.owner, memref.SubviewOp | memref.ReinterpretCastOp):
        view = cast("SSAValue[Any]", view.owner.source)
    return view


@lru_cache(maxsize=4096)
def map_attribute(map_: AffineMap) -> AffineMapAttr:
    return AffineMapAttr(map_)


@lru_cache(maxsize=256)
def iterator_types(reductions: tuple[bool, ...]) -> ArrayAttr[IteratorTypeAttr]:
    """Return the iterator types; `reductions` tells for each iterator whether it is a reduction."""
    return ArrayAttr([IteratorTypeAttr.reduction() if r else IteratorTypeAttr.parallel() for r in reductions])


@lru_cache(maxsize=256)
def segments(*counts: int) -> dict[str, Attribute]:
    """Return the `operandSegmentSizes` property."""
    return {"operandSegmentSizes": DenseArrayBase.from_list(IntegerType(32), counts)}


def generic_properties(maps: Sequence[AffineMap], reductions: Sequence[bool]) -> dict[str, Attribute]:
    """Return the properties of a linalg.generic with one output; `reductions[i]` is true if iterator i is reduced."""
    return {
        "indexing_maps": ArrayAttr([map_attribute(m) for m in maps]),
        "iterator_types": iterator_types(tuple(reductions)),
        **segments(len(maps) - 1, 1),
    }


@lru_cache(maxsize=4096)
def index_attribute(value: int) -> Attribute:
    """Return a constant of type index."""
    return IntegerAttr(value, index)


@lru_cache(maxsize=64)
def in_bounds(rank: int, masked_dims: tuple[int, ...] = ()) -> ArrayAttr[BoolAttr]:
    """Return the `in_bounds` property of a transfer that needs a mask in these dimensions only."""
    return ArrayAttr([BoolAttr.from_bool(dim not in masked_dims) for dim in range(rank)])


@lru_cache
def zero_attribute(element: Attribute) -> Attribute:
    """Return zero as an attribute of a scalar type."""
    return scalar_attribute(0, element)


def scalar_attribute(value: int | float, element: Attribute) -> Attribute:
    """Return a constant as an attribute of a scalar type."""
    if isinstance(element, IntegerType | IndexType):
        return IntegerAttr(int(value), cast(Any, element))
    return FloatAttr(float(value), cast(Any, element))


@lru_cache(maxsize=4096)
def i64_array(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    """Return a list of integers as a DenseArray property."""
    return DenseArrayBase.from_list(i64, values)

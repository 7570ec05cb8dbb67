"""Types and attributes of the later stages: what is asked for often is made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from dlc import dims
from dlc.dims import Size, row_major
from dlc.ir import (
    DYNAMIC_INDEX,
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    Attribute,
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
)

MemRef: TypeAlias = MemRefType[Attribute]
# The memory space of arguments, and of what an item has for itself.
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
    """A memref type; `strides=None` is the row-major layout, `offset=None` one that is known at run time only.

    Symbolic sizes are `?` in the type: what they are follows from where the value comes from (sizes.py).
    """
    plain = tuple(s if isinstance(s, int) else DYNAMIC_INDEX for s in shape)
    if strides is None or (strides == row_major(shape) and offset == 0):
        return MemRefType(element, plain, memory_space=space)
    known = tuple(s if isinstance(s, int) else None for s in strides)
    return MemRefType(element, plain, StridedLayoutAttr(known, offset if isinstance(offset, int) else None), space)


def reshaped_strides(shape: Sequence[Size], strides: Sequence[Size], new: Sequence[Size]) -> tuple[Size, ...] | None:
    """The strides with which the elements of a strided array, in order, have the shape `new`; None if only a copy has it.

    Both shapes have the same number of elements, which is not 0.
    """
    # Runs of elements at one distance from each other, the innermost last; a dimension of size 1 is part of any run.
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
        count, stride = runs[-1] if runs else (1, 1)
        rest = dims.quotient(count, size)
        if rest is None:
            return None
        result.append(stride)
        if runs:
            runs[-1] = rest, stride * size
    return tuple(reversed(result))


def memref_of(value: SSAValue) -> MemRef:
    assert isinstance(value.type, MemRefType)
    return cast(MemRef, value.type)


@lru_cache(maxsize=4096)
def map_attribute(map_: AffineMap) -> AffineMapAttr:
    return AffineMapAttr(map_)


@lru_cache(maxsize=256)
def iterator_types(reductions: tuple[bool, ...]) -> ArrayAttr[IteratorTypeAttr]:
    """The iterator types that say which iterators are reduced."""
    return ArrayAttr([IteratorTypeAttr.reduction() if r else IteratorTypeAttr.parallel() for r in reductions])


@lru_cache(maxsize=256)
def segments(*counts: int) -> dict[str, Attribute]:
    """The property that says how many operands of each kind there are."""
    return {"operandSegmentSizes": DenseArrayBase.from_list(IntegerType(32), counts)}


@lru_cache(maxsize=4096)
def index_attribute(value: int) -> Attribute:
    """A number of type index."""
    return IntegerAttr(value, index)


@lru_cache(maxsize=64)
def in_bounds(rank: int) -> ArrayAttr[BoolAttr]:
    """The property that says of each dimension of a transfer that no mask is needed."""
    return ArrayAttr([BoolAttr.from_bool(True)] * rank)


@lru_cache
def zero_attribute(element: Attribute) -> Attribute:
    """Zero as an attribute of a scalar type."""
    return number_attribute(0, element)


def number_attribute(value: int | float, element: Attribute) -> Attribute:
    """A number as an attribute of a scalar type."""
    if isinstance(element, IntegerType | IndexType):
        return IntegerAttr(int(value), cast(Any, element))
    return FloatAttr(float(value), cast(Any, element))


@lru_cache(maxsize=4096)
def i64s(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    """A list of numbers as a property."""
    return DenseArrayBase.from_list(i64, values)

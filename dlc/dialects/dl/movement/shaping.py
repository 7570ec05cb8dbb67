"""Data movement: ops that rearrange elements without computing.

An op is a `DataMovement` if each result element is one element of the operand at an affine index. Ops that select between
elements (padding, concatenation) are gather-like.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import ClassVar, cast

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import common_element_type
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    Tensor,
    broadcasts_to,
    element_type_of,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.interfaces import Body, DataMovement, GatherLike, broadcast_map
from dlc.errors import ShapeError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    TensorType,
    arith,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
)
from dlc.shapes import dims
from dlc.shapes.dims import Size, UndecidableError, is_known_different, is_known_less

ALL_KINDS = ("float", "integer", "bool", "storage-only")


def static_size(op: DlOp, size: Size) -> int:
    """Return a size that must be static at this point; raise UndecidableError naming the op otherwise."""
    return static_sizes(op, [size])[0]


def static_sizes(op: DlOp, values: Sequence[Size]) -> tuple[int, ...]:
    """Return sizes that must be static at this point; raise UndecidableError naming the op otherwise."""
    if not dims.is_static(values):
        raise UndecidableError(f"{op.name}: symbolic sizes {tuple(values)}; bind them (pass bind-dims) first")
    return cast(tuple[int, ...], tuple(values))


def result_iterators(rank: int) -> list[AffineExpr]:
    """Return the iterators of a result of `rank`, as expressions."""
    return [AffineExpr.dimension(a) for a in range(rank)]


def add_offset(body: Body, i: SSAValue, offset: int) -> SSAValue:
    """Emit `i + offset`."""
    return body(arith.AddiOp(i, scalar.as_index(body, offset))) if offset else i


def clamp_index(body: Body, i: SSAValue, size: Size) -> SSAValue:
    """Emit `i` clamped to an axis of `size`."""
    low = body(arith.MaxSIOp(i, scalar.as_index(body, 0)))
    return body(arith.MinSIOp(low, scalar.as_index(body, size - 1)))


@irdl_op_definition
class TransposeOp(DataMovement):
    """Permutes axes: axis `a` of the result is axis `permutation[a]` of `x`.

    (C1) `permutation` holds each axis of `x` once.
    """

    name = "dl.transpose"
    x = operand_def(TensorType)
    permutation = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def axes(self) -> tuple[int, ...]:
        return ints(self.permutation)

    def infer(self) -> Sequence[Tensor]:
        shape, axes = shape_of(self.x), self.axes
        if sorted(axes) != list(range(len(shape))):
            raise ShapeError(f"dl.transpose: permutation {axes}; expected each axis of {shape} once (C1)")
        return [tensor_type((shape[a] for a in axes), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.transpose(operands[0], self.axes)

    def source_map(self) -> AffineMap:
        rank = len(self.axes)
        return AffineMap(rank, 0, tuple(AffineExpr.dimension(self.axes.index(a)) for a in range(rank)))


@irdl_op_definition
class BroadcastToOp(DataMovement):
    """`x` broadcast to `shape`: trailing axes aligned, axes of size 1 and missing axes repeated.

    (C1) `x` broadcasts to exactly `shape`.
    """

    name = "dl.broadcast_to"
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape = sizes(self.shape)
        if negative := [size for size in shape if is_known_less(size, 0)]:
            raise ShapeError(f"dl.broadcast_to: negative size {negative[0]} in shape {shape} (C1)")
        if not broadcasts_to(self.name, shape_of(self.x), shape):
            raise ShapeError(f"dl.broadcast_to: {shape_of(self.x)} does not broadcast to {shape} (C1)")
        return [tensor_type(shape, element_type_of(self.x))]

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        return [(shape_of(self.x), shape_of(self.result))]

    def reference(self, *operands: Array) -> Array:
        return np.broadcast_to(operands[0], static_sizes(self, sizes(self.shape)))

    def source_map(self) -> AffineMap:
        return broadcast_map(self.x, self.result)


@irdl_op_definition
class ReshapeOp(DlOp):
    """The elements of `x` in row-major order with the shape `shape`: another view of the same buffer.

    (C1) `shape` has the number of elements of `x`.
    """

    name = "dl.reshape"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape = sizes(self.shape)
        got, expected = dims.product(shape), dims.product(shape_of(self.x))
        if is_known_different(got, expected):
            raise ShapeError(f"dl.reshape: shape {shape} has {got} elements, x {shape_of(self.x)} has {expected} (C1)")
        return [tensor_type(shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.reshape(operands[0], static_sizes(self, sizes(self.shape)))


@irdl_op_definition
class SliceOp(DataMovement):
    """`x[starts : limits : strides]`, one entry per axis; express a negative stride by a slice and a `dl.reverse`.

    (C1) each list has one entry per axis; (C2) `0 ≤ start ≤ limit ≤ size`; (C3) `stride ≥ 1`. The result's size is
    `⌈(limit - start) / stride⌉`.
    """

    name = "dl.slice"
    x = operand_def(TensorType)
    starts = prop_def(DenseArrayBase | DimsAttr)
    limits = prop_def(DenseArrayBase | DimsAttr)
    strides = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape, starts, limits, strides = shape_of(self.x), sizes(self.starts), sizes(self.limits), ints(self.strides)
        if not len(shape) == len(starts) == len(limits) == len(strides):
            raise ShapeError(f"dl.slice: starts, limits and strides must have one entry per axis of {shape} (C1)")
        result: list[Size] = []
        for axis, (size, start, limit, stride) in enumerate(zip(shape, starts, limits, strides, strict=True)):
            if is_known_less(start, 0) or is_known_less(limit, start) or is_known_less(size, limit) or stride < 1:
                raise ShapeError(f"dl.slice: [{start}:{limit}:{stride}] is outside axis {axis} of {shape} (C2, C3)")
            result.append((limit - start + stride - 1) // stride)
        return [tensor_type(result, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        starts, limits = (static_sizes(self, sizes(p)) for p in (self.starts, self.limits))
        return operands[0][tuple(slice(*bounds) for bounds in zip(starts, limits, ints(self.strides), strict=True))]

    def source_map(self) -> AffineMap:
        # A symbolic start becomes a symbol of the map.
        starts, strides, symbols = sizes(self.starts), ints(self.strides), count()
        axes = result_iterators(len(starts))
        start_exprs = [s if isinstance(s, int) else AffineExpr.symbol(next(symbols)) for s in starts]
        return AffineMap(len(axes), next(symbols), tuple(d * k + s for d, s, k in zip(axes, start_exprs, strides, strict=True)))


@irdl_op_definition
class SlidingWindowsOp(DataMovement):
    """Sliding windows: the result has one leading axis per axis in `axes`, the offset in the window, then the axes of `x`.

    `y[k, …, …, i, …] = x[…, i·stride + k, …]`. (C1) `axes` are distinct axes of `x`, `sizes` and `strides` have one positive
    entry for each; (C2) no window is longer than its axis.
    """

    name = "dl.sliding_windows"
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def windows_by_axis(self) -> dict[int, tuple[int, int]]:
        """The (size, stride) of the windows by axis."""
        return dict(zip(ints(self.axes), zip(ints(self.sizes), ints(self.strides), strict=True), strict=True))

    def infer(self) -> Sequence[Tensor]:
        shape, windows_by_axis = shape_of(self.x), self.windows_by_axis
        if normalized_axes(self.name, ints(self.axes), len(shape)) != ints(self.axes):
            raise ShapeError(f"dl.sliding_windows: axes {ints(self.axes)}; expected axes counted from the front (C1)")
        result: list[Size] = list(ints(self.sizes))
        for axis, size in enumerate(shape):
            window, stride = windows_by_axis.get(axis, (1, 1))
            if axis in windows_by_axis and (window < 1 or stride < 1 or is_known_less(size, window)):
                raise ShapeError(f"dl.sliding_windows: windows of {window} every {stride} on axis {axis} of {shape} (C1, C2)")
            result.append((size - window) // stride + 1)
        return [tensor_type(result, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axes = operands, ints(self.axes)
        # A view as raw bytes: NumPy supports no sliding windows of ml_dtypes.
        windows = np.lib.stride_tricks.sliding_window_view(x.view(f"V{x.itemsize}"), ints(self.sizes), axes)
        strided_windows = windows[tuple(slice(None, None, self.windows_by_axis.get(a, (1, 1))[1]) for a in range(x.ndim))]
        leading = np.moveaxis(strided_windows, range(x.ndim, x.ndim + len(axes)), range(len(axes)))
        return np.ascontiguousarray(leading).view(x.dtype)

    def source_map(self) -> AffineMap:
        axes, windows_by_axis = ints(self.axes), self.windows_by_axis
        iterators = result_iterators(len(axes) + rank_of(self.x))
        indices = iterators[len(axes) :]
        for k, axis in enumerate(axes):
            indices[axis] = indices[axis] * windows_by_axis[axis][1] + iterators[k]
        return AffineMap(len(iterators), 0, tuple(indices))


@irdl_op_definition
class ReverseOp(DataMovement):
    """`x` with the order of the elements along `axes` reversed.

    (C1) `axes` are distinct axes of `x`.
    """

    name = "dl.reverse"
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def reversed_axes(self) -> tuple[int, ...]:
        return normalized_axes(self.name, ints(self.axes), rank_of(self.x))

    def infer(self) -> Sequence[Tensor]:
        _ = self.reversed_axes
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.flip(operands[0], self.reversed_axes)

    def source_map(self) -> AffineMap:
        # The last index of a symbolic axis becomes a symbol of the map.
        shape, symbols = shape_of(self.x), count()
        indices = result_iterators(len(shape))
        for a in self.reversed_axes:
            last = shape[a] - 1
            indices[a] = indices[a] * -1 + (last if isinstance(last, int) else AffineExpr.symbol(next(symbols)))
        return AffineMap(len(shape), next(symbols), tuple(indices))


@irdl_op_definition
class ConcatOp(GatherLike):
    """Concatenates the operands along `axis`.

    (C1) there is an operand; (C2) all have the same element type and rank; (C3) `axis` is one of their axes; (C4) the sizes of
    the other axes are equal.
    """

    name = "dl.concat"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    values = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def concat_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.values[0]))[0]

    def infer(self) -> Sequence[Tensor]:
        if not self.values:
            raise ShapeError("dl.concat: no operands (C1)")
        element = common_element_type(self, self.values, ALL_KINDS)
        shapes = [shape_of(v) for v in self.values]
        if len({len(s) for s in shapes}) > 1:
            raise ShapeError(f"dl.concat: shapes {', '.join(map(str, shapes))} differ in rank (C2)")
        axis, result = self.concat_axis, list(shapes[0])
        for shape in shapes[1:]:
            for a, size in enumerate(shape):
                if a == axis:
                    result[a] = result[a] + size
                elif is_known_different(size, result[a]):
                    raise ShapeError(
                        f"dl.concat: shapes {', '.join(map(str, shapes))} differ other than along axis {axis} (C4)"
                    )
                elif isinstance(size, int):
                    result[a] = size
        return [tensor_type(result, element)]

    def reference(self, *operands: Array) -> Array:
        return np.concatenate(operands, self.concat_axis)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis, offset = self.concat_axis, 0
        result: SSAValue | None = None
        for source, value in zip(sources, self.values, strict=True):
            size = static_size(self, shape_of(value)[axis])
            if size == 0:
                continue
            source_indices = list(indices)
            source_indices[axis] = clamp_index(body, add_offset(body, indices[axis], -offset), size)
            element = scalar.extract(body, source, source_indices)
            if result is None:
                result = element
            else:
                is_in_operand = body(arith.CmpiOp(indices[axis], scalar.as_index(body, offset), "sge"))
                result = scalar.select(body, is_in_operand, element, result)
            offset += size
        if result is None:
            raise ShapeError("dl.concat: an empty result has no elements to gather")
        return result

"""Movement: ops that place elements anew and compute none.

Where each result element is one element of the operand at an affine place, the op is a `Movement`; those that choose
between places (padding, concatenation) gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from dlc import dims
from dlc.arrays import aligned_empty
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    DimsAttr,
    DlOp,
    Tensor,
    broadcast_shapes,
    element_type_of,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.interfaces import Body, Gathering, Movement, broadcast_map
from dlc.dialects.dl.pointwise import common_element_type
from dlc.dims import Size, UndecidableError
from dlc.errors import ShapeError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    arith,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)

ANY = ("float", "integer", "bool", "narrow")


def known_less(a: Size, b: Size) -> bool:
    """Whether `a < b` for sure; False where symbols leave it open."""
    try:
        return a < b
    except UndecidableError:
        return False


def static_size(op: DlOp, size: Size) -> int:
    """A size that must be known by now; raises UndecidableError naming the op otherwise."""
    return static_sizes(op, [size])[0]


def static_sizes(op: DlOp, values: Sequence[Size]) -> tuple[int, ...]:
    """Sizes that must be known by now; raises UndecidableError naming the op otherwise."""
    if not dims.is_static(values):
        raise UndecidableError(f"{op.name}: symbolic sizes {tuple(values)}; bind them before this is asked for")
    return cast(tuple[int, ...], tuple(values))


def axis_expressions(rank: int) -> list[AffineExpr]:
    """The iterators of a result of `rank`, as expressions."""
    return [AffineExpr.dimension(a) for a in range(rank)]


@irdl_op_definition
class TransposeOp(Movement):
    """The axes in another order: axis `a` of the result is axis `permutation[a]` of `x`.

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
            raise ShapeError(f"dl.transpose: permutation {axes} is none of the axes of {shape} (C1)")
        return [tensor_type((shape[a] for a in axes), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.transpose(operands[0], self.axes)

    def source_map(self) -> AffineMap:
        rank = len(self.axes)
        return AffineMap(rank, 0, tuple(AffineExpr.dimension(self.axes.index(a)) for a in range(rank)))


@irdl_op_definition
class BroadcastToOp(Movement):
    """`x` repeated to `shape`: trailing axes aligned, axes of size 1 and missing ones repeated.

    (C1) `x` broadcasts to exactly `shape`.
    """

    name = "dl.broadcast_to"
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape = sizes(self.shape)
        if broadcast_shapes(self.name, shape_of(self.x), shape) != shape:
            raise ShapeError(f"dl.broadcast_to: {shape_of(self.x)} does not broadcast to {shape} (C1)")
        return [tensor_type(shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.broadcast_to(operands[0], static_sizes(self, sizes(self.shape)))

    def source_map(self) -> AffineMap:
        return broadcast_map(self.x, self.result)


@irdl_op_definition
class ReshapeOp(DlOp):
    """The elements of `x` in row-major order, as `shape`: another view of the same buffer.

    (C1) `shape` holds as many elements as `x`.
    """

    name = "dl.reshape"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape = sizes(self.shape)
        got, expected = dims.product(shape), dims.product(shape_of(self.x))
        if got != expected and isinstance(got, int) and isinstance(expected, int):
            raise ShapeError(f"dl.reshape: {shape} holds {got} elements, {shape_of(self.x)} holds {expected} (C1)")
        return [tensor_type(shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.reshape(operands[0], static_sizes(self, sizes(self.shape)))


@irdl_op_definition
class SliceOp(Movement):
    """`x[starts : limits : strides]`, one entry per axis; negative strides are a `dl.reverse` of the slice.

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
            if known_less(start, 0) or known_less(limit, start) or known_less(size, limit) or stride < 1:
                raise ShapeError(f"dl.slice: [{start}:{limit}:{stride}] is outside axis {axis} of {shape} (C2, C3)")
            result.append((limit - start + stride - 1) // stride)
        return [tensor_type(result, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        starts, limits = (static_sizes(self, sizes(p)) for p in (self.starts, self.limits))
        return operands[0][tuple(slice(*bounds) for bounds in zip(starts, limits, ints(self.strides), strict=True))]

    def source_map(self) -> AffineMap:
        starts, strides = static_sizes(self, sizes(self.starts)), ints(self.strides)
        axes = axis_expressions(len(starts))
        return AffineMap(len(axes), 0, tuple(d * k + s for d, s, k in zip(axes, starts, strides, strict=True)))


@irdl_op_definition
class WindowsOp(Movement):
    """Sliding windows: the result has one leading axis per axis in `axes`, the place in the window, then the axes of `x`.

    `y[k, …, …, i, …] = x[…, i·stride + k, …]`. (C1) `axes` are distinct axes of `x`, `sizes` and `strides` have one positive
    entry for each; (C2) no window is longer than its axis.
    """

    name = "dl.windows"
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def slides(self) -> dict[int, tuple[int, int]]:
        """Size and stride of the window along each axis that has one."""
        return dict(zip(ints(self.axes), zip(ints(self.sizes), ints(self.strides), strict=True), strict=True))

    def infer(self) -> Sequence[Tensor]:
        shape, slides = shape_of(self.x), self.slides
        if normalized_axes(self.name, ints(self.axes), len(shape)) != ints(self.axes):
            raise ShapeError(f"dl.windows: axes {ints(self.axes)} are counted from the front (C1)")
        result: list[Size] = list(ints(self.sizes))
        for axis, size in enumerate(shape):
            window, stride = slides.get(axis, (1, 1))
            if axis in slides and (window < 1 or stride < 1 or known_less(size, window)):
                raise ShapeError(f"dl.windows: windows of {window} every {stride} on axis {axis} of {shape} (C1, C2)")
            result.append((size - window) // stride + 1)
        return [tensor_type(result, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axes = operands, ints(self.axes)
        # As bytes: NumPy makes no such view of dtypes that are not its own.
        windows = np.lib.stride_tricks.sliding_window_view(x.view(f"V{x.itemsize}"), ints(self.sizes), axes)
        stepped = windows[tuple(slice(None, None, self.slides.get(a, (1, 1))[1]) for a in range(x.ndim))]
        moved = np.moveaxis(stepped, range(x.ndim, x.ndim + len(axes)), range(len(axes)))
        return np.ascontiguousarray(moved).view(x.dtype)

    def source_map(self) -> AffineMap:
        axes, slides = ints(self.axes), self.slides
        iterators = axis_expressions(len(axes) + rank_of(self.x))
        places = iterators[len(axes) :]
        for k, axis in enumerate(axes):
            places[axis] = places[axis] * slides[axis][1] + iterators[k]
        return AffineMap(len(iterators), 0, tuple(places))


@irdl_op_definition
class ReverseOp(Movement):
    """`x` with the order along `axes` turned around.

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
        shape = shape_of(self.x)
        places = axis_expressions(len(shape))
        for a in self.reversed_axes:
            places[a] = places[a] * -1 + (static_size(self, shape[a]) - 1)
        return AffineMap(len(shape), 0, tuple(places))


@irdl_op_definition
class PadOp(Gathering):
    """`x` with `low` elements more before it and `high` after it on each axis; negative numbers take elements away.

    `pad_mode` says what the new elements are: `constant` (the default) `value`; `edge` the nearest element; `reflect` the
    elements mirrored at the outermost one, which is not repeated; `wrap` the elements of the other end.
    (C1) `low` and `high` have one entry per axis; (C2) `value` is a scalar of the element type of `x`; (C3) `low + size +
    high ≥ 0`; (C4) other modes than `constant` need an element along a padded axis.
    """

    name = "dl.pad"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    value = operand_def(TensorType)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    pad_mode = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def mode(self) -> str:
        return self.pad_mode.data if self.pad_mode is not None else "constant"

    @property
    def padding(self) -> list[tuple[int, int]]:
        """`(low, high)` of each axis."""
        return list(zip(ints(self.low), ints(self.high), strict=True))

    def infer(self) -> Sequence[Tensor]:
        shape = shape_of(self.x)
        if not len(shape) == len(ints(self.low)) == len(ints(self.high)):
            raise ShapeError(f"dl.pad: low {ints(self.low)} and high {ints(self.high)} do not fit {shape} (C1)")
        if rank_of(self.value):
            raise ShapeError(f"dl.pad: value has shape {shape_of(self.value)}, expected a scalar (C2)")
        if self.mode not in PAD_MODES:
            raise ShapeError(f"dl.pad: pad_mode {self.mode!r}, expected one of {', '.join(PAD_MODES)}")
        element = common_element_type(self, [self.x, self.value], ANY)
        result = [low + size + high for size, (low, high) in zip(shape, self.padding, strict=True)]
        if any(known_less(size, 0) for size in result):
            raise ShapeError(f"dl.pad: low {ints(self.low)} and high {ints(self.high)} take more than {shape} has (C3)")
        if self.mode != "constant" and any(s == 0 and max(p) > 0 for s, p in zip(shape, self.padding, strict=True)):
            raise ShapeError(f"dl.pad: mode {self.mode} has no element to repeat in {shape} (C4)")
        return [tensor_type(result, element)]

    def reference(self, *operands: Array) -> Array:
        x, value = operands
        shape = [low + size + high for size, (low, high) in zip(x.shape, self.padding, strict=True)]
        if self.mode == "constant":
            kept = [
                slice(max(-low, 0), max(n - max(-high, 0), 0)) for n, (low, high) in zip(x.shape, self.padding, strict=True)
            ]
            inner = [slice(max(low, 0), max(n - max(high, 0), 0)) for n, (low, high) in zip(shape, self.padding, strict=True)]
            result = np.full(shape, value, x.dtype)
            result[tuple(inner)] = x[tuple(kept)]
            return result
        for axis, (low, _) in enumerate(self.padding):
            x = np.take(x, repeating_places(self.mode, x.shape[axis], shape[axis], low), axis)
        return x

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        x, value = sources
        shape = shape_of(self.x)
        outside = scalar.extract(body, value, [])
        if 0 in shape:
            return outside
        places: list[SSAValue] = []
        inside: SSAValue | None = None
        for i, size, (low, high) in zip(indices, shape, self.padding, strict=True):
            if low <= 0 and high <= 0:
                places.append(shifted(body, i, -low))
            elif self.mode in ("constant", "edge"):
                shifted_place = shifted(body, i, -low)
                places.append(clamped(body, shifted_place, size))
                here = body(arith.CmpiOp(shifted_place, places[-1], "eq"))
                inside = here if inside is None else scalar.both(body, inside, here)
            elif self.mode == "wrap":
                places.append(repeated(body, i, -low, size))
            else:
                period = larger(body, size * 2 - 2, 1)
                mirrored = repeated(body, i, -low, period)
                back = body(arith.SubiOp(scalar.position(body, period), mirrored))
                places.append(body(arith.MinSIOp(mirrored, back)))
        element = scalar.extract(body, x, places)
        return element if inside is None or self.mode != "constant" else scalar.select(body, inside, element, outside)


PAD_MODES = ("constant", "edge", "reflect", "wrap")


def repeating_places(mode: str, size: int, padded: int, low: int) -> Array:
    """Which of the `size` elements along an axis each of the `padded` ones repeats."""
    places: Array = np.arange(padded) - low
    match mode:
        case "edge":
            return np.clip(places, 0, size - 1)
        case "wrap":
            return np.mod(places, size)
        case _:
            period = max(2 * size - 2, 1)
            mirrored: Array = np.mod(places, period)
            return np.minimum(mirrored, period - mirrored)


def shifted(body: Body, i: SSAValue, offset: int) -> SSAValue:
    """`i + offset`."""
    return body(arith.AddiOp(i, scalar.position(body, offset))) if offset else i


def clamped(body: Body, i: SSAValue, size: Size) -> SSAValue:
    """`i` moved to the nearest place on an axis of `size`."""
    low = body(arith.MaxSIOp(i, scalar.position(body, 0)))
    return body(arith.MinSIOp(low, scalar.position(body, size - 1)))


def larger(body: Body, size: Size, least: int) -> Size | SSAValue:
    """The larger of a size and a number."""
    if isinstance(size, int):
        return max(size, least)
    return body(arith.MaxSIOp(scalar.position(body, size), scalar.position(body, least)))


def repeated(body: Body, i: SSAValue, offset: int, period: Size | SSAValue) -> SSAValue:
    """`(i + offset) mod period`, never negative."""
    if isinstance(period, int):
        return body(arith.RemUIOp(shifted(body, i, offset % period), scalar.position(body, period)))
    # As many periods more as elements are missing are enough.
    whole = scalar.position(body, period)
    more = body(arith.MuliOp(whole, scalar.position(body, max(-offset, 0))))
    return body(arith.RemUIOp(body(arith.AddiOp(shifted(body, i, offset), more)), whole))


@irdl_op_definition
class ConcatOp(Gathering):
    """The operands one behind the other along `axis`.

    (C1) there is an operand; (C2) all have one element type and rank; (C3) `axis` is one of their axes; (C4) the sizes of
    the other axes are equal.
    """

    name = "dl.concat"
    TAKES_NARROW: ClassVar[bool] = True
    values = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def joined_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.values[0]))[0]

    def infer(self) -> Sequence[Tensor]:
        if not self.values:
            raise ShapeError("dl.concat: no operands (C1)")
        element = common_element_type(self, self.values, ANY)
        shapes = [shape_of(v) for v in self.values]
        if len({len(s) for s in shapes}) > 1:
            raise ShapeError(f"dl.concat: shapes {', '.join(map(str, shapes))} differ in rank (C2)")
        axis, result = self.joined_axis, list(shapes[0])
        for shape in shapes[1:]:
            for a, size in enumerate(shape):
                if a == axis:
                    result[a] = result[a] + size
                elif isinstance(size, int) and size != result[a]:
                    if isinstance(result[a], int):
                        raise ShapeError(f"dl.concat: shapes {', '.join(map(str, shapes))} differ beside axis {axis} (C4)")
                    result[a] = size
        return [tensor_type(result, element)]

    def reference(self, *operands: Array) -> Array:
        return np.concatenate(operands, self.joined_axis)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis, offset = self.joined_axis, 0
        result: SSAValue | None = None
        for source, value in zip(sources, self.values, strict=True):
            size = static_size(self, shape_of(value)[axis])
            if size == 0:
                continue
            places = list(indices)
            places[axis] = clamped(body, shifted(body, indices[axis], -offset), size)
            element = scalar.extract(body, source, places)
            if result is None:
                result = element
            else:
                reached = body(arith.CmpiOp(indices[axis], scalar.position(body, offset), "sge"))
                result = scalar.select(body, reached, element, result)
            offset += size
        if result is None:
            raise ShapeError("dl.concat: an empty result has no elements to gather")
        return result


@irdl_op_definition
class PackOp(Gathering):
    """One axis split into tiles that lie outermost: `[…, O, …]` becomes `[⌈O / tile⌉, …, tile]`, the rest zero.

    (C1) `axis` is an axis of `x`; (C2) `tile ≥ 1`.
    """

    name = "dl.pack"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    tile = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def packed_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        shape, axis, tile = shape_of(self.x), self.packed_axis, number(self.tile)
        if tile < 1:
            raise ShapeError(f"dl.pack: tile {tile}, expected at least 1 (C2)")
        rest = shape[:axis] + shape[axis + 1 :]
        return [tensor_type(((shape[axis] + tile - 1) // tile, *rest, tile), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axis, tile = operands, self.packed_axis, number(self.tile)
        x = np.moveaxis(x, axis, -1)
        *rest, size = x.shape
        # Weights are large: they are written once, to where programs take them.
        packed = aligned_empty((-(-size // tile), *rest, tile), x.dtype)
        full, left = divmod(size, tile)
        np.moveaxis(packed, 0, -2)[..., :full, :] = x[..., : full * tile].reshape(*rest, full, tile)
        if left:
            packed[full, ..., :left] = x[..., full * tile :]
            packed[full, ..., left:] = 0
        return packed

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        size, tile = static_size(self, shape_of(self.x)[self.packed_axis]), number(self.tile)
        first = body(arith.MuliOp(indices[0], scalar.position(body, tile)))
        place = body(arith.AddiOp(first, indices[-1]))
        places = list(indices[1:-1])
        places.insert(self.packed_axis, place if size % tile == 0 else clamped(body, place, size))
        element = scalar.extract(body, sources[0], places)
        if size % tile == 0:
            return element
        inside = body(arith.CmpiOp(place, scalar.position(body, size), "slt"))
        return scalar.select(body, inside, element, scalar.like(body, 0, element))


@irdl_op_definition
class UnpackOp(Movement):
    """The inverse of `dl.pack`: `[⌈size / tile⌉, …, tile]` becomes `[…, size, …]` with `size` at `axis`.

    (C1) `x` has at least rank 2, its last size is `tile`, its first `⌈size / tile⌉`; (C2) `axis` is an axis of the result.
    """

    name = "dl.unpack"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    tile = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def packed_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x) - 1)[0]

    def infer(self) -> Sequence[Tensor]:
        shape, tile, size = shape_of(self.x), number(self.tile), number(self.size)
        if len(shape) < 2 or tile < 1 or shape[-1] != tile or shape[0] != -(-size // tile):
            raise ShapeError(f"dl.unpack: {shape} is no packing of {size} into tiles of {tile} (C1)")
        rest = list(shape[1:-1])
        rest.insert(self.packed_axis, size)
        return [tensor_type(rest, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        tiles_last = np.moveaxis(x, 0, -2)
        *rest, tiles, tile = tiles_last.shape
        flat = tiles_last.reshape(*rest, tiles * tile)[..., : number(self.size)]
        return np.moveaxis(flat, -1, self.packed_axis)

    def source_map(self) -> AffineMap:
        rank, tile = rank_of(self.x) - 1, number(self.tile)
        axes = axis_expressions(rank)
        split = axes.pop(self.packed_axis)
        return AffineMap(rank, 0, (split // tile, *axes, split % tile))

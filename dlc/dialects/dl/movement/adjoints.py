"""Adjoints (transposes) of data-movement and pooling ops, for gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.elementwise import AddOp, SelectOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.arithmetic.pointwise import common_element_type
from dlc.dialects.dl.base import Array, Tensor, compatible, element_type_of, ints, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import window_sizes, windows_of
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ALL_KINDS, ReshapeOp, SliceOp
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.errors import ShapeError
from dlc.ir import DenseArrayBase, SSAValue, TensorType, i32, irdl_op_definition, operand_def, prop_def, result_def
from dlc.shapes.dims import Size, is_same


@irdl_op_definition
class DilateOp(Composite):
    """`x` with `interior` copies of `value` between neighbors along each axis: the transpose of a strided `dl.slice`.

    (C1) `interior` has one nonnegative entry per axis; (C2) `value` is a scalar of the element type of `x`. An axis of n
    elements becomes `n + (n - 1)·interior` long; an empty one stays empty.
    """

    name = "dl.dilate"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    value = operand_def(TensorType)
    interior = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape, interior = shape_of(self.x), ints(self.interior)
        if len(shape) != len(interior) or min(interior, default=0) < 0 or rank_of(self.value):
            raise ShapeError(f"dl.dilate: interior {interior} and value {shape_of(self.value)} for x {shape} (C1, C2)")
        element = common_element_type(self, [self.x, self.value], ALL_KINDS)
        return [tensor_type((n if is_same(n, 0) else n + (n - 1) * k for n, k in zip(shape, interior, strict=True)), element)]

    def reference(self, *operands: Array) -> Array:
        x, value = operands
        steps = [k + 1 for k in ints(self.interior)]
        result = np.full([max(0, (n - 1) * k + 1) if n else 0 for n, k in zip(x.shape, steps, strict=True)], value, x.dtype)
        result[tuple(slice(None, None, k) for k in steps)] = x
        return result

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        (x, value), build, interior = operands, DlBuilder(self), ints(self.interior)
        shape = shape_of(x)
        if 0 in shape:
            return [build(ReshapeOp, x, shape=shape_of(self.result))]
        # Pad each element along a separate axis: [n, 1] → [n, 1 + interior] → [n·(1 + interior)].
        split = [size for n in shape for size in (n, 1)]
        high = [pad for k in interior for pad in (0, k)]
        padded = build(PadOp, build(ReshapeOp, x, shape=split), value, low=(0,) * len(split), high=high)
        flat = build(ReshapeOp, padded, shape=[n * (k + 1) for n, k in zip(shape, interior, strict=True)])
        limits = shape_of(self.result)
        return [build(SliceOp, flat, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))]


@irdl_op_definition
class MaxPoolGradientOp(Composite):
    """The gradient of `y = dl.max_pool x` with respect to `x`: each `g[n, s, c]` is added at the first maximum of its window.

    `kernel`, `strides` and `dilations` are those of the pooling. The first maximum is that in row-major order, or the first
    element of the window if the window contains NaN. Overlapping windows add up; 16-bit floats are summed in f32.
    (C1) `x` is [N, *S, C] of floats, `y` and `g` have the type of the pooling's result.
    """

    name = "dl.max_pool_gradient"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    g = operand_def(TensorType)
    kernel = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, windows = shape_of(self.x), (ints(self.kernel), ints(self.strides), ints(self.dilations))
        element = common_element_type(self, self.operands, ("float",))
        if len(x) < 3 or min(windows[0], default=0) < 1:
            raise ShapeError(f"dl.max_pool_gradient: x {x} must be [N, *spatial, C] and the kernel {windows[0]} positive (C1)")
        pooled = (x[0], *window_sizes(self, x[1:-1], *windows), x[-1])
        if not compatible(shape_of(self.y), pooled) or not compatible(shape_of(self.g), pooled):
            raise ShapeError(f"dl.max_pool_gradient: y {shape_of(self.y)} and g {shape_of(self.g)}, expected {pooled} (C1)")
        return [tensor_type(x, element)]

    def reference(self, *operands: Array) -> Array:
        kernel, strides, dilations = ints(self.kernel), ints(self.strides), ints(self.dilations)

        def compute(x: Array, y: Array, g: Array) -> Array:
            windows = windows_of(x, kernel, strides, dilations)
            is_maximum = windows == y.reshape(*y.shape, *(1 for _ in kernel))
            first = np.argmax(is_maximum.reshape(*y.shape, math.prod(kernel)), -1)
            result = np.zeros_like(x)
            for tap_index, tap in enumerate(np.ndindex(*kernel)):
                positions = (
                    slice(k * d, k * d + (n - 1) * s + 1, s)
                    for k, d, n, s in zip(tap, dilations, y.shape[1:-1], strides, strict=True)
                )
                result[:, *positions] += np.where(first == tap_index, g, 0)
            return result

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Select the gradients of the covering windows for each element: see Note [First maximum]."""
        build, dilations, strides = DlBuilder(self), ints(self.dilations), ints(self.strides)
        x, y, _ = operands
        n, *_, c = shape_of(x)
        sizes, counts = (shape_of(v)[1:-1] for v in (x, y))
        extents = [(k - 1) * d + 1 for k, d in zip(ints(self.kernel), dilations, strict=True)]
        # Along each axis: the maximum number of windows that cover an element, and the number of blocks of `stride` elements.
        covers = [-(-r // s) for r, s in zip(extents, strides, strict=True)]
        added = [_num_added_blocks(*axis) for axis in zip(sizes, counts, extents, strides, strict=True)]
        blocks = [count + m for count, m in zip(counts, added, strict=True)]
        radix = [s * t for s, t in zip(strides, covers, strict=True)]

        first = build.scalar(0, like=tensor_type((), i32))
        for tap in reversed(list(np.ndindex(*ints(self.kernel)))):
            offset = [k * d for k, d in zip(tap, dilations, strict=True)]
            limits = [o + (count - 1) * s + 1 for o, count, s in zip(offset, counts, strides, strict=True)]
            element = build(SliceOp, x, starts=(0, *offset, 0), limits=(n, *limits, c), strides=(1, *strides, 1))
            tap_index = build.scalar(int(np.ravel_multi_index(offset, radix)), like=first)
            first = build(SelectOp, build(EqualOp, element, y), tap_index, first)

        def pad_to_blocks(value: SSAValue, invalid: SSAValue) -> SSAValue:
            """Pad a tensor of windows with invalid ones; add an axis for the elements of a block after each spatial axis."""
            low = [t - 1 for t in covers]
            padded = build(PadOp, value, invalid, low=(0, *low, 0), high=(0, *added, 0))
            return build(ReshapeOp, padded, shape=(n, *(size for a in shape_of(padded)[1:-1] for size in (a, 1)), c))

        g = widen_floats(build, operands[2])
        zero = build.scalar(0, like=g)
        first, g = pad_to_blocks(first, build.scalar(-1, like=first)), pad_to_blocks(g, zero)
        total = None
        for cover in np.ndindex(*covers):
            starts = [start for t, count in zip(cover, covers, strict=True) for start in (count - 1 - t, 0)]
            limits = [limit for start, m in zip(starts[::2], blocks, strict=True) for limit in (start + m, 1)]
            window = {"starts": (0, *starts, 0), "limits": (n, *limits, c), "strides": (1,) * (2 * len(sizes) + 2)}
            # The offset in this window of each element of a block.
            offsets_in_window = np.indices(strides).reshape(len(strides), -1) + np.multiply(cover, strides)[:, None]
            offsets = np.ravel_multi_index(list(offsets_in_window), radix).reshape(1, *(k for s in strides for k in (1, s)), 1)
            is_maximum = build(EqualOp, build(SliceOp, first, **window), build.constant(offsets, i32))
            term = build(SelectOp, is_maximum, build(SliceOp, g, **window), zero)
            total = term if total is None else build(AddOp, total, term)
        assert total is not None
        interleaved = build(ReshapeOp, total, shape=(n, *(m * s for m, s in zip(blocks, strides, strict=True)), c))
        rank = len(sizes) + 2
        trimmed = build(SliceOp, interleaved, starts=(0,) * rank, limits=(n, *sizes, c), strides=(1,) * rank)
        return [cast_to(build, trimmed, element_type_of(x))]


def _num_added_blocks(size: Size, count: Size, extent: int, stride: int) -> int:
    """Return how many more blocks of `stride` elements cover an axis than there are windows; an upper bound if symbolic."""
    if isinstance(size, int) and isinstance(count, int):
        return -(-size // stride) - count
    # The size is at most (count - 1) * stride + extent + stride - 1.
    return (extent + 2 * stride - 2) // stride - 1


# Note [First maximum]
#
# For each window, a chain of selects from the last tap to the first computes the offset of its first maximum. An element of x
# sums g over the windows that cover it, ⌈reach / stride⌉ along each axis, and whose first maximum it is. Elements are grouped
# into blocks of `stride`: all elements at one position in their blocks are covered by windows at the same distances, so that
# the windows are slices, and nothing is written at data-dependent positions.

"""Transposed convolution, as a convolution that computes all sub-pixels of a place at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, ints, number, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contraction import ConvOp, contract, differ
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement import PadOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dims import Size, is_static
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)


@irdl_op_definition
class ConvTransposeOp(Composite):
    """The transpose of channels-last convolution: each element of `x` [N, *S, C] adds `w` [*K, C, O/groups] to the result.

    `y[n, s·stride + k·dilation, o] += x[n, s, c] · w[k, c, o mod (O/groups)]`, for the channels c of o's group; the result
    is [N, *((S - 1)·stride + (K - 1)·dilation + 1), O]. ONNX's pads are a `dl.slice` of it.

    (C1) `strides` and `dilations` have a positive entry per spatial axis; (C2) `groups` divides C, and w has C channels;
    (C3) element types are equal; (C4) w has static sizes. Between kernels that do not touch there are zeros. Decomposed, it
    multiplies zeros beside the elements of w where taps are dilated, or a stride below the kernel does not divide it: an
    infinity or NaN in x makes NaN of all results within the kernel's reach then.

        >>> b(ConvTransposeOp, x, w, strides=(2,), dilations=(1,), groups=1)   # [1, 5, 3], [4, 3, 8] → [1, 12, 8]
    """

    name = "dl.conv_transpose"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    strides = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, w, groups = shape_of(self.x), shape_of(self.w), number(self.groups)
        strides, dilations = ints(self.strides), ints(self.dilations)
        if len(x) < 3 or len(w) != len(x) or not is_static(w):
            raise ShapeError(f"dl.conv_transpose: x {x} must be [N, *spatial, C] and w {w} [*kernel, C, O/groups], w static")
        if not len(strides) == len(dilations) == len(x) - 2 or min(strides + dilations) < 1:
            raise ShapeError(f"dl.conv_transpose: strides {strides} and dilations {dilations} need a positive entry per axis")
        if groups < 1 or differ(x[-1], w[-2]) or differ(w[-2] % groups, 0):
            raise ShapeError(f"dl.conv_transpose: channels of x {x} and w {w} differ or do not divide into {groups} groups")
        if element_type_of(self.x) != element_type_of(self.w):
            raise DTypeError(f"dl.conv_transpose: x is {element_type_of(self.x)}, w {element_type_of(self.w)}; cast one")
        spatial = ((s - 1) * a + (k - 1) * d + 1 for s, k, a, d in zip(x[1:-1], w[:-2], strides, dilations, strict=True))
        return [tensor_type((x[0], *spatial, w[-1] * groups), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return contract(self._scatter, operands, numpy_dtype(element_type_of(self.result)))

    def _scatter(self, x: Array, w: Array) -> Array:
        strides, dilations, groups = ints(self.strides), ints(self.dilations), number(self.groups)
        n, *spatial, channels = x.shape
        *kernel, _, outputs = w.shape
        reach = [(s - 1) * a + (k - 1) * d + 1 for s, k, a, d in zip(spatial, kernel, strides, dilations, strict=True)]
        y = np.zeros((n, *reach, groups * outputs), x.dtype)
        rows = x.reshape(n * prod(spatial), groups, channels // groups).transpose(1, 0, 2)
        for tap in np.ndindex(*kernel):
            columns = w[tap].reshape(groups, channels // groups, outputs)
            product = (rows @ columns).transpose(1, 0, 2).reshape(n, *spatial, groups * outputs)
            places = (
                slice(t * d, t * d + (s - 1) * a + 1, a) for t, d, s, a in zip(tap, dilations, spatial, strides, strict=True)
            )
            y[(slice(None), *places)] += product
        return y

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """See Note [Sub-pixel convolution]."""
        x, w = operands
        b, groups, strides = Build(self), number(self.groups), ints(self.strides)
        spatial = len(strides)
        w = _dilated(b, w, ints(self.dilations))
        *kernel, channels, outputs = (int(s) for s in shape_of(w))
        taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
        # Places between kernels that do not touch are filled with zeros afterwards: no x is multiplied with them.
        phases = [min(k, s) for k, s in zip(kernel, strides, strict=True)]
        w = _padded(b, w, (0,) * len(kernel), [j * p - k for j, p, k in zip(taps, phases, kernel, strict=True)])
        # [J·phases, …, C, O/G] → [J, …, C/G, G, phases, …, O/G], taps in reverse: convolution correlates.
        w = b(ReshapeOp, w, shape=(*_interleaved(taps, phases), groups, channels // groups, outputs))
        order = (*range(0, 2 * spatial, 2), 2 * spatial + 1, 2 * spatial, *range(1, 2 * spatial, 2), 2 * spatial + 2)
        w = b(TransposeOp, w, permutation=order)
        w = b(ReverseOp, w, axes=tuple(range(spatial)))
        w = b(ReshapeOp, w, shape=(*taps, channels // groups, groups * prod(phases) * outputs))
        halo = [j - 1 for j in taps]
        y = b(ConvOp, _padded(b, x, (0, *halo), halo), w, strides=(1,) * spatial, dilations=(1,) * spatial, groups=groups)
        # [N, Q, …, G, phases, …, O/G] → [N, Q·stride, …, O]
        n, *places, _ = shape_of(y)
        y = b(ReshapeOp, y, shape=(n, *places, groups, *phases, outputs))
        order = (0, *(a for i in range(spatial) for a in (1 + i, 2 + spatial + i)), 1 + spatial, 2 + 2 * spatial)
        y = b(TransposeOp, y, permutation=order)
        gaps = (s - p for s, p in zip(strides, phases, strict=True))
        y = _padded(b, y, (0,), (0, *(size for gap in gaps for size in (0, gap))))
        y = b(ReshapeOp, y, shape=(n, *(q * s for q, s in zip(places, strides, strict=True)), groups * outputs))
        limits = shape_of(self.result)
        if shape_of(y) != limits:
            y = b(SliceOp, y, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))
        return [y]


# Note [Sub-pixel convolution]
#
# Write an output place as p = q·stride + r with 0 ≤ r < stride, and a tap as k = j·stride + r. Then
#     y[q·stride + r] = Σⱼ x[q - j] · w[j·stride + r]
# is a convolution with J = ⌈K / stride⌉ taps and one output channel per (r, o): no multiplication by an inserted zero.
# Its result, [N, Q, …, (r, o)] with Q = S + J - 1, is moved to [N, Q·stride, …, o] and cut to the size.
# All that is done to w is a weight expression, evaluated once.


def _interleaved(a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(s for pair in zip(a, b, strict=True) for s in pair)


def _padded(b: Build, value: SSAValue, low: Sequence[int], high: Sequence[int]) -> SSAValue:
    """`value` with zeros around its leading axes."""
    if not any((*low, *high)):
        return value
    rank = len(shape_of(value))
    low, high = (*low, *(0,) * (rank - len(low))), (*(0,) * (len(low) - len(high)), *high)
    high = (*high, *(0,) * (rank - len(high)))
    return b(PadOp, value, b.scalar(0, like=value), low=low, high=high)


def _dilated(b: Build, w: SSAValue, dilations: Sequence[int]) -> SSAValue:
    """Weights [*K, C, O] with `dilation - 1` zeros between taps."""
    for axis, dilation in enumerate(dilations):
        if dilation == 1:
            continue
        shape = [int(s) for s in shape_of(w)]
        before, size, after = shape[:axis], shape[axis], shape[axis + 1 :]
        apart = b(ReshapeOp, w, shape=(*before, size, 1, *after))
        zeros = _padded(b, apart, (0,) * (axis + 2), (*(0,) * (axis + 1), dilation - 1))
        flat = b(ReshapeOp, zeros, shape=(*before, size * dilation, *after))
        limits = (*before, (size - 1) * dilation + 1, *after)
        w = b(SliceOp, flat, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))
    return w

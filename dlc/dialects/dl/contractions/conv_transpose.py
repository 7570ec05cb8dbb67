"""Transposed convolution, decomposed to convolutions that compute all sub-pixels of an output position at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, ints, number, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import contract
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
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
from dlc.shapes.dims import Size, is_known_different, is_static


@irdl_op_definition
class ConvTransposeOp(Composite):
    """The transpose of channels-last convolution: each element of `x` [N, *S, C] adds `w` [*K, C, O/groups] to the result.

    `y[n, s·stride + k·dilation, o] += x[n, s, c] · w[k, c, o mod (O/groups)]`, for the channels c of o's group; the result
    is [N, *((S - 1)·stride + (K - 1)·dilation + 1), O]. ONNX's pads are a `dl.slice` of it.

    (C1) `strides` and `dilations` have a positive entry per spatial axis; (C2) `groups` divides C, and w has C channels; (C3)
    element types are equal; (C4) w has static sizes. Positions between kernels that do not overlap are zero, and no element of
    x is multiplied by a padding zero: an infinity or NaN affects only results whose formula has it.

        >>> build(ConvTransposeOp, x, w, strides=(2,), dilations=(1,), groups=1)   # [1, 5, 3], [4, 3, 8] → [1, 12, 8]
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
        if groups < 1 or is_known_different(x[-1], w[-2]) or is_known_different(w[-2] % groups, 0):
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
        extents = [(s - 1) * a + (k - 1) * d + 1 for s, k, a, d in zip(spatial, kernel, strides, dilations, strict=True)]
        y = np.zeros((n, *extents, groups * outputs), x.dtype)
        rows = x.reshape(n * prod(spatial), groups, channels // groups).transpose(1, 0, 2)
        for tap in np.ndindex(*kernel):
            columns = w[tap].reshape(groups, channels // groups, outputs)
            product = (rows @ columns).transpose(1, 0, 2).reshape(n, *spatial, groups * outputs)
            targets = (
                slice(t * d, t * d + (s - 1) * a + 1, a) for t, d, s, a in zip(tap, dilations, spatial, strides, strict=True)
            )
            y[(slice(None), *targets)] += product
        return y

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Decompose to one convolution per class of taps: see Note [Sub-pixel convolution]."""
        (x, w), build, groups = operands, DlBuilder(self), number(self.groups)
        pairs = list(zip(ints(self.strides), ints(self.dilations), strict=True))
        common_factors = [gcd(s, d) for s, d in pairs]
        if max(common_factors) > 1:
            strides, dilations = ([n // g for n, g in zip(ns, common_factors, strict=True)] for ns in zip(*pairs, strict=True))
            y = build(ConvTransposeOp, x, w, strides=strides, dilations=dilations, groups=groups)
            return [_truncate(build, _dilate(build, y, common_factors), shape_of(self.result))]
        *kernel, _, _ = (int(k) for k in shape_of(w))
        classes = [_tap_classes(k, s, d) for k, (s, d) in zip(kernel, pairs, strict=True)]
        positions = [
            size + max(c.shift + (c.taps - 1) * d for c in axis)
            for size, axis, (_, d) in zip(shape_of(x)[1:-1], classes, pairs, strict=True)
        ]
        results = [self._convolve_classes(build, x, w, combination, positions) for combination in product(*classes)]
        # `product` varies the last axis fastest: results are concatenated along it first.
        for axis, axis_classes in reversed(list(enumerate(classes))):
            count = len(axis_classes)
            runs = [results[k : k + count] for k in range(0, len(results), count)]
            results = [run[0] if count == 1 else build(ConcatOp, *run, axis=2 + 2 * axis) for run in runs]
        shape = (shape_of(x)[0], *(q * s for q, (s, _) in zip(positions, pairs, strict=True)), shape_of(self.result)[-1])
        return [_truncate(build, build(ReshapeOp, results[0], shape=shape), shape_of(self.result))]

    def _convolve_classes(
        self, build: DlBuilder, x: SSAValue, weights: SSAValue, axis_classes: Sequence[_TapClass], positions: Sequence[Size]
    ) -> SSAValue:
        """Return the results of one tap class per axis, each group of phases followed by its gap: [N, Q, phases, …, G, O/G]."""
        groups, strides, dilations, spatial = number(self.groups), ints(self.strides), ints(self.dilations), len(axis_classes)
        outputs = int(shape_of(weights)[-1])
        taps, phases = [c.taps for c in axis_classes], [c.phases for c in axis_classes]
        weights = _weights(build, weights, axis_classes, strides, groups)
        dilations = [d if c.taps > 1 else 1 for c, d in zip(axis_classes, dilations, strict=True)]
        halo = [(j - 1) * d for j, d in zip(taps, dilations, strict=True)]
        y = build(
            ConvOp,
            _pad_with_zeros(build, x, (0, *halo), halo),
            weights,
            strides=(1,) * spatial,
            dilations=dilations,
            groups=groups,
        )
        n, *sizes, _ = shape_of(y)
        if groups == prod(phases) == 1:
            y = build(ReshapeOp, y, shape=(n, *(entry for size in sizes for entry in (size, 1)), 1, outputs))
        else:
            y = build(ReshapeOp, y, shape=(n, *sizes, groups, *phases, outputs))
            order = (0, *(a for i in range(spatial) for a in (1 + i, 2 + spatial + i)), 1 + spatial, 2 + 2 * spatial)
            y = build(TransposeOp, y, permutation=order)
        low = [shift for c in axis_classes for shift in (c.shift, 0)]
        paddings = (int(q - size - c.shift) for q, size, c in zip(positions, sizes, axis_classes, strict=True))
        high = [end for padding, c in zip(paddings, axis_classes, strict=True) for end in (padding, c.gap)]
        return _pad_with_zeros(build, y, (0, *low), (0, *high))


@dataclass(frozen=True)
class _TapClass:
    """The taps `first + i + j·stride` of an axis, for i below `phases` and j below `taps`.

    The first result that they add to is `shift` strides after the first result of the axis; `gap` results after each group of
    phases are reached by no tap.
    """

    first: int
    phases: int
    taps: int
    shift: int
    gap: int


def _tap_classes(kernel: int, stride: int, dilation: int) -> list[_TapClass]:
    """Return the tap classes of an axis in the order of their results, for coprime stride and dilation."""
    if dilation == 1:
        remainder = kernel % stride if kernel > stride else kernel
        counts = [(0, remainder, -(-kernel // stride)), (remainder, stride - remainder, kernel // stride)]
        classes = [(first, first, phases, taps, 0) for first, phases, taps in counts if phases and taps]
    else:
        classes = sorted(
            (k * dilation % stride, k, 1, len(range(k, kernel, stride)), k * dilation // stride)
            for k in range(min(kernel, stride))
        )
    next_residues = [*(residue for residue, *_ in classes[1:]), stride]
    return [
        _TapClass(first, phases, taps, shift, next_residue - residue - phases)
        for (residue, first, phases, taps, shift), next_residue in zip(classes, next_residues, strict=True)
    ]


# Note [Sub-pixel convolution]
#
# For coprime stride s and dilation d, tap k adds to the positions p with p mod s = k·d mod s. Taps k, k + s, k + 2s, … form a
# class, whose results are a convolution with dilation d:
#     y[(q + ⌊k·d / s⌋)·s + k·d mod s] = Σⱼ x[q - j·d] · w[k + j·s]
# Without dilation, classes with equally many taps are one convolution, with an output channel for each class and each o. No
# element is multiplied by a padding zero, which would turn an infinity into NaN. A common factor of s and d leaves gaps between
# all results: the op without that factor computes them, and they are dilated.
# The results, [N, Q, …, (class, o)], are transposed to [N, Q, class, …, o], concatenated, and truncated to the result's size.
# All ops on w are weight expressions, which are evaluated once.


def _weights(
    build: DlBuilder, weights: SSAValue, axis_classes: Sequence[_TapClass], strides: Sequence[int], groups: int
) -> SSAValue:
    """Return the weights of one tap class per axis: [J, …, C/G, G · phases · O/G], taps reversed for `dl.conv`."""
    *_, channels, outputs = (int(s) for s in shape_of(weights))
    taps, phases, spatial = [c.taps for c in axis_classes], [c.phases for c in axis_classes], len(axis_classes)
    reversed_axes = tuple(axis for axis in range(spatial) if taps[axis] > 1)
    if groups == prod(phases) == 1:
        starts = (*(c.first for c in axis_classes), 0, 0)
        limits = (*(c.first + (c.taps - 1) * s + 1 for c, s in zip(axis_classes, strides, strict=True)), channels, outputs)
        weights = build(SliceOp, weights, starts=starts, limits=limits, strides=(*strides, 1, 1))
        return build(ReverseOp, weights, axes=reversed_axes) if reversed_axes else weights
    for axis, (c, stride) in enumerate(zip(axis_classes, strides, strict=True)):
        weights = _taps(build, weights, axis, c, stride)
    # [J, phases, …, C, O/G] → [J, …, C/G, G, phases, …, O/G]
    weights = build(ReshapeOp, weights, shape=(*_interleave(taps, phases), groups, channels // groups, outputs))
    order = (*range(0, 2 * spatial, 2), 2 * spatial + 1, 2 * spatial, *range(1, 2 * spatial, 2), 2 * spatial + 2)
    weights = build(TransposeOp, weights, permutation=order)
    weights = build(ReverseOp, weights, axes=reversed_axes) if reversed_axes else weights
    return build(ReshapeOp, weights, shape=(*taps, channels // groups, groups * prod(phases) * outputs))


def _taps(build: DlBuilder, weights: SSAValue, axis: int, tap_class: _TapClass, stride: int) -> SSAValue:
    """Return the taps of a class along an axis of w, as [taps, phases] flattened to one axis."""
    shape = [int(s) for s in shape_of(weights)]
    # The padding after the last phase is never read.
    num_missing = max(tap_class.first + tap_class.taps * stride - shape[axis], 0)
    weights = _pad_with_zeros(build, weights, (0,) * (axis + 1), (*(0,) * axis, num_missing))
    weights = _slice_axis(build, weights, axis, tap_class.first, tap_class.first + tap_class.taps * stride)
    weights = build(ReshapeOp, weights, shape=(*shape[:axis], tap_class.taps, stride, *shape[axis + 1 :]))
    weights = _slice_axis(build, weights, axis + 1, 0, tap_class.phases)
    return build(ReshapeOp, weights, shape=(*shape[:axis], tap_class.taps * tap_class.phases, *shape[axis + 1 :]))


def _slice_axis(build: DlBuilder, value: SSAValue, axis: int, start: int, end: int) -> SSAValue:
    limits = list(shape_of(value))
    if (start, end) == (0, limits[axis]):
        return value
    limits[axis] = end
    starts = [start if a == axis else 0 for a in range(len(limits))]
    return build(SliceOp, value, starts=starts, limits=limits, strides=(1,) * len(limits))


def _truncate(build: DlBuilder, value: SSAValue, limits: Sequence[Size]) -> SSAValue:
    """Return the first elements along each axis, up to `limits`."""
    if shape_of(value) == limits:
        return value
    return build(SliceOp, value, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))


def _dilate(build: DlBuilder, value: SSAValue, distances: Sequence[int]) -> SSAValue:
    """Return `value` [N, *S, C] with zeros after each element of the spatial axes, so that elements have these distances."""
    n, *sizes, channels = shape_of(value)
    value = build(ReshapeOp, value, shape=(n, *_interleave(sizes, [1] * len(sizes)), channels))
    value = _pad_with_zeros(build, value, (0,), (0, *(high for g in distances for high in (0, g - 1))))
    return build(ReshapeOp, value, shape=(n, *(s * g for s, g in zip(sizes, distances, strict=True)), channels))


def _interleave(a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(s for pair in zip(a, b, strict=True) for s in pair)


def _pad_with_zeros(build: DlBuilder, value: SSAValue, low: Sequence[int], high: Sequence[int]) -> SSAValue:
    """Return `value` with zeros around its leading axes."""
    if not any((*low, *high)):
        return value
    rank = len(shape_of(value))
    low, high = (*low, *(0,) * (rank - len(low))), (*(0,) * (len(low) - len(high)), *high)
    high = (*high, *(0,) * (rank - len(high)))
    return build(PadOp, value, build.scalar(0, like=value), low=low, high=high)

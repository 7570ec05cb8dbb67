"""Transposed convolution, as a convolution that computes all sub-pixels of a place at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, ints, number, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import contract, differ
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
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
    (C3) element types are equal; (C4) w has static sizes. Between kernels that do not touch there are zeros,
    and no element of x is multiplied with one: infinities and NaN stay where they are added.

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
        (x, w), b, groups = operands, Build(self), number(self.groups)
        pairs = list(zip(ints(self.strides), ints(self.dilations), strict=True))
        common = [gcd(s, d) for s, d in pairs]
        if max(common) > 1:
            strides, dilations = ([n // g for n, g in zip(ns, common, strict=True)] for ns in zip(*pairs, strict=True))
            y = b(ConvTransposeOp, x, w, strides=strides, dilations=dilations, groups=groups)
            return [_cut(b, _spread(b, y, common), shape_of(self.result))]
        *kernel, _, _ = (int(k) for k in shape_of(w))
        classes = [_classes(k, s, d) for k, (s, d) in zip(kernel, pairs, strict=True)]
        places = [
            size + max(c.shift + (c.taps - 1) * d for c in axis)
            for size, axis, (_, d) in zip(shape_of(x)[1:-1], classes, pairs, strict=True)
        ]
        parts = [self._part(b, x, w, chosen, places) for chosen in product(*classes)]
        # The last axis changes first: parts of one row of classes are joined along it, then rows.
        for axis, own in reversed(list(enumerate(classes))):
            count = len(own)
            runs = [parts[k : k + count] for k in range(0, len(parts), count)]
            parts = [run[0] if count == 1 else b(ConcatOp, *run, axis=2 + 2 * axis) for run in runs]
        shape = (shape_of(x)[0], *(q * s for q, (s, _) in zip(places, pairs, strict=True)), shape_of(self.result)[-1])
        return [_cut(b, b(ReshapeOp, parts[0], shape=shape), shape_of(self.result))]

    def _part(self, b: Build, x: SSAValue, w: SSAValue, chosen: Sequence[_Class], places: Sequence[Size]) -> SSAValue:
        """The results of one class on each axis, and the gaps behind them: [N, Q, phases, …, G, O/G]."""
        groups, strides, dilations, spatial = number(self.groups), ints(self.strides), ints(self.dilations), len(chosen)
        outputs = int(shape_of(w)[-1])
        taps, phases = [c.taps for c in chosen], [c.phases for c in chosen]
        w = _weights(b, w, chosen, strides, groups)
        apart = [d if c.taps > 1 else 1 for c, d in zip(chosen, dilations, strict=True)]
        halo = [(j - 1) * d for j, d in zip(taps, apart, strict=True)]
        y = b(ConvOp, _padded(b, x, (0, *halo), halo), w, strides=(1,) * spatial, dilations=apart, groups=groups)
        n, *sizes, _ = shape_of(y)
        if groups == prod(phases) == 1:
            y = b(ReshapeOp, y, shape=(n, *(part for size in sizes for part in (size, 1)), 1, outputs))
        else:
            y = b(ReshapeOp, y, shape=(n, *sizes, groups, *phases, outputs))
            order = (0, *(a for i in range(spatial) for a in (1 + i, 2 + spatial + i)), 1 + spatial, 2 + 2 * spatial)
            y = b(TransposeOp, y, permutation=order)
        low = [shift for c in chosen for shift in (c.shift, 0)]
        rest = (int(q - size - c.shift) for q, size, c in zip(places, sizes, chosen, strict=True))
        high = [end for behind, c in zip(rest, chosen, strict=True) for end in (behind, c.gap)]
        return _padded(b, y, (0, *low), (0, *high))


@dataclass(frozen=True)
class _Class:
    """Taps `first + i + j·stride` of an axis, for `phases` i and `taps` j: what they add to begins `shift` strides from the
    first result, and behind it come as many results as `gap` says that no tap reaches."""

    first: int
    phases: int
    taps: int
    shift: int
    gap: int


def _classes(kernel: int, stride: int, dilation: int) -> list[_Class]:
    """The taps of an axis in the order of their results, for a stride and a dilation without a common factor."""
    if dilation == 1:
        whole = kernel % stride if kernel > stride else kernel
        counts = [(0, whole, -(-kernel // stride)), (whole, stride - whole, kernel // stride)]
        found = [(first, first, phases, taps, 0) for first, phases, taps in counts if phases and taps]
    else:
        found = sorted(
            (k * dilation % stride, k, 1, len(range(k, kernel, stride)), k * dilation // stride)
            for k in range(min(kernel, stride))
        )
    ends = [*(place for place, *_ in found[1:]), stride]
    return [
        _Class(first, phases, taps, shift, end - place - phases)
        for (place, first, phases, taps, shift), end in zip(found, ends, strict=True)
    ]


# Note [Sub-pixel convolution]
#
# Of a stride s and a dilation d without a common factor, tap k adds to places p with p mod s = k·d mod s: taps k, k + s,
# k + 2s, … are a class, and
#     y[(q + ⌊k·d / s⌋)·s + k·d mod s] = Σⱼ x[q - j·d] · w[k + j·s]
# is a convolution with dilation d. Without dilation, classes with as many taps are one convolution, with an output channel
# for each of them and each o. So nothing is multiplied by a zero that was put in, which would make NaN of an infinity.
# A common factor of s and d leaves gaps between all results: they are made by the op without it, and spread.
# Results, [N, Q, …, (class, o)], are moved to [N, Q, class, …, o], joined, and cut to the size.
# All that is done to w is a weight expression, evaluated once.


def _weights(b: Build, w: SSAValue, chosen: Sequence[_Class], strides: Sequence[int], groups: int) -> SSAValue:
    """The weights of one class on each axis: [J, …, C/G, G · phases · O/G], taps in reverse, since convolution correlates."""
    *_, channels, outputs = (int(s) for s in shape_of(w))
    taps, phases, spatial = [c.taps for c in chosen], [c.phases for c in chosen], len(chosen)
    turned = tuple(axis for axis in range(spatial) if taps[axis] > 1)
    if groups == prod(phases) == 1:
        starts = (*(c.first for c in chosen), 0, 0)
        limits = (*(c.first + (c.taps - 1) * s + 1 for c, s in zip(chosen, strides, strict=True)), channels, outputs)
        w = b(SliceOp, w, starts=starts, limits=limits, strides=(*strides, 1, 1))
        return b(ReverseOp, w, axes=turned) if turned else w
    for axis, (c, stride) in enumerate(zip(chosen, strides, strict=True)):
        w = _taps(b, w, axis, c, stride)
    # [J, phases, …, C, O/G] → [J, …, C/G, G, phases, …, O/G]
    w = b(ReshapeOp, w, shape=(*_interleaved(taps, phases), groups, channels // groups, outputs))
    order = (*range(0, 2 * spatial, 2), 2 * spatial + 1, 2 * spatial, *range(1, 2 * spatial, 2), 2 * spatial + 2)
    w = b(TransposeOp, w, permutation=order)
    w = b(ReverseOp, w, axes=turned) if turned else w
    return b(ReshapeOp, w, shape=(*taps, channels // groups, groups * prod(phases) * outputs))


def _taps(b: Build, w: SSAValue, axis: int, c: _Class, stride: int) -> SSAValue:
    """The taps of a class along an axis of w, as [taps, phases] of one axis."""
    shape = [int(s) for s in shape_of(w)]
    # What is missing behind the last phase is never read.
    missing = max(c.first + c.taps * stride - shape[axis], 0)
    w = _padded(b, w, (0,) * (axis + 1), (*(0,) * axis, missing))
    w = _sliced(b, w, axis, c.first, c.first + c.taps * stride)
    w = b(ReshapeOp, w, shape=(*shape[:axis], c.taps, stride, *shape[axis + 1 :]))
    w = _sliced(b, w, axis + 1, 0, c.phases)
    return b(ReshapeOp, w, shape=(*shape[:axis], c.taps * c.phases, *shape[axis + 1 :]))


def _sliced(b: Build, value: SSAValue, axis: int, start: int, end: int) -> SSAValue:
    limits = list(shape_of(value))
    if (start, end) == (0, limits[axis]):
        return value
    limits[axis] = end
    starts = [start if a == axis else 0 for a in range(len(limits))]
    return b(SliceOp, value, starts=starts, limits=limits, strides=(1,) * len(limits))


def _cut(b: Build, value: SSAValue, limits: Sequence[Size]) -> SSAValue:
    """The first elements along each axis."""
    if shape_of(value) == limits:
        return value
    return b(SliceOp, value, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))


def _spread(b: Build, value: SSAValue, apart: Sequence[int]) -> SSAValue:
    """`value` [N, *S, C] with zeros behind each place along the spatial axes, so that places are so far apart."""
    n, *sizes, channels = shape_of(value)
    value = b(ReshapeOp, value, shape=(n, *_interleaved(sizes, [1] * len(sizes)), channels))
    value = _padded(b, value, (0,), (0, *(more for g in apart for more in (0, g - 1))))
    return b(ReshapeOp, value, shape=(n, *(s * g for s, g in zip(sizes, apart, strict=True)), channels))


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

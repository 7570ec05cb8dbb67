"""Skip convolution taps that only read padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from dlc.cost_model import CostModel
from dlc.dialects.dl.base import DlOp, ints, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.size_ranges import representative, size_ranges
from dlc.ir import Context, ModuleOp, Operation, SSAValue, contains
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.strip_concatenations import StripConcatenations
from dlc.passes.dl.contractions.winograd import is_3x3_with_stride_1
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward, splat
from dlc.shapes.dims import Size, is_static
from dlc.shapes.ranges import SizeRange

# Split only if at most this fraction of the multiplications is left.
_MAX_WORK_RATIO = 15 / 16
# The same limit where `winograd` applies, which takes fewer multiplications except for images of about 2×2 or smaller.
_MAX_WINOGRAD_WORK_RATIO = 4 / 9


@dataclass(frozen=True)
class TrimPaddingPass(TargetPass):
    """`trim-padding`: splits a convolution of a padded image into ranges of output positions that read the same kernel taps.

        %p = dl.pad %x, 0;  %y = dl.conv %p, %w;  dl.relu %y
    →   dl.concat (dl.relu (dl.conv (dl.slice %x …), (dl.slice %w …))), …

    On a 16-element axis, a kernel of three taps and dilation 12 has at most two taps inside the image: half of its products
    are with zeros. It is a third of the products for videos of two frames, and eight ninths for a 1×1 image padded for a 3×3
    kernel.

    Adjacent ranges stay merged where another kernel launch, which reads its weights once more, would cost more than the skipped
    products. Infinite and NaN weights are no longer multiplied with the trimmed zeros. Run it before `winograd`, which takes
    fewer products for all but the smallest images.
    """

    name = "trim-padding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ranges, concat_dependencies = size_ranges(op), dict[Operation, frozenset[ConvOp]]()
        for block in program_blocks(op) if contains(op, PadOp) else ():
            rewrite_forward(block, _PaddingTrimmer(ranges, self.target.costs, concat_dependencies).rewrite)


@dataclass(frozen=True)
class _OutputRange:
    """Output positions [start, limit) along one axis, and the kernel taps [first, last) that they read."""

    start: int
    limit: int
    first_tap: int
    last_tap: int

    @property
    def products(self) -> int:
        return (self.limit - self.start) * (self.last_tap - self.first_tap)


class _PaddingTrimmer:
    """Splits padded convolutions, and sinks elementwise ops into the operands of the resulting concatenations."""

    def __init__(
        self, ranges: Mapping[str, SizeRange], costs: CostModel, concat_dependencies: dict[Operation, frozenset[ConvOp]]
    ) -> None:
        self.ranges, self.costs = ranges, costs
        self.strips = StripConcatenations(concat_dependencies)

    def rewrite(self, op: DlOp) -> Sequence[SSAValue] | None:
        self.strips.record_dependencies(op)
        if isinstance(op, Elementwise):
            return self.strips.sink_elementwise(op)
        if (
            not isinstance(op, ConvOp)
            or (pad := _zero_padding(op.x)) is None
            or (ranges_of_axes := self.ranges_of_axes(op, pad)) is None
        ):
            return None
        return [self.build_result(op, pad, ranges_of_axes, ())]

    def ranges_of_axes(self, op: ConvOp, pad: PadOp) -> Sequence[Sequence[_OutputRange]] | None:
        """Return the output ranges of each axis; None if splitting does not pay."""
        x, w, y = shape_of(pad.x)[1:-1], shape_of(op.w), shape_of(op.result)
        if not is_static((*x, *w, *y[1:])) or 0 in (*x, *y[1:]):
            return None
        full_ranges = [[_OutputRange(0, int(positions), 0, int(taps))] for positions, taps in zip(y[1:-1], w[:-2], strict=True)]
        batch, weights_per_tap = representative(y[0], self.ranges), prod(map(int, w[-2:]))
        costs = _SplitCosts(
            batch * weights_per_tap,
            0 if self.costs.winograd is None else self.costs.winograd.weight * weights_per_tap,
            self.costs.kernel_work,
        )
        ranges = [_ranges_by_taps(op, pad, axis, *axis_ranges) for axis, axis_ranges in enumerate(full_ranges)]
        is_winograd = self.costs.winograd is not None and is_3x3_with_stride_1(op)
        if is_winograd and _products(ranges[-2:]) > _MAX_WINOGRAD_WORK_RATIO * _products(full_ranges[-2:]):
            ranges[-2:] = full_ranges[-2:]
        if not costs.product or _products(ranges) > _MAX_WORK_RATIO * _products(full_ranges):
            return None
        ranges_of_axes = full_ranges
        for axis, axis_ranges in enumerate(ranges):
            other_ranges = [o for k, o in enumerate(ranges_of_axes) if k != axis]
            ranges_of_axes = [
                *ranges_of_axes[:axis],
                _merge_ranges(axis_ranges, costs.of_axis(other_ranges)),
                *ranges_of_axes[axis + 1 :],
            ]
        return ranges_of_axes if costs.work(ranges_of_axes) < _MAX_WORK_RATIO * costs.work(full_ranges) else None

    def build_result(
        self, op: ConvOp, pad: PadOp, ranges_of_axes: Sequence[Sequence[_OutputRange]], chosen_ranges: tuple[_OutputRange, ...]
    ) -> SSAValue:
        """Build the result for the ranges chosen along the first axes, concatenated over all ranges of the remaining axes."""
        if len(chosen_ranges) == len(ranges_of_axes):
            return _convolve_range(DlBuilder(op), op, pad, chosen_ranges)
        results = [
            self.build_result(op, pad, ranges_of_axes, (*chosen_ranges, output_range))
            for output_range in ranges_of_axes[len(chosen_ranges)]
        ]
        return results[0] if len(results) == 1 else self.strips.join(DlBuilder(op), results, 1 + len(chosen_ranges), op)


@dataclass(frozen=True)
class _SplitCosts:
    """Costs, in multiplications, of convolutions of parts of an image.

    Attributes:
        product: The multiplications per output position and tap: one per image and pair of channels.
        tap: Reading the weights of a tap.
        kernel: An additional kernel.
    """

    product: int
    tap: int
    kernel: int

    def of_axis(self, other_axes: Sequence[Sequence[_OutputRange]]) -> _SplitCosts:
        """Return the costs along an axis, given the ranges of the others."""
        return _SplitCosts(
            self.product * _products(other_axes), self.tap * _taps(other_axes), self.kernel * prod(map(len, other_axes))
        )

    def work(self, axes: Sequence[Sequence[_OutputRange]]) -> int:
        """Return the cost of one kernel per combination of ranges."""
        return self.product * _products(axes) + self.tap * _taps(axes) + self.kernel * prod(map(len, axes))


def _taps(axes: Sequence[Sequence[_OutputRange]]) -> int:
    """Count the taps of all combinations of ranges."""
    return prod(sum(p.last_tap - p.first_tap for p in ranges) for ranges in axes)


def _products(axes: Sequence[Sequence[_OutputRange]]) -> int:
    """Count the multiplications per pair of an input channel and an output channel."""
    return prod(sum(p.products for p in ranges) for ranges in axes)


def _zero_padding(x: SSAValue) -> PadOp | None:
    """Return the pad op that pads an image [N, *S, C] with zeros along spatial axes only; None if there is none."""
    pad = defining_op(x, PadOp)
    if pad is None or pad.mode != "constant" or splat(pad.value) != 0 or min(*ints(pad.low), *ints(pad.high)) < 0:
        return None
    return pad if pad.padding[0] == pad.padding[-1] == (0, 0) else None


def _ranges_by_taps(op: ConvOp, pad: PadOp, axis: int, whole_axis: _OutputRange) -> list[_OutputRange]:
    """Return the maximal output ranges of an axis whose windows read the same taps.

    Returns the whole axis if some window reads only padding.
    """
    stride, dilation, (low, _) = ints(op.strides)[axis], ints(op.dilations)[axis], pad.padding[1 + axis]
    size = int(shape_of(pad.x)[1 + axis])

    def taps(position: int) -> tuple[int, int]:
        padding_before = low - position * stride
        return max(0, -(-padding_before // dilation)), min(whole_axis.last_tap, (padding_before + size - 1) // dilation + 1)

    ranges = list[_OutputRange]()
    for (first, last), run in groupby(range(whole_axis.limit), taps):
        if first >= last:
            return [whole_axis]
        positions = list(run)
        ranges.append(_OutputRange(positions[0], positions[-1] + 1, first, last))
    return ranges


def _merge_ranges(ranges: Sequence[_OutputRange], costs: _SplitCosts) -> list[_OutputRange]:
    """Merge adjacent ranges where that is cheaper than another kernel."""
    # The minimum cost of the first k ranges, and the merged ranges that have it (dynamic programming).
    best: list[tuple[int, list[_OutputRange]]] = [(0, [])]
    for k in range(1, len(ranges) + 1):
        choices = list[tuple[int, list[_OutputRange]]]()
        for j, (cost, merged_before) in enumerate(best):
            merged = ranges[j:k]
            candidate = _OutputRange(
                merged[0].start,
                merged[-1].limit,
                min(p.first_tap for p in merged),
                max(p.last_tap for p in merged),
            )
            choices.append((cost + costs.work([[candidate]]), [*merged_before, candidate]))
        best.append(min(choices, key=lambda choice: choice[0]))
    return best[-1][1]


def _convolve_range(build: DlBuilder, op: ConvOp, pad: PadOp, output_ranges: Sequence[_OutputRange]) -> SSAValue:
    """Build the convolution of a range of output positions, from the image and weight slices that it reads."""
    x, w = shape_of(pad.x), shape_of(op.w)
    starts, limits, low, high = list[Size]([0]), [x[0]], [0], [0]
    axes = zip(output_ranges, pad.padding[1:-1], map(int, x[1:-1]), ints(op.strides), ints(op.dilations), strict=True)
    for output_range, (padding_before, _), size, stride, dilation in axes:
        start = output_range.start * stride + output_range.first_tap * dilation - padding_before
        limit = (output_range.limit - 1) * stride + (output_range.last_tap - 1) * dilation - padding_before + 1
        starts.append(max(start, 0))
        limits.append(min(limit, size))
        low.append(max(-start, 0))
        high.append(max(limit - size, 0))
    image = _slice(build, pad.x, (*starts, 0), (*limits, x[-1]))
    if any(low) or any(high):
        image = build(PadOp, image, pad.value, low=(*low, 0), high=(*high, 0), pad_mode="constant")
    taps = _slice(build, op.w, (*(p.first_tap for p in output_ranges), 0, 0), (*(p.last_tap for p in output_ranges), *w[-2:]))
    return build(ConvOp, image, taps, **op.properties)


def _slice(build: DlBuilder, value: SSAValue, starts: Sequence[Size], limits: Sequence[Size]) -> SSAValue:
    if tuple(limits) == shape_of(value) and not any(starts):
        return value
    return build(SliceOp, value, starts=starts, limits=limits, strides=(1,) * len(limits))

"""Convolutions without the taps of their windows that see nothing but padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from dlc.costs import Machine
from dlc.dialects.dl.base import DlOp, ints, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.ranges import ranges_of, representative
from dlc.dims import Range, Size, is_static
from dlc.ir import Context, ModuleOp, Operation, SSAValue, contains
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.joined_strips import JoinedStrips
from dlc.passes.dl.contractions.winograd import has_windows_of_three
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward, splat

# What is left of a convolution's work where cutting it pays.
_MOST = 15 / 16
# The same of the places of an image that `winograd` has tiles for: of 2×2 and fewer they are no less work.
_MOST_BY_TILES = 4 / 9


@dataclass(frozen=True)
class CropPaddingPass(TargetPass):
    """`crop-padding`: a convolution of a padded image as one for each part of its result whose windows see other taps.

        %p = dl.pad %x, 0;  %y = dl.conv %p, %w;  dl.relu %y
    →   dl.concat (dl.relu (dl.conv (dl.slice %x …), (dl.slice %w …))), …

    A window of dilation 12 that moves over 16 places sees three of them at no place, and two at eight: half of its products
    are with zeros. So are a third where frames of a film are two, and eight ninths where an image of a single place is padded
    for a 3×3 window. Neighbouring parts stay one where another kernel costs more than these products. Weights that are
    infinite or NaN are not multiplied with zeros that are cut off. Run it before `winograd`, which has fewer products for all
    but the smallest images.
    """

    name = "crop-padding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ranges, awaited = ranges_of(op), dict[Operation, frozenset[ConvOp]]()
        for block in program_blocks(op) if contains(op, PadOp) else ():
            rewrite_forward(block, _Rewriter(ranges, self.target.machine, awaited).rewritten)


@dataclass(frozen=True)
class _Part:
    """Places of a result's axis, from `start` to before `limit`, and the taps of the window that they see."""

    start: int
    limit: int
    first: int
    last: int

    @property
    def products(self) -> int:
        return (self.limit - self.start) * (self.last - self.first)


class _Rewriter:
    def __init__(self, ranges: Mapping[str, Range], machine: Machine, awaited: dict[Operation, frozenset[ConvOp]]) -> None:
        self.ranges, self.machine = ranges, machine
        self.strips = JoinedStrips(awaited)

    def rewritten(self, op: DlOp) -> Sequence[SSAValue] | None:
        self.strips.passed(op)
        if isinstance(op, Elementwise):
            return self.strips.followed(op)
        if not isinstance(op, ConvOp) or (pad := _padding(op.x)) is None or (parts := self.parts(op, pad)) is None:
            return None
        return [self.joined(op, pad, parts, ())]

    def parts(self, op: ConvOp, pad: PadOp) -> Sequence[Sequence[_Part]] | None:
        """The parts of each axis of the result; None where they are not worth kernels of their own."""
        x, w, y = shape_of(pad.x)[1:-1], shape_of(op.w), shape_of(op.result)
        if not is_static((*x, *w, *y[1:])) or 0 in (*x, *y[1:]):
            return None
        whole = [[_Part(0, int(places), 0, int(taps))] for places, taps in zip(y[1:-1], w[:-2], strict=True)]
        each = representative(y[0], self.ranges) * prod(map(int, w[-2:]))
        kernel, most = self.machine.kernel_work, _MOST * _products(whole)
        seen = [_seen(op, pad, axis, *own) for axis, own in enumerate(whole)]
        by_tiles = self.machine.winograd is not None and has_windows_of_three(op)
        if by_tiles and _products(seen[-2:]) > _MOST_BY_TILES * _products(whole[-2:]):
            seen[-2:] = whole[-2:]
        if not each or _products(seen) > most:
            return None
        parts = whole
        for axis, own in enumerate(seen):
            others = [o for k, o in enumerate(parts) if k != axis]
            parts = [*parts[:axis], _merged(own, each * _products(others), kernel * prod(map(len, others))), *parts[axis + 1 :]]
        return parts if each * _products(parts) + kernel * (prod(map(len, parts)) - 1) < each * most else None

    def joined(self, op: ConvOp, pad: PadOp, parts: Sequence[Sequence[_Part]], chosen: tuple[_Part, ...]) -> SSAValue:
        """The result for the parts that are chosen of the first axes, and all of the others."""
        if len(chosen) == len(parts):
            return _convolved(Build(op), op, pad, chosen)
        results = [self.joined(op, pad, parts, (*chosen, part)) for part in parts[len(chosen)]]
        return results[0] if len(results) == 1 else self.strips.join(Build(op), results, 1 + len(chosen), op)


def _products(axes: Sequence[Sequence[_Part]]) -> int:
    """How many products of a place and a tap there are, of an input channel and an output channel."""
    return prod(sum(p.products for p in parts) for parts in axes)


def _padding(x: SSAValue) -> PadOp | None:
    """What pads an image [N, *S, C] with zeros, and nothing else of it."""
    pad = defining(x, PadOp)
    if pad is None or pad.mode != "constant" or splat(pad.value) != 0 or min(*ints(pad.low), *ints(pad.high)) < 0:
        return None
    return pad if pad.padding[0] == pad.padding[-1] == (0, 0) else None


def _seen(op: ConvOp, pad: PadOp, axis: int, whole: _Part) -> list[_Part]:
    """The longest parts of an axis at all places of which a window sees the same taps; all of it where some see none."""
    stride, dilation, (low, _) = ints(op.strides)[axis], ints(op.dilations)[axis], pad.padding[1 + axis]
    size = int(shape_of(pad.x)[1 + axis])

    def taps(place: int) -> tuple[int, int]:
        before = low - place * stride
        return max(0, -(-before // dilation)), min(whole.last, (before + size - 1) // dilation + 1)

    parts = list[_Part]()
    for (first, last), run in groupby(range(whole.limit), taps):
        if first >= last:
            return [whole]
        places = list(run)
        parts.append(_Part(places[0], places[-1] + 1, first, last))
    return parts


def _merged(parts: Sequence[_Part], each: int, kernel: int) -> list[_Part]:
    """Neighbours as one part where that is cheaper: `each` is the work of a place and a tap, `kernel` that of a part more."""
    # What the first k parts cost at least, and how they are merged then.
    best: list[tuple[int, list[_Part]]] = [(0, [])]
    for k in range(1, len(parts) + 1):
        choices = list[tuple[int, list[_Part]]]()
        for j, (cost, before) in enumerate(best):
            own = parts[j:k]
            part = _Part(own[0].start, own[-1].limit, min(p.first for p in own), max(p.last for p in own))
            choices.append((cost + part.products * each + kernel, [*before, part]))
        best.append(min(choices, key=lambda choice: choice[0]))
    return best[-1][1]


def _convolved(b: Build, op: ConvOp, pad: PadOp, parts: Sequence[_Part]) -> SSAValue:
    """The result at some places, of what they see of the image and of the weights."""
    x, w = shape_of(pad.x), shape_of(op.w)
    starts, limits, low, high = list[Size]([0]), [x[0]], [0], [0]
    axes = zip(parts, pad.padding[1:-1], map(int, x[1:-1]), ints(op.strides), ints(op.dilations), strict=True)
    for part, (before, _), size, stride, dilation in axes:
        start = part.start * stride + part.first * dilation - before
        limit = (part.limit - 1) * stride + (part.last - 1) * dilation - before + 1
        starts.append(max(start, 0))
        limits.append(min(limit, size))
        low.append(max(-start, 0))
        high.append(max(limit - size, 0))
    image = _cut(b, pad.x, (*starts, 0), (*limits, x[-1]))
    if any(low) or any(high):
        image = b(PadOp, image, pad.value, low=(*low, 0), high=(*high, 0), pad_mode="constant")
    taps = _cut(b, op.w, (*(p.first for p in parts), 0, 0), (*(p.last for p in parts), *w[-2:]))
    return b(ConvOp, image, taps, **op.properties)


def _cut(b: Build, value: SSAValue, starts: Sequence[Size], limits: Sequence[Size]) -> SSAValue:
    if tuple(limits) == shape_of(value) and not any(starts):
        return value
    return b(SliceOp, value, starts=starts, limits=limits, strides=(1,) * len(limits))

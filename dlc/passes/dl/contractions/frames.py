"""Convolutions of films as convolutions of images: what a window sees of other frames lies beside a frame, as more channels."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import ints, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp, TransposeOp
from dlc.dims import product
from dlc.ir import SSAValue
from dlc.passes.dl.rewriting import defining


class Frames:
    """The results of a block's convolutions that are images in place of films."""

    def __init__(self) -> None:
        self._films: set[SSAValue] = set()

    def convolved(self, op: ConvOp) -> SSAValue:
        """conv(x [N, T, H, W, C], w [K, h, w, C, O]) = conv(images [N · T', H, W, K · C], w [h, w, K · C, O]), as films."""
        b, (taps, *kernel, c, o) = Build(op), map(int, shape_of(op.w))
        (stride, *strides), (dilation, *dilations) = ints(op.strides), ints(op.dilations)
        n, frames = shape_of(op.result)[:2]
        _, _, *image = shape_of(op.x)
        seen = [
            b(
                SliceOp,
                op.x,
                starts=(0, k * dilation, 0, 0, 0),
                limits=(n, k * dilation + (int(frames) - 1) * stride + 1, *image),
                strides=(1, stride, 1, 1, 1),
            )
            for k in range(taps)
        ]
        beside = seen[0] if taps == 1 else b(ConcatOp, *seen, axis=4)
        images = b(ReshapeOp, beside, shape=(product((n, frames)), *image[:-1], taps * c))
        w = b(ReshapeOp, b(TransposeOp, op.w, permutation=(1, 2, 0, 3, 4)), shape=(*kernel, taps * c, o))
        y = b(ConvOp, images, w, **{**op.properties, "strides": tuple(strides), "dilations": tuple(dilations)})
        return self._film(b, y, op.result)

    def followed(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """f(film(y), b) = film(f(y, images(b))) for b of the same shape, or with one place and one frame."""
        result = op.results[0]
        film = next((v for v in op.operands if v in self._films and shape_of(v) == shape_of(result)), None)
        inner = None if film is None else defining(film, ReshapeOp)
        others = [v for v in op.operands if v is not film]
        if inner is None or not all(shape_of(v) == shape_of(result) or not varies(v) for v in others):
            return None
        b, images = Build(op), shape_of(inner.x)

        def beside(v: SSAValue) -> SSAValue:
            if v is film:
                return inner.x
            if shape_of(v) == shape_of(result):
                return b(ReshapeOp, v, shape=images)
            return b(ReshapeOp, v, shape=shape_of(v)[1:]) if rank_of(v) > len(images) else v

        return [self._film(b, b(type(op), *map(beside, op.operands), **op.properties), result)]

    def _film(self, b: Build, images: SSAValue, like: SSAValue) -> SSAValue:
        film = b(ReshapeOp, images, shape=shape_of(like))
        self._films.add(film)
        return film


def varies(value: SSAValue) -> bool:
    """Whether an operand has a value of its own at each place of an image [N, H, W, C], or of a film [N, T, H, W, C]."""
    return any(size != 1 for size in shape_of(value)[:-1])

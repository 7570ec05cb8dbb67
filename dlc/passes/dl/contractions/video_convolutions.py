"""Convert convolutions of videos to convolutions of images, with the frames of a window concatenated as channels."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import ints, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp, TransposeOp
from dlc.ir import SSAValue
from dlc.passes.dl.rewriting import defining_op
from dlc.shapes.dims import product


class VideoConvolutions:
    """Rewrites the video convolutions of a block, and tracks which values are reshaped image results."""

    def __init__(self) -> None:
        self._videos: set[SSAValue] = set()

    def convolve(self, op: ConvOp) -> SSAValue:
        """Rewrite conv(x [N, T, H, W, C], w [K, h, w, C, O]) as conv(images [N · T', H, W, K · C], w [h, w, K · C, O])."""
        build, (taps, *kernel, c, o) = DlBuilder(op), map(int, shape_of(op.w))
        (stride, *strides), (dilation, *dilations) = ints(op.strides), ints(op.dilations)
        n, frames = shape_of(op.result)[:2]
        _, _, *image = shape_of(op.x)
        frames_of_taps = [
            build(
                SliceOp,
                op.x,
                starts=(0, k * dilation, 0, 0, 0),
                limits=(n, k * dilation + (int(frames) - 1) * stride + 1, *image),
                strides=(1, stride, 1, 1, 1),
            )
            for k in range(taps)
        ]
        stacked = frames_of_taps[0] if taps == 1 else build(ConcatOp, *frames_of_taps, axis=4)
        images = build(ReshapeOp, stacked, shape=(product((n, frames)), *image[:-1], taps * c))
        w = build(ReshapeOp, build(TransposeOp, op.w, permutation=(1, 2, 0, 3, 4)), shape=(*kernel, taps * c, o))
        y = build(ConvOp, images, w, **{**op.properties, "strides": tuple(strides), "dilations": tuple(dilations)})
        return self._as_video(build, y, op.result)

    def sink_elementwise(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """Rewrite f(reshape(y), b) as reshape(f(y, b')) for b of the same shape, or of size 1 along all axes but channels."""
        result = op.results[0]
        video = next((v for v in op.operands if v in self._videos and shape_of(v) == shape_of(result)), None)
        inner = None if video is None else defining_op(video, ReshapeOp)
        other_operands = [v for v in op.operands if v is not video]
        if inner is None or not all(shape_of(v) == shape_of(result) or not varies_within_image(v) for v in other_operands):
            return None
        build, images = DlBuilder(op), shape_of(inner.x)

        def stacked(v: SSAValue) -> SSAValue:
            if v is video:
                return inner.x
            if shape_of(v) == shape_of(result):
                return build(ReshapeOp, v, shape=images)
            return build(ReshapeOp, v, shape=shape_of(v)[1:]) if rank_of(v) > len(images) else v

        return [self._as_video(build, build(type(op), *map(stacked, op.operands), **op.properties), result)]

    def _as_video(self, build: DlBuilder, images: SSAValue, like: SSAValue) -> SSAValue:
        video = build(ReshapeOp, images, shape=shape_of(like))
        self._videos.add(video)
        return video


def varies_within_image(value: SSAValue) -> bool:
    """Return whether an operand varies over the non-channel axes of an image [N, H, W, C] or a video [N, T, H, W, C]."""
    return any(size != 1 for size in shape_of(value)[:-1])

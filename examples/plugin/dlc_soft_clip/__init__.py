"""A plug-in of dlc: the op `soft_clip(x, limit)`, an operator of the ONNX domain `com.example`, and a pass."""

from __future__ import annotations

from typing import Any

from dlc import extend
from dlc.extend.ops import apply, promote
from dlc_soft_clip.op import SoftClipOp, slope_by_limit, slope_by_x
from dlc_soft_clip.passes import MergeSoftClipsPass


def soft_clip(x: Any, limit: Any) -> Any:
    """Return `x / (1 + |x| / limit)`, for arrays and in traced functions; operands broadcast."""
    return apply(SoftClipOp, *promote(x, limit))


plugin = extend.Plugin(
    name="soft-clip",
    ops=[SoftClipOp],
    partials={SoftClipOp: (slope_by_x, slope_by_limit)},
    passes=[extend.PassPlacement(MergeSoftClipsPass, after="simplify")],
    onnx_converters="dlc_soft_clip.onnx_converter:CONVERTERS",
    samples="dlc_soft_clip.samples:SAMPLES",
)

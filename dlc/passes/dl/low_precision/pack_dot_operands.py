"""Pack the operands of low-precision contractions for dot-product instructions (VNNI layout)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import element_type_of, ints, number, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, ViewAsOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Context, ModuleOp, SSAValue, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward, splat
from dlc.shapes.dims import is_static

# The contracted dimension must be a multiple of this many elements, and the product must have this many rows and columns.
_TERMS_MULTIPLE, _MIN_ROWS_AND_COLUMNS = 32, 8


@dataclass(frozen=True)
class PackDotOperandsPass(TargetPass):
    """`pack-dot-operands{target="cpu"}`: packs the operands of a contraction that the target has a dot-product instruction for.

        %y = dl.conv %x, %w {result = i32}
    →   %y = dl.conv (dl.view_as %x), %words {dot = "i16"}

    Applies to integers with i32 sums, and to f16 and bf16 with f32 sums. Packed weights are a weight expression. A contracted
    axis that is not divisible by the elements per 32-bit word is zero-padded. Images with few channels are packed across pixels
    instead, if windows begin at a word; only for integers, since a float of the next pixel may be infinite where the weight
    is 0. Grouped convolutions are not packed. Requires channels-last layout.

    For GPUs with matrix instructions, products of two data operands are packed as well, if they are static and large enough.
    The words of the right operand, which run along its rows, are packed before a transpose:

        %k = dl.transpose %x;  %s = dl.matmul %q, %k
    →   %k = dl.transpose (dl.view_as %x);  %s = dl.matmul (dl.view_as %q), %k
    """

    name = "pack-dot-operands"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, target = WeightExpressions(), self.target
        for block in program_blocks(op):
            rewrite_forward(block, lambda inner: _pack(inner, constant, target.dot_products), ConvOp, MatmulOp)
            if target.groups is not None and target.dot_products:
                rewrite_forward(block, lambda inner: _pack_data(inner, constant, target.dot_products), MatmulOp)


def find_weight_dot(op: ConvOp | MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> str | None:
    """Return a packed dot product that is exact for a contraction of data with constant weights; None if there is none."""
    x, w = op.operands
    types = element_type_of(x), element_type_of(w)
    name = next((d for d in dots if types == (PACKED_DOTS[d].data, PACKED_DOTS[d].weights) and _accepts(d, w)), None)
    if name is None or x in constant or w not in constant or min(rank_of(x), rank_of(w)) < 2:
        return None
    return None if isinstance(op, ConvOp) and number(op.groups) != 1 else name


def _accepts(name: str, weights: SSAValue) -> bool:
    dot = PACKED_DOTS[name]
    return is_float(dot.weights) or dot.accepts_weights(*compute_interval(weights))


def _pack(op: ConvOp | MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> Sequence[SSAValue] | None:
    name = find_weight_dot(op, constant, dots)
    if name is None or element_type_of(op.results[0]) != PACKED_DOTS[name].total:
        return None
    x, w = op.operands
    build, count = DlBuilder(op), PACKED_DOTS[name].count
    properties = {key: value for key, value in op.properties.items() if key != "result"}
    if isinstance(op, ConvOp) and _packs_across_pixels(op, count):
        x, w, strides = _pack_image_rows(build, op, count)
        return [build(ConvOp, x, w, **{**properties, "strides": strides}, dot=name)]
    return [
        build(
            type(op),
            build(ViewAsOp, _pad_to_multiple(build, x, -1, count), to=i32),
            _pack_weights(build, w, count),
            **properties,
            dot=name,
        )
    ]


def _pack_data(op: MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> Sequence[SSAValue] | None:
    """Rewrite a product of two data matrices, whose sums are rounded once; None if packing does not apply."""
    x, y = op.operands
    types, sizes = (element_type_of(x), element_type_of(y)), (*shape_of(x)[-2:], shape_of(y)[-1])
    name = next((d for d in dots if types == (PACKED_DOTS[d].data, PACKED_DOTS[d].weights)), None)
    if name is None or x in constant or y in constant or min(rank_of(x), rank_of(y)) < 2 or not is_static(sizes):
        return None
    m, k, n = (int(s) for s in sizes)
    if k % _TERMS_MULTIPLE or min(m, n) < _MIN_ROWS_AND_COLUMNS:
        return None
    build = DlBuilder(op)
    product = build(MatmulOp, _pack_rows(build, x), _pack_columns(build, y, PACKED_DOTS[name].count), dot=name)
    element = element_type_of(op.result)
    return [product if element == PACKED_DOTS[name].total else build(CastOp, product, to=element)]


def _pack_rows(build: DlBuilder, x: SSAValue) -> SSAValue:
    """Pack words along the last axis; before a transpose that keeps that axis last."""
    transpose = defining_op(x, TransposeOp)
    if transpose is None or transpose.axes[-1] != rank_of(x) - 1:
        return build(ViewAsOp, x, to=i32)
    return build(TransposeOp, build(ViewAsOp, transpose.x, to=i32), permutation=transpose.axes)


def _pack_columns(build: DlBuilder, y: SSAValue, count: int) -> SSAValue:
    """Pack words [.., K / count, N] of consecutive elements along the columns of [.., K, N]."""
    transpose, rank = defining_op(y, TransposeOp), rank_of(y)
    source, axes = (y, tuple(range(rank))) if transpose is None else (transpose.x, transpose.axes)
    *leading, summed, column = axes
    if summed == rank - 1:
        return build(TransposeOp, build(ViewAsOp, source, to=i32), permutation=axes)
    # Split off the elements of a word as a separate axis after the contracted one.
    shape = shape_of(source)
    pairs = build(ReshapeOp, source, shape=(*shape[:summed], int(shape[summed]) // count, count, *shape[summed + 1 :]))
    order = *(a + (a > summed) for a in (*leading, summed, column)), summed + 1
    *outer, k, n = shape_of(y)
    return build(
        ReshapeOp, build(ViewAsOp, build(TransposeOp, pairs, permutation=order), to=i32), shape=(*outer, int(k) // count, n)
    )


def _packs_across_pixels(op: ConvOp, count: int) -> bool:
    """Return whether packing across pixels takes fewer words per window row, and windows begin at a word."""
    if is_float(element_type_of(op.x)):
        return False
    kernel, c = shape_of(op.w)[-3], int(shape_of(op.w)[-2])
    if not is_static((*shape_of(op.x)[1:], kernel)) or ints(op.dilations)[-1] != 1 or (ints(op.strides)[-1] * c) % count:
        return False
    return -(-int(kernel) * c // count) < int(kernel) * -(-c // count)


def _pack_image_rows(build: DlBuilder, op: ConvOp, count: int) -> tuple[SSAValue, SSAValue, tuple[int, ...]]:
    """Pack whole image rows into words [N, *S, W · C / count, 1]; return the convolution's operands and strides."""
    *image_shape, width, c = shape_of(op.x)
    *kernel, taps, _, o = shape_of(op.w)
    *strides, stride = ints(op.strides)
    step, num_words = stride * int(c) // count, -(-int(taps) * int(c) // count)
    # The words of an image row that the windows cover.
    length = ((int(shape_of(op.result)[-2]) - 1) * step + num_words) * count
    x = build(ReshapeOp, op.x, shape=(*image_shape, int(width) * int(c)))
    high_padding = *(0 for _ in image_shape), length - int(width) * int(c)
    x = build(PadOp, x, build.scalar(0, like=x), low=(0,) * len(high_padding), high=high_padding, pad_mode="constant")
    w = _pack_weights(build, build(ReshapeOp, op.w, shape=(*kernel, int(taps) * int(c), o)), count)
    return (
        build(ReshapeOp, build(ViewAsOp, x, to=i32), shape=(*image_shape, length // count, 1)),
        build(ReshapeOp, w, shape=(*kernel, num_words, 1, o)),
        (*strides, step),
    )


def _pack_weights(build: DlBuilder, weights: SSAValue, count: int) -> SSAValue:
    """Pack weights [*K, C, O] into words [*K, C / count, O] of `count` consecutive elements along C."""
    weights = _pad_to_multiple(build, weights, -2, count)
    *kernel, c, o = (int(s) for s in shape_of(weights))
    rank = len(kernel)
    weights = build(ReshapeOp, weights, shape=(*kernel, c // count, count, o))
    weights = build(TransposeOp, weights, permutation=(*range(rank), rank, rank + 2, rank + 1))
    return build(ReshapeOp, build(ViewAsOp, weights, to=i32), shape=(*kernel, c // count, o))


def _pad_to_multiple(build: DlBuilder, x: SSAValue, axis: int, count: int) -> SSAValue:
    """Zero-pad `x` at the end of an axis to a multiple of `count`."""
    missing = -int(shape_of(x)[axis]) % count
    if not missing:
        return x
    high, pad = [0] * rank_of(x), defining_op(x, PadOp)
    high[axis] = missing
    # The padded weights are 0, so data may be padded with any value: that of an existing pad lets the two pads merge.
    pad_value = splat(pad.value) if pad is not None and axis == -1 and not is_float(element_type_of(x)) else None
    return build(PadOp, x, build.scalar(pad_value or 0, like=x), low=(0,) * rank_of(x), high=high, pad_mode="constant")

"""Contractions of narrow numbers, by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import element_type_of, ints, number, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.narrow_numbers.words import DOTS, WordsOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dims import is_static
from dlc.ir import Context, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward, splat

# What matrices of numbers go by, and the fewest rows and columns that are worth it.
_STEP, _LEAST = 32, 8


@dataclass(frozen=True)
class PackWordsPass(TargetPass):
    """`pack-words{target="cpu"}`: a contraction of data and weights that the target has an instruction for, of words of them.

        %y = dl.conv %x, %w {result = i32}
    →   %y = dl.conv (dl.words %x), %words {dot = "i16"}

    Integers with sums of i32, or floats of 16 bits with sums of f32. The words of weights are an expression of weights. What
    has no multiple of a word's numbers along the axis that is summed over is padded; channels of fewer, as pictures have them,
    lie in words together with those of the next pixels, if windows begin with a word and they are integers: of floats the next
    pixel may be infinite, and the weight 0. Convolutions in groups multiply numbers one by one. Requires channels last.

    On devices whose items multiply matrices together, products of two that are data go by words as well, if these are
    large enough for it and of known sizes. Words of the second operand, which are of its rows, are made where it is moved:

        %k = dl.transpose %x;  %s = dl.matmul %q, %k    →    %k = dl.transpose (dl.words %x);  %s = dl.matmul (dl.words %q), %k
    """

    name = "pack-words"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, target = WeightExpressions(), self.target
        for block in program_blocks(op):
            rewrite_forward(block, lambda inner: _packed(inner, constant, target.dots), ConvOp, MatmulOp)
            if target.groups is not None and target.dots:
                rewrite_forward(block, lambda inner: _packed_data(inner, constant, target.dots), MatmulOp)


def dot_of(op: ConvOp | MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> str | None:
    """The product of words that data and weights of a contraction can go by; None where there is none."""
    x, w = op.operands
    types = element_type_of(x), element_type_of(w)
    name = next((d for d in dots if types == (DOTS[d].data, DOTS[d].weights)), None)
    if name is None or x in constant or w not in constant or min(rank_of(x), rank_of(w)) < 2:
        return None
    return None if isinstance(op, ConvOp) and number(op.groups) != 1 else name


def _packed(op: ConvOp | MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> Sequence[SSAValue] | None:
    name = dot_of(op, constant, dots)
    if name is None or element_type_of(op.results[0]) != DOTS[name].total:
        return None
    x, w = op.operands
    b, count = Build(op), DOTS[name].count
    properties = {key: value for key, value in op.properties.items() if key != "result"}
    if isinstance(op, ConvOp) and _shares_words(op, count):
        x, w, strides = _by_rows(b, op, count)
        return [b(ConvOp, x, w, **{**properties, "strides": strides}, dot=name)]
    return [b(type(op), b(WordsOp, _to_multiple(b, x, -1, count)), _words(b, w, count), **properties, dot=name)]


def _packed_data(op: MatmulOp, constant: WeightExpressions, dots: Sequence[str]) -> Sequence[SSAValue] | None:
    """A product of matrices that are data, whose sums are rounded once; None where it has no use for words."""
    x, y = op.operands
    types, sizes = (element_type_of(x), element_type_of(y)), (*shape_of(x)[-2:], shape_of(y)[-1])
    name = next((d for d in dots if types == (DOTS[d].data, DOTS[d].weights)), None)
    if name is None or x in constant or y in constant or min(rank_of(x), rank_of(y)) < 2 or not is_static(sizes):
        return None
    m, k, n = (int(s) for s in sizes)
    if k % _STEP or min(m, n) < _LEAST:
        return None
    b = Build(op)
    product = b(MatmulOp, _words_of_rows(b, x), _words_of_columns(b, y, DOTS[name].count), dot=name)
    element = element_type_of(op.result)
    return [product if element == DOTS[name].total else b(CastOp, product, to=element)]


def _words_of_rows(b: Build, x: SSAValue) -> SSAValue:
    """Words along the last axis; of what is transposed before it is, if that axis stays the last one."""
    transpose = defining(x, TransposeOp)
    if transpose is None or transpose.axes[-1] != rank_of(x) - 1:
        return b(WordsOp, x)
    return b(TransposeOp, b(WordsOp, transpose.x), permutation=transpose.axes)


def _words_of_columns(b: Build, y: SSAValue, count: int) -> SSAValue:
    """Words [.., K / count, N] of numbers that follow one another along the columns of [.., K, N]."""
    transpose, rank = defining(y, TransposeOp), rank_of(y)
    source, axes = (y, tuple(range(rank))) if transpose is None else (transpose.x, transpose.axes)
    *lead, summed, column = axes
    if summed == rank - 1:
        return b(TransposeOp, b(WordsOp, source), permutation=axes)
    # Those of a word are an axis of their own, behind the one that it is a part of.
    shape = shape_of(source)
    pairs = b(ReshapeOp, source, shape=(*shape[:summed], int(shape[summed]) // count, count, *shape[summed + 1 :]))
    order = *(a + (a > summed) for a in (*lead, summed, column)), summed + 1
    *outer, k, n = shape_of(y)
    return b(ReshapeOp, b(WordsOp, b(TransposeOp, pairs, permutation=order)), shape=(*outer, int(k) // count, n))


def _shares_words(op: ConvOp, count: int) -> bool:
    """Whether rows of a window are fewer words if pixels share them, and begin with a word."""
    if is_float(element_type_of(op.x)):
        return False
    kernel, c = shape_of(op.w)[-3], int(shape_of(op.w)[-2])
    if not is_static((*shape_of(op.x)[1:], kernel)) or ints(op.dilations)[-1] != 1 or (ints(op.strides)[-1] * c) % count:
        return False
    return -(-int(kernel) * c // count) < int(kernel) * -(-c // count)


def _by_rows(b: Build, op: ConvOp, count: int) -> tuple[SSAValue, SSAValue, tuple[int, ...]]:
    """A convolution over words of whole rows of images [N, *S, W · C / count, 1]: its operands and strides."""
    *rest, width, c = shape_of(op.x)
    *kernel, taps, _, o = shape_of(op.w)
    *strides, stride = ints(op.strides)
    step, words = stride * int(c) // count, -(-int(taps) * int(c) // count)
    # As many words as the windows reach over.
    length = ((int(shape_of(op.result)[-2]) - 1) * step + words) * count
    x = b(ReshapeOp, op.x, shape=(*rest, int(width) * int(c)))
    high = *(0 for _ in rest), length - int(width) * int(c)
    x = b(PadOp, x, b.scalar(0, like=x), low=(0,) * len(high), high=high, pad_mode="constant")
    w = _words(b, b(ReshapeOp, op.w, shape=(*kernel, int(taps) * int(c), o)), count)
    return (
        b(ReshapeOp, b(WordsOp, x), shape=(*rest, length // count, 1)),
        b(ReshapeOp, w, shape=(*kernel, words, 1, o)),
        (*strides, step),
    )


def _words(b: Build, w: SSAValue, count: int) -> SSAValue:
    """Weights [*K, C, O] as words [*K, C / count, O] of `count` that follow one another along C."""
    w = _to_multiple(b, w, -2, count)
    *kernel, c, o = (int(s) for s in shape_of(w))
    rank = len(kernel)
    w = b(ReshapeOp, w, shape=(*kernel, c // count, count, o))
    w = b(TransposeOp, w, permutation=(*range(rank), rank, rank + 2, rank + 1))
    return b(ReshapeOp, b(WordsOp, w), shape=(*kernel, c // count, o))


def _to_multiple(b: Build, x: SSAValue, axis: int, count: int) -> SSAValue:
    """`x` with as many more places along an axis as make its size a multiple."""
    missing = -int(shape_of(x)[axis]) % count
    if not missing:
        return x
    high, pad = [0] * rank_of(x), defining(x, PadOp)
    high[axis] = missing
    # Weights have zeros there: data may have what it is padded with already, which makes one pad of two.
    known = splat(pad.value) if pad is not None and axis == -1 and not is_float(element_type_of(x)) else None
    return b(PadOp, x, b.scalar(known or 0, like=x), low=(0,) * rank_of(x), high=high, pad_mode="constant")

"""Contractions of narrow integers, by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, element_type_of, number, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contraction import ConvOp, MatmulOp
from dlc.dialects.dl.movement import PadOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.weight_expressions import WeightExpressions
from dlc.dialects.dl.words import DOTS, WordsOp
from dlc.ir import Context, ModuleOp, SSAValue, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward, splat


@dataclass(frozen=True)
class PackWordsPass(TargetPass):
    """`pack-words{target="cpu"}`: a contraction of data and weights in i32, with an instruction for words of them.

        %y = dl.conv %x, %w {result = i32}
    →   %y = dl.conv (dl.words %x), %words {dot = "i16"}

    The words of weights are an expression of weights. What has no multiple of a word's numbers along the axis that is summed
    over is padded. Convolutions in groups multiply numbers one by one. Requires channels last.
    """

    name = "pack-words"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            constant = WeightExpressions(block)
            rewrite_forward(block, lambda inner, constant=constant: _packed(inner, constant, self.target.dots))


def _packed(op: DlOp, constant: WeightExpressions, dots: Sequence[str]) -> Sequence[SSAValue] | None:
    if not isinstance(op, ConvOp | MatmulOp) or element_type_of(op.results[0]) != i32:
        return None
    x, w = op.operands
    types = element_type_of(x), element_type_of(w)
    name = next((d for d in dots if types == (DOTS[d].data, DOTS[d].weights)), None)
    if name is None or x in constant or w not in constant or min(rank_of(x), rank_of(w)) < 2:
        return None
    if isinstance(op, ConvOp) and number(op.groups) != 1:
        return None
    b, count = Build(op), DOTS[name].count
    properties = {key: value for key, value in op.properties.items() if key != "result"}
    return [b(type(op), b(WordsOp, _to_multiple(b, x, -1, count)), _words(b, w, count), **properties, dot=name)]


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
    known = splat(pad.value) if pad is not None and axis == -1 else None
    return b(PadOp, x, b.scalar(known or 0, like=x), low=(0,) * rank_of(x), high=high, pad_mode="constant")

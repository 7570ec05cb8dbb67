"""The products that read weights of few bits, and what they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, DivOp, MulOp, SelectOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.base import element_type_of, is_narrow, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.narrow_numbers.few_bits import MatmulWordsOp, PackNibblesOp
from dlc.dialects.dl.narrow_numbers.word_dots import MatmulDotsOp
from dlc.dialects.dl.narrow_numbers.words import DOTS, WORD_BITS, WordsOp
from dlc.dialects.dl.programs.ranges import representative
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp
from dlc.dialects.dl.scalar import bits
from dlc.dims import Range
from dlc.ir import Attribute, SSAValue, f32
from dlc.target import Target

# Sums over words beside those of the result take registers that more rows need themselves.
_FEW_ROWS = 2
# The largest of a row's integers, by the product of words that they go by.
_LARGEST = {"i16": 32767, "u8i8": 127}
# Words of a step, of whose products with rows i32 holds the sum, for weights of 8 bits too.
_STEP = {"i16": 4, "u8i8": 8}


@dataclass(frozen=True)
class Weights:
    """Integers [B, g, N] of 4 or 8 bits in B blocks, and their scale and perhaps zero point [B, N]."""

    integers: SSAValue
    scale: SSAValue
    zero: SSAValue | None

    @property
    def of(self) -> Attribute:
        return element_type_of(self.integers)

    @property
    def count(self) -> int:
        """How many integers a word holds."""
        return WORD_BITS // bits(self.of)

    @property
    def parameters(self) -> tuple[SSAValue, ...]:
        return (self.scale,) if self.zero is None else (self.scale, self.zero)

    def step(self, dot: str) -> int:
        """How many words `product_of_integers` adds up before it makes floats of sums."""
        words = int(shape_of(self.integers)[1]) // self.count
        return next(step for step in range(min(_STEP[dot], words), 0, -1) if words % step == 0)

    def words(self, b: Build, in_turns: int = 1) -> SSAValue:
        """Words [B, W, N] of integers that follow one another, or of which as many in turns lie apart (`dl.matmul_dots`)."""
        blocks, size, columns = map(int, shape_of(self.integers))
        split = b(ReshapeOp, self.integers, shape=(blocks, size // self.count, self.count // in_turns, in_turns, columns))
        x = b(TransposeOp, split, permutation=(0, 1, 4, 3, 2))
        x = b(ReshapeOp, x, shape=(blocks, size // self.count, columns, self.count))
        words = b(WordsOp, b(PackNibblesOp, x) if is_narrow(self.of) else x)
        return b(ReshapeOp, words, shape=shape_of(words)[:-1])


def product_in_words(b: Build, x: SSAValue, weights: Weights, ranges: Mapping[str, Range]) -> SSAValue:
    """`x` times the weights, by the form that suits the number of its rows."""
    scale_weights = None if rows_of(x, ranges) <= _FEW_ROWS else True
    return b(MatmulWordsOp, x, weights.words(b), *weights.parameters, of=weights.of, scale_weights=scale_weights)


def product_of_integers(b: Build, x: SSAValue, weights: Weights, dot: str) -> SSAValue:
    """`x` times the weights, by a product of words: what lies beside a block of weights becomes multiples of a 1/32,767th of
    its largest magnitude, or of 1/127 of it, as `dot` takes them.
    """
    *lead, k = shape_of(x)
    blocks, size, columns = map(int, shape_of(weights.integers))
    rows = b(ReshapeOp, b(CastOp, x, to=f32), shape=(*lead, blocks, size))
    scale = step(b, b(ReduceMaxOp, b(AbsOp, rows), axes=(-1,), keepdims=True), _LARGEST[dot])
    multiples = b(RoundOp, b(DivOp, rows, scale))
    words = b(WordsOp, b(ReshapeOp, b(CastOp, multiples, to=DOTS[dot].weights), shape=(*lead, k)))
    words_of_step = weights.step(dot)
    places = words_of_step * weights.count
    sums = b(ReshapeOp, multiples, shape=(*lead, blocks, size // places, places))
    sums = b(MulOp, b(ReduceSumOp, sums, axes=(-1,), keepdims=False), scale)
    row_scale = b(ReshapeOp, scale, shape=(*lead, blocks))
    integers = weights.words(b, in_turns=DOTS[dot].count)
    integers = b(ReshapeOp, integers, shape=(blocks, size // places, words_of_step, columns))
    y = b(MatmulDotsOp, words, integers, row_scale, sums, *weights.parameters, of=weights.of, dot=dot)
    return b(CastOp, y, to=element_type_of(x))


def dot_of_rows(x: SSAValue, target: Target, ranges: Mapping[str, Range], least_bits: int) -> str | None:
    """The quickest product of words for as many rows as `x` has, if they may be rounded to so many bits; None: there is none.

    Pairs are for some rows; of bytes weights are taken out of words so quickly that they are for any.
    """
    for dot in target.dots:
        if dot in _LARGEST and bits(DOTS[dot].weights) >= least_bits:
            return dot if dot != "i16" or rows_of(x, ranges) <= target.machine.pair_rows else None
    return None


def rows_of(x: SSAValue, ranges: Mapping[str, Range]) -> int:
    return prod(representative(s, ranges) for s in shape_of(x)[:-1])


def step(b: Build, span: SSAValue, count: int) -> SSAValue:
    """`span / count`, 1 where that is 0."""
    quotient = b(DivOp, span, b.scalar(float(count), like=span))
    return b(SelectOp, b(EqualOp, quotient, b.scalar(0.0, like=quotient)), b.scalar(1.0, like=quotient), quotient)

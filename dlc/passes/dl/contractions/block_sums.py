"""Long sums, and long reductions of other kinds, as those of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Elementwise, Movement
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp, TransposeOp, WindowsOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import AxisReduction, ReduceProdOp, ReduceSumOp
from dlc.dims import is_static
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, bf16, f16, f32
from dlc.passes.dl.contractions.products import Pair, cut, pairs_of, product_in_blocks, product_of
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward, users

# Terms of a block, and of a sum that is left whole: along memory, where a vector of accumulators shares the terms; and across.
_ALONG, _ACROSS = (1024, 4096), (512, 16384)
# Blocks of fewer terms are not worth a pass over memory.
_LEAST = 16
# Elements of which a reduction waits for memory, and the tasks that it has then.
_LARGE, _TASKS = 1 << 20, 4
# Rows of a product of a few of them, and the terms of a block.
_FEW, _OF_FEW = 4, 512
# Terms of a block of a product of matrices, and of a product that is left whole: no layer of a model has more. What is rounded
# to 16 bits shows errors of f32 later.
_PRODUCT, _LONGEST_PRODUCT, _LONGEST_NARROW_PRODUCT = 4096, 32768, 1 << 18


@dataclass(frozen=True)
class BlockSumsPass(ModulePass):
    """`block-sums`: a sum of many floats as the sum of the sums of its blocks, again and again; so do other reductions go.

        %s = dl.reduce_sum %x : [1000000]
    →   %b = dl.reshape %x : [250, 4000];  %p = dl.reduce_sum %b along 1;  %s = dl.reduce_sum %p

    What one accumulator adds up loses about the last bit of the sum with each term, and grows no more from 2^24 equal terms
    on. In blocks the error grows with the logarithm of the length, and the blocks are tasks of their own. Sums of f16 and bf16
    are rounded once, at the end. Sums whose length is open stay as they are.

    What elementwise ops make for a reduction alone, they make in its blocks: a kernel ends where a reshape is.

    Of very many elements every reduction goes by blocks, such as maxima, unless there are tasks without: they are read in the
    order of memory, whole rows at a time.

    So are products of matrices with very many terms: of [m, k] · [k, n] the sum of the products of blocks of k. Those of f16
    and bf16 are products of f32 first. A few rows by a large matrix that is computed, which is read once, have blocks of k for
    tasks.
    """

    name = "block-sums"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        weights = WeightExpressions()

        def rule(op: MatmulOp | DotGeneralOp | AxisReduction) -> Sequence[SSAValue] | None:
            return _blocked(op) if isinstance(op, AxisReduction) else _blocked_product(op, weights)

        for block in program_blocks(op):
            rewrite_forward(block, rule, MatmulOp, DotGeneralOp, AxisReduction)


def _blocked_product(op: MatmulOp | DotGeneralOp, weights: WeightExpressions) -> Sequence[SSAValue] | None:
    pairs, element = pairs_of(op), element_type_of(op.result)
    if not is_float(element) or pairs is None:
        return None
    batch, contracted = pairs
    shape = shape_of(op.lhs)
    if not is_static((*shape, *shape_of(op.rhs))):
        return None
    terms = prod(int(shape[i]) for i, _ in contracted)
    narrow = element in (f16, bf16)
    of_few = not narrow and _is_of_few(op, batch, contracted) and op.rhs not in weights
    longest = _LONGEST_NARROW_PRODUCT if narrow else _LONGEST_PRODUCT
    if terms <= (_TASKS * _LEAST if of_few else longest):
        return None
    b = Build(op)
    if narrow:
        wide = b(type(op), *(b(CastOp, v, to=f32) for v in op.operands), **op.properties)
        return [b(CastOp, wide, to=element)]
    i, j = max(contracted, key=lambda pair: shape[pair[0]])
    size = int(shape[i])
    # What the other axes have is whole in a block.
    rest = terms // size
    room = min(_OF_FEW, size // _TASKS) if of_few else max(_PRODUCT // rest, 1)
    part = next((p for p in range(room, 0, -1) if size % p == 0 and p * rest >= _LEAST), None)
    if part is None and terms <= longest and not of_few:
        return None
    if part is None:
        # No number of blocks divides the axis: what is left over is a product of its own.
        whole = size - size % room
        first = _between(b, op.lhs, i, 0, whole)
        ends = _between(b, op.lhs, i, whole, size), _between(b, op.rhs, j, whole, size)
        left = product_of(b, *ends, batch, contracted, element)
        if not of_few:
            return [b(AddOp, product_of(b, first, _between(b, op.rhs, j, 0, whole), batch, contracted, element), left)]
        # The matrix is read where it lies.
        blocks = b(WindowsOp, op.rhs, axes=(0,), sizes=(room,), strides=(room,))
        sums = product_of(b, cut(b, first, i, room), blocks, [(i, 1)], [(i + 1, 0)], element)
        return [b(AddOp, b(ReduceSumOp, sums, axes=(0,), keepdims=False), left)]
    sums = product_in_blocks(b, op, batch, contracted, (i, j), part, element)
    return [b(ReduceSumOp, sums, axes=(0,), keepdims=False)]


def _is_of_few(op: MatmulOp | DotGeneralOp, batch: Sequence[Pair], contracted: Sequence[Pair]) -> bool:
    """Whether it is a few rows by a large matrix, which lies row by row."""
    rows = shape_of(op.lhs)[:-1]
    whole = not batch and list(contracted) == [(len(rows), 0)] and rank_of(op.rhs) == 2
    return whole and prod(map(int, shape_of(op.rhs))) >= _LARGE and prod(rows) <= _FEW and defining(op.rhs, TransposeOp) is None


def _blocked(op: AxisReduction) -> Sequence[SSAValue] | None:
    x, shape, axes, kind = op.x, shape_of(op.x), op.reduction_axes, type(op)
    if not axes or not is_static(shape):
        return None
    block, limit = _ALONG if rank_of(x) - 1 in axes else _ACROSS
    waits = prod(map(int, shape)) >= _LARGE and prod(map(int, shape[: axes[0]])) < _TASKS
    terms = prod(int(shape[a]) for a in axes)
    loses = kind is ReduceSumOp and is_float(op.element) and terms > limit
    if not loses and not (waits and terms > block):
        return None
    b, element = Build(op), op.element
    if element in (f16, bf16) and kind in (ReduceSumOp, ReduceProdOp):
        wide = b(kind, b(CastOp, x, to=f32), axes=axes, keepdims=op.keeps_axes)
        return [b(CastOp, wide, to=element)]
    # The last axes are whole in a block; the one that is too long for it is cut.
    cut, room = len(axes) - 1, block
    while int(shape[axes[cut]]) <= room:
        room //= int(shape[axes[cut]])
        cut -= 1
    axis, inner = axes[cut], axes[cut + 1 :]
    size = int(shape[axis])
    part = next(p for p in range(room, 0, -1) if size % p == 0)
    if part < _LEAST and inner:
        sums = b(kind, x, axes=inner, keepdims=True)
        total = b(kind, sums, axes=axes[: cut + 1], keepdims=True)
        return [b(ReshapeOp, total, shape=shape_of(op.result))]
    if part >= _LEAST:
        blocks = _in_blocks(op, axis, part)
        sums = b(kind, blocks, axes=[axis + 1, *(a + 1 for a in inner)], keepdims=True)
        sums = b(ReshapeOp, sums, shape=[size // part if a == axis else 1 if a in inner else n for a, n in enumerate(shape)])
        total = b(kind, sums, axes=axes[: cut + 1], keepdims=True)
        return [b(ReshapeOp, total, shape=shape_of(op.result))]
    if not loses:
        return None
    # No number of blocks divides the axis: what is left over is a sum of its own.
    parts = (_between(b, x, axis, low, high) for low, high in ((0, size - size % room), (size - size % room, size)))
    return [b(AddOp, *(b(kind, v, axes=axes, keepdims=op.keeps_axes) for v in parts))]


def _in_blocks(op: AxisReduction, axis: int, part: int) -> SSAValue:
    """What a reduction reads, with an axis in blocks of `part`; what elementwise ops make of it for it alone is made of blocks.

    Otherwise it would be written first.
    """
    b, shape, known = Build(op), shape_of(op.x), dict[SSAValue, SSAValue]()
    behind = len(shape) - axis

    def blocks(value: SSAValue) -> SSAValue:
        sizes = shape_of(value)
        if value not in known and len(sizes) >= behind:
            at = len(sizes) - behind
            halves = (1, 1) if sizes[at] == 1 else (int(sizes[at]) // part, part)
            known[value] = b(ReshapeOp, value, shape=(*sizes[:at], *halves, *sizes[at + 1 :]))
        return known.get(value, value)

    for maker in _makers(op):
        made = type(maker).make(*map(blocks, maker.operands), **maker.properties)
        known[maker.results[0]] = b.insert(made).results[0]
    return blocks(op.x)


def _makers(op: AxisReduction) -> list[Elementwise]:
    """The elementwise ops that make what a reduction reads, of the same shape, for it alone, in program order."""
    makers: dict[Operation, Elementwise] = {}
    pending, before = {op.x.owner}, op.prev_op
    while pending and before is not None:
        if before in pending:
            pending.remove(before)
            # A movement is read through, where it is not reshaped.
            moved = any(isinstance(v.owner, Movement) for v in before.operands)
            if isinstance(before, Elementwise) and not moved and _is_for(before, op, makers):
                makers[before] = before
                pending |= {v.owner for v in before.operands}
        before = before.prev_op
    return list(reversed(makers.values()))


def _is_for(maker: Elementwise, op: AxisReduction, others: Mapping[Operation, Elementwise]) -> bool:
    """Whether what an op makes is of the shape of what a reduction reads, and for it or its other makers alone."""
    return shape_of(maker.results[0]) == shape_of(op.x) and users(maker.results[0]) <= {op, *others}


def _between(b: Build, x: SSAValue, axis: int, low: int, high: int) -> SSAValue:
    shape = shape_of(x)
    starts = [low if a == axis else 0 for a in range(len(shape))]
    limits = [high if a == axis else size for a, size in enumerate(shape)]
    return b(SliceOp, x, starts=starts, limits=limits, strides=[1] * len(shape))

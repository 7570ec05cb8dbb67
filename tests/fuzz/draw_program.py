"""Draw random programs: ops by their recipes, sometimes patterns that occur in models and that passes match."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Block, Operation
from dlc.testing.sample import is_float
from dlc.weights import WeightStore
from tests.fuzz.contractions import conv
from tests.fuzz.quantized import bf16_contraction, f32_contraction, integer_contraction, quantized_contraction
from tests.fuzz.random_program import ProgramValue, RandomProgram
from tests.fuzz.random_values import FLOATS, SIZES, Unsuitable
from tests.fuzz.recipes import OPS, recipe


def _attention(p: RandomProgram) -> ProgramValue:
    """Attention of a value's rows among themselves."""
    x = p.any(FLOATS, lambda s: len(s) >= 2 and s[-2] ** 2 * math.prod(s[:-2]) < 4096)
    rank = len(x.shape)
    batch, last = tuple(range(rank - 2)), (rank - 1,)
    scores = p.add(dl.DotGeneralOp, x, x, lhs_batch=batch, rhs_batch=batch, lhs_contract=last, rhs_contract=last)
    scaled = p.add(dl.MulOp, scores, p.source(np.full((), 0.25, x.dtype)))
    return p.add(dl.MatmulOp, p.add(dl.SoftmaxOp, scaled, axis=rank - 1), x)


def _normalized_convolution(p: RandomProgram) -> ProgramValue:
    """A convolution, batch normalization with constant statistics, sometimes a shortcut, and an activation."""
    y = conv(p, dl.ConvOp)
    if not is_float(y.dtype):
        raise Unsuitable
    statistics = [p.rng.standard_normal(y.shape[-1]) for _ in range(3)]
    statistics.append(np.abs(p.rng.standard_normal(y.shape[-1])) + 0.1)
    weights = [p.weight(np.asarray(s).astype(y.dtype)) for s in statistics]
    y = p.add(dl.BatchNormOp, y, *weights, axis=len(y.shape) - 1, epsilon=1e-3)
    if p.flag():
        y = p.add(dl.AddOp, y, p.partner(y))
    return p.add(p.random.choice([dl.ReluOp, dl.SiluOp, dl.HardswishOp]), y)


def _recurrence(p: RandomProgram) -> ProgramValue:
    """A scan with a state over a sequence."""
    x = p.any(FLOATS, lambda s: math.prod(s) < 500)
    length = p.random.choice([0, 1, 2, 3, 5])
    xs = p.fresh(x.dtype, (length, *x.shape))
    body = Block(arg_types=[x.value.type, x.value.type])
    build = DlBuilder(body)
    operands = p.random.sample(list(body.args), 2)
    combined = build(p.random.choice([dl.AddOp, dl.SubOp, dl.MulOp, dl.MaximumOp, dl.MinimumOp]), *operands)
    state = build(p.random.choice([dl.TanhOp, dl.AbsOp, dl.NegOp, dl.ReluOp, dl.SigmoidOp]), combined)
    body.add_op(dl.YieldOp([state, combined]))
    return p.scan(dl.ScanOp.of([x.value, xs.value], body, 1, length), x, xs)


PATTERNS = (_attention, _normalized_convolution, _recurrence, integer_contraction, quantized_contraction, bf16_contraction)


def _step(p: RandomProgram) -> None:
    if p.random.random() < 0.08:
        p.random.choice(PATTERNS)(p)
        return
    op = p.random.choice(OPS)
    if op in p.excluded_ops:
        raise Unsuitable
    recipe(op)(p, op)


def rounded_program(seed: int, block: Block | None = None, weights: WeightStore | None = None) -> RandomProgram:
    """Return the program of a seed that begins with f32 contractions with weights, which a lower precision rounds."""
    p = RandomProgram(seed, block, weights)
    p.types = [np.dtype(np.float32)]
    p.grow(
        lambda: p.random.choice([f32_contraction, f32_contraction, _normalized_convolution])(p), p.random.choice([1, 1, 2, 4])
    )
    p.grow(lambda: _step(p), len(p.op_results) + p.random.choice([0, 1, 2]))
    return p


def random_program(
    seed: int,
    block: Block | None = None,
    weights: WeightStore | None = None,
    size: int | None = None,
    dtype: np.dtype | None = None,
    excluded_ops: Collection[type[Operation]] = (),
    sizes: Sequence[int] = SIZES,
) -> RandomProgram:
    """Return the program of a seed, with about `size` ops and none of `excluded_ops`; axes mostly have one of `sizes`.

    With `dtype`, most values have that dtype and no special values.
    """
    p = RandomProgram(seed, block, weights)
    p.excluded_ops = excluded_ops
    p.sizes = sizes
    if dtype is not None:
        p.types, p.special = [dtype], False
    p.grow(lambda: _step(p), size or p.random.choice([1, 1, 1, 2, 2, 3, 4, 6]))
    while not p.values:
        p.grow(lambda: _step(p), 1)
    return p

"""Contractions that go by words of narrow numbers: of integers with zero points, of what was quantised, and of bf16."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from tests.fuzz.draws import SMALL
from tests.fuzz.random_program import Known, RandomProgram
from tests.ops.sample import BF16, F32, I8, I32, U8


def _bytes_of(p: RandomProgram, dtype: np.dtype, shape: Sequence[int]) -> Array:
    """Integers of 8 bits, of the whole range or next to its ends, as sums overflow soonest."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if p.random.random() < 0.3:
        return p.numbers.choice(np.array([low, high], dtype), tuple(shape))
    return p.numbers.integers(low, high, tuple(shape), dtype, endpoint=True)


class _Contraction:
    """A product of a matrix, or a convolution: the shapes of data and of weights."""

    def __init__(self, p: RandomProgram) -> None:
        self.p = p
        self.outputs = p.random.choice([1, 3, 8, 16, 17, 33, 64, 65])
        channels, rows = p.random.choice([1, 2, 3, 4, 5, 16, 31, 64, 127]), p.random.choice(SMALL)
        self.kernel, self.spatial, self.window = (), (), dict[str, tuple[int, ...]]()
        if p.flag():
            rank = p.random.choice([1, 2, 2])
            self.kernel = tuple(p.random.choice([1, 2, 3]) for _ in range(rank))
            self.spatial = tuple(k + p.random.randint(0, 5) for k in self.kernel)
            steps = tuple(p.random.choice([1, 1, 2]) for _ in range(rank))
            self.window = {"strides": steps, "dilations": (1,) * rank}
            channels = min(channels, 31)
        batch = (rows,) if self.kernel else p.random.choice([(rows,), (2, rows)])
        self.data = (*batch, *self.spatial, channels)
        self.weights = (*self.kernel, channels, self.outputs)
        self.depth = math.prod(self.weights[:-1])

    def of(self, x: Known, w: Known, result: np.dtype | None = None) -> Known:
        to = {} if result is None else {"result": element_type(result)}
        if not self.kernel:
            return self.p.add(dl.MatmulOp, x, w, **to)
        return self.p.add(dl.ConvOp, x, w, groups=1, **self.window, **to)

    def padded(self, x: Known, value: Known) -> Known:
        """The data within a border of what stands for 0, where there are windows."""
        if not self.kernel or self.p.flag():
            return x
        by = (0, *(self.p.random.randint(0, k - 1) for k in self.kernel), 0)
        return self.p.add(dl.PadOp, x, value, low=by, high=by)


def integer_contraction(p: RandomProgram) -> Known:
    """Bytes with and without sign times weights of either, with zero points or without, summed in i32."""
    of, (data, weights) = _Contraction(p), (p.random.choice([I8, U8]) for _ in range(2))
    x, w = p.given(_bytes_of(p, data, of.data)), p.weight(_bytes_of(p, weights, of.weights))
    if p.flag():
        return of.of(x, w, I32)
    zeros = [p.given(np.asarray(p.random.choice([0, p.random.randint(0, 99)]), d)) for d in (data, weights)]
    x = of.padded(x, zeros[0])
    wide = [p.add(dl.CastOp, v, to=element_type(I32)) for v in (x, zeros[0], w, zeros[1])]
    return of.of(p.add(dl.SubOp, *wide[:2]), p.add(dl.SubOp, *wide[2:]))


def quantized_contraction(p: RandomProgram) -> Known:
    """Quantised data times quantised weights, with scales of their channels, a bias, an activation; quantised again."""
    of, data = _Contraction(p), p.random.choice([I8, U8])
    x, w = p.given(_bytes_of(p, data, of.data)), p.weight(_bytes_of(p, p.random.choice([I8, I8, U8]), of.weights))
    shape = p.random.choice([(), (of.outputs,)])
    scale = p.weight(np.asarray(p.numbers.choice([0.25, 0.5, 0.01, 0.003], shape)).astype(F32))
    zero = p.weight(np.asarray(p.numbers.integers(0, 1 if p.flag() else 9, shape)).astype(w.dtype))
    own = [p.weight(np.asarray(p.random.choice([0.5, 0.02]), F32)), p.weight(np.asarray(p.random.choice([0, 3, 120]), data))]
    values = p.add(dl.DequantizeOp, x, *own, axis=0)
    values = of.padded(values, p.given(np.zeros((), F32)))
    y = of.of(values, p.add(dl.DequantizeOp, w, scale, zero, axis=len(of.weights) - 1))
    if p.flag():
        y = p.add(dl.AddOp, y, p.weight(p.numbers.standard_normal(of.outputs).astype(F32)))
    if p.flag():
        y = p.add(dl.ReluOp, y)
    if p.flag():
        return y
    to = p.random.choice([I8, U8])
    step = 2.0 ** round(math.log2(max(1e-3, float(np.std(y.tracked.array)) / 40)))
    return p.add(dl.QuantizeOp, y, p.weight(np.asarray(step, F32)), p.weight(np.asarray(7, to)), axis=0)


def float_contraction(p: RandomProgram) -> Known:
    """Numbers of f32 times weights of f32, with a bias and an activation: what a precision of 16 bits rounds."""
    of = _Contraction(p)
    y = of.of(
        of.padded(p.fresh(F32, of.data), p.given(np.zeros((), F32))), p.weight(p.numbers_of(F32, of.weights, of.depth**-0.5))
    )
    if p.flag():
        y = p.add(dl.AddOp, y, p.weight(p.numbers.standard_normal(of.outputs).astype(F32)))
    if p.flag():
        y = p.add(p.random.choice([dl.ReluOp, dl.TanhOp, dl.SigmoidOp]), y)
    if p.flag():
        return y
    outputs = p.random.choice([1, 5, 16, 33])
    return p.add(dl.MatmulOp, y, p.weight(p.numbers_of(F32, (of.outputs, outputs), of.outputs**-0.5)))


def halves_contraction(p: RandomProgram) -> Known:
    """Numbers of bf16, or rounded to it, times weights of bf16, summed in f32."""
    of = _Contraction(p)
    x = p.fresh(p.random.choice([BF16, F32]), of.data)
    if x.dtype == F32:
        x = p.add(dl.CastOp, x, to=element_type(BF16))
    return of.of(x, p.weight(p.numbers_of(BF16, of.weights, of.depth**-0.5)), F32)

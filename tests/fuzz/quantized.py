"""Patterns for contractions with packed operands (VNNI layout): zero points, quantization, bf16."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from dlc.testing.sample import BF16, F32, I8, I32, U8
from tests.fuzz.random_program import ProgramValue, RandomProgram
from tests.fuzz.random_values import SMALL_SIZES


def _random_int8(p: RandomProgram, dtype: np.dtype, shape: Sequence[int]) -> Array:
    """Draw 8-bit integers from the whole range, or only its ends, for which sums overflow soonest."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if p.random.random() < 0.3:
        return p.rng.choice(np.array([low, high], dtype), tuple(shape))
    return p.rng.integers(low, high, tuple(shape), dtype, endpoint=True)


class _Contraction:
    """A matrix product or convolution: the shapes of data and weights."""

    def __init__(self, p: RandomProgram) -> None:
        self.p = p
        self.outputs = p.random.choice([1, 3, 8, 16, 17, 33, 64, 65])
        channels, rows = p.random.choice([1, 2, 3, 4, 5, 16, 31, 64, 127]), p.random.choice(SMALL_SIZES)
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

    def apply(self, x: ProgramValue, w: ProgramValue, result: np.dtype | None = None) -> ProgramValue:
        to = {} if result is None else {"result": element_type(result)}
        if not self.kernel:
            return self.p.add(dl.MatmulOp, x, w, **to)
        return self.p.add(dl.ConvOp, x, w, groups=1, **self.window, **to)

    def pad(self, x: ProgramValue, value: ProgramValue) -> ProgramValue:
        """Pad the data with the value that represents 0, if there are windows."""
        if not self.kernel or self.p.flag():
            return x
        padding = (0, *(self.p.random.randint(0, k - 1) for k in self.kernel), 0)
        return self.p.add(dl.PadOp, x, value, low=padding, high=padding)


def integer_contraction(p: RandomProgram) -> ProgramValue:
    """Signed or unsigned 8-bit data times weights of either, with or without zero points, accumulated in i32."""
    contraction, (data, weights) = _Contraction(p), (p.random.choice([I8, U8]) for _ in range(2))
    x, w = p.source(_random_int8(p, data, contraction.data)), p.weight(_random_int8(p, weights, contraction.weights))
    if p.flag():
        return contraction.apply(x, w, I32)
    zeros = [p.source(np.asarray(p.random.choice([0, p.random.randint(0, 99)]), d)) for d in (data, weights)]
    x = contraction.pad(x, zeros[0])
    widened = [p.add(dl.CastOp, v, to=element_type(I32)) for v in (x, zeros[0], w, zeros[1])]
    return contraction.apply(p.add(dl.SubOp, *widened[:2]), p.add(dl.SubOp, *widened[2:]))


def quantized_contraction(p: RandomProgram) -> ProgramValue:
    """Quantized data times quantized weights with per-channel scales, bias and activation; sometimes quantized again."""
    contraction, data = _Contraction(p), p.random.choice([I8, U8])
    x, w = (
        p.source(_random_int8(p, data, contraction.data)),
        p.weight(_random_int8(p, p.random.choice([I8, I8, U8]), contraction.weights)),
    )
    shape = p.random.choice([(), (contraction.outputs,)])
    scale = p.weight(np.asarray(p.rng.choice([0.25, 0.5, 0.01, 0.003], shape)).astype(F32))
    zero = p.weight(np.asarray(p.rng.integers(0, 1 if p.flag() else 9, shape)).astype(w.dtype))
    data_parameters = [
        p.weight(np.asarray(p.random.choice([0.5, 0.02]), F32)),
        p.weight(np.asarray(p.random.choice([0, 3, 120]), data)),
    ]
    values = p.add(dl.DequantizeOp, x, *data_parameters, axis=0)
    values = contraction.pad(values, p.source(np.zeros((), F32)))
    y = contraction.apply(values, p.add(dl.DequantizeOp, w, scale, zero, axis=len(contraction.weights) - 1))
    if p.flag():
        y = p.add(dl.AddOp, y, p.weight(p.rng.standard_normal(contraction.outputs).astype(F32)))
    if p.flag():
        y = p.add(dl.ReluOp, y)
    if p.flag():
        return y
    to = p.random.choice([I8, U8])
    step = 2.0 ** round(math.log2(max(1e-3, float(np.std(y.bounded.array)) / 40)))
    return p.add(dl.QuantizeOp, y, p.weight(np.asarray(step, F32)), p.weight(np.asarray(7, to)), axis=0)


def f32_contraction(p: RandomProgram) -> ProgramValue:
    """f32 data times f32 weights, with bias and activation: a lower precision rounds its operands."""
    contraction = _Contraction(p)
    y = contraction.apply(
        contraction.pad(p.fresh(F32, contraction.data), p.source(np.zeros((), F32))),
        p.weight(p.random_array(F32, contraction.weights, contraction.depth**-0.5)),
    )
    if p.flag():
        y = p.add(dl.AddOp, y, p.weight(p.rng.standard_normal(contraction.outputs).astype(F32)))
    if p.flag():
        y = p.add(p.random.choice([dl.ReluOp, dl.TanhOp, dl.SigmoidOp]), y)
    if p.flag():
        return y
    outputs = p.random.choice([1, 5, 16, 33])
    return p.add(dl.MatmulOp, y, p.weight(p.random_array(F32, (contraction.outputs, outputs), contraction.outputs**-0.5)))


def bf16_contraction(p: RandomProgram) -> ProgramValue:
    """bf16 data, or f32 data rounded to bf16, times bf16 weights, accumulated in f32."""
    contraction = _Contraction(p)
    x = p.fresh(p.random.choice([BF16, F32]), contraction.data)
    if x.dtype == F32:
        x = p.add(dl.CastOp, x, to=element_type(BF16))
    return contraction.apply(x, p.weight(p.random_array(BF16, contraction.weights, contraction.depth**-0.5)), F32)

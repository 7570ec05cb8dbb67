"""Recipes for quantized operators, with zero points, per-channel scales and constant weights.

Scales are powers of two, so that results are exact: `onnx.reference` may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.testing.sample import F16, F32, I8, U8
from tests.fuzz.random_graph import GraphValue, RandomGraph
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

_CHANNELS = (1, 2, 3, 4, 5, 16, 31, 64, 127)
_OUTPUTS = (1, 3, 8, 16, 17, 33, 65)


def _random_int8(g: RandomGraph, dtype: np.dtype, shape: Sequence[int]) -> Array:
    info = np.iinfo(dtype)
    return g.rng.integers(info.min, info.max, tuple(shape), dtype, endpoint=True)


def _zero(g: RandomGraph, dtype: np.dtype, shape: tuple[int, ...] = ()) -> GraphValue:
    """Draw a zero point. It is even, since `onnx.reference` adds some before rounding, and an odd one would change ties."""
    low = 0 if dtype == U8 else -5
    return g.constant(np.asarray(2 * g.rng.integers(low, 65 if dtype == U8 else 5, shape) * g.flag()).astype(dtype))


def _scale(g: RandomGraph, shape: tuple[int, ...] = ()) -> GraphValue:
    return g.constant(np.asarray(g.rng.choice([0.25, 0.5, 1.0, 0.125], shape)).astype(np.float32))


def _weights(g: RandomGraph, array: Array) -> GraphValue:
    """Return weights, mostly constant ones: only these are packed (VNNI layout)."""
    return g.constant(array) if g.random.random() < 0.8 else g.source(array)


def _shapes(g: RandomGraph, windows: bool) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]:
    """Return the shapes of data and weights, and the attributes of a convolution."""
    channels, outputs = g.random.choice(_CHANNELS), g.random.choice(_OUTPUTS)
    if not windows:
        return (*g.random.choice([(), (2,)]), g.random.choice(SMALL_SIZES), channels), (channels, outputs), {}
    channels = min(channels, 16)
    kernel = [g.random.choice([1, 2, 3]) for _ in range(2)]
    settings = {
        "kernel_shape": kernel,
        "strides": [g.random.choice([1, 1, 2]) for _ in kernel],
        "pads": [g.random.randint(0, k - 1) for k in (*kernel, *kernel)],
    }
    return (1, channels, *(k + g.random.randint(0, 5) for k in kernel)), (outputs, channels, *kernel), settings


def _integer_op(g: RandomGraph, op: str) -> GraphValue:
    """`MatMulInteger` and `ConvInteger`, with zero points."""
    data, weights = (g.random.choice([I8, U8]) for _ in range(2))
    x, w, settings = _shapes(g, op == "ConvInteger")
    operands = g.source(_random_int8(g, data, x)), _weights(g, _random_int8(g, weights, w))
    return g.add(op, *operands, _zero(g, data), _zero(g, weights), **settings)


def _qlinear(g: RandomGraph, op: str) -> GraphValue:
    """`QLinearMatMul` and `QLinearConv`; convolutions may have per-channel scales and a bias."""
    data, weights, result = (g.random.choice([I8, U8]) for _ in range(3))
    windows = op == "QLinearConv"
    x, w, settings = _shapes(g, windows)
    if windows and (data, result) != (U8, U8):
        result = data
    channels = (w[0],) if windows and g.flag() else ()
    bias = [g.constant(g.rng.integers(-999, 999, w[0]).astype(np.int32))] if windows and g.flag() else []
    return g.add(
        op,
        *(g.source(_random_int8(g, data, x)), _scale(g), _zero(g, data)),
        *(_weights(g, _random_int8(g, weights, w)), _scale(g, channels), _zero(g, weights)),
        *(g.constant(np.asarray(g.random.choice([8, 64, 256]), np.float32)), _zero(g, result)),
        *bias,
        **settings,
    )


def _qdq(g: RandomGraph, op: str) -> GraphValue:
    """One or two convolutions or matrix products between `DequantizeLinear` and `QuantizeLinear`."""
    if g.opset < 19:
        raise Unsuitable  # `onnx.reference` does not compute earlier ones
    windows = g.flag()
    shape, w, settings = _shapes(g, windows)
    y = g.source(_random_int8(g, U8, shape))
    scale, zero = _scale(g), _zero(g, U8)
    for _ in range(g.random.choice([1, 2, 2])):
        x = g.add("DequantizeLinear", y, scale, zero)
        axis, dtype = 0 if windows else 1, g.random.choice([I8, I8, U8])
        channels = (w[axis],) if g.flag() else ()
        more = {"axis": axis} if channels else {}
        weights = g.add(
            "DequantizeLinear", g.constant(_random_int8(g, dtype, w)), _scale(g, channels), _zero(g, dtype, channels), **more
        )
        y = g.add("Conv" if windows else "MatMul", x, weights, **settings)
        if g.flag():
            y = g.add("Relu", y)
        scale, zero = g.constant(np.asarray(g.random.choice([64, 256]), np.float32)), _zero(g, U8)
        y = g.add("QuantizeLinear", y, scale, zero)
        outputs = g.random.choice(_OUTPUTS)
        w, settings = ((outputs, y.shape[1], 1, 1), {"kernel_shape": [1, 1]}) if windows else ((y.shape[-1], outputs), {})
    return y


def _dynamic(g: RandomGraph, op: str) -> GraphValue:
    """Dynamically quantized activations times constant int8 weights, rescaled afterwards."""
    x, w, _ = _shapes(g, False)
    values = g.source((g.rng.integers(-128, 127, x) / 4).astype(F32))
    q = g.add("DynamicQuantizeLinear", values, results=3, accepted=lambda y: y.any())
    scale, zero = g.values[-2:]
    total = g.add("MatMulInteger", q, _weights(g, _random_int8(g, I8, w)), zero, _zero(g, I8))
    return g.add("Mul", g.add("Cast", total, to=1), scale)


def _matmul_nbits(g: RandomGraph, op: str) -> GraphValue:
    """`MatMulNBits`: 4-bit or 8-bit weights in blocks along K; the last block may be partial."""
    bits, block, n = g.random.choice([4, 4, 8]), g.random.choice([16, 32, 64]), g.random.choice(_OUTPUTS)
    blocks = g.random.choice([1, 2, 3, 5])
    k = blocks * block - g.random.choice([0, 0, 1, 7, block // 2])
    dtype = g.random.choice([F32, F32, F16])
    x = g.source((g.rng.standard_normal((*g.random.choice([(), (2,)]), g.random.choice([*SMALL_SIZES, 40]), k))).astype(dtype))
    # Whether dequantized f16 weights are rounded depends on the numerics mode: powers of two need no rounding.
    scales_f64 = g.rng.choice([0.125, 0.0625, 0.03125], (n, blocks)) if dtype == F16 else g.rng.uniform(0.01, 0.1, (n, blocks))
    scales = scales_f64.astype(dtype)
    packed = _random_int8(g, U8, (n, blocks, block * bits // 8))
    kind = g.random.choice(["none", "packed", "floats"])
    zeros, zero = np.full((n, blocks), float(1 << (bits - 1))), None
    if kind == "packed":
        zero = g.constant(_random_int8(g, U8, (n, -(-blocks * bits // 8))))
        zeros = _unpack(zero.array, bits)[:, :blocks]
    elif kind == "floats":
        zero = g.constant((g.rng.integers(0, 2 << bits, (n, blocks)) / 2).astype(dtype))
        zeros = zero.array
    bias = g.constant(g.rng.standard_normal(n).astype(dtype)) if g.flag() else None
    integers = _unpack(packed.reshape(n, -1), bits).reshape(n, blocks, block)
    weights = ((integers - zeros[..., None].astype(np.float64)) * scales[..., None].astype(np.float64)).reshape(n, -1)[:, :k]
    y = x.array.astype(np.float64) @ weights.T + (0 if bias is None else bias.array.astype(np.float64))
    operands = [x, g.constant(packed), g.constant(scales.reshape(-1) if g.flag() else scales), zero, None, bias]
    level = g.random.choice([0, 1, 4])
    settings = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    return g.define(op, "com.microsoft", operands, y.astype(dtype), **settings)


def _unpack(packed: Array, bits: int) -> Array:
    """Unpack integers from bytes along the last axis; of two 4-bit integers the lower one comes first."""
    if bits == 8:
        return packed.astype(np.float64)
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1).astype(np.float64)


QUANTIZED: dict[str, Callable[[RandomGraph, str], GraphValue]] = {
    **dict.fromkeys(["MatMulInteger", "ConvInteger"], _integer_op),
    **dict.fromkeys(["QLinearMatMul", "QLinearConv"], _qlinear),
    "DequantizeLinear": _qdq,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulNBits": _matmul_nbits,
}

"""Nodes of the domain `com.microsoft`, the operators of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array
from tests.fuzz.attribute_nodes import AttributeNode, Draw, NodeDraw

_DOMAIN, _OPSET = "com.microsoft", 18


def _node(
    op: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Array | None],
    constants: Sequence[int] = (),
    tolerance: float = 1e-5,
    steps: int = 0,
    dtype: Any = np.float32,
) -> AttributeNode:
    return AttributeNode(
        op, attributes, inputs, _OPSET, 1, constants, 0 if steps else tolerance, steps, _DOMAIN, result_dtype=dtype
    )


def _fused_matmul(d: Draw) -> AttributeNode:
    m, k, n = d.shape(3)
    batch = d.shape(d.size(0, 2), 1, 3)
    transposed = d.flag(), d.flag()
    a, b = ([k, m] if transposed[0] else [m, k]), ([n, k] if transposed[1] else [k, n])
    attributes = {"transA": transposed[0], "transB": transposed[1], "alpha": d.maybe(d.choice(0.5, -2.0))}
    inputs = [d.floats([*batch, *a]), d.floats([*batch, *b])]
    return _node("FusedMatMul", attributes, inputs, constants=d.choice((), (1,)))


def _activation(d: Draw) -> AttributeNode:
    op = d.choice("BiasGelu", "FastGelu", "Gelu", "QuickGelu")
    x = d.floats(d.shape(d.size(1, 3)), scale=2)
    if op == "QuickGelu":
        return _node(op, {"alpha": d.maybe(d.choice(1.0, 1.702, -0.5))}, [x])
    bias = {"BiasGelu": d.floats(x.shape[-1:]), "FastGelu": d.maybe(d.floats(x.shape[-1:]))}
    return _node(op, {}, [x, bias[op]] if op in bias else [x], tolerance=1e-4)


def _skip_normalization(d: Draw) -> AttributeNode:
    op = d.choice("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    batch, length, size = d.shape(3)
    shape = [batch, length, size]
    skip = d.choice(shape, [1, length, size], [length, size])
    inputs = [d.floats(shape), d.floats(skip), d.floats([size])]
    inputs += (
        [d.maybe(d.floats([size])), d.maybe(d.floats([size]))]
        if op == "SkipLayerNormalization"
        else [d.maybe(d.floats([size]))]
    )
    return _node(op, {"epsilon": d.maybe(d.choice(1e-3, 0.5))}, inputs, tolerance=1e-4)


def _multi_head_attention(d: Draw) -> AttributeNode:
    batch, heads, length, keys, size = d.size(1, 2), d.size(1, 3), d.size(1, 4), d.size(1, 5), d.choice(2, 4)
    unidirectional = d.maybe(d.flag(), 0.3)
    keys = length if unidirectional else keys
    attributes = {
        "num_heads": heads,
        "scale": d.maybe(d.choice(0.5, 1.5)),
        "mask_filter_value": d.maybe(-1000.0),
        "unidirectional": unidirectional,
    }
    q, k, v = (d.floats([batch, n, heads * size]) for n in (length, keys, keys))
    mask = d.choice(None, d.integers([batch], 1, keys, np.int32), d.integers([batch, keys], 0, 1, np.int32))
    if mask is not None and mask.ndim == 2:
        mask[:, 0] = 1
    bias = d.maybe(d.floats([d.choice(1, batch), d.choice(1, heads), length, keys]), 0.4)
    inputs = [q, k, v, d.maybe(d.floats([3 * heads * size])), mask, bias]
    return _node("MultiHeadAttention", attributes, inputs, tolerance=1e-4)


def _rotary_embedding(d: Draw) -> AttributeNode:
    batch, heads, length, size = d.size(1, 2), d.size(1, 3), d.size(1, 4), d.choice(2, 4, 8)
    positions = d.choice(d.integers([1], 0, 3), d.integers([batch, length], 0, 7))
    attributes = {"interleaved": d.maybe(d.flag())}
    inputs = [d.floats([batch, length, heads * size]), positions, d.floats([12, size // 2]), d.floats([12, size // 2])]
    if d.flag():
        inputs[0] = d.floats([batch, heads, length, size])
    return _node("RotaryEmbedding", attributes, inputs, constants=(2, 3))


def _scale(d: Draw) -> np.ndarray:
    return np.asarray(2.0 ** -d.size(1, 4), np.float32)


_QUANTIZED = (
    "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", "QLinearConcat",
    "QLinearSoftmax",
)  # fmt: skip


def _quantized(d: Draw) -> AttributeNode:
    op = d.choice(*_QUANTIZED)
    dtype = d.choice(np.uint8, np.int8)

    def zero() -> np.ndarray:
        return d.array([], dtype)

    if op in ("QLinearAdd", "QLinearMul"):
        shape = d.shape(3)
        other = d.choice(shape, shape[1:], [1], [shape[0], 1, shape[2]])
        inputs = [d.array(shape, dtype), _scale(d), zero(), d.array(other, dtype), _scale(d), zero(), _scale(d), zero()]
        return _node(op, {}, inputs, constants=(1, 2, 4, 5, 6, 7), steps=1, dtype=dtype)
    if op == "QLinearConcat":
        shape, axis = d.shape(3), d.size(0, 2)
        inputs = [_scale(d), zero()]
        for _ in range(d.size(1, 3)):
            inputs += [d.array(shape, dtype), _scale(d), zero()]
        constants = [0, 1, *(k for k in range(2, len(inputs)) if k % 3 != 2)]
        return _node(op, {"axis": axis}, inputs, constants, steps=1, dtype=dtype)
    if op == "QLinearGlobalAveragePool":
        inputs = [d.array([2, 3, *d.shape(2)], dtype), _scale(d), zero(), _scale(d), zero()]
        return _node(op, {"channels_last": d.maybe(d.flag())}, inputs, constants=(1, 2, 3, 4), steps=1, dtype=dtype)
    inputs = [d.array(d.shape(2), dtype), _scale(d), zero(), _scale(d), zero()]
    of_operators = {
        "QLinearLeakyRelu": {"alpha": d.maybe(d.choice(0.5, -0.5))},
        "QLinearSoftmax": {"axis": d.choice(-1, 0, 1), "opset": 13},
    }
    attributes = of_operators.get(op, {})
    return _node(op, attributes, inputs, constants=(1, 2, 3, 4), steps=1, dtype=dtype)


def _matmul_n_bits(d: Draw) -> AttributeNode:
    k, n, block = d.choice(16, 24, 40), d.size(1, 5), d.choice(16, 32)
    blocks = -(-k // block)
    weights = d.integers([n, blocks, block // 2], 0, 255, np.uint8)
    zeros = d.maybe(d.integers([n, (blocks + 1) // 2], 0, 255, np.uint8))
    inputs = [d.floats([d.size(1, 3), k]), weights, d.floats([n, blocks]), zeros]
    attributes = {"K": k, "N": n, "bits": 4, "block_size": block}
    return _node("MatMulNBits", attributes, inputs, constants=(1, 2, 3), tolerance=1e-3)


MICROSOFT: tuple[NodeDraw, ...] = (
    _fused_matmul, _activation, _skip_normalization, _multi_head_attention, _multi_head_attention, _rotary_embedding, _quantized,
    _quantized, _matmul_n_bits,
)  # fmt: skip

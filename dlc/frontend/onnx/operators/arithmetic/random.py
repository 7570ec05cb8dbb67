"""Random operators: the numbers of `dlc.random`, which are the same in each call and on every target.

A node has the key of its seed, `dlc.random.key(seed)`; of a seed that is no integer its 32 bits count. One without a seed has
`dlc.random.fold_in(dlc.random.key(0), k)`, the k-th of them that is read.
"""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, element_type, is_float, numpy_dtype
from dlc.dims import Size, is_static
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute, f32

table = Table()


@table("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node) -> Value:
    """Numbers of [low, high), all equally likely."""
    low, high = node.real("low", 0.0), node.real("high", 1.0)
    return _uniform(node, _shape(node), _type(node), low, high)


@table("RandomNormal", "RandomNormalLike")
def random_normal(node: Node) -> Value:
    """Numbers of a normal distribution: √2 erfinv(u) of uniform u between -1 and 1."""
    emit, mean, scale = node.emit, node.real("mean", 0.0), node.real("scale", 1.0)
    kind = _type(node)
    one = np.ones((), numpy_dtype(kind))
    u = _uniform(node, _shape(node), kind, np.nextafter(-one, np.zeros_like(one)), one)
    normal = emit(dl.MulOp, emit(dl.ErfinvOp, u), emit.scalar(math.sqrt(2), u))
    return emit(dl.AddOp, emit(dl.MulOp, normal, emit.scalar(scale, u)), emit.scalar(mean, u))


@table("Bernoulli", since=15)
def bernoulli(node: Node) -> Value:
    """Ones with the probabilities that the input has."""
    emit, p = node.emit, node[0]
    to = element_type(dtype_of(node.integer("dtype"))) if node.has("dtype") else p.element_type
    return emit.cast(emit(dl.LessOp, _uniform(node, p.shape, p.element_type), p), to)


@table("Multinomial")
def multinomial(node: Node) -> Value:
    """Places along the last axis, by the logarithms of their probabilities: where these and Gumbel's noise are largest."""
    emit, (batch, count) = node.emit, node[0].shape
    to = element_type(dtype_of(node.integer("dtype", 6)))
    logits = emit.reshape(node[0], (batch, 1, count))
    kind = logits.element_type
    least = cast(Any, ml_dtypes.finfo)(numpy_dtype(kind)).smallest_normal
    noise = _uniform(node, (batch, node.integer("sample_size", 1), count), kind, least)
    for _ in range(2):
        noise = emit(dl.NegOp, emit(dl.LogOp, noise))
    return emit.cast(emit(dl.ArgmaxOp, emit(dl.AddOp, logits, noise), axis=2, keepdims=False), to)


@table("Dropout")
def dropout(node: Node) -> list[Value]:
    """In training `x / (1 - ratio)` where a uniform number is not below the ratio, else 0; otherwise `x`."""
    emit, x, ratio = node.emit, node[0], node.get(1)
    node.ignore("ratio", "seed")
    known = ratio is not None and ratio.known is not None and not ratio.known.any()
    if node.get(2) is None or known or not node.number(2, "training_mode"):
        # A mask was of the type of the data once.
        mask = x.element_type if node.opset < 10 else element_type(bool)
        return [x, emit.full(True, x.shape, mask)] if node.wants(1) else [x]
    ratio = emit.scalar(0.5, f32) if ratio is None else emit.reshape(ratio, ())
    kept = emit(dl.GreaterEqualOp, _uniform(node, x.shape, ratio.element_type), ratio)
    scale = emit(dl.DivOp, emit.scalar(1, ratio), emit(dl.SubOp, emit.scalar(1, ratio), ratio))
    scaled = emit(dl.MulOp, x, emit.cast(scale, x.element_type))
    return [emit(dl.SelectOp, kept, scaled, emit.scalar(0, x)), kept]


def _shape(node: Node) -> tuple[Size, ...]:
    return node[0].shape if node.inputs else node.integers("shape")


def _type(node: Node) -> Attribute:
    """The element type of the result: that of the input where no other one is given."""
    like = element_type(dtype_of(node.integer("dtype"))) if node.has("dtype") else node[0].element_type if node.inputs else f32
    if not is_float(like):
        raise ModelError(f"{node.place}: random numbers of {like}; its dtype must be one of floats")
    return like


def _uniform(node: Node, shape: tuple[Size, ...], kind: Attribute, low: Any = 0.0, high: Any = 1.0) -> Value:
    """`dlc.random.uniform`: the random digits of numbers of [1, 2), moved to [low, high)."""
    emit, dtype = node.emit, numpy_dtype(kind)
    limits = cast(Any, ml_dtypes.finfo)(dtype)
    # Fewer than eight digits are taken of eight bits.
    digits, width = int(limits.nmant), int(limits.bits) if limits.nmant >= 8 else 8
    word = ELEMENT_TYPES[f"uint{limits.bits}"]
    drawn = emit.cast(_bits(node, shape, f"uint{width}"), word)
    one = emit.constant(np.ones((), dtype).view(numpy_dtype(word)))
    drawn = emit(dl.ShiftRightOp, drawn, emit.scalar(width - digits, word))
    fraction = emit(dl.SubOp, emit(dl.BitcastOp, emit(dl.BitwiseOrOp, drawn, one), to=kind), emit.scalar(1, kind))
    lowest, span = emit.scalar(low, kind), emit.constant(np.asarray(high, dtype) - np.asarray(low, dtype))
    return emit(dl.MaximumOp, lowest, emit(dl.AddOp, emit(dl.MulOp, fraction, span), lowest))


def _bits(node: Node, shape: tuple[Size, ...], dtype: str) -> Value:
    emit = node.emit
    if emit.is_in_loop:
        raise NodeProblem(
            "operator", "in the body of a loop, or of what a gradient is of, where its numbers would be the same each time"
        )
    if not is_static(shape):
        sizes = ", ".join(map(str, shape))
        raise NodeProblem("value", f"how many numbers it draws, ({sizes}), must be known; give the model's input shapes")
    return emit(dl.RandomBitsOp, _key(node), emit.constant(0, np.uint64), shape=shape, to=ELEMENT_TYPES[dtype])


def _key(node: Node) -> Value:
    emit = node.emit
    if not node.has("seed"):
        words = emit.constant(np.zeros(2, np.uint32))
        own = emit.constant(next(emit.draws), np.uint64)
        wide = emit(dl.RandomBitsOp, words, own, shape=(), to=ELEMENT_TYPES["uint64"]).known
        assert wide is not None, "an op over small known values is evaluated"
        return emit.constant(_words(int(wide)))
    seed = node.integer("seed") if node.proto.op_type == "Dropout" else node.real("seed")
    return emit.constant(_words(int(seed) if seed == int(seed) else int(np.float32(seed).view(np.uint32))))


def _words(wide: int) -> Any:
    """The words of 32 bits of a number, the high one first."""
    return np.array([wide >> 32 & 0xFFFFFFFF, wide & 0xFFFFFFFF], np.uint32)

"""Random operators, with the generator of `dlc.random`: results are equal in each call and on every target.

A node uses the key of its seed, `dlc.random.key(seed)`; the f32 bits of a fractional seed are its integer. The k-th node
without a seed uses `dlc.random.fold_in(dlc.random.key(0), k)`.
"""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, element_type, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute, f32
from dlc.shapes.dims import Size, is_static

table = ConverterTable()


@table("RandomUniform", "RandomUniformLike")
def random_uniform(node: OnnxNode) -> ImportedValue:
    """Draw uniformly from [low, high)."""
    low, high = node.real("low", 0.0), node.real("high", 1.0)
    return _uniform(node, _shape(node), _type(node), low, high)


@table("RandomNormal", "RandomNormalLike")
def random_normal(node: OnnxNode) -> ImportedValue:
    """Draw from a normal distribution: √2 erfinv(u) of uniform u between -1 and 1."""
    emit, mean, scale = node.emit, node.real("mean", 0.0), node.real("scale", 1.0)
    element = _type(node)
    one = np.ones((), numpy_dtype(element))
    u = _uniform(node, _shape(node), element, np.nextafter(-one, np.zeros_like(one)), one)
    normal = emit(dl.MulOp, emit(dl.ErfinvOp, u), emit.scalar(math.sqrt(2), u))
    return emit(dl.AddOp, emit(dl.MulOp, normal, emit.scalar(scale, u)), emit.scalar(mean, u))


@table("Bernoulli", since=15)
def bernoulli(node: OnnxNode) -> ImportedValue:
    """Draw ones with the probabilities in the input."""
    emit, p = node.emit, node[0]
    to = element_type(dtype_of(node.integer("dtype"))) if node.has_attribute("dtype") else p.element_type
    return emit.cast(emit(dl.LessOp, _uniform(node, p.shape, p.element_type), p), to)


@table("Multinomial")
def multinomial(node: OnnxNode) -> ImportedValue:
    """Draw indices along the last axis by the Gumbel-max trick: the argmax of the log-probabilities plus Gumbel noise."""
    emit, (batch, count) = node.emit, node[0].shape
    to = element_type(dtype_of(node.integer("dtype", 6)))
    logits = emit.reshape(node[0], (batch, 1, count))
    element = logits.element_type
    smallest = cast(Any, ml_dtypes.finfo)(numpy_dtype(element)).smallest_normal
    noise = _uniform(node, (batch, node.integer("sample_size", 1), count), element, smallest)
    for _ in range(2):
        noise = emit(dl.NegOp, emit(dl.LogOp, noise))
    return emit.cast(emit(dl.ArgmaxOp, emit(dl.AddOp, logits, noise), axis=2, keepdims=False), to)


@table("Dropout")
def dropout(node: OnnxNode) -> list[ImportedValue]:
    """Return `x / (1 - ratio)` where a uniform value is at least `ratio`, else 0, in training; otherwise `x`."""
    emit, x, ratio = node.emit, node[0], node.get(1)
    node.ignore_attributes("ratio", "seed")
    has_zero_ratio = ratio is not None and ratio.constant_value is not None and not ratio.constant_value.any()
    if node.get(2) is None or has_zero_ratio or not node.constant_scalar(2, "training_mode"):
        # Before opset 10 the mask had the element type of the data.
        mask = x.element_type if node.opset < 10 else element_type(bool)
        return [x, emit.full(True, x.shape, mask)] if node.is_output_used(1) else [x]
    ratio = emit.scalar(0.5, f32) if ratio is None else emit.reshape(ratio, ())
    is_kept = emit(dl.GreaterEqualOp, _uniform(node, x.shape, ratio.element_type), ratio)
    scale = emit(dl.DivOp, emit.scalar(1, ratio), emit(dl.SubOp, emit.scalar(1, ratio), ratio))
    scaled = emit(dl.MulOp, x, emit.cast(scale, x.element_type))
    return [emit(dl.SelectOp, is_kept, scaled, emit.scalar(0, x)), is_kept]


def _shape(node: OnnxNode) -> tuple[Size, ...]:
    return node[0].shape if node.inputs else node.integers("shape")


def _type(node: OnnxNode) -> Attribute:
    """Return the element type of the result: the attribute `dtype`, else that of the input, else f32."""
    element = (
        element_type(dtype_of(node.integer("dtype")))
        if node.has_attribute("dtype")
        else node[0].element_type
        if node.inputs
        else f32
    )
    if not is_float(element):
        raise ModelError(f"{node.description}: expected a floating-point dtype, got {element}")
    return element


def _uniform(node: OnnxNode, shape: tuple[Size, ...], element: Attribute, low: Any = 0.0, high: Any = 1.0) -> ImportedValue:
    """Draw like `dlc.random.uniform`: random mantissa bits make values in [1, 2), which are mapped to [low, high)."""
    emit, dtype = node.emit, numpy_dtype(element)
    limits = cast(Any, ml_dtypes.finfo)(dtype)
    # Random integers have at least eight bits; narrower mantissas use the high bits.
    digits, width = int(limits.nmant), int(limits.bits) if limits.nmant >= 8 else 8
    word = ELEMENT_TYPES[f"uint{limits.bits}"]
    random_bits = emit.cast(_bits(node, shape, f"uint{width}"), word)
    one = emit.constant(np.ones((), dtype).view(numpy_dtype(word)))
    random_bits = emit(dl.ShiftRightOp, random_bits, emit.scalar(width - digits, word))
    fraction = emit(dl.SubOp, emit(dl.BitcastOp, emit(dl.BitwiseOrOp, random_bits, one), to=element), emit.scalar(1, element))
    lowest, span = emit.scalar(low, element), emit.constant(np.asarray(high, dtype) - np.asarray(low, dtype))
    # The sum may round to the upper bound.
    highest = emit.constant(np.nextafter(np.asarray(high, dtype), np.asarray(-np.inf, dtype)))
    samples = emit(dl.MinimumOp, emit(dl.AddOp, emit(dl.MulOp, fraction, span), lowest), highest)
    return emit(dl.MaximumOp, lowest, samples)


def _bits(node: OnnxNode, shape: tuple[Size, ...], dtype: str) -> ImportedValue:
    emit = node.emit
    if emit.is_in_loop:
        raise NodeProblem(
            "operator",
            "not supported in a loop body or in a differentiated function, where it would return the same values each time",
        )
    if not is_static(shape):
        sizes = ", ".join(map(str, shape))
        raise NodeProblem("value", f"its shape ({sizes}) must be static; give the model's input shapes")
    return emit(dl.RandomBitsOp, _key(node), emit.constant(0, np.uint64), shape=shape, to=ELEMENT_TYPES[dtype])


def _key(node: OnnxNode) -> ImportedValue:
    emit = node.emit
    if not node.has_attribute("seed"):
        words = emit.constant(np.zeros(2, np.uint32))
        index = emit.constant(next(emit.random_op_indices), np.uint64)
        key_value = emit(dl.RandomBitsOp, words, index, shape=(), to=ELEMENT_TYPES["uint64"]).constant_value
        assert key_value is not None, "an op on small constants is constant-folded"
        return emit.constant(_words(int(key_value)))
    seed = node.integer("seed") if node.proto.op_type == "Dropout" else node.real("seed")
    return emit.constant(_words(int(seed) if seed == int(seed) else int(np.float32(seed).view(np.uint32))))


def _words(integer: int) -> Any:
    """Split a 64-bit integer into 32-bit words, the high one first."""
    return np.array([integer >> 32 & 0xFFFFFFFF, integer & 0xFFFFFFFF], np.uint32)

"""Operators of ONNX Runtime's own domain, `com.microsoft`, that its quantiser writes into files.

They are defined by what ONNX has: numbers are dequantised, computed with, and quantised again.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, element_type
from dlc.dims import product
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.arithmetic.quantization import centred, integer_product, parameter, requantized, zero_point
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem

DOMAIN = "com.microsoft"
_UI8 = ELEMENT_TYPES["uint8"]

table = Table()


def _real(node: Node, k: int) -> Value:
    """Inputs k to k + 2, numbers with their scale and zero point, as floats."""
    x, scale = node[k], parameter(node, node[k + 1])
    if scale.rank:
        raise NodeProblem("input", f"scales of shape {list(scale.shape)} are not supported here")
    return node.emit.unfolded(dl.DequantizeOp, x, scale, zero_point(node, k + 2, x.element_type), axis=0)[0]


def _quantized(node: Node, y: Value, scale: int, default: Value) -> Value:
    """Floats as numbers with the scale of an input, and the zero point behind it."""
    return node.emit(dl.QuantizeOp, y, parameter(node, node[scale]), zero_point(node, scale + 1, default.element_type), axis=0)


def _binary(op: type[DlOp]) -> Callable[[Node], Value]:
    return lambda node: _quantized(node, node.emit(op, _real(node, 0), _real(node, 3)), 6, node[0])


table("QLinearAdd")(_binary(dl.AddOp))
table("QLinearMul")(_binary(dl.MulOp))


@table("QLinearSigmoid")
def qlinear_sigmoid(node: Node) -> Value:
    return _quantized(node, node.emit(dl.SigmoidOp, _real(node, 0)), 3, node[0])


@table("QLinearLeakyRelu")
def qlinear_leaky_relu(node: Node) -> Value:
    return _quantized(node, node.emit(dl.LeakyReluOp, _real(node, 0), alpha=node.real("alpha", 0.01)), 3, node[0])


@table("QLinearSoftmax")
def qlinear_softmax(node: Node) -> Value:
    x = _real(node, 0)
    if node.integer("opset", 13) < 13:
        raise NodeProblem("attribute", "opset below 13, where rows are all axes from one on, is not supported")
    return _quantized(node, node.emit(dl.SoftmaxOp, x, axis=node.axis(node.integer("axis", -1), x.rank)), 3, node[0])


@table("QLinearGlobalAveragePool")
def qlinear_global_average_pool(node: Node) -> Value:
    x = _real(node, 0)
    axes = tuple(range(1, x.rank - 1) if node.flag("channels_last") else range(2, x.rank))
    return _quantized(node, node.emit(dl.ReduceMeanOp, x, axes=axes, keepdims=True), 3, node[0])


@table("QLinearConcat")
def qlinear_concat(node: Node) -> Value:
    """Inputs are the result's scale and zero point, then a tensor, its scale and its zero point for each part."""
    parts = [_real(node, k) for k in range(2, len(node.inputs), 3)]
    joined = node.emit(dl.ConcatOp, *parts, axis=node.axis(node.integer("axis"), parts[0].rank))
    return _quantized(node, joined, 0, node[2])


@table("QGemm")
def qgemm(node: Node) -> Value:
    """Without a scale of the result it is of floats; `C` counts in steps of the product of the factors' scales."""
    emit, transposed = node.emit, node.flag("transB")
    a, b = centred(node, node[0], node.get(2)), centred(node, node[3], node.get(5), 0 if transposed else 1)
    if node.flag("transA"):
        a = emit.transpose(a, (1, 0))
    total = emit(dl.MatmulOp, a, emit.transpose(b, (1, 0)) if transposed else b)
    if (c := node.get(6)) is not None:
        total = emit(dl.AddOp, total, c)
    scales, alpha = (parameter(node, node[1]), parameter(node, node[4])), node.real("alpha", 1.0)
    if alpha != 1:
        scales = emit(dl.MulOp, scales[0], emit.scalar(alpha, scales[0])), scales[1]
    if node.get(7) is None:
        factor = emit(dl.MulOp, *scales)
        return emit(dl.MulOp, emit.cast(total, factor.element_type), factor)
    return requantized(node, total, scales, node[7], zero_point(node, 8, node[0].element_type))


def _scaled_product(node: Node, total: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """A sum of products of integers in floats, with a bias."""
    factor = node.emit(dl.MulOp, a_scale, b_scale)
    y = node.emit(dl.MulOp, node.emit.cast(total, factor.element_type), factor)
    return y if bias is None else node.emit(dl.AddOp, y, bias)


@table("MatMulIntegerToFloat")
def matmul_integer_to_float(node: Node) -> Value:
    a_scale = parameter(node, node[2])
    if a_scale.rank:
        # One for each row.
        a_scale = node.emit.reshape(a_scale, (*a_scale.shape, 1))
    total = integer_product(node, node[0], node[1], node.get(4), node.get(5))
    return _scaled_product(node, total, a_scale, parameter(node, node[3]), node.get(6))


@table("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: Node) -> Value:
    x, scale, zero = node.emit.all(dl.DynamicQuantizeLinearOp, node[0])
    total = integer_product(node, x, node[1], zero, node.get(3))
    return _scaled_product(node, total, scale, parameter(node, node[2]), node.get(4))


def _nibbles(node: Node, packed: Value) -> Value:
    """Bytes as numbers of 4 bits, two along the last axis for each, the lower first."""
    emit, (*lead, last) = node.emit, packed.shape
    low = emit(dl.BitwiseAndOp, packed, emit.scalar(15, packed))
    high = emit(dl.ShiftRightOp, packed, emit.scalar(4, packed))
    pairs = emit(dl.ConcatOp, *(emit.reshape(v, (*packed.shape, 1)) for v in (low, high)), axis=packed.rank)
    return emit.cast(emit.reshape(pairs, (*lead, 2 * last)), ELEMENT_TYPES["uint4"])


@table("GatherBlockQuantized")
def gather_block_quantized(node: Node) -> Value:
    """Rows of a table of few bits by their places, dequantised in blocks: of bytes if its numbers of 4 bits are not packed."""
    emit, table_, bits = node.emit, node[0], node.integer("bits", 4)
    if node.integer("gather_axis", 0) != 0:
        raise NodeProblem("attribute", "gather_axis other than 0 is not supported")
    packed = bits == 4 and table_.element_type == _UI8

    def rows(v: Value, is_packed: bool) -> Value:
        taken = emit(dl.GatherOp, v, node[1], axis=0, checked=True)
        return _nibbles(node, taken) if is_packed else taken

    x, scales, zeros = rows(table_, packed), rows(node[2], False), node.get(3)
    middle = 1 << (bits - 1) if table_.element_type == _UI8 else 0
    zero = emit.scalar(middle, x) if zeros is None else rows(zeros, packed)
    axis = node.axis(node.integer("quantize_axis", 1), table_.rank) + node[1].rank - 1
    if x.shape[axis] != scales.shape[axis] * node.integer("block_size", 128):
        raise NodeProblem("attribute", f"blocks that are no part of {x.shape[axis]} are not supported")
    return emit(dl.DequantizeOp, x, scales, zero, axis=axis)


@table("MatMulNBits")
def matmul_n_bits(node: Node) -> Value:
    """`B` [N, blocks, bytes] has numbers of 4 or 8 bits, the first in the lowest of a byte, in blocks along K with a scale.

    Zero points are packed likewise, or floats; without them they are half of the range. The last block may be longer than
    what is left of K: rows have zeros there. An `accuracy_level` of 4 allows to compute with rows of 8 bits.
    """
    emit, x = node.emit, node[0]
    k, n, bits, block = (node.integer(name) for name in ("K", "N", "bits", "block_size"))
    rounds_rows = True if node.integer("accuracy_level", 0) == 4 else None
    if bits not in (4, 8) or node.get(4) is not None:
        raise NodeProblem("attribute", f"numbers of {bits} bits, or in groups by g_idx, are not supported; 4 and 8 are")
    blocks, stored = -(-k // block), element_type(f"uint{bits}")
    if missing := blocks * block - k:
        x = emit(dl.PadOp, x, emit.scalar(0, x), low=[0] * x.rank, high=[0] * (x.rank - 1) + [missing], pad_mode="constant")

    def numbers(packed: Value, count: int) -> Value:
        """Bytes [N, …] as the numbers in them, [N, count]."""
        packed = emit.reshape(packed, (n, product(packed.shape) // n))
        return emit.slice(packed if bits == 8 else _nibbles(node, packed), 1, 0, count)

    scales, zeros = emit.reshape(node[2], (n, blocks)), node.get(3)
    in_steps = zeros is not None and zeros.element_type == _UI8
    zero = emit.scalar(0 if zeros is not None else 1 << (bits - 1), stored)
    if zeros is not None and in_steps:
        # Bytes are of whole numbers for each row.
        zero = numbers(zeros, blocks)
    w = emit.unfolded(dl.DequantizeOp, numbers(node[1], blocks * block), scales, zero, axis=1)[0]
    y = emit(dl.MatmulOp, x, emit.transpose(w, (1, 0)), rounds_rows=rounds_rows)
    if zeros is not None and not in_steps:
        # Σ x · (w - z) · s = Σ x · w · s - Σ over blocks of (Σ x) · z · s
        offsets = emit(dl.MulOp, emit.reshape(zeros, (n, blocks)), scales)
        sums = emit(dl.ReduceSumOp, emit.reshape(x, (*x.shape[:-1], blocks, block)), axes=[x.rank], keepdims=False)
        y = emit(dl.SubOp, y, emit(dl.MatmulOp, sums, emit.transpose(offsets, (1, 0))))
    bias = node.get(5)
    return y if bias is None else emit(dl.AddOp, y, bias)

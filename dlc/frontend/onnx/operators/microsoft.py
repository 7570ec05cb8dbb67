"""Quantized operators of ONNX Runtime's domain `com.microsoft`, which its quantizer writes.

They are composed of standard operators: dequantize, compute, quantize again.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, element_type
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.arithmetic.quantization import (
    dequantize_linear,
    integer_matmul,
    qlinear_conv,
    quantization_parameter,
    quantize_linear,
    requantize,
    subtract_zero_point,
    zero_point,
)
from dlc.frontend.onnx.operators.images.pooling import average_pool, max_pool
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.shapes.dims import product

DOMAIN = "com.microsoft"
_UI8 = ELEMENT_TYPES["uint8"]

table = ConverterTable()
table("QuantizeLinear")(quantize_linear)
table("DequantizeLinear")(dequantize_linear)


def _dequantize(node: OnnxNode, k: int) -> ImportedValue:
    """Dequantize input k by its scale and zero point, inputs k + 1 and k + 2."""
    x, scale = node[k], quantization_parameter(node, node[k + 1])
    if scale.rank:
        raise NodeProblem("input", f"scales of shape {list(scale.shape)} are not supported here")
    return node.emit.unfolded(dl.DequantizeOp, x, scale, zero_point(node, k + 2, x.element_type), axis=0)[0]


def _quantize(node: OnnxNode, y: ImportedValue, scale_index: int, default: ImportedValue) -> ImportedValue:
    """Quantize by the scale in an input and the zero point in the next one."""
    return node.emit(
        dl.QuantizeOp,
        y,
        quantization_parameter(node, node[scale_index]),
        zero_point(node, scale_index + 1, default.element_type),
        axis=0,
    )


def _binary(op: type[DlOp]) -> Callable[[OnnxNode], ImportedValue]:
    return lambda node: _quantize(node, node.emit(op, _dequantize(node, 0), _dequantize(node, 3)), 6, node[0])


table("QLinearAdd")(_binary(dl.AddOp))
table("QLinearMul")(_binary(dl.MulOp))


@table("QLinearSigmoid")
def qlinear_sigmoid(node: OnnxNode) -> ImportedValue:
    return _quantize(node, node.emit(dl.SigmoidOp, _dequantize(node, 0)), 3, node[0])


@table("QLinearLeakyRelu")
def qlinear_leaky_relu(node: OnnxNode) -> ImportedValue:
    return _quantize(node, node.emit(dl.LeakyReluOp, _dequantize(node, 0), alpha=node.real("alpha", 0.01)), 3, node[0])


@table("QLinearSoftmax")
def qlinear_softmax(node: OnnxNode) -> ImportedValue:
    """Convert QLinearSoftmax; in an opset below 13 rows span all axes from `axis` on."""
    x = _dequantize(node, 0)
    axis = node.axis(node.integer("axis", -1), x.rank)
    if node.integer("opset", 13) >= 13:
        return _quantize(node, node.emit(dl.SoftmaxOp, x, axis=axis), 3, node[0])
    rows = node.emit.reshape(x, (*x.shape[:axis], product(x.shape[axis:])))
    return _quantize(node, node.emit.reshape(node.emit(dl.SoftmaxOp, rows, axis=axis), x.shape), 3, node[0])


@table("QLinearWhere")
def qlinear_where(node: OnnxNode) -> ImportedValue:
    return _quantize(node, node.emit(dl.SelectOp, node[0], _dequantize(node, 1), _dequantize(node, 4)), 7, node[1])


@table("QLinearReduceMean")
def qlinear_reduce_mean(node: OnnxNode) -> ImportedValue:
    x = _dequantize(node, 0)
    axes = tuple(node.axis(axis, x.rank) for axis in node.integers("axes", ())) or tuple(range(x.rank))
    return _quantize(node, node.emit(dl.ReduceMeanOp, x, axes=axes, keepdims=node.flag("keepdims", True)), 3, node[0])


@table("QLinearGlobalAveragePool")
def qlinear_global_average_pool(node: OnnxNode) -> ImportedValue:
    x = _dequantize(node, 0)
    axes = tuple(range(1, x.rank - 1) if node.flag("channels_last") else range(2, x.rank))
    return _quantize(node, node.emit(dl.ReduceMeanOp, x, axes=axes, keepdims=True), 3, node[0])


def _by_channels_first(node: OnnxNode, x: ImportedValue, convert: Callable[[ImportedValue], ImportedValue]) -> ImportedValue:
    """Convert an operator on images [N, …, C] by its converter for images [N, C, …]."""
    inner = tuple(range(2, x.rank))
    y = convert(node.emit.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1))))
    return node.emit.transpose(y, (0, *inner, 1))


@table("QLinearAveragePool")
def qlinear_average_pool(node: OnnxNode) -> ImportedValue:
    def convert(x: ImportedValue) -> ImportedValue:
        return average_pool(node.with_inputs(x))

    x = _dequantize(node, 0)
    return _quantize(node, _by_channels_first(node, x, convert) if node.flag("channels_last") else convert(x), 3, node[0])


@table("NhwcMaxPool")
def nhwc_max_pool(node: OnnxNode) -> ImportedValue:
    return _by_channels_first(node, node[0], lambda x: max_pool(node.with_inputs(x))[0])


@table("QLinearConv")
def qlinear_conv_of_images(node: OnnxNode) -> ImportedValue:
    """Convert QLinearConv of this domain: ONNX's, with an attribute for images [N, …, C]."""

    def convert(x: ImportedValue) -> ImportedValue:
        return qlinear_conv(node.with_inputs(x, *(node.get(k) for k in range(1, 9))))

    return _by_channels_first(node, node[0], convert) if node.flag("channels_last") else convert(node[0])


@table("QLinearConcat")
def qlinear_concat(node: OnnxNode) -> ImportedValue:
    """Convert QLinearConcat: scale and zero point of the result, then a tensor, its scale and its zero point per operand."""
    operands = [_dequantize(node, k) for k in range(2, len(node.inputs), 3)]
    concatenated = node.emit(dl.ConcatOp, *operands, axis=node.axis(node.integer("axis"), operands[0].rank))
    return _quantize(node, concatenated, 0, node[2])


@table("QGemm")
def qgemm(node: OnnxNode) -> ImportedValue:
    """Convert QGemm: without a result scale the result is a float; the bias `C` is in units of the product of both scales."""
    emit, transposed = node.emit, node.flag("transB")
    a, b = (
        subtract_zero_point(node, node[0], node.get(2)),
        subtract_zero_point(node, node[3], node.get(5), 0 if transposed else 1),
    )
    if node.flag("transA"):
        a = emit.transpose(a, (1, 0))
    total = emit(dl.MatmulOp, a, emit.transpose(b, (1, 0)) if transposed else b)
    if (c := node.get(6)) is not None:
        total = emit(dl.AddOp, total, c)
    scales, alpha = (quantization_parameter(node, node[1]), quantization_parameter(node, node[4])), node.real("alpha", 1.0)
    if alpha != 1:
        scales = emit(dl.MulOp, scales[0], emit.scalar(alpha, scales[0])), scales[1]
    if node.get(7) is None:
        factor = emit(dl.MulOp, *scales)
        return emit(dl.MulOp, emit.cast(total, factor.element_type), factor)
    return requantize(node, total, scales, node[7], zero_point(node, 8, node[0].element_type))


def _scaled_product(
    node: OnnxNode, total: ImportedValue, a_scale: ImportedValue, b_scale: ImportedValue, bias: ImportedValue | None
) -> ImportedValue:
    """Scale an integer matrix product to floats, and add a bias."""
    factor = node.emit(dl.MulOp, a_scale, b_scale)
    y = node.emit(dl.MulOp, node.emit.cast(total, factor.element_type), factor)
    return y if bias is None else node.emit(dl.AddOp, y, bias)


@table("MatMulIntegerToFloat")
def matmul_integer_to_float(node: OnnxNode) -> ImportedValue:
    a_scale = quantization_parameter(node, node[2])
    if a_scale.rank:
        # Per row.
        a_scale = node.emit.reshape(a_scale, (*a_scale.shape, 1))
    total = integer_matmul(node, node[0], node[1], node.get(4), node.get(5))
    return _scaled_product(node, total, a_scale, quantization_parameter(node, node[3]), node.get(6))


@table("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: OnnxNode) -> ImportedValue:
    x, scale, zero = node.emit.all_results(dl.DynamicQuantizeLinearOp, node[0])
    total = integer_matmul(node, x, node[1], zero, node.get(3))
    return _scaled_product(node, total, scale, quantization_parameter(node, node[2]), node.get(4))


def _unpack_nibbles(node: OnnxNode, packed: ImportedValue) -> ImportedValue:
    """Unpack bytes into 4-bit integers, two per byte along the last axis, the lower one first."""
    emit, (*lead, last) = node.emit, packed.shape
    low = emit(dl.BitwiseAndOp, packed, emit.scalar(15, packed))
    high = emit(dl.ShiftRightOp, packed, emit.scalar(4, packed))
    pairs = emit(dl.ConcatOp, *(emit.reshape(v, (*packed.shape, 1)) for v in (low, high)), axis=packed.rank)
    return emit.cast(emit.reshape(pairs, (*lead, 2 * last)), ELEMENT_TYPES["uint4"])


@table("GatherBlockQuantized")
def gather_block_quantized(node: OnnxNode) -> ImportedValue:
    """Gather rows of a blockwise quantized table and dequantize them; 4-bit values may be packed into bytes."""
    emit, table_, bits = node.emit, node[0], node.integer("bits", 4)
    if node.integer("gather_axis", 0) != 0:
        raise NodeProblem("attribute", "gather_axis other than 0 is not supported")
    packed = bits == 4 and table_.element_type == _UI8

    def rows(value: ImportedValue, is_packed: bool) -> ImportedValue:
        gathered = emit(dl.GatherOp, value, node[1], axis=0, checked=True)
        return _unpack_nibbles(node, gathered) if is_packed else gathered

    x, scales, zeros = rows(table_, packed), rows(node[2], False), node.get(3)
    default_zero = 1 << (bits - 1) if table_.element_type == _UI8 else 0
    zero = emit.scalar(default_zero, x) if zeros is None else rows(zeros, packed)
    axis = node.axis(node.integer("quantize_axis", 1), table_.rank) + node[1].rank - 1
    if x.shape[axis] != scales.shape[axis] * node.integer("block_size", 128):
        raise NodeProblem("attribute", f"block_size must divide the size {x.shape[axis]}")
    return emit(dl.DequantizeOp, x, scales, zero, axis=axis)


@table("MatMulNBits")
def matmul_n_bits(node: OnnxNode) -> ImportedValue:
    """Weight-only quantization: `B` [N, blocks, bytes] holds 4- or 8-bit integers in blocks along K, with a scale per block.

    The lowest bits of a byte come first. Zero points are packed likewise, or floats; without them they are half of the range.
    If K is not a multiple of the block size, the rows are padded with zeros. An `accuracy_level` of 4 permits rounding `A` to 8
    bits.
    """
    emit, x = node.emit, node[0]
    k, n, bits, block = (node.integer(name) for name in ("K", "N", "bits", "block_size"))
    min_lhs_bits = 8 if node.integer("accuracy_level", 0) == 4 else None
    if bits not in (4, 8) or node.get(4) is not None:
        raise NodeProblem("attribute", f"bits = {bits} or g_idx is not supported; expected 4 or 8 bits without g_idx")
    blocks, stored = -(-k // block), element_type(f"uint{bits}")
    x = emit.pad(x, [0] * x.rank, [0] * (x.rank - 1) + [blocks * block - k])

    def unpack(packed: ImportedValue, count: int) -> ImportedValue:
        """Unpack bytes [N, …] into integers [N, count]."""
        packed = emit.reshape(packed, (n, product(packed.shape) // n))
        return emit.slice(packed if bits == 8 else _unpack_nibbles(node, packed), 1, 0, count)

    scales, zeros = emit.reshape(node[2], (n, blocks)), node.get(3)
    is_packed_zero = zeros is not None and zeros.element_type == _UI8
    zero = emit.scalar(0 if zeros is not None else 1 << (bits - 1), stored)
    if zeros is not None and is_packed_zero:
        # Packed zero points are padded to whole bytes per row.
        zero = unpack(zeros, blocks)
    w = emit.unfolded(dl.DequantizeOp, unpack(node[1], blocks * block), scales, zero, axis=1)[0]
    y = emit(dl.MatmulOp, x, emit.transpose(w, (1, 0)), min_lhs_bits=min_lhs_bits)
    if zeros is not None and not is_packed_zero:
        # Σ x · (w - z) · s = Σ x · w · s - Σ over blocks of (Σ x) · z · s
        offsets = emit(dl.MulOp, emit.reshape(zeros, (n, blocks)), scales)
        sums = emit(dl.ReduceSumOp, emit.reshape(x, (*x.shape[:-1], blocks, block)), axes=[x.rank], keepdims=False)
        y = emit(dl.SubOp, y, emit(dl.MatmulOp, sums, emit.transpose(offsets, (1, 0))))
    bias = node.get(5)
    return y if bias is None else emit(dl.AddOp, y, bias)

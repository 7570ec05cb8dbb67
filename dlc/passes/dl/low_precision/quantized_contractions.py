"""Compute contractions of int8-quantized operands in integer arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_integer
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.dialects.dl.low_precision.quantization import DequantizeOp, DynamicQuantizeLinearOp, QuantizeOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import Attribute, Block, Context, ModuleOp, Operation, SSAValue, f32, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.winograd import is_3x3_with_stride_1
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.low_precision.quantized_values import QuantizedValue
from dlc.passes.dl.rewriting import defining_op, erase_unused, program_blocks, replace, rewrite_forward, splat
from dlc.shapes.dims import is_static

_I8, _UI8, _I16 = (ELEMENT_TYPES[name] for name in ("int8", "uint8", "int16"))
_I32_SCALAR = tensor_type((), i32)
# The shift from int8 to uint8.
_SIGN_OFFSET = 128
# The maximum magnitude of an 8-bit integer minus its zero point, and that of integers that f32 represents.
_MAX_CENTERED_MAGNITUDE, _MAX_EXACT_F32_INTEGER = 255, 1 << 24


@dataclass(frozen=True)
class QuantizedContractionsPass(TargetPass):
    """`quantized-contractions{target="cpu"}`: Σ (x - zˣ) · (w - zʷ)  =  Σ x · (w - zʷ) - zˣ · Σ (w - zʷ), in integers.

        %a = dl.dequantize %x, %s, %zx;  %b = dl.dequantize %w, %t, %zw;  %y = dl.matmul %a, %b
    →   %c = dl.matmul %x, %centered {result = i32};  %d = dl.sub %c, %offset
        %y = dl.mul (dl.cast %d), %scale

    The centered weights, their sums times the zero point, and the product of the scales are weight expressions, evaluated
    once. Data movement between the ops is kept: padding uses the zero point. For integers centered at their zero points, as
    in `ConvInteger`, the result is `%d`.

    Operands have the types of the target's packed dot products (`pack-dot-operands`) that are exact for the values of the
    weights. Data is stored in the type that these read: i16, or ui8 (i8 is shifted by 128). Other users dequantize the same
    integers, so that a kernel stores them once. Grouped convolutions, which are not packed, are computed in f32 where it
    represents all sums: an element takes one multiply-add, and its scale becomes part of the weights (`fold-scales`).

    Quantizing a dequantized value again with the same scale and zero point, after data movement or max pooling, is removed.

    Requires composite ops that are not decomposed yet, and folded constants. The sums are exact.
    """

    name = "quantized-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            _QuantizedContractionRewriter(block, self.target.dot_products).run()


class _QuantizedContractionRewriter:
    """Rewrites the contractions of a block, and the other users of their quantized operands."""

    def __init__(self, block: Block, dots: Sequence[str]) -> None:
        self.block, self.dots = block, dots
        self.constant = WeightExpressions()
        # Maps stored integers to their conversions, by element type.
        self.data: dict[SSAValue, dict[Attribute, SSAValue]] = {}

    def run(self) -> None:
        rewrite_forward(self.block, self.rewrite, DynamicQuantizeLinearOp, QuantizeOp, ConvOp, MatmulOp)
        for stored, conversions in self.data.items():
            data = next(iter(conversions.values()))
            if data is not stored:
                _replace_other_uses(data, stored)

    def rewrite(self, op: DynamicQuantizeLinearOp | QuantizeOp | ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        match op:
            case DynamicQuantizeLinearOp():
                return op.decompose(*op.operands)
            case QuantizeOp():
                return _cancel_requantization(op)
            case _:
                return self.rewrite_contraction(op)

    def rewrite_contraction(self, op: ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        element = element_type_of(op.results[0])
        if element not in (f32, i32) or op.dot is not None or (isinstance(op, MatmulOp) and not _has_matrix_rhs(op)):
            return None
        x, w = (QuantizedValue.of(v) for v in op.operands)
        if x is None or w is None or x.stored in self.constant or w.stored not in self.constant or not x.is_per_tensor():
            return None
        build = DlBuilder(op)
        if element == i32:
            return [self.integer_contraction(build, op, x, w)] if x.scale is None and w.scale is None else None
        if x.scale is None or w.scale is None or (scale := w.per_channel(build, w.scale)) is None:
            return None
        if isinstance(op, ConvOp) and number(op.groups) != 1 and _has_exact_f32_sums(op):
            total = _float_convolution(build, op, x, w)
        else:
            total = build(CastOp, self.integer_contraction(build, op, x, w), to=f32)
        return [build(MulOp, total, build(MulOp, x.scale, scale))]

    def integer_contraction(self, build: DlBuilder, op: ConvOp | MatmulOp, x: QuantizedValue, w: QuantizedValue) -> SSAValue:
        """Return the sum of products of centered integers, as i32."""
        weights = _centered_weights(build, w)
        # Grouped convolutions multiply single elements, not packed dot-product operands.
        is_grouped = isinstance(op, ConvOp) and number(op.groups) != 1
        # Winograd's algorithm reads 16-bit data, and saves more time than 16-bit pair sums.
        prefers_int16 = is_grouped or (isinstance(op, ConvOp) and is_3x3_with_stride_1(op))
        interval = compute_interval(weights)
        dots = (d for name in self.dots if (d := PACKED_DOTS[name]).pair_sums is None or not prefers_int16)
        dot = next((d for d in dots if is_integer(d.data) and d.accepts_weights(*interval)), None)
        data = self.stored_as(x.stored, element_type_of(x.stored) if dot is None else dot.data)
        zero = _zero_point(build, x.stored, x.zero, data)
        values = x.apply_data_movement(build, data, lambda: _cast_scalar(build, zero, data))
        sums = build(ReduceSumOp, weights, axes=tuple(range(rank_of(weights) - 1)), keepdims=False)
        low, high = limits(_I8)
        to = (_I8 if low <= interval[0] <= interval[1] <= high else _I16) if dot is None or is_grouped else dot.weights
        total = build(type(op), values, build(CastOp, weights, to=to), **{**op.properties, "result": i32})
        return total if splat(zero) == 0 else build(SubOp, total, build(MulOp, zero, sums))

    def stored_as(self, stored: SSAValue, to: Attribute) -> SSAValue:
        """Return stored integers as type `to`, converted at their producer, once per type."""
        conversions = self.data.setdefault(stored, {})
        if to not in conversions:
            conversions[to] = _convert_stored(stored, to)
        return conversions[to]


def _has_exact_f32_sums(op: ConvOp) -> bool:
    """Return whether f32 represents all partial sums of a convolution of 8-bit integers."""
    terms = shape_of(op.w)[:-1]
    return is_static(terms) and math.prod(int(size) for size in terms) * _MAX_CENTERED_MAGNITUDE**2 <= _MAX_EXACT_F32_INTEGER


def _float_convolution(build: DlBuilder, op: ConvOp, x: QuantizedValue, w: QuantizedValue) -> SSAValue:
    """Return the sums of products of centered 8-bit integers, computed in f32."""
    zero = _zero_point(build, x.stored, x.zero, x.stored)
    offset = build(CastOp, zero, to=f32)
    values = x.apply_data_movement(build, build(CastOp, x.stored, to=f32), lambda: offset)
    weights = build(CastOp, _centered_weights(build, w), to=f32)
    total = build(ConvOp, values, weights, **op.properties)
    if splat(zero) == 0:
        return total
    sums = build(ReduceSumOp, weights, axes=tuple(range(rank_of(weights) - 1)), keepdims=False)
    return build(SubOp, total, build(MulOp, offset, sums))


def _has_matrix_rhs(op: MatmulOp) -> bool:
    return rank_of(op.rhs) == 2 and rank_of(op.lhs) >= 2


def _cancel_requantization(op: QuantizeOp) -> Sequence[SSAValue] | None:
    """Rewrite quantize(f(dequantize(x, s, z)), s, z) to f(x), for data-movement ops f."""
    x, scale, zero = QuantizedValue.of(op.x, windows=True), splat(op.scale), splat(op.zero_point)
    if x is None or x.scale is None or not x.is_per_tensor() or scale is None or not scale > 0 or zero is None:
        return None
    if splat(x.scale) != scale or x.constant_zero_point != zero or element_type_of(x.stored) != element_type_of(op.result):
        return None
    return [x.apply_data_movement(DlBuilder(op), x.stored, lambda: op.zero_point)]


def _convert_stored(stored: SSAValue, to: Attribute) -> SSAValue:
    """Convert stored bytes to type `to`, shifting signed ones to unsigned; a quantize op quantizes to the type directly."""
    if element_type_of(stored) == to:
        return stored
    build, is_shifted = DlBuilder(_first_user(stored)), to == _UI8
    op = defining_op(stored, QuantizeOp)
    if op is not None and not is_shifted:
        return build(QuantizeOp, op.x, op.scale, op.zero_point, axis=op.axis, to=to)
    if op is not None and (zero := splat(op.zero_point)) is not None:
        return build(QuantizeOp, op.x, op.scale, build.scalar(zero + _SIGN_OFFSET, like=tensor_type((), to)), axis=op.axis)
    if not is_shifted:
        return build(CastOp, stored, to=to)
    widened = build(CastOp, stored, to=_I16)
    return build(CastOp, build(AddOp, widened, build.scalar(_SIGN_OFFSET, like=widened)), to=to)


def _replace_other_uses(data: SSAValue, stored: SSAValue) -> None:
    """Replace all other uses of stored integers by `data`."""
    for op in [use.operation for use in stored.uses]:
        if isinstance(op, DequantizeOp) and not rank_of(op.zero_point):
            build = DlBuilder(op)
            zero = _cast_scalar(build, _zero_point(build, stored, op.zero_point, data), data)
            replace(op, [build(DequantizeOp, data, op.scale, zero, axis=op.axis)])
    # Remaining users get the original values, converted back from `data`, unless `data` was computed from them.
    op = defining_op(stored, QuantizeOp)
    if op is None or not stored.first_use or not isinstance(data.owner, QuantizeOp):
        erase_unused([op] if op is not None else [])
        return
    build = DlBuilder(_first_user(data))
    shift = _SIGN_OFFSET if element_type_of(data) == _UI8 else 0
    widened = build(CastOp, data, to=_I16)
    restored = build(
        CastOp, build(SubOp, widened, build.scalar(shift, like=widened)) if shift else data, to=element_type_of(stored)
    )
    replace(op, [restored])


def _first_user(value: SSAValue) -> Operation:
    """Return the first op that may use `value`."""
    next_op = value.owner.first_op if isinstance(value.owner, Block) else value.owner.next_op
    assert next_op is not None
    return next_op


def _zero_point(build: DlBuilder, stored: SSAValue, zero: SSAValue | None, data: SSAValue) -> SSAValue:
    """Return the zero point of stored integers, relative to the type of `data`, as i32."""
    shift = _SIGN_OFFSET if element_type_of(stored) == _I8 and element_type_of(data) == _UI8 else 0
    constant_value = 0 if zero is None else splat(zero)
    if constant_value is not None:
        return build.scalar(constant_value + shift, like=_I32_SCALAR)
    assert zero is not None
    widened = zero if element_type_of(zero) == i32 else build(CastOp, zero, to=i32)
    return build(AddOp, widened, build.scalar(shift, like=widened)) if shift else widened


def _cast_scalar(build: DlBuilder, scalar: SSAValue, like: SSAValue) -> SSAValue:
    """Cast an i32 scalar to the element type of `like`."""
    constant_value = splat(scalar)
    return (
        build.scalar(constant_value, like=like)
        if constant_value is not None
        else build(CastOp, scalar, to=element_type_of(like))
    )


def _centered_weights(build: DlBuilder, weights: QuantizedValue) -> SSAValue:
    """Return the weights minus their zero point, as i32."""
    widened = build(CastOp, weights.stored, to=i32)
    if weights.zero is not None and weights.constant_zero_point != 0:
        zero = weights.zero if element_type_of(weights.zero) == i32 else build(CastOp, weights.zero, to=i32)
        if rank_of(zero):
            zero = build(ReshapeOp, zero, shape=(*shape_of(zero), *(1,) * (rank_of(widened) - 1 - weights.axis)))
        widened = build(SubOp, widened, zero)
    return weights.apply_data_movement(build, widened, lambda: build.scalar(0, like=widened))

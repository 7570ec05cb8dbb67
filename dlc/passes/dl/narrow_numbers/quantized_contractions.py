"""Contractions of quantised numbers, in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_integer
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.narrow_numbers.quantization import DequantizeOp, DynamicQuantizeLinearOp, QuantizeOp
from dlc.dialects.dl.narrow_numbers.words import DOTS
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import Attribute, Block, Context, ModuleOp, Operation, SSAValue, f32, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.narrow_numbers.quantized_values import Quantized
from dlc.passes.dl.rewriting import defining, erase_unused, program_blocks, replace, rewrite_forward, splat

_I8, _UI8, _I16 = (ELEMENT_TYPES[name] for name in ("int8", "uint8", "int16"))
_SCALAR = tensor_type((), i32)
# From a byte with a sign to one without, in steps of either.
_OFFSET = 128


@dataclass(frozen=True)
class QuantizedContractionsPass(TargetPass):
    """`quantized-contractions{target="cpu"}`: Σ (x - zˣ) · (w - zʷ)  =  Σ x · (w - zʷ) - zˣ · Σ (w - zʷ), in integers.

        %a = dl.dequantize %x, %s, %zx;  %b = dl.dequantize %w, %t, %zw;  %y = dl.matmul %a, %b
    →   %c = dl.matmul %x, %centred {result = i32};  %d = dl.sub %c, %offset
        %y = dl.mul (dl.cast %d), %scale

    The centred weights, their sums times the zero point, and the product of the scales are expressions of weights,
    evaluated once. So it goes through what moves elements between: padding is with the zero point. Of integers that are
    centred at their zero points, as `ConvInteger` has them, the result is `%d`.

    Numbers are of the types whose words the target has an instruction for (`pack-words`). Data is stored as it reads them: as
    i16, or as ui8, to which i8 is shifted; whoever else dequantises them reads them so too, so that a kernel stores them once.

    A quantised value that is quantised again with the same scale, moved or the maxima of windows, stays as it is.

    Requires composites as they are imported, and known numbers folded. The sums are exact.
    """

    name = "quantized-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            _Rewriter(block, self.target.dots).run()


class _Rewriter:
    def __init__(self, block: Block, dots: Sequence[str]) -> None:
        self.block, self.dots = block, dots
        self.constant = WeightExpressions()
        # What was stored, as contractions read it.
        self.data: dict[SSAValue, dict[Attribute, SSAValue]] = {}

    def run(self) -> None:
        rewrite_forward(self.block, self.rewritten, DynamicQuantizeLinearOp, QuantizeOp, ConvOp, MatmulOp)
        for stored, by_type in self.data.items():
            data = next(iter(by_type.values()))
            if data is not stored:
                _read_as(data, stored)

    def rewritten(self, op: DynamicQuantizeLinearOp | QuantizeOp | ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        match op:
            case DynamicQuantizeLinearOp():
                return op.decompose(*op.operands)
            case QuantizeOp():
                return _kept(op)
            case _:
                return self.contracted(op)

    def contracted(self, op: ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        element = element_type_of(op.results[0])
        if element not in (f32, i32) or op.dot is not None or (isinstance(op, MatmulOp) and not _is_by_matrix(op)):
            return None
        x, w = (Quantized.of(v) for v in op.operands)
        if x is None or w is None or x.stored in self.constant or w.stored not in self.constant or not x.is_single():
            return None
        b = Build(op)
        if element == i32:
            return [self.integers(b, op, x, w)] if x.scale is None and w.scale is None else None
        if x.scale is None or w.scale is None or (scale := w.per_channel(b, w.scale)) is None:
            return None
        return [b(MulOp, b(CastOp, self.integers(b, op, x, w), to=f32), b(MulOp, x.scale, scale))]

    def integers(self, b: Build, op: ConvOp | MatmulOp, x: Quantized, w: Quantized) -> SSAValue:
        """The sum of products of centred integers, as i32."""
        weights = _centred(b, w)
        name = next((d for d in self.dots if _fits(w, DOTS[d].weights)), None)
        data = self.data_of(x.stored, element_type_of(x.stored) if name is None else DOTS[name].data)
        zero = _zero(b, x.stored, x.zero, data)
        values = x.moved(b, data, lambda: _of_type(b, zero, data))
        sums = b(ReduceSumOp, weights, axes=tuple(range(rank_of(weights) - 1)), keepdims=False)
        # Those of convolutions in groups are multiplied one by one.
        in_groups = isinstance(op, ConvOp) and number(op.groups) != 1
        to = (_I8 if _fits(w, _I8) else _I16) if name is None or in_groups else DOTS[name].weights
        total = b(type(op), values, b(CastOp, weights, to=to), **{**op.properties, "result": i32})
        return total if splat(zero) == 0 else b(SubOp, total, b(MulOp, zero, sums))

    def data_of(self, stored: SSAValue, to: Attribute) -> SSAValue:
        """What was stored as integers of type `to`, made where it is."""
        by_type = self.data.setdefault(stored, {})
        if to not in by_type:
            by_type[to] = _converted(stored, to)
        return by_type[to]


def _is_by_matrix(op: MatmulOp) -> bool:
    return rank_of(op.rhs) == 2 and rank_of(op.lhs) >= 2


# quantize(moves(dequantize(x, s, z)), s, z) = moves(x)
def _kept(op: QuantizeOp) -> Sequence[SSAValue] | None:
    x, scale, zero = Quantized.of(op.x, windows=True), splat(op.scale), splat(op.zero_point)
    if x is None or x.scale is None or not x.is_single() or scale is None or not scale > 0 or zero is None:
        return None
    if splat(x.scale) != scale or x.zero_number != zero or element_type_of(x.stored) != element_type_of(op.result):
        return None
    return [x.moved(Build(op), x.stored, lambda: op.zero_point)]


def _converted(stored: SSAValue, to: Attribute) -> SSAValue:
    """Bytes as integers of type `to`, those with a sign shifted if it has none; where they are made, they are made so."""
    if element_type_of(stored) == to:
        return stored
    b, shifted = Build(_behind(stored)), to == _UI8
    op = defining(stored, QuantizeOp)
    if op is not None and not shifted:
        return b(QuantizeOp, op.x, op.scale, op.zero_point, axis=op.axis, to=to)
    if op is not None and (zero := splat(op.zero_point)) is not None:
        return b(QuantizeOp, op.x, op.scale, b.scalar(zero + _OFFSET, like=tensor_type((), to)), axis=op.axis)
    if not shifted:
        return b(CastOp, stored, to=to)
    wide = b(CastOp, stored, to=_I16)
    return b(CastOp, b(AddOp, wide, b.scalar(_OFFSET, like=wide)), to=to)


def _read_as(data: SSAValue, stored: SSAValue) -> None:
    """Who reads what was stored reads `data` instead."""
    for op in [use.operation for use in stored.uses]:
        if isinstance(op, DequantizeOp) and not rank_of(op.zero_point):
            b = Build(op)
            zero = _of_type(b, _zero(b, stored, op.zero_point, data), data)
            replace(op, [b(DequantizeOp, data, op.scale, zero, axis=op.axis)])
    # If others are left, what it was is made of what it is, unless that was made of it.
    op = defining(stored, QuantizeOp)
    if op is None or not stored.first_use or not isinstance(data.owner, QuantizeOp):
        erase_unused([op] if op is not None else [])
        return
    b = Build(_behind(data))
    shift = _OFFSET if element_type_of(data) == _UI8 else 0
    wide = b(CastOp, data, to=_I16)
    back = b(CastOp, b(SubOp, wide, b.scalar(shift, like=wide)) if shift else data, to=element_type_of(stored))
    replace(op, [back])


def _behind(value: SSAValue) -> Operation:
    """The first op that may read `value`."""
    following = value.owner.first_op if isinstance(value.owner, Block) else value.owner.next_op
    assert following is not None
    return following


def _zero(b: Build, stored: SSAValue, zero: SSAValue | None, data: SSAValue) -> SSAValue:
    """The zero point of what was stored, among integers of the type of `data`, as i32."""
    shift = _OFFSET if element_type_of(stored) == _I8 and element_type_of(data) == _UI8 else 0
    known = 0 if zero is None else splat(zero)
    if known is not None:
        return b.scalar(known + shift, like=_SCALAR)
    assert zero is not None
    wide = zero if element_type_of(zero) == i32 else b(CastOp, zero, to=i32)
    return b(AddOp, wide, b.scalar(shift, like=wide)) if shift else wide


def _of_type(b: Build, number: SSAValue, like: SSAValue) -> SSAValue:
    """A number of i32 as one of the element type of `like`."""
    known = splat(number)
    return b.scalar(known, like=like) if known is not None else b(CastOp, number, to=element_type_of(like))


def _fits(w: Quantized, to: Attribute) -> bool:
    """Whether weights without their zero point are integers of type `to`."""
    return is_integer(to) and (to != _I8 or w.zero_number == (0 if element_type_of(w.stored) == _I8 else _OFFSET))


def _centred(b: Build, w: Quantized) -> SSAValue:
    """Weights without their zero point, as i32."""
    wide = b(CastOp, w.stored, to=i32)
    if w.zero is not None and w.zero_number != 0:
        zero = w.zero if element_type_of(w.zero) == i32 else b(CastOp, w.zero, to=i32)
        if rank_of(zero):
            zero = b(ReshapeOp, zero, shape=(*shape_of(zero), *(1,) * (rank_of(wide) - 1 - w.axis)))
        wide = b(SubOp, wide, zero)
    return w.moved(b, wide, lambda: b.scalar(0, like=wide))

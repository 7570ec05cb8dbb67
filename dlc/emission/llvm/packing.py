"""Narrow integers that were converted from clamped floats: on x86-64, saturating instructions pack pairs of registers.

LLVM does not derive the range of such a conversion: it truncates each register by two shuffles, and masks it if the result is
extended again. For two registers of a row, one instruction packs them and another one restores their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from dlc.emission.common.registers import Register, is_float, vector_shape
from dlc.emission.llvm.clamped_conversions import clamp_bounds
from dlc.emission.llvm.convert import integer_to_float, integer_to_integer
from dlc.emission.llvm.core import LlvmWriter, bits_of, llvm_type
from dlc.ir import IntegerType, Operation, SSAValue, VectorType, arith

# The instructions that pack two registers of 32-bit integers to 16 bits, in each half of 16 bytes, by the lanes of a register.
_PACK_TO_WORDS = {4: "x86.sse2.packssdw.128", 8: "x86.avx2.packssdw"}
# The instructions that pack two registers of eight 16-bit integers to bytes.
_PACK_TO_SIGNED_BYTES, _PACK_TO_UNSIGNED_BYTES = "x86.sse2.packsswb.128", "x86.sse2.packuswb.128"
# The elements of two packed registers of eight integers in their original order.
_ORIGINAL_ORDER = (*range(4), *range(8, 12), *range(4, 8), *range(12, 16))
# The conversions of signed and of unsigned integers to a wider type or to floats.
_SIGNED, _UNSIGNED = arith.ExtSIOp | arith.SIToFPOp, arith.ExtUIOp | arith.UIToFPOp


def is_exact_conversion(op: Operation) -> bool:
    """Return whether an op on vectors truncates integers that were converted from clamped floats, or widens their truncation.

    Its result then equals the converted integers, which `convert_clamped` reads.
    """
    return _converted(op) is not None


def _converted(op: Operation) -> tuple[SSAValue, tuple[float, float]] | None:
    """Return the converted integers that the result of an op equals, and their bounds; None if there are none."""
    if not isinstance(op, arith.TruncIOp | _SIGNED | _UNSIGNED) or not isinstance(op.results[0].type, VectorType):
        return None
    truncation = op if isinstance(op, arith.TruncIOp) else op.operands[0].owner
    conversion = truncation.operands[0].owner if isinstance(truncation, arith.TruncIOp) else None
    bounds = clamp_bounds(conversion.operands[0]) if isinstance(conversion, arith.FPToSIOp) else None
    if bounds is None or not isinstance(conversion, arith.FPToSIOp) or not isinstance(truncation, arith.TruncIOp):
        return None
    width = _element_width(truncation.results[0])
    may_be_signed, may_be_unsigned = not isinstance(op, _UNSIGNED), not isinstance(op, _SIGNED)
    fits_signed = -(1 << width - 1) <= bounds[0] <= bounds[1] < 1 << width - 1
    fits_unsigned = 0 <= bounds[0] <= bounds[1] < 1 << width
    is_exact = (may_be_signed and fits_signed) or (may_be_unsigned and fits_unsigned)
    return (conversion.results[0], bounds) if is_exact else None


def _element_width(value: SSAValue) -> int:
    return cast("VectorType[IntegerType]", value.type).element_type.width.data


def convert_clamped(writer: LlvmWriter, op: Operation) -> None:
    """Emit an exact conversion of integers from clamped floats; nothing for a truncation that is only widened again."""
    converted = _converted(op)
    assert converted is not None
    if isinstance(op, arith.TruncIOp) and all(is_exact_conversion(use.operation) for use in op.result.uses):
        return
    (integers, (low, _)), result = converted, op.results[0]
    types, sources = writer.layout(result.type), writer.layout(integers.type)
    registers, names = writer.regs(integers), list[str]()
    registers_per_row = len(writer.row_registers(vector_shape(result.type)[-1]))
    while (k := len(names)) < len(registers):
        is_pair = k % registers_per_row + 1 < registers_per_row and all(map(_is_packable, [writer] * 2, sources[k : k + 2]))
        if is_pair and types[k].kind in ("i8", "i16"):
            names += _pack(writer, types[k], sources[k], registers[k : k + 2], is_signed=low < 0)
        else:
            names.append(_convert(types[k], sources[k])(writer, types[k], sources[k], (registers[k],)))
    writer.bind(result, names)


def _convert(type: Register, source: Register) -> Callable[..., str]:
    """Return the emitter of the conversion of a register of signed integers."""
    if is_float(type.kind):
        return integer_to_float("sitofp")
    return integer_to_integer("trunc" if bits_of(type) < bits_of(source) else "sext")


def _is_packable(writer: LlvmWriter, type: Register) -> bool:
    """Return whether a register has all lanes of an x86 register of 16 or 32 bytes."""
    is_full = type.used == type.width == writer.target.lanes(4)
    return is_full and writer.target.architecture == "x86_64" and type.width in _PACK_TO_WORDS


def _pack(writer: LlvmWriter, type: Register, source: Register, pair: Sequence[str], *, is_signed: bool) -> Sequence[str]:
    """Narrow a pair of registers of 32-bit integers to registers of `type`, which holds their values."""
    packed = _call(writer, _PACK_TO_WORDS[source.width], source, type.with_kind("i16").with_width(2 * source.width), pair)
    packed_type = type.with_width(2 * source.width)
    if type.kind == "i8":
        words, packed_type = type.with_kind("i16").with_width(8), type.with_width(16)
        halves = writer.split_vector(words.with_width(2 * source.width), packed, 8)
        function = _PACK_TO_SIGNED_BYTES if is_signed else _PACK_TO_UNSIGNED_BYTES
        packed = _call(writer, function, words, packed_type, (halves[0], halves[-1]))
    if source.width == 8:
        packed = writer.shuffle_vector(packed_type, packed, "poison", _ORIGINAL_ORDER)
    return writer.split_vector(packed_type, packed, source.width)[:2]


def _call(writer: LlvmWriter, function: str, source: Register, result: Register, operands: Sequence[str]) -> str:
    arguments = ", ".join(f"{llvm_type(source)} {x}" for x in operands)
    return writer.define(f"call {llvm_type(result)} @llvm.{function}({arguments})", *operands)

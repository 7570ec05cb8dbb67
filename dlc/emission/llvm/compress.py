"""`vector.compress`: one instruction of AVX-512, or a permutation of 32-bit words by a table of all masks on AVX2."""

from __future__ import annotations

from dlc.dialects.compress import CompressOp
from dlc.emission.common.registers import Register, element_bytes
from dlc.emission.llvm.core import LlvmWriter, llvm_type, memory_kind
from dlc.errors import UnsupportedError
from dlc.ir import Operation

_AVX2_BYTES, _WORD_BYTES = 32, 4


def compress(writer: LlvmWriter, op: Operation) -> None:
    """Emit `vector.compress` of one register."""
    assert isinstance(op, CompressOp)
    types = writer.layout(op.result.type)
    type, bits = types[0], Register(f"i{types[0].width}")
    if len(types) > 1 or type.width * element_bytes(memory_kind(type.kind)) != _AVX2_BYTES:
        raise UnsupportedError(f"kernel @{writer.kernel}: vector.compress of {op.source.type}; expected {_AVX2_BYTES} bytes")
    mask_type = type.with_kind("i1")
    mask, source = writer.scalar(op.mask), writer.scalar(op.source)
    mask_bits = writer.cast("bitcast", mask_type, mask, bits)
    writer.bind(op.count, [writer.cast("zext", bits, writer.call("ctpop", bits, mask_bits), Register("i64"))])
    if "avx512vl" in writer.target.features:
        result = _compress_by_instruction(writer, type, mask, source)
    else:
        result = _compress_by_table(writer, type, writer.cast("zext", bits, mask_bits, Register("i64")), source)
    writer.bind(op.result, [result])


def _compress_by_instruction(writer: LlvmWriter, type: Register, mask: str, source: str) -> str:
    vector, masks = llvm_type(type), llvm_type(type.with_kind("i1"))
    suffix = f"v{type.width}{type.kind}"
    call = f"call {vector} @llvm.experimental.vector.compress.{suffix}({vector} {source}, {masks} {mask}, {vector} poison)"
    return writer.define(call, source, mask)


def _compress_by_table(writer: LlvmWriter, type: Register, mask_bits: str, source: str) -> str:
    """Permute the words of a register by the positions that the table has for a mask."""
    table = writer.global_constant(f"compress{type.width}", _table(type.width))
    address = writer.define(f"getelementptr i64, ptr {table}, i64 {mask_bits}", mask_bits)
    positions = writer.define(f"load <8 x i8>, ptr {address}, align 8", address)
    positions = writer.define(f"zext <8 x i8> {positions} to <8 x i32>", positions)
    words = Register("i32", 8, 8)
    source = writer.cast("bitcast", type, source, words)
    call = f"call <8 x i32> @llvm.x86.avx2.permd(<8 x i32> {source}, <8 x i32> {positions})"
    return writer.cast("bitcast", words, writer.define(call, source, positions), type)


def _table(lanes: int) -> str:
    """Return the constant whose entry for each mask has the positions of the words of the selected lanes, one per byte."""
    words_per_lane = _AVX2_BYTES // _WORD_BYTES // lanes
    entries: list[int] = []
    for mask in range(1 << lanes):
        selected = [lane for lane in range(lanes) if mask >> lane & 1]
        words = [lane * words_per_lane + word for lane in selected for word in range(words_per_lane)]
        entries.append(sum(word << 8 * k for k, word in enumerate(words)))
    return f"constant [{len(entries)} x i64] [{', '.join(f'i64 {entry}' for entry in entries)}], align 64"

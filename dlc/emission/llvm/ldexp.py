"""`math.ldexp` as an instruction of AVX-512, on each register of a value."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.emission.common.registers import Register, element_bytes
from dlc.emission.llvm.core import LlvmWriter, llvm_type

_MIN_REGISTER_BYTES, _MAX_REGISTER_BYTES = 16, 64
_ROUND_BY_MODE = "i32 4"


def ldexp(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit vscalef. Values of less than a register are padded, those of more are split."""
    min_lanes, max_lanes = (size // element_bytes(type.kind) for size in (_MIN_REGISTER_BYTES, _MAX_REGISTER_BYTES))
    if type.width == 1:
        padded = type.with_width(min_lanes)
        return writer.extract(padded, _scale(writer, padded, [writer.insert(padded, "poison", x, 0) for x in xs]), 0)
    if type.width < min_lanes:
        padded, lanes = type.with_width(min_lanes), [k % type.width for k in range(min_lanes)]
        result = _scale(writer, padded, [writer.shuffle_vector(type, x, "poison", lanes) for x in xs])
        return writer.shuffle_vector(padded, result, "poison", range(type.width))
    register = type.with_width(min(type.width, max_lanes))
    parts = zip(*(writer.split_vector(type, x, register.width) for x in xs), strict=True)
    return writer.concat_vectors(register, [_scale(writer, register, part) for part in parts], type.width)[0]


def _scale(writer: LlvmWriter, register: Register, xs: Sequence[str]) -> str:
    vector, num_bytes = llvm_type(register), register.width * element_bytes(register.kind)
    operands = [*(f"{vector} {x}" for x in xs), f"{vector} poison", f"i{max(8, register.width)} -1"]
    operands += [_ROUND_BY_MODE] if num_bytes == _MAX_REGISTER_BYTES else []
    suffix = f"{'ps' if register.kind == 'f32' else 'pd'}.{8 * num_bytes}"
    return writer.define(f"call {vector} @llvm.x86.avx512.mask.scalef.{suffix}({', '.join(operands)})", *xs)

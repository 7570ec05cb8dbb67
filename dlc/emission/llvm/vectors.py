"""Horizontal reductions: combining, padding and halving registers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf, nan

from dlc.emission.common.registers import Register, is_float
from dlc.emission.llvm.arith import Primitive, extremum, in_float, instruction, intrinsic, nan_ignoring_extremum
from dlc.emission.llvm.convert import float_to_float
from dlc.emission.llvm.core import LlvmWriter, bits_of, llvm_type, mask_literal, splat
from dlc.emission.llvm.instruction_order import InsertionPoint
from dlc.errors import UnsupportedError
from dlc.ir import Operation, vector


@cache
def _combiner(kind: str, type: Register) -> tuple[Primitive, float]:
    """Return the combining primitive of a `vector.kind` and its neutral element."""
    if is_float(type.kind):
        primitive, neutral = {
            "add": (instruction("fadd"), -0.0),
            "mul": (instruction("fmul"), 1.0),
            "maximumf": (extremum("maximum"), -inf),
            "minimumf": (extremum("minimum"), inf),
            "maxnumf": (nan_ignoring_extremum("ogt"), nan),
            "minnumf": (nan_ignoring_extremum("olt"), nan),
        }[kind]
        return in_float(primitive), neutral
    bits = bits_of(type)
    return {
        "add": (instruction("add"), 0),
        "mul": (instruction("mul"), 1),
        "and": (instruction("and"), -1),
        "or": (instruction("or"), 0),
        "xor": (instruction("xor"), 0),
        "maxsi": (intrinsic("smax"), -(1 << bits - 1)),
        "minsi": (intrinsic("smin"), (1 << bits - 1) - 1),
        "maxui": (intrinsic("umax"), 0),
        "minui": (intrinsic("umin"), (1 << bits) - 1),
    }[kind]


class LlvmVectorWriter(LlvmWriter):
    """Emit vector operations that are not elementwise."""

    def resize(self, type: Register, source_type: Register, value: str, hint: str, *, inline: bool = False) -> str:
        return float_to_float(self, type, source_type, (value,))

    def combine(self, kind: str, type: Register, a: str, b: str, hint: str) -> str:
        return _combiner(kind, type)[0](self, type, type, (a, b))

    def mask_unused_lanes(self, kind: str, type: Register, value: str) -> str:
        return self.select(type, mask_literal(type), value, splat(type, _combiner(kind, type)[1]))

    def halves(self, type: Register, value: str, hint: str) -> Sequence[str]:
        half = type.width // 2
        return [
            self.extract(type, value, start) if half == 1 else self._extract_lanes(type, value, start, half)
            for start in (0, half)
        ]

    def _extract_lanes(self, type: Register, value: str, start: int, count: int) -> str:
        lanes = ", ".join(f"i32 {i}" for i in range(start, start + count))
        text = f"shufflevector {llvm_type(type)} {value}, {llvm_type(type)} poison, <{count} x i32> <{lanes}>"
        return self.define(text, value, insertion_point=InsertionPoint.MOVABLE)


def shuffle(writer: LlvmVectorWriter, op: Operation) -> None:
    """Emit `vector.shuffle` of two rows, each of registers of one width."""
    assert isinstance(op, vector.ShuffleOp)
    types, result_types = writer.layout(op.v1.type), writer.layout(op.result.type)
    if len({*types, *result_types}) > 1 or types != writer.layout(op.v2.type) or types[0].used < types[0].width:
        problem = f"vector.shuffle of {op.v1.type} and {op.v2.type} to {op.result.type}; expected whole registers"
        raise UnsupportedError(f"kernel @{writer.kernel}: {problem}")
    width = types[0].width * len(types)
    x, y = (writer.concat_vectors(types[0], writer.regs(value), width)[0] for value in (op.v1, op.v2))
    row = writer.shuffle_vector(types[0].with_width(width), x, y, [int(lane) for lane in op.mask.get_values()])
    result_width = result_types[0].width * len(result_types)
    writer.bind(op.result, writer.split_vector(result_types[0].with_width(result_width), row, result_types[0].width))

"""Horizontal reductions: how registers are combined, filled up and cut into halves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf, nan

from dlc.emission.llvm.arith import Primitive, extremum, in_float, instruction, intrinsic, number_extremum
from dlc.emission.llvm.convert import float_to_float
from dlc.emission.llvm.core import Writer, bits_of, mask_literal, splat, text_of
from dlc.emission.llvm.order import Place
from dlc.emission.visit.registers import Register, is_float


@cache
def _combiner(kind: str, t: Register) -> tuple[Primitive, float]:
    """The combining primitive of a `vector.kind` and its neutral element."""
    if is_float(t.kind):
        primitive, neutral = {
            "add": (instruction("fadd"), -0.0),
            "mul": (instruction("fmul"), 1.0),
            "maximumf": (extremum("maximum"), -inf),
            "minimumf": (extremum("minimum"), inf),
            "maxnumf": (number_extremum("ogt"), nan),
            "minnumf": (number_extremum("olt"), nan),
        }[kind]
        return in_float(primitive), neutral
    bits = bits_of(t)
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


class VectorWriter(Writer):
    def resize(self, t: Register, s: Register, value: str, hint: str, *, inline: bool = False) -> str:
        return float_to_float(self, t, s, (value,))

    def combine(self, kind: str, t: Register, a: str, b: str, hint: str) -> str:
        return _combiner(kind, t)[0](self, t, t, (a, b))

    def without_tail(self, kind: str, t: Register, value: str) -> str:
        return self.select(t, mask_literal(t), value, splat(t, _combiner(kind, t)[1]))

    def halves(self, t: Register, value: str, hint: str) -> Sequence[str]:
        half = t.width // 2
        return [self.extract(t, value, start) if half == 1 else self._part(t, value, start, half) for start in (0, half)]

    def _part(self, t: Register, value: str, start: int, count: int) -> str:
        lanes = ", ".join(f"i32 {i}" for i in range(start, start + count))
        text = f"shufflevector {text_of(t)} {value}, {text_of(t)} poison, <{count} x i32> <{lanes}>"
        return self.define(text, value, place=Place.MOVABLE)

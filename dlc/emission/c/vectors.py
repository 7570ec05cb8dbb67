"""Constants, and vectors as such: literals, splats, combined registers and their halves."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.emission.c.arith import expression
from dlc.emission.c.convert import float_to_float
from dlc.emission.c.core import Writer
from dlc.emission.c.literals import literal
from dlc.emission.visit.registers import Register, is_float


class VectorWriter(Writer):
    def literal(self, kind: str, value: float) -> str:
        return literal(self, kind, value)

    def table(self, t: Register, literals: list[str], hint: str) -> str:
        return self.compute(t, self.from_lanes(t, literals), hint, movable=True)

    def splat(self, t: Register, scalar: str, hint: str) -> str:
        return self.compute(t, self.splat_literal(t, scalar), hint, movable=True)

    def resize(self, t: Register, s: Register, value: str, hint: str, *, inline: bool = False) -> str:
        text = float_to_float(self, t, s, (value,))
        return text if inline else self.compute(t, text, hint)

    def combine(self, kind: str, t: Register, a: str, b: str, hint: str) -> str:
        name = kind if kind[:3] in ("max", "min") else f"{kind}{'f' if is_float(t.kind) else 'i'}"
        return self.compute(t, expression(name)(self, t, t, (a, b)), hint)

    def without_tail(self, kind: str, t: Register, value: str) -> str:
        raise AssertionError(f"{t} has no unused lanes")

    def halves(self, t: Register, value: str, hint: str) -> Sequence[str]:
        half = t.wide(t.width // 2)
        if half.width == 1:
            return [self.compute(half, self.lane(t, value, i), hint, movable=True) for i in range(2)]
        texts = [self.expression(which, self.held(half), value, s=self.held(t)) for which in ("low", "high")]
        return [self.compute(half, text, hint, movable=True) for text in texts]

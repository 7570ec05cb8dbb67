"""Vector constants, splats, combined registers and their halves."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.emission.c.arith import expression
from dlc.emission.c.convert import float_to_float
from dlc.emission.c.core import CWriter
from dlc.emission.c.literals import literal
from dlc.emission.common.registers import Register, is_float


class CVectorWriter(CWriter):
    """Emit vector operations that are not elementwise."""

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

    def mask_unused_lanes(self, kind: str, t: Register, value: str) -> str:
        raise AssertionError(f"{t} has no unused lanes")

    def halves(self, t: Register, value: str, hint: str) -> Sequence[str]:
        half = t.with_width(t.width // 2)
        if half.width == 1:
            return [self.compute(half, self.lane(t, value, i), hint, movable=True) for i in range(2)]
        texts = [
            self.expression(half_name, self.computed_register(half), value, s=self.computed_register(t))
            for half_name in ("low", "high")
        ]
        return [self.compute(half, text, hint, movable=True) for text in texts]

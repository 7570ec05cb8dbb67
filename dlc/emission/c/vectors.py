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

    def table(self, type: Register, literals: list[str], hint: str) -> str:
        return self.compute(type, self.from_lanes(type, literals), hint, movable=True)

    def splat(self, type: Register, scalar: str, hint: str) -> str:
        return self.compute(type, self.splat_literal(type, scalar), hint, movable=True)

    def resize(self, type: Register, source_type: Register, value: str, hint: str, *, inline: bool = False) -> str:
        text = float_to_float(self, type, source_type, (value,))
        return text if inline else self.compute(type, text, hint)

    def combine(self, kind: str, type: Register, a: str, b: str, hint: str) -> str:
        name = kind if kind[:3] in ("max", "min") else f"{kind}{'f' if is_float(type.kind) else 'i'}"
        return self.compute(type, expression(name)(self, type, type, (a, b)), hint)

    def mask_unused_lanes(self, kind: str, type: Register, value: str) -> str:
        raise AssertionError(f"{type} has no unused lanes")

    def halves(self, type: Register, value: str, hint: str) -> Sequence[str]:
        half = type.with_width(type.width // 2)
        if half.width == 1:
            return [self.compute(half, self.lane(type, value, i), hint, movable=True) for i in range(2)]
        texts = [
            self.expression(half_name, self.computed_register(half), value, source_type=self.computed_register(type))
            for half_name in ("low", "high")
        ]
        return [self.compute(half, text, hint, movable=True) for text in texts]

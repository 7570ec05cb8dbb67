"""Value numbering of region bodies: values with equal numbers are equal, so a converter can match a body as a whole.

compare GT, %a, %b   and   compare LT, %b, %a   get the same number, and so do   add %a, %b   and   add %b, %a
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.stablehlo.constants import dense_elements
from dlc.stablehlo.node import element_of
from dlc.stablehlo.syntax import Dense, Op, Region

_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
_MIRRORED = {"GT": "LT", "GE": "LE"}
_COMMUTATIVE = ("EQ", "NE", *(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")))
_OPS_TYPED_BY_OPERANDS = (*_COMMUTATIVE, "stablehlo.select")
_BOOLEAN_OP_NAMES = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}


def read_comparison(op: Op) -> tuple[str, bool]:
    """Return the direction of a comparison ("" if none is given), and whether floats compare by their total order."""
    attributes = [str(op.attributes.get(name, "")) for name in ("words", "comparison_direction", "compare_type")]
    words = re.findall(r"\w+", " ".join(attributes))
    return next((word for word in words if word in _DIRECTIONS), ""), "TOTALORDER" in words


@dataclass(frozen=True)
class Definition:
    """The definition of a numbered value: op, settings, and the numbers of its operands."""

    name: str
    settings: Hashable
    operands: tuple[int, ...]


class BodyNumbering:
    """Assigns numbers to values. Bodies that are numbered with the same object can be compared.

    Values of enclosing regions are "captured", results of ops with regions are "opaque".
    """

    def __init__(self) -> None:
        self.definitions: list[Definition] = []
        self.constants: dict[int, Array] = {}
        self._numbers: dict[Definition, int] = {}

    def number(self, name: str, *operands: int, settings: Hashable = None) -> int:
        """Return the number of an op's result. Comparisons are named by their directions."""
        if name in _MIRRORED:
            name, operands = _MIRRORED[name], operands[::-1]
        if name in _COMMUTATIVE:
            operands = tuple(sorted(operands))
        definition = Definition(name, settings, operands)
        if definition not in self._numbers:
            self._numbers[definition] = len(self.definitions)
            self.definitions.append(definition)
        return self._numbers[definition]

    def argument(self, k: int) -> int:
        return self.number("argument", settings=k)

    def compare(self, direction: str, a: int, b: int, *, is_total: bool = False) -> int:
        return self.number(direction, a, b, settings=is_total)

    def select(self, condition: int, a: int, b: int) -> int:
        return self.number("stablehlo.select", condition, a, b)

    def body(self, region: Region, arguments: Sequence[int] | None = None) -> dict[str, int]:
        """Number the values of a body by name, for arguments with these numbers."""
        numbers = {a.name: self.argument(k) if arguments is None else arguments[k] for k, a in enumerate(region.arguments)}
        for op in region.ops[:-1]:
            operands = [numbers[name] if name in numbers else self.number("captured", settings=name) for name in op.operands]
            numbers |= {name: self._result(op, k, operands) for k, name in enumerate(op.results)}
        return numbers

    def _result(self, op: Op, k: int, operands: Sequence[int]) -> int:
        if op.regions:
            return self.number("opaque", settings=op.results[k])
        if op.name == "stablehlo.compare" and len(operands) == 2:
            direction, is_total = read_comparison(op)
            return self.compare(direction, *operands, is_total=is_total)
        value = op.attributes.get("value")
        if isinstance(value, Dense) and value.type.component is None:
            elements = dense_elements(value, numpy_dtype(element_of(value.type, op.name)), op.name)
            number = self.number(op.name, settings=(value.type, elements.tobytes()))
            self.constants[number] = elements
            return number
        if op.name in _OPS_TYPED_BY_OPERANDS:
            return self.number(op.name, *operands)
        return self.number(op.name, *operands, settings=(k, str(op.attributes), op.types))


def returned(region: Region) -> tuple[str, ...]:
    """Return the names of the values that a region returns."""
    return region.ops[-1].operands if region.ops else ()


def binary_op(region: Region) -> str:
    """Return the name of the only op of a body, `add` of `stablehlo.add`, if it is commutative and combines both arguments.

    Else "". Ops of booleans are named `and` and `or`.
    """
    if len(region.arguments) != 2 or len(region.ops) != 2:
        return ""
    op, names = region.ops[0], [a.name for a in region.arguments]
    if op.name not in _COMMUTATIVE or sorted(op.operands) != sorted(names) or returned(region) != op.results:
        return ""
    name = op.name.removeprefix("stablehlo.")
    return _BOOLEAN_OP_NAMES.get(name, name) if region.arguments[0].type.element == "i1" else name

"""Random bodies of StableHLO regions: those that readers recognize, mutated, as text and as functions of NumPy scalars."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i8": np.dtype(np.int8),
    "ui8": np.dtype(np.uint8),
    "i1": np.dtype(np.bool_),
}
_DIRECTIONS = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
_BINARY = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "subtract": np.subtract}
_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_UNARY = {"negate": np.negative, "abs": np.abs, "not": np.bitwise_not}
_MAX_MUTATIONS = 2


@dataclass(frozen=True)
class Statement:
    """An op on earlier values; `type` is that of the result.

    `compare`, and `compare_total` in the total order of floats, have a direction, `constant` a number.
    """

    op: str
    operands: tuple[int, ...]
    type: str
    attribute: str = ""

    def evaluate(self, values: Sequence[Any]) -> Any:
        operands = [values[k] for k in self.operands]
        match self.op:
            case "compare":
                return _DIRECTIONS[self.attribute](*operands)
            case "compare_total":
                return _DIRECTIONS[self.attribute](*map(_total_order_key, operands))
            case "select":
                return operands[1] if operands[0] else operands[2]
            case "constant":
                return DTYPES[self.type].type(int(self.attribute))
            case _:
                return {**_BINARY, **_BITWISE, **_UNARY}[self.op](*operands)


def _total_order_key(value: Any) -> int:
    """Return an integer that orders f32 values as IEEE 754's totalOrder does."""
    bits = int(np.float32(value).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF) - 1


class RandomRegion:
    """The statements of a body of scalars of these types; `results` are the values that it returns."""

    def __init__(self, draw: random.Random, types: Sequence[str]) -> None:
        self.draw, self.types = draw, list(types)
        self.num_arguments = len(types)
        self.statements: list[Statement] = []
        self.results: list[int] = []

    # Construction

    def add(self, op: str, *operands: int, attribute: str = "", type: str | None = None) -> int:
        """Append a statement of the type of its last operand, or of `type`; return its value."""
        type = type or ("i1" if op.startswith("compare") else self.types[operands[-1]])
        self.statements.append(Statement(op, operands, type, attribute))
        self.types.append(type)
        return len(self.types) - 1

    def compare(self, direction: str, x: int, y: int, *, is_total: bool = False) -> int:
        return self.add("compare_total" if is_total else "compare", x, y, attribute=direction)

    def mutate(self) -> None:
        """Change up to two statements or results: operands, directions and ops, to others of the same types."""
        for _ in range(self.draw.choice([0, 1, 1, _MAX_MUTATIONS])):
            if self.statements and self.draw.random() < 0.85:
                index = self.draw.randrange(len(self.statements))
                self.statements[index] = self._mutated(self.statements[index], self.num_arguments + index)
            elif self.results:
                at = self.draw.randrange(len(self.results))
                self.results[at] = self._other(self.results[at], len(self.types))

    def _mutated(self, statement: Statement, end: int) -> Statement:
        operands, op, attribute = list(statement.operands), statement.op, statement.attribute
        choice = self.draw.random()
        if op == "constant":
            attribute = self.draw.choice(["0", "1", "2"])
        elif choice < 0.3 and len(operands) > 1:
            operands[-2:] = operands[:-3:-1]
        elif choice < 0.6:
            at = self.draw.randrange(len(operands))
            operands[at] = self._other(operands[at], end)
        elif op.startswith("compare"):
            attribute = self.draw.choice(list(_DIRECTIONS))
        elif op in _BINARY or op in _BITWISE:
            op = self.draw.choice(list(_ops_of(statement.type)))
        return Statement(op, tuple(operands), statement.type, attribute)

    def _other(self, value: int, end: int) -> int:
        """Return a value of the same type before `end`."""
        return self.draw.choice([k for k in range(end) if self.types[k] == self.types[value]])

    # Meaning

    def evaluate(self, *arguments: Any) -> list[Any]:
        """Return the results for NumPy scalars, which wrap as the types do."""
        values = list(arguments)
        with np.errstate(all="ignore"):
            for statement in self.statements:
                values.append(DTYPES[statement.type].type(statement.evaluate(values)))
        return [values[k] for k in self.results]

    def text(self, returned: str = "stablehlo.return") -> str:
        """Return the body in StableHLO's text, with its argument list."""
        arguments = ", ".join(f"%v{k}: tensor<{self.types[k]}>" for k in range(self.num_arguments))
        lines = [f"^bb0({arguments}):"]
        for k, statement in enumerate(self.statements, self.num_arguments):
            lines.append(f"  %v{k} = stablehlo.{self._statement_text(statement)}")
        names = ", ".join(f"%v{k}" for k in self.results)
        types = ", ".join(f"tensor<{self.types[k]}>" for k in self.results)
        return "\n".join([*lines, f"  {returned} {names} : {types}"])

    def _statement_text(self, statement: Statement) -> str:
        names = ", ".join(f"%v{k}" for k in statement.operands)
        match statement.op:
            case "compare" | "compare_total":
                types = ", ".join(f"tensor<{self.types[k]}>" for k in statement.operands)
                order = ", TOTALORDER" if statement.op == "compare_total" else ""
                return f"compare {statement.attribute}, {names}{order} : ({types}) -> tensor<i1>"
            case "select":
                return f"select {names} : tensor<i1>, tensor<{statement.type}>"
            case "constant":
                number = f"{statement.attribute}.0" if statement.type == "f32" else statement.attribute
                value = {"0": "false", "1": "true", "2": "true"}[statement.attribute] if statement.type == "i1" else number
                return f"constant dense<{value}> : tensor<{statement.type}>"
            case _:
                return f"{statement.op} {names} : tensor<{statement.type}>"


def _ops_of(type: str) -> dict[str, Any]:
    return _BINARY if type == "f32" else _BITWISE if type == "i1" else _BINARY | _BITWISE


def combining_region(draw: random.Random, types: Sequence[str]) -> RandomRegion:
    """Return a body that combines two groups of scalars: elementwise, or the index of an extremum."""
    count = len(types)
    region = RandomRegion(draw, [*types, *types])
    if count == 1 or draw.random() < 0.3:
        region.results = [region.add(draw.choice(list(_ops_of(type))), k, k + count) for k, type in enumerate(types)]
    else:
        region.results = _index_of_extremum(region, count)
    region.mutate()
    return region


def _index_of_extremum(region: RandomRegion, count: int) -> list[int]:
    """Add JAX's body of argmax or argmin: NaN is first, and the first of equal elements."""
    is_first = region.compare(region.draw.choice(["GT", "LT", "GE", "LE"]), 0, count)
    if region.draw.random() < 0.5:
        is_first = region.add("or", is_first, region.compare("NE", 0, 0))
    picks = is_first
    if region.draw.random() < 0.7:
        is_earlier = region.add("and", region.compare("EQ", 0, count), region.compare("LT", 1, count + 1))
        picks = region.add("or", is_first, is_earlier)
    return [region.add("select", is_first if k == 0 else picks, k, k + count) for k in range(count)]


def comparator_region(draw: random.Random, types: Sequence[str]) -> RandomRegion:
    """Return a comparator of `sort`: of one key, or lexicographic, with keys that may be negated or absolute."""
    region = RandomRegion(draw, [type for type in types for _ in range(2)])
    keys = list(range(len(types)))
    draw.shuffle(keys)
    result: int | None = None
    for key in keys[: draw.randint(1, len(keys))]:
        x, y = 2 * key, 2 * key + 1
        if types[key] != "i1" and draw.random() < 0.3:
            op = draw.choice(["negate", "abs"])
            x, y = region.add(op, x), region.add(op, y)
        is_total = types[key] == "f32" and draw.random() < 0.5
        is_less = region.compare(draw.choice(["LT", "GT"]), x, y, is_total=is_total)
        if result is None:
            result = is_less
        else:
            # The new key decides first.
            result = region.add("or", is_less, region.add("and", region.compare("EQ", x, y, is_total=is_total), result))
    assert result is not None
    region.results = [result]
    region.mutate()
    return region

"""Size polynomials as operations that native code executes (call.ll), for calls without Python.

    code = SizeCode(["N"])
    code.operation_of(N // 2 + 1)      # 4

    0: size 0    1: constant 2    2: #0 / #1    3: constant 1    4: #2 + #3

Results are i64; the call fails on overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from dlc.dims import Atom, Size
from dlc.errors import ModelError

_CONSTANT, _SIZE, _ADD, _MULTIPLY, _DIVIDE, _MAX, _MIN, _TASK_COUNT, _REQUIRE, _REQUIRE_FIT = range(10)

Operation = tuple[int, int, int]


class SizeCode:
    """A list of operations, each with one result; common subexpressions are computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.operations: list[Operation] = []
        self._symbols: Mapping[str, int] = {symbol: k for k, symbol in enumerate(symbols)}
        self._index_of_operation: dict[Operation, int] = {}

    def operation_of(self, size: Size) -> int:
        """Return the index of the operation that computes a size.

        Raises ModelError for unknown symbols and constants of more than 64 bits.
        """
        if isinstance(size, int):
            if not -(1 << 63) <= size < 1 << 63:
                raise ModelError(f"the size {size} exceeds 64 bits")
            return self._append(_CONSTANT, size)
        terms = [
            self._reduce(
                _MULTIPLY, [*([self.operation_of(factor)] if factor != 1 or not monomial else []), *map(self._atom, monomial)]
            )
            for monomial, factor in size.terms.items()
        ]
        return self._reduce(_ADD, terms)

    def max_of(self, operations: Iterable[int]) -> int:
        """Return the index of the maximum."""
        return self._reduce(_MAX, operations)

    def min_of(self, operations: Iterable[int]) -> int:
        """Return the index of the minimum."""
        return self._reduce(_MIN, operations)

    def sum(self, a: int, b: int) -> int:
        """Return the index of #a + #b."""
        return self._append(_ADD, a, b)

    def product(self, a: int, b: int) -> int:
        """Return the index of #a * #b."""
        return self._append(_MULTIPLY, a, b)

    def difference(self, a: int, b: int) -> int:
        """Return the index of #a - #b."""
        return self.sum(a, self.product(b, self.operation_of(-1)))

    def round_up(self, a: int, multiple: int) -> int:
        """Return the index of #a rounded up to a multiple."""
        divisor = self.operation_of(multiple)
        return self._append(_MULTIPLY, self._append(_DIVIDE, self.sum(a, self.operation_of(multiple - 1)), divisor), divisor)

    def tasks(self, tasks: int, bytes: int) -> int:
        """Return the index of the task-count word of a grid (`record_table.tasks_word`)."""
        return self._append(_TASK_COUNT, tasks, bytes)

    def require(self, a: int, unless: int) -> None:
        """Reject the program as invalid if #a is negative, unless #unless is 0."""
        self._append(_REQUIRE, a, unless)

    def require_fit(self, a: int, symbol: int) -> None:
        """Reject the sizes of a call if #a is negative; the message names the symbol with this index (-1: no symbol)."""
        self._append(_REQUIRE_FIT, a, symbol)

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, tuple):
            return self._append(_DIVIDE, *map(self.operation_of, atom))
        if atom not in self._symbols:
            raise ModelError(f"a size depends on {atom}, which is not the size of any input axis")
        return self._append(_SIZE, self._symbols[atom])

    def _reduce(self, kind: int, operations: Iterable[int]) -> int:
        return reduce(lambda a, b: self._append(kind, a, b), operations)

    def _append(self, kind: int, a: int, b: int = 0) -> int:
        operation = kind, a, b
        if operation not in self._index_of_operation:
            self._index_of_operation[operation] = len(self.operations)
            self.operations.append(operation)
        return self._index_of_operation[operation]

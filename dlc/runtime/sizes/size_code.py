"""Size polynomials as operations that native code executes (call.ll), for calls without Python.

    code = SizeCode(["N"])
    code.number(N // 2 + 1)      # 4, after: 0: size 0, 1: the constant 2, 2: #0 / #1, 3: the constant 1, 4: #2 + #3

Results are i64; the call fails on overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from dlc.dims import Atom, Size
from dlc.errors import ModelError

_CONSTANT, _SIZE, _ADD, _MULTIPLY, _DIVIDE, _LARGER, _SMALLER, _TASKS, _WITHIN, _FIT = range(10)

Operation = tuple[int, int, int]


class SizeCode:
    """A list of operations, each with one result; common subexpressions are computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.operations: list[Operation] = []
        self._symbols: Mapping[str, int] = {symbol: k for k, symbol in enumerate(symbols)}
        self._known: dict[Operation, int] = {}

    def number(self, size: Size) -> int:
        """Return the index of a size's operation. Raises ModelError for unknown symbols and constants of more than 64 bits."""
        if isinstance(size, int):
            if not -(1 << 63) <= size < 1 << 63:
                raise ModelError(f"a size of {size}")
            return self._of(_CONSTANT, size)
        terms = [
            self._all(_MULTIPLY, [*([self.number(factor)] if factor != 1 or not monomial else []), *map(self._atom, monomial)])
            for monomial, factor in size.terms.items()
        ]
        return self._all(_ADD, terms)

    def largest(self, numbers: Iterable[int]) -> int:
        """Return the index of the maximum."""
        return self._all(_LARGER, numbers)

    def smallest(self, numbers: Iterable[int]) -> int:
        """Return the index of the minimum."""
        return self._all(_SMALLER, numbers)

    def sum(self, a: int, b: int) -> int:
        """Return the index of #a + #b."""
        return self._of(_ADD, a, b)

    def difference(self, a: int, b: int) -> int:
        """Return the index of #a - #b."""
        return self.sum(a, self._of(_MULTIPLY, b, self.number(-1)))

    def rounded_up(self, a: int, multiple: int) -> int:
        """Return the index of #a rounded up to a multiple."""
        by = self.number(multiple)
        return self._of(_MULTIPLY, self._of(_DIVIDE, self.sum(a, self.number(multiple - 1)), by), by)

    def tasks(self, tasks: int, bytes: int) -> int:
        """Return the index of the task-count word of a grid (`record_table.tasks_word`)."""
        return self._of(_TASKS, tasks, bytes)

    def require(self, a: int, unless: int) -> None:
        """Reject the program as damaged if #a is negative, unless #unless is 0."""
        self._of(_WITHIN, a, unless)

    def require_fit(self, a: int, where: int) -> None:
        """Reject the call's sizes if #a is negative; the message is about symbol `where`, or none if it is -1."""
        self._of(_FIT, a, where)

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, tuple):
            return self._of(_DIVIDE, *map(self.number, atom))
        if atom not in self._symbols:
            raise ModelError(f"a size depends on {atom}, which is not the size of any input axis")
        return self._of(_SIZE, self._symbols[atom])

    def _all(self, kind: int, numbers: Iterable[int]) -> int:
        return reduce(lambda a, b: self._of(kind, a, b), numbers)

    def _of(self, kind: int, a: int, b: int = 0) -> int:
        operation = kind, a, b
        if operation not in self._known:
            self._known[operation] = len(self.operations)
            self.operations.append(operation)
        return self._known[operation]

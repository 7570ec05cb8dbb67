"""Size polynomials as a list of integer operations, which a Python function or native code (call.ll) executes.

    code = SizeCode(["N"])
    code.operation_of(N // 2 + 1)      # 4

    0: size 0    1: constant 2    2: #0 / #1    3: constant 1    4: #2 + #3

    code.function(4) returns

    def evaluate(s0):
     v2 = s0 // 2
     v4 = v2 + 1
     return v4

Results of native code are i64, and the call fails on overflow. Python integers are unbounded, so that the result is exact for
any polynomial, even one from an untrusted file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, TypeAlias

from dlc.errors import CompileError, ModelError
from dlc.shapes.dims import Atom, Dim, Size

_CONSTANT, _SIZE, _ADD, _MULTIPLY, _DIVIDE, _MAX, _MIN, _TASK_COUNT, _REQUIRE, _REQUIRE_FIT = range(10)
# The Python text of each operation on the operands {a} and {b}.
_EXPRESSIONS = {
    _ADD: "{a} + {b}",
    _MULTIPLY: "{a} * {b}",
    _DIVIDE: "{a} // {b}",
    _MAX: "{a} if {a} > {b} else {b}",
    _MIN: "{a} if {a} < {b} else {b}",
    _TASK_COUNT: "task_count_word({a}, {b})",
}
_REQUIREMENTS = {_REQUIRE: "if {a} < 0 and {b}: reject()", _REQUIRE_FIT: "if {a} < 0: reject()"}

Operation = tuple[int, int, int]
# Nested tuples of sizes, or of the operations that compute them.
NestedSizes: TypeAlias = "Size | Sequence[NestedSizes]"
NestedOperations: TypeAlias = "int | Sequence[NestedOperations]"

# Launches on less memory run on one thread: their half microsecond of work is less than the time to wake another thread.
MIN_PARALLEL_BYTES = 32 << 10


class RejectedSizesError(Exception):
    """The sizes of a call violate a requirement."""


def size_function(symbols: Sequence[str], sizes: NestedSizes) -> Callable[..., Any]:
    """Return a function from the values of `symbols`, in order, to the values of `sizes`.

    The function raises ZeroDivisionError for a division by zero. Raises ModelError for an unknown symbol.
    """
    code = SizeCode(symbols)
    return code.function(code.operations_of(sizes))


def task_count_word(tasks: int, bytes: int) -> int:
    """Return the task-count word of a launch record: negative if the launch is too small to be parallelized.

    Raises CompileError for more than 2^31 - 1 tasks.
    """
    if not 0 <= tasks < 1 << 31:
        raise CompileError(f"a grid of {tasks} tasks on {bytes} bytes; the maximum is {(1 << 31) - 1} tasks")
    return -tasks if bytes < MIN_PARALLEL_BYTES else tasks


class SizeCode:
    """A list of operations, each with one result; common subexpressions are computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.operations: list[Operation] = []
        self._symbols: Mapping[str, int] = {symbol: k for k, symbol in enumerate(symbols)}
        self._index_of_operation: dict[Operation, int] = {}

    @property
    def native_operations(self) -> list[Operation]:
        """The operations for native code. Raises ModelError for constants of more than 64 bits."""
        for kind, a, _ in self.operations:
            if kind == _CONSTANT and not -(1 << 63) <= a < 1 << 63:
                raise ModelError(f"the size {a} exceeds 64 bits")
        return self.operations

    def operation_of(self, size: Size) -> int:
        """Return the index of the operation that computes a size. Raises ModelError for unknown symbols."""
        if isinstance(size, int):
            return self._append(_CONSTANT, size)
        terms = [
            self._reduce(
                _MULTIPLY, [*([self.operation_of(factor)] if factor != 1 or not monomial else []), *map(self._atom, monomial)]
            )
            for monomial, factor in size.terms.items()
        ]
        return self._reduce(_ADD, terms)

    def operations_of(self, sizes: NestedSizes) -> NestedOperations:
        """Return the indices of the operations that compute nested sizes."""
        return self.operation_of(sizes) if isinstance(sizes, int | Dim) else tuple(map(self.operations_of, sizes))

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

    def task_count(self, tasks: int, bytes: int) -> int:
        """Return the index of the task-count word of #tasks tasks on #bytes bytes (see `task_count_word`)."""
        return self._append(_TASK_COUNT, tasks, bytes)

    def require(self, a: int, unless: int) -> None:
        """Reject the program as invalid if #a is negative, unless #unless is 0."""
        self._append(_REQUIRE, a, unless)

    def require_fit(self, a: int, requirement: int = -1) -> None:
        """Reject the sizes of a call if #a is negative; `requirement` is the index of its description (-1: none)."""
        self._append(_REQUIRE_FIT, a, requirement)

    def function(self, results: NestedOperations) -> Callable[..., Any]:
        """Return a Python function from the values of the symbols, in order, to nested tuples of results.

        The function raises RejectedSizesError for sizes that violate a requirement, ZeroDivisionError for a division by zero,
        and what `task_count_word` raises.
        """
        names: list[str] = []
        lines = [f"def evaluate({', '.join(f's{k}' for k in range(len(self._symbols)))}):"]
        for k, (kind, a, b) in enumerate(self.operations):
            if kind == _CONSTANT:
                names.append(_literal(a))
            elif kind == _SIZE:
                names.append(f"s{a}")
            elif kind in _REQUIREMENTS:
                names.append("")
                # The second operand of _REQUIRE_FIT is no operation.
                lines.append(f" {_REQUIREMENTS[kind].format(a=names[a], b=names[b] if kind == _REQUIRE else '')}")
            else:
                names.append(f"v{k}")
                lines.append(f" v{k} = {_EXPRESSIONS[kind].format(a=names[a], b=names[b])}")

        def nest(result: NestedOperations) -> str:
            return names[result] if isinstance(result, int) else f"({''.join(f'{nest(inner)},' for inner in result)})"

        lines.append(f" return {nest(results)}")
        functions: dict[str, Any] = {"__builtins__": {}, "reject": _reject, "task_count_word": task_count_word}
        # The code consists only of names that this module generates; symbol names do not occur in it.
        exec("\n".join(lines), functions)
        return functions["evaluate"]

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


def _reject() -> NoReturn:
    raise RejectedSizesError


def _literal(number: int) -> str:
    # Python limits the length of decimal literals, but not of hexadecimal ones.
    return str(number) if 0 <= number < 1 << 63 else f"({hex(number)})"

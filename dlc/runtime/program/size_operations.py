"""The size computations of a program for a call: requirements on its sizes, and the layout of the arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo
from dlc.errors import ModelError
from dlc.runtime.program.bounds import BoundsChecks, candidates_for_max
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, HostProgram
from dlc.shapes.dims import Dim, Size, is_symbol, product
from dlc.shapes.guards import Guard, SizeBounds
from dlc.shapes.ranges import SizeRange
from dlc.shapes.size_code import Operation, SizeCode

# Larger than any memory, and small enough to be multiplied without overflow.
MAX_SIZE = 1 << 40


class SizeOperations:
    """The size computations of a program as operations, which begin with the requirements on the sizes of a call.

    Requirements on symbols are first, so that other computations cannot overflow. Raises ModelError for a program that is
    invalid for all sizes.
    """

    def __init__(self, host: HostProgram, alignment: int = ALIGNMENT_BYTES) -> None:
        if len(set(host.symbols)) < len(host.symbols):
            raise ModelError(f"one of the sizes {', '.join(host.symbols)} is defined twice")
        self.host, self.alignment = host, alignment
        self.code = SizeCode(host.symbols)
        # What sizes of a call may violate, for messages.
        self.requirements: list[str] = []
        for symbol in host.input_symbols:
            self._require_range(self.code, symbol)
        for size in dict.fromkeys(size for info in host.inputs for size in info.shape if not is_symbol(size)):
            if not isinstance(size, int):
                self.code.require_fit(self.code.operation_of(size))
        self._require_guards(self.code, host.input_guards)
        self._require_bounds()

    def bounds(self, symbol: str) -> tuple[int, int]:
        """Return the minimum and maximum of a size."""
        range_ = self.host.ranges.get(symbol, SizeRange())
        return range_.low, MAX_SIZE if range_.high is None else range_.high

    def data_dependent_outputs(self) -> list[tuple[TensorInfo, int]]:
        """Return the outputs with data-dependent sizes, and their positions."""
        return [(info, k) for k, info in enumerate(self.host.outputs) if self._order(info.shape)]

    def arena_layout(self, outputs: Iterable[tuple[TensorInfo, int]] = ()) -> tuple[list[tuple[int, int]], int]:
        """Return the slots of regions, and of `outputs` in the arena, with the operations that compute their offsets; and the
        operation that computes the size of the arena.
        """
        allocations: list[tuple[int, Sequence[Size]]] = list(enumerate(self.host.regions, self.host.first_region))
        first_output = FIRST_INPUT_SLOT + len(self.host.inputs)
        allocations += [(first_output + k, (_bytes(info),)) for info, k in outputs]
        offsets: list[tuple[int, int]] = []
        end = self.code.operation_of(-(-self.host.arena_bytes // self.alignment) * self.alignment)
        # Regions whose sizes are known earlier come first, so that no region moves when a later size becomes known.
        for slot, sizes in sorted(allocations, key=lambda allocation: self._order(allocation[1])):
            offsets.append((slot, end))
            size = self.code.max_of(map(self.code.operation_of, candidates_for_max(sizes)))
            end = self.code.sum(end, self.code.round_up(size, self.alignment))
        return offsets, end

    def bytes(self, info: TensorInfo) -> int:
        """Return the operation that computes an array's size in bytes."""
        return self.code.operation_of(_bytes(info))

    def requirement(self, text: str) -> int:
        """Return the index of a requirement on sizes."""
        if text not in self.requirements:
            self.requirements.append(text)
        return self.requirements.index(text)

    def domain_text(self, symbol: str) -> str:
        """Describe the sizes of a symbol that the program supports: the guards that restrict it, or a range."""
        is_input = symbol in self.host.input_symbols
        guards = self.host.input_guards if is_input else self.host.guards_by_symbol[symbol]
        texts = [guard.description for guard in guards if symbol in guard.size.symbols()]
        low, high = self.bounds(symbol)
        kind = "size" if is_input else "data-dependent size"
        return "; ".join(texts) or f"{kind} {symbol} must be in {SizeRange(low, None if high == MAX_SIZE else high)}"

    def checks(self, symbol: str) -> list[Operation]:
        """Return the operations that check a data-dependent size as soon as it is known; they refer to each other only."""
        code = SizeCode(self.host.symbols)
        size, one = map(code.operation_of, (Dim.symbol(symbol), 1))
        code.require(size, one)
        code.require(code.difference(code.operation_of(MAX_SIZE), size), one)
        self._require_range(code, symbol)
        self._require_guards(code, self.host.guards_by_symbol[symbol])
        return code.native_operations

    def _require_range(self, code: SizeCode, symbol: str) -> None:
        low, high = map(code.operation_of, self.bounds(symbol))
        size, requirement = code.operation_of(Dim.symbol(symbol)), self.requirement(self.domain_text(symbol))
        code.require_fit(code.difference(size, low), requirement)
        code.require_fit(code.difference(high, size), requirement)

    def _require_guards(self, code: SizeCode, guards: Iterable[Guard]) -> None:
        operation_of, bounds = code.operation_of, SizeBounds(self.host.ranges)
        for guard in guards:
            if bounds.decide(guard):
                continue
            size, requirement = operation_of(guard.size), self.requirement(guard.description)
            match guard.relation:
                case ">=":
                    code.require_fit(size, requirement)
                case "==":
                    code.require_fit(size, requirement)
                    code.require_fit(code.product(size, operation_of(-1)), requirement)
                case "!=":
                    code.require_fit(code.sum(code.product(size, size), operation_of(-1)), requirement)

    def _require_bounds(self) -> None:
        """Require bounds that cannot be proved from the polynomials."""
        code, operation_of = self.code, self.code.operation_of
        checks = BoundsChecks.of(self.host)
        for size in checks.counts:
            code.require_fit(operation_of(size))
        for group in checks.groups:
            min_iterations = code.min_of(map(operation_of, group.loops or [1]))
            starts, end = [*map(operation_of, group.starts)], code.max_of(map(operation_of, group.ends))
            code.require(code.min_of(starts), min_iterations)
            code.require(code.difference(end, code.max_of(starts)), min_iterations)
            code.require(code.difference(code.max_of(map(operation_of, group.buffer_sizes)), end), min_iterations)

    def _order(self, sizes: Iterable[Size]) -> int:
        """Return the number of data-dependent sizes that must be known before these sizes can be computed."""
        order = {symbol: k for k, symbol in enumerate(self.host.data_dependent_sizes, 1)}
        return max((order.get(symbol, 0) for size in sizes for symbol in Dim.lift(size).symbols()), default=0)


def _bytes(info: TensorInfo) -> Size:
    return product(info.shape) * info.dtype.itemsize

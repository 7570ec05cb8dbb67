"""Run-time sizes for native code: integer operations, initialization of slots with their results, and data-dependent sizes.

call.ll and data_dependent_sizes.ll execute these operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo
from dlc.dims import Dim, Size, SizeRange, is_symbol, product
from dlc.runtime.cpu.record_table import RecordTable
from dlc.runtime.program.dynamic_program import MAX_SIZE, BoundsChecks, DynamicProgram, candidates_for_max
from dlc.runtime.program.host_program import ARENA_SLOT, FIRST_INPUT_SLOT, HostProgram, Instruction, SetSize
from dlc.runtime.sizes.size_code import SizeCode


@dataclass(frozen=True)
class SetSizeRecord:
    """A readback of a data-dependent size: stop code, buffer reference of the value, byte offset of the next record,
    the valid range, and the index of a size that it must equal (-1: none). A size that Python computes has no stop record.
    """

    code: int
    slot: int
    offset: int
    next_record: int
    low: int
    high: int
    same: int


# No record has this stop code.
_SET_BY_PYTHON = SetSizeRecord(1, 0, 0, 0, 0, 0, -1)


class SizeOperations:
    """The operations of a program with resolved launches.

    Range checks come first, so that invalid sizes cannot overflow later.
    """

    def __init__(self, host: HostProgram | DynamicProgram, instructions: Sequence[Instruction], table: RecordTable) -> None:
        self.host, self.instructions, self.table = host, instructions, table
        self.input_symbols = symbols_of(host)
        self.data_dependent_sizes = host.data_dependent_sizes if isinstance(host, DynamicProgram) else ()
        self.code = SizeCode([*self.input_symbols, *self.data_dependent_sizes])
        for k, (symbol, size) in enumerate(self.input_symbols.items()):
            low, high = self.bounds(symbol)
            self.code.require_fit(self._difference(size, low), k)
            self.code.require_fit(self._difference(high, size), k)

    def bounds(self, symbol: str) -> tuple[int, int]:
        """Return the minimum and maximum of a size."""
        ranges: Mapping[str, SizeRange] = self.host.ranges if isinstance(self.host, DynamicProgram) else {}
        range_ = ranges.get(symbol, SizeRange())
        return range_.low, MAX_SIZE if range_.high is None else range_.high

    def data_dependent_outputs(self) -> list[tuple[TensorInfo, int]]:
        """Return the outputs with data-dependent sizes, and their positions."""
        return [(info, k) for k, info in enumerate(self.host.outputs) if self._order(info.shape)]

    def regions(self, outputs: Iterable[tuple[TensorInfo, int]] = ()) -> tuple[list[tuple[int, int, int]], int]:
        """Return slot inits for the arena offsets of regions and of `outputs` in the arena, and the index of the arena size."""
        if isinstance(self.host, HostProgram):
            return [], self.code.operation_of(self.host.arena_bytes)
        allocations: list[tuple[int, Sequence[Size]]] = list(enumerate(self.host.regions, self.host.first_region))
        first_output = FIRST_INPUT_SLOT + len(self.host.inputs)
        allocations += [(first_output + k, (_bytes(info),)) for info, k in outputs]
        slot_inits: list[tuple[int, int, int]] = []
        end = self.code.operation_of(0)
        # Regions whose sizes are known earlier come first, so that no region moves when a later size becomes known.
        for slot, sizes in sorted(allocations, key=lambda allocation: self._order(allocation[1])):
            slot_inits.append((slot, end, ARENA_SLOT))
            size = self.code.max_of(map(self.code.operation_of, candidates_for_max(sizes)))
            end = self.code.sum(end, self.code.round_up(size, ALIGNMENT_BYTES))
        return slot_inits, end

    def numbers(self) -> list[tuple[int, int, int]]:
        """Return slot inits for sizes and task counts."""
        index = self.code.operation_of
        sizes = [(slot, index(size), 0) for size, slot in self.table.sizes.items()]
        work = [(slot, self.code.tasks(*map(index, key)), 0) for key, slot in self.table.work.items()]
        return sizes + work

    def bytes(self, info: TensorInfo) -> int:
        """Return the operation index of an array's size in bytes."""
        return self.code.operation_of(_bytes(info))

    def add_bounds_checks(self) -> None:
        """Add run-time checks for bounds that cannot be proved from the polynomials."""
        code, operation_of = self.code, self.code.operation_of
        if isinstance(self.host, HostProgram):
            return
        for size in dict.fromkeys(size for info in self.host.inputs for size in info.shape if not is_symbol(size)):
            code.require_fit(operation_of(size), -1)
        for guard in self.host.guards:
            size = operation_of(guard.size)
            match guard.relation:
                case ">=":
                    code.require_fit(size, -1)
                case "==":
                    code.require_fit(size, -1)
                    code.require_fit(code.product(size, operation_of(-1)), -1)
                case "!=":
                    code.require_fit(code.sum(code.product(size, size), operation_of(-1)), -1)
        checks = BoundsChecks.of(self.host, self.instructions)
        for size in checks.counts:
            code.require_fit(operation_of(size), -1)
        for buffer_sizes, loops, starts, ends in checks.groups:
            min_iterations = code.min_of(map(operation_of, loops or [1]))
            end = code.max_of(map(operation_of, ends))
            code.require(code.min_of(map(operation_of, starts)), min_iterations)
            code.require(code.difference(end, code.max_of(map(operation_of, starts))), min_iterations)
            code.require(code.difference(code.max_of(map(operation_of, buffer_sizes)), end), min_iterations)

    def set_size_records(self) -> list[SetSizeRecord]:
        """Return the readback of each data-dependent size, in the order in which the sizes become known."""
        indices = {symbol: k for k, symbol in enumerate((*self.input_symbols, *self.data_dependent_sizes))}
        equal: Mapping[str, str] = self.host.equal if isinstance(self.host, DynamicProgram) else {}
        rows = {
            stop.symbol: SetSizeRecord(
                -k, *stop.ref, 8 * following, *self.bounds(stop.symbol), indices.get(equal.get(stop.symbol, ""), -1)
            )
            for k, (stop, following) in enumerate(self.table.stops, 1)
            if isinstance(stop, SetSize)
        }
        return [rows.get(symbol, _SET_BY_PYTHON) for symbol in self.data_dependent_sizes]

    def _order(self, sizes: Iterable[Size]) -> int:
        """Return the number of data-dependent sizes that must be known before these sizes can be computed."""
        order = {symbol: k for k, symbol in enumerate(self.data_dependent_sizes, 1)}
        return max((order.get(symbol, 0) for size in sizes for symbol in Dim.lift(size).symbols()), default=0)

    def _difference(self, a: Size, b: Size) -> int:
        return self.code.difference(self.code.operation_of(a), self.code.operation_of(b))


def symbols_of(host: HostProgram | DynamicProgram) -> dict[str, Size]:
    """Return the symbols that are sizes of input axes, by name, in the order of the inputs."""
    return {str(size): size for info in host.inputs for size in info.shape if is_symbol(size)}


def _bytes(info: TensorInfo) -> Size:
    return product(info.shape) * info.dtype.itemsize

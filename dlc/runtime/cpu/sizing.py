"""What sizes decide in a program, for native code: operations on numbers, slots that are filled with what they make, and where
data decides more sizes (call.ll, deciding.ll).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.dims import Dim, Range, Size, is_symbol, product
from dlc.runtime.cpu.table import Table
from dlc.runtime.program.host_program import ARENA, FIRST_INPUT, Decide, HostProgram, Instruction
from dlc.runtime.program.open_program import LARGEST_SIZE, Demands, OpenProgram, distinct
from dlc.runtime.sizes.size_code import SizeCode


@dataclass(frozen=True)
class Decision:
    """Where data decides a size: the code that records end with then, where its number is, and where they go on; from what to
    what it is, and which other size it has to be. Of a size that Python decides there is nothing that records end with."""

    code: int
    slot: int
    offset: int
    on: int
    low: int
    high: int
    same: int


# Records never end with this code.
_BY_PYTHON = Decision(1, 0, 0, 0, 0, 0, -1)


class Sizing:
    """The operations of a program, whose instructions are resolved, and their table; first of all that ranges hold, so that a
    size that is none makes no number too large."""

    def __init__(self, host: HostProgram | OpenProgram, instructions: Sequence[Instruction], table: Table) -> None:
        self.host, self.instructions, self.table = host, instructions, table
        self.given = symbols_of(host)
        self.decided = host.decided if isinstance(host, OpenProgram) else ()
        self.code = SizeCode([*self.given, *self.decided])
        for k, (symbol, size) in enumerate(self.given.items()):
            low, high = self.bounds(symbol)
            self.code.require_fit(self._difference(size, low), k)
            self.code.require_fit(self._difference(high, size), k)

    def bounds(self, symbol: str) -> tuple[int, int]:
        """The least and the largest that a size may be."""
        ranges: Mapping[str, Range] = self.host.ranges if isinstance(self.host, OpenProgram) else {}
        range_ = ranges.get(symbol, Range())
        return range_.low, LARGEST_SIZE if range_.high is None else range_.high

    def by_data(self) -> list[tuple[TensorInfo, int]]:
        """The outputs that data decides the sizes of, and their numbers."""
        return [(info, k) for k, info in enumerate(self.host.outputs) if self._order(info.shape)]

    def regions(self, kept: Iterable[tuple[TensorInfo, int]] = ()) -> tuple[list[tuple[int, int, int]], int]:
        """Fills of slots that say where in the arena something begins, outputs that are `kept` there among them; and the number
        that says where all of it ends."""
        if isinstance(self.host, HostProgram):
            return [], self.code.number(self.host.arena_bytes)
        parts: list[tuple[int, Sequence[Size]]] = list(enumerate(self.host.regions, self.host.first_region))
        first_output = FIRST_INPUT + len(self.host.inputs)
        parts += [(first_output + k, (_bytes(info),)) for info, k in kept]
        fills: list[tuple[int, int, int]] = []
        end = self.code.number(0)
        # What is known first comes first: nothing moves when data decides more.
        for slot, members in sorted(parts, key=lambda part: self._order(part[1])):
            fills.append((slot, end, ARENA))
            size = self.code.largest(map(self.code.number, distinct(members)))
            end = self.code.sum(end, self.code.rounded_up(size, ALIGNMENT))
        return fills, end

    def numbers(self) -> list[tuple[int, int, int]]:
        """Fills of slots that hold sizes and numbers of tasks."""
        number = self.code.number
        sizes = [(slot, number(size), 0) for size, slot in self.table.sizes.items()]
        work = [(slot, self.code.tasks(*map(number, both)), 0) for both, slot in self.table.work.items()]
        return sizes + work

    def bytes(self, info: TensorInfo) -> int:
        """The number of bytes of an array."""
        return self.code.number(_bytes(info))

    def demand(self) -> None:
        """What else must hold of sizes."""
        code, number = self.code, self.code.number
        if isinstance(self.host, HostProgram):
            return
        for size in dict.fromkeys(size for info in self.host.inputs for size in info.shape if not is_symbol(size)):
            code.require_fit(number(size), -1)
        demands = Demands.of(self.host, self.instructions)
        for size in demands.counts:
            code.require_fit(number(size), -1)
        for members, loops, first, last in demands.parts:
            runs = code.smallest(map(number, loops or [1]))
            end = code.largest(map(number, last))
            code.require(code.smallest(map(number, first)), runs)
            code.require(code.difference(end, code.largest(map(number, first))), runs)
            code.require(code.difference(code.largest(map(number, members)), end), runs)

    def decisions(self) -> list[Decision]:
        """Where data decides sizes, in the order in which it does."""
        places = {symbol: k for k, symbol in enumerate((*self.given, *self.decided))}
        equal: Mapping[str, str] = self.host.equal if isinstance(self.host, OpenProgram) else {}
        rows = {
            stop.symbol: Decision(
                -k, *stop.place, 8 * following, *self.bounds(stop.symbol), places.get(equal.get(stop.symbol, ""), -1)
            )
            for k, (stop, following) in enumerate(self.table.stops, 1)
            if isinstance(stop, Decide)
        }
        return [rows.get(symbol, _BY_PYTHON) for symbol in self.decided]

    def _order(self, sizes: Iterable[Size]) -> int:
        """How many sizes must be decided before these are known."""
        order = {symbol: k for k, symbol in enumerate(self.decided, 1)}
        return max((order.get(symbol, 0) for size in sizes for symbol in Dim.lift(size).symbols()), default=0)

    def _difference(self, a: Size, b: Size) -> int:
        return self.code.difference(self.code.number(a), self.code.number(b))


def symbols_of(host: HostProgram | OpenProgram) -> dict[str, Size]:
    """The sizes that a call gives, by name in the order of the inputs."""
    return {str(size): size for info in host.inputs for size in info.shape if is_symbol(size)}


def _bytes(info: TensorInfo) -> Size:
    return product(info.shape) * info.dtype.itemsize

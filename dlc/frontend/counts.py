"""The sizes that data decides in a traced function: how many elements of an array are not 0, or are different.

Each is a symbol of its own. What is selected by equal computations is as large: `x[x > 0] * y[x > 0]` has one size. What would
hold for some data only, such as a sum of arrays of two such sizes, is an error while the function is traced.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dlc.dialects.dl.base import DlOp, PropertyValue, shape_of
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dims import Dim, Size
from dlc.errors import ShapeError
from dlc.frontend.computations import Computations
from dlc.ir import Block, Operation, SSAValue


class Counts:
    """The sizes decided so far; `open_blocks` are the function's and the bodies that are open."""

    def __init__(self, open_blocks: Sequence[Block], computations: Computations) -> None:
        self._open = open_blocks
        self._computations = computations
        self._made: dict[Hashable, Sequence[SSAValue]] = {}
        # The places where, and the blocks in which, sizes are decided, by their names.
        self._places: dict[str, str] = {}
        self._blocks: dict[str, Block] = {}

    def new(self, op: type[Selection], place: str) -> Size:
        """A size that is decided by an op at `place`."""
        taken = {symbol for a in self._open[0].args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
        numbers = range(len(self._places) + len(taken) + 1)
        name = next(n for k in numbers if (n := f"count{k}") not in self._places and n not in taken)
        self._places[name] = f"{name} is the size that {op.name} gives" + (f" at {place}" if place else "")
        self._blocks[name] = self._open[-1]
        return Dim.symbol(name)

    def decide(self, size: Size) -> bool:
        """Whether data decides a size in the function."""
        return isinstance(size, Dim) and not self._blocks.keys().isdisjoint(size.symbols())

    def made(
        self, op: type[Selection], x: SSAValue, properties: Mapping[str, PropertyValue | None]
    ) -> Sequence[SSAValue] | None:
        """The results of an equal selection that can be read from here."""
        found = self._made.get(self._key(op, x, properties))
        return found if found is not None and _block_of(found[0]) in self._open else None

    def note(
        self, op: type[Selection], x: SSAValue, properties: Mapping[str, PropertyValue | None], results: Sequence[SSAValue]
    ) -> None:
        """Remembers what a selection gave."""
        self._made[self._key(op, x, properties)] = results

    def _key(self, op: type[Selection], x: SSAValue, properties: Mapping[str, PropertyValue | None]) -> Hashable:
        return op, self._computations.of(x)[0], tuple(sorted(properties.items()))

    def require_one_size(self, op: DlOp) -> None:
        """Raises ShapeError for elements to be paired of arrays whose sizes are equal for some data only."""
        if not self._places or not isinstance(op, Elementwise):
            return
        shapes = [shape_of(v) for v in op.operands]
        for axis in range(1, max(map(len, shapes)) + 1):
            sizes = {s[-axis] for s in shapes if len(s) >= axis and s[-axis] != 1}
            if len(sizes) > 1 and any(self._blocks.keys() & Dim.lift(size).symbols() for size in sizes):
                first, second, *_ = sorted(map(str, sizes))
                repair = "select from both by one mask, or combine them before"
                raise ShapeError(f"{op.name}: a size of {first} against {second}, which data decides; {repair}")

    def require_outside(self, where: str, body: Block, values: Sequence[SSAValue]) -> None:
        """Raises ShapeError for what a loop makes in each step, if data decides its size there."""
        for value in values:
            for name in {s for size in shape_of(value) for s in Dim.lift(size).symbols()} & self._blocks.keys():
                if self._blocks[name] is body or _is_inside(self._blocks[name], body):
                    problem = f"each step makes an array of the shape {shape_of(value)}, and may make another size of it"
                    raise ShapeError(f"{where}: {problem}; keep what is not selected as zeros: dlc.numpy.where(mask, x, 0)")

    def explained(self, problem: str) -> str:
        """A problem, and where the sizes that it speaks of are decided."""
        words = set("".join(c if c.isalnum() else " " for c in problem).split())
        return "; ".join([problem, *(told for name, told in self._places.items() if name in words and told not in problem)])


def _block_of(value: SSAValue) -> Block | None:
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner


def _is_inside(block: Block, other: Block) -> bool:
    """Whether a block is a part of another one."""
    above = block.parent_block()
    return above is not None and (above is other or _is_inside(above, other))

"""Data-dependent sizes of a traced function: the number of nonzero or of distinct elements of an array.

Each selection gets a new symbol, except that equal computations get the same symbol: `x[x > 0] * y[x > 0]` has one size.
Operations that would be valid for some data only, such as adding arrays of two such sizes, are errors at trace time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dlc.dialects.dl.base import DlOp, PropertyValue, shape_of
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.errors import ShapeError
from dlc.frontend.size_guards import data_dependent_size_values
from dlc.frontend.value_numbering import ValueNumbering
from dlc.ir import Block, Operation, SSAValue
from dlc.shapes.dims import Dim, Size


class DataDependentSizes:
    """Create and track data-dependent sizes; `active_blocks` are the block of the function and of each body being traced."""

    def __init__(self, active_blocks: Sequence[Block], value_numbering: ValueNumbering) -> None:
        self._active_blocks = active_blocks
        self._value_numbering = value_numbering
        self._selections: dict[Hashable, Sequence[SSAValue]] = {}
        # By symbol name: a description of the op that determines the size, and the block that contains it.
        self._descriptions: dict[str, str] = {}
        self._blocks: dict[str, Block] = {}

    def new_symbol(self, op: type[SelectionOp], location: str) -> Size:
        """Create the symbol for the result size of an op at the source location `location`.

        Return its value if the function is traced for it.
        """
        used_symbols = {
            symbol for a in self._active_blocks[0].args for size in shape_of(a) for symbol in Dim.lift(size).symbols()
        }
        candidates = range(len(self._descriptions) + len(used_symbols) + 1)
        name = next(n for k in candidates if (n := f"count{k}") not in self._descriptions and n not in used_symbols)
        self._descriptions[name] = f"{name} is the result size of {op.name}" + (f" at {location}" if location else "")
        self._blocks[name] = self._active_blocks[-1]
        return data_dependent_size_values.get().get(name, Dim.symbol(name))

    def is_data_dependent(self, size: Size) -> bool:
        """Return whether a size depends on data of the function."""
        return isinstance(size, Dim) and not self._blocks.keys().isdisjoint(size.symbols())

    def find(
        self, op: type[SelectionOp], x: SSAValue, properties: Mapping[str, PropertyValue | None]
    ) -> Sequence[SSAValue] | None:
        """Return the results of an equal selection that are visible in the current block; None if there are none."""
        results = self._selections.get(self._key(op, x, properties))
        return results if results is not None and _block_of(results[0]) in self._active_blocks else None

    def record(
        self, op: type[SelectionOp], x: SSAValue, properties: Mapping[str, PropertyValue | None], results: Sequence[SSAValue]
    ) -> None:
        """Record the results of a selection."""
        self._selections[self._key(op, x, properties)] = results

    def _key(self, op: type[SelectionOp], x: SSAValue, properties: Mapping[str, PropertyValue | None]) -> Hashable:
        return op, self._value_numbering.of(x)[0], tuple(sorted(properties.items()))

    def require_equal_sizes(self, op: DlOp) -> None:
        """Raise ShapeError for an elementwise op whose operand sizes match for some data only."""
        if not self._descriptions or not isinstance(op, Elementwise):
            return
        shapes = [shape_of(v) for v in op.operands]
        for axis in range(1, max(map(len, shapes)) + 1):
            sizes = {s[-axis] for s in shapes if len(s) >= axis and s[-axis] != 1}
            if len(sizes) > 1 and any(self._blocks.keys() & Dim.lift(size).symbols() for size in sizes):
                first, second, *_ = sorted(map(str, sizes))
                hint = "select from both with one mask, or combine the arrays before selecting"
                raise ShapeError(f"{op.name}: sizes {first} and {second} do not match, because one depends on data; {hint}")

    def require_loop_invariant_sizes(self, context: str, body: Block, values: Sequence[SSAValue]) -> None:
        """Raise ShapeError if a loop body returns an array whose size depends on data of the iteration."""
        for value in values:
            for name in {s for size in shape_of(value) for s in Dim.lift(size).symbols()} & self._blocks.keys():
                if self._blocks[name] is body or _is_inside(self._blocks[name], body):
                    problem = (
                        f"an iteration returns an array of shape {shape_of(value)}, whose size may differ between iterations"
                    )
                    raise ShapeError(
                        f"{context}: {problem}; keep the shape and set unselected elements to 0: dlc.numpy.where(mask, x, 0)"
                    )

    def explain(self, problem: str) -> str:
        """Append the origin of each data-dependent size that an error message mentions."""
        words_of_problem = set("".join(c if c.isalnum() else " " for c in problem).split())
        origins = [text for name, text in self._descriptions.items() if name in words_of_problem and text not in problem]
        return "; ".join([problem, *origins])


def _block_of(value: SSAValue) -> Block | None:
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner


def _is_inside(block: Block, other: Block) -> bool:
    """Return whether a block is nested in another one."""
    parent = block.parent_block()
    return parent is not None and (parent is other or _is_inside(parent, other))

"""Tile plans: the tile sizes and loop order of a loop nest, as a value to print, compare or override.

There is one class of plans per kind of code, each in the folder of that kind: `TaskTiles`, `BlockedTiles` and
`FusedAttention` on a CPU; `GroupTiles`, `CooperativeTiles`, `PromotedTiles` and `MatrixUnitTiles` on a device with
work-groups. This module has what they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import cast

from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """The grid of a loop nest, and the order of the loops inside a task.

    Dimensions are those of the nest, sizes are in iterations, and operands are given by position.

    Attributes:
        grid: For shared dimensions, the extent that one task covers; tasks run in parallel. A task covers dimensions without
            an entry completely.
        order: The loops over register tiles inside a task, outermost first: a permutation of the shared dimensions.
    """

    grid: Mapping[int, int] = field(default_factory=dict[int, int])
    order: tuple[int, ...] = ()

    def tile(self, d: int) -> int:
        """Return the register tile along a shared dimension."""
        return 1

    def group_tile(self, d: int) -> int:
        """Return the extent along a shared dimension that a group, or the one thread of a task, covers in one round."""
        return self.tile(d)

    def op_steps(self, k: int) -> Mapping[int, int]:
        """Return the step sizes of op `k` of the nest along dimensions where they are smaller than the tile."""
        return {}

    def panel_step(self, nest: SizedLoopNest, d: int) -> int:
        """Return the largest step of the ops along a dimension."""
        return self.tile(d) if d in nest.shared_dims else nest.extents[d]

    def check(self, nest: SizedLoopNest) -> None:
        """Raise ValueError, naming the entry, if the plan is not legal for the nest."""
        for d, block in self.grid.items():
            check_shared_size(nest, "grid", d, block)
            if block % self.tile(d) and block != nest.extents[d]:
                raise ValueError(f"grid[d{d}] = {block}: must be a multiple of the register tile {self.tile(d)}")
        if sorted(self.order) != sorted(nest.shared_dims):
            raise ValueError(f"order {self.order}: must be a permutation of the shared dimensions {sorted(nest.shared_dims)}")
        for d, panel in nest.panel_sizes.items():
            if panel % (step := self.panel_step(nest, d)):
                name = "register" if d in nest.shared_dims else "chunks"
                raise ValueError(f"{name}[d{d}] = {step}: an operand is packed in panels of {panel}")
        for d, repeat_count in nest.repeat_counts.items():
            if self.tile(d) % repeat_count and repeat_count % self.tile(d):
                raise ValueError(f"register[d{d}] = {self.tile(d)}: an operand repeats each element {repeat_count} times")

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        """Yield lines of text that describe the plan: each entry and its purpose on the target."""
        reduced_dims = sorted(nest.reduced_dims)
        kind = "a contraction" if nest.contraction is not None else "row-wise reductions" if reduced_dims else "elementwise"
        reduction_text = f", reduced over {_extents(nest, reduced_dims)}" if reduced_dims else ""
        ops_text = "1 op" if len(nest.ops) == 1 else f"{len(nest.ops)} ops"
        yield f"{kind}, {ops_text} over {_extents(nest, nest.shared_dims)}{reduction_text}"
        for d, panel_size in nest.panel_sizes.items():
            yield f"d{d} in packed panels of {panel_size}"

    def __str__(self) -> str:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        entries = (f"{name} {_text(name, value)}" for name, value in values if value not in (None, (), {}))
        return " ".join((type(self).__name__, *entries))


@dataclass(frozen=True, kw_only=True)
class RegisterTiles(TilePlan):
    """A plan with register tiles along the shared dimensions.

    Attributes:
        register: For shared dimensions, the size of the register tile; 1 without an entry.
        chunks: For private dimensions (those of single ops), the step size; for a reduction along contiguous memory, the
            number of partial results. The extent without an entry.
    """

    register: Mapping[int, int] = field(default_factory=dict[int, int])
    chunks: Mapping[int, int] = field(default_factory=dict[int, int])

    def tile(self, d: int) -> int:
        return self.register.get(d, 1)

    def op_steps(self, k: int) -> Mapping[int, int]:
        return self.chunks

    def panel_step(self, nest: SizedLoopNest, d: int) -> int:
        return self.tile(d) if d in nest.shared_dims else self.chunks.get(d, nest.extents[d])

    def check(self, nest: SizedLoopNest) -> None:
        for d, size in self.register.items():
            check_shared_size(nest, "register", d, size)
        super().check(nest)
        for d, size in self.chunks.items():
            if d in nest.shared_dims or d not in nest.extents or not 1 <= size <= nest.extents[d]:
                raise ValueError(f"chunks[d{d}] = {size}: must be a private dimension with 1 ≤ size ≤ its extent")

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        nest_op = nest.contraction or nest.ops[-1]
        if self.register:
            lane = next((d for d in self.register if nest_op.output.stride(d) == 1), None)
            lanes = target.lanes(max(4, nest_op.element_bytes()))
            width = 1 if lane is None else self.register[lane]
            vectors = prod(self.register.values()) // width * -(-width // lanes)
            tile = " × ".join(f"d{d}: {size}" for d, size in self.register.items())
            vector_dim_text = f", vectors along d{lane}, which is contiguous in memory" if lane is not None else ""
            yield f"register tile {tile}: {vectors} of {target.vector_registers} registers of {lanes} lanes{vector_dim_text}"
        if self.chunks:
            yield f"chunk sizes along dimensions of a single op: {size_text(self.chunks)}"


@dataclass(frozen=True, kw_only=True)
class ThreadTiles(RegisterTiles):
    """A plan for tasks of one CPU thread each, with register tiles.

    Attributes:
        steps: For some ops, by position, smaller steps than the register tile, which would need too many registers.
    """

    steps: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])

    def op_steps(self, k: int) -> Mapping[int, int]:
        return {**self.chunks, **self.steps.get(k, {})}

    def check(self, nest: SizedLoopNest) -> None:
        super().check(nest)
        for k, steps in self.steps.items():
            for d, size in steps.items():
                if not 0 <= k < len(nest.ops) or d not in nest.ops[k].dims or d in nest.ops[k].reductions or size < 1:
                    raise ValueError(f"steps[{k}][d{d}] = {size}: must be a dimension that the op does not reduce")

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        yield explain_tasks(self.grid, nest, target)
        contraction = nest.contraction
        lane = next((d for d in self.register if contraction is not None and contraction.output.stride(d) == 1), None)
        if len(self.order) > 1 and lane is not None:
            is_one_panel = self.grid[lane] == self.register[lane] < nest.extents[lane]
            if self.order[-1] == lane and is_one_panel and any(self.grid[d] > size for d, size in self.register.items()):
                yield f"loop order: d{lane} innermost (all panels for the rows of a task, then the next rows)"
            elif self.order[-1] == lane:
                yield f"loop order: d{lane} innermost (all panels for a few rows, then the next rows)"
            else:
                yield f"loop order: d{lane} outside of the rows (all rows for one panel, then the next panel)"


def check_shared_size(nest: SizedLoopNest, name: str, d: int, size: int) -> None:
    """Raise ValueError unless 1 ≤ size ≤ the extent of a shared dimension; dynamic extents are only representative."""
    if d not in nest.shared_dims or size < 1 or (size > nest.extents[d] and d not in nest.dynamic_dims):
        raise ValueError(f"{name}[d{d}] = {size}: must be a shared dimension with 1 ≤ size ≤ its extent")


def explain_tasks(grid: Mapping[int, int], nest: SizedLoopNest, target: Target) -> str:
    """Return a line of text on the tasks of a CPU plan."""
    num_tasks = prod(-(-nest.extents[d] // size) for d, size in grid.items())
    grid_text = " × ".join(f"d{d}: {size}" for d, size in grid.items()) or "all"
    reason = f"a task should have at least about {target.costs.task_work:,} multiply-adds"
    return f"{num_tasks} {'task' if num_tasks == 1 else 'tasks'} of {grid_text}: {reason}"


def size_text(sizes: Mapping[int, int]) -> str:
    """Return the text of sizes by dimension: `d0: 4, d1: 8`."""
    return ", ".join(f"d{d}: {size}" for d, size in sizes.items())


def _extents(nest: SizedLoopNest, dims: Iterable[int]) -> str:
    return " × ".join(f"d{d} = {nest.extents[d]}" for d in dims) or "one element"


def _text(name: str, value: object) -> str:
    """Return the text of a field's value; keys of mappings are dimensions, except for `steps`."""
    if name == "order":
        return f"({' '.join(f'd{d}' for d in cast('tuple[int, ...]', value))})"
    if not isinstance(value, Mapping):
        return str(value)
    mapping = cast("Mapping[int, object]", value)
    prefix = "op " if name == "steps" else "d"
    return "{" + ", ".join(f"{prefix}{k}: {_text('', v)}" for k, v in mapping.items()) + "}"

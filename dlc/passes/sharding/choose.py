"""Choose shardings: an integer program for one mesh axis after another (Zheng et al., Alpa, 2022, without its pipelines).

Each op is split over one of its factors or computed by all ranks; each value is replicated or split along one of its axes.
The objective is the estimated time of the ops and of the resharding between producers, values and readers, and a price for the
memory of arguments. Annotations restrict the options.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.control import Control
from dlc.errors import DlcError
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.sharding.factors import Factors, factors_of
from dlc.passes.sharding.one_hot_program import OneHotProgram
from dlc.passes.sharding.propagate import Shardings, Spec, uniform_element
from dlc.passes.sharding.reshard import SECONDS_PER_BYTE, SECONDS_PER_COLLECTIVE, compute_seconds
from dlc.passes.sharding.varying_axes import connections

# A value's axis that is split, or None if it is replicated.
_State: TypeAlias = "int | None"
# The state of a result: "partial" for a partial sum on each rank.
_ResultState: TypeAlias = "int | Literal['partial'] | None"
# A program of 780 ops takes 2 s of an idle core.
_TIME_LIMIT_SECONDS = 60.0


def choose_shardings(
    block: Block,
    shardings: Shardings,
    donations: Sequence[tuple[SSAValue, SSAValue]],
    execution_count: Callable[[Operation], int],
    memory_price: float = 0.0,
) -> dict[SSAValue, Spec]:
    """Return the shardings of all values of a program that take the least estimated time.

    Args:
        shardings: The annotations.
        donations: Donated arguments and the results in their memory, which have one sharding.
        execution_count: Returns how often an op runs.
        memory_price: Seconds per byte of arguments that a rank stores.

    Raises UnsupportedError without scipy, and DlcError if the solver finds no solution within its time.
    """
    specs: dict[SSAValue, Spec] = {}
    parts: dict[Operation, int] = {}
    for name, size in shardings.mesh.axes:
        if size == 1:
            continue
        problem = _AxisProblem(name, size, shardings, specs, parts, execution_count, memory_price)
        problem.add_block(block, is_entry=True)
        for pair in donations:
            problem.unify(pair)
        problem.solve()
    return specs


@dataclass
class _AxisProblem:
    """The choice for one mesh axis; `specs` and `parts` are the results for the previous ones, which `solve` extends."""

    axis: str
    ranks: int
    shardings: Shardings
    specs: dict[SSAValue, Spec]
    parts: dict[Operation, int]
    execution_count: Callable[[Operation], int]
    memory_price: float
    program: OneHotProgram = field(default_factory=OneHotProgram)
    ops: list[DlOp] = field(default_factory=list[DlOp])
    boundaries: list[ShardMapBoundary] = field(default_factory=list[ShardMapBoundary])
    arguments: list[SSAValue] = field(default_factory=list[SSAValue])
    sequences: list[tuple[Operation, SSAValue, SSAValue]] = field(default_factory=list[tuple[Operation, SSAValue, SSAValue]])
    replicated: list[tuple[Operation, SSAValue]] = field(default_factory=list[tuple[Operation, SSAValue]])
    # Values with one sharding: the next member of the group, and all members by the last one.
    _representative: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    _members: dict[SSAValue, set[SSAValue]] = field(default_factory=lambda: defaultdict(set))
    # The choice of each group, and its states.
    _choices: dict[SSAValue, tuple[int, list[_State]]] = field(default_factory=dict[SSAValue, tuple[int, "list[_State]"]])

    # Collection

    def add_block(self, block: Block, is_entry: bool = False) -> None:
        """Collect the ops of a block and of its bodies."""
        if is_entry:
            self.arguments += block.args
        for op in block.ops:
            if isinstance(op, ShardMapBoundary):
                self.boundaries.append(op)
            elif isinstance(op, Control):
                self._add_control(op)
            elif isinstance(op, DlOp) and op.operands and not self.shardings.varying.is_local(op):
                self.ops.append(op)

    def _add_control(self, op: Control) -> None:
        for body in op.blocks:
            self.add_block(body)
        elements: set[SSAValue] = set()
        if isinstance(op, dl.ScanOp):
            states = op.state_count
            inputs = zip(op.operands[states:], op.block.args[states:], strict=True)
            outputs = zip(op.results[states:], op.yielded[states:], strict=True)
            self.sequences += [(op, sequence, element) for sequence, element in (*inputs, *outputs)]
            elements = {*op.block.args[states:], *op.results[states:]}
        known = {dl.ScanOp, dl.WhileOp, dl.IfOp}
        self.replicated += [(op, v) for v in op.operands if type(op) not in known]
        for value, sources in connections(op) if type(op) in known else ():
            if value not in elements:
                self.unify((value, *(v for v in sources if shape_of(v) == shape_of(value))))

    def unify(self, values: Sequence[SSAValue]) -> None:
        """Give values one sharding."""
        first = self._find(values[0])
        for root in map(self._find, values[1:]):
            if root is not first:
                self._representative[root] = first

    def _find(self, value: SSAValue) -> SSAValue:
        while (parent := self._representative.get(value, value)) is not value:
            value = parent
        return value

    # States

    def spec(self, value: SSAValue) -> Spec:
        """Return the sharding over the previous mesh axes."""
        return self.specs.get(value, ((),) * rank_of(value))

    def bytes(self, value: SSAValue) -> float:
        """Return the bytes of a value on one rank before it is split over this mesh axis."""
        count = prod(size for size in shape_of(value) if isinstance(size, int))
        parts = prod(map(self.shardings.mesh.shard_count, self.spec(value)))
        return count * numpy_dtype(element_type_of(value)).itemsize / parts

    def is_divisible(self, value: SSAValue, axis: int) -> bool:
        size, parts = shape_of(value)[axis], self.shardings.mesh.shard_count(self.spec(value)[axis])
        return isinstance(size, int) and size % (parts * self.ranks) == 0

    def states(self, value: SSAValue) -> list[_State]:
        """Return the states that the annotations allow."""
        closed = self.shardings.annotated_axes(value)
        annotated = self.shardings.of(value)
        if (fixed := next((k for k in closed if self.axis in annotated[k]), None)) is not None:
            return [fixed]
        return [None, *(k for k in range(rank_of(value)) if k not in closed and self.is_divisible(value, k))]

    def seconds(self, value: SSAValue, source: _ResultState, target: _State) -> float:
        """Return the estimated time of resharding a value from one state to another."""
        if source == target or source is None:
            return 0.0
        size, other_ranks = self.bytes(value), (self.ranks - 1) / self.ranks
        if source == "partial":
            sent_bytes = 2 * size * other_ranks if target is None else size * other_ranks
        else:
            sent_bytes = size * other_ranks if target is None else size / self.ranks * other_ranks
        return SECONDS_PER_COLLECTIVE + sent_bytes * SECONDS_PER_BYTE

    # The program

    def solve(self) -> None:
        """Solve the program, and extend `specs` and `parts`. Raises DlcError if no solution is found in time."""
        for value in (*self._representative, *self._representative.values()):
            self._members[self._find(value)].add(value)
        strategies = [self._add_op(op) for op in self.ops]
        for op in self.boundaries:
            self._add_boundary(op)
        for op, sequence, element in self.sequences:
            self._add_sequence(op, sequence, element)
        for op, value in self.replicated:
            self._add_requirement(op, value, None)
        for argument in self.arguments if self.memory_price else ():
            choice, states = self._choice(argument)
            price = self.memory_price * self.bytes(argument)
            self.program.add_costs(choice, [price if s is None else price / self.ranks for s in states])
        solution = self.program.solve(_TIME_LIMIT_SECONDS)
        if solution is None:
            raise DlcError(
                f"auto=True: no shardings of {len(self.ops)} ops over {self.axis!r} found within {_TIME_LIMIT_SECONDS:g} s; "
                "annotate some arguments by in_shardings"
            )
        for op, (choice, factors) in zip(self.ops, strategies, strict=True):
            if factors[solution[choice]] is not None:
                self.parts[op] = self.parts.get(op, 1) * self.ranks
        by_value = {v: self._choices[r] for v in self._values() if (r := self._find(v)) in self._choices}
        for value, (choice, states) in by_value.items():
            state, spec = states[solution[choice]], self.spec(value)
            self.specs[value] = tuple((*axes, self.axis) if k == state else axes for k, axes in enumerate(spec))

    def _values(self) -> list[SSAValue]:
        """Return the values of the collected ops and bodies, without those that all readers compute."""
        values = dict.fromkeys([*self.arguments, *self._choices, *self._representative])
        for op in self.ops:
            values.update(dict.fromkeys((*op.operands, *op.results)))
        return [v for v in values if rank_of(v) and uniform_element(v) is None and self.shardings.varying.of(v) is None]

    def _choice(self, value: SSAValue) -> tuple[int, list[_State]]:
        """Return the choice of a value and its states; unified values share it."""
        representative = self._find(value)
        if representative not in self._choices:
            own = self.states(representative)
            states = [s for s in own if all(s in self.states(v) for v in self._members[representative])] or own
            self._choices[representative] = self.program.choice([0.0] * len(states)), states
        return self._choices[representative]

    def _add_op(self, op: DlOp) -> tuple[int, list[_State]]:
        """Add the choice of a factor; return it with the factors."""
        factors = factors_of(op)
        pairs = [*zip(op.operands, factors.operands, strict=True), *zip(op.results, factors.results, strict=True)]
        candidates = {f for _, axes in pairs for f in axes if f is not None}
        divisible = [
            f
            for f in sorted(candidates)
            if all(self.is_divisible(v, k) for v, axes in pairs for k, g in enumerate(axes) if g == f)
        ]
        options: list[_State] = [None, *divisible]
        times, seconds = self.execution_count(op), compute_seconds(op) / self.parts.get(op, 1)
        seconds = 0.0 if isinstance(op, dl.ShardOp) else seconds
        costs = [times * seconds / (1 if f is None or f == factors.rows else self.ranks) for f in options]
        choice = self.program.choice(costs)
        for value, axes in zip(op.operands, factors.operands, strict=True):
            if rank_of(value) and uniform_element(value) is None:
                wanted = [axes.index(f) if f in axes and f is not None else None for f in options]
                states = self._choice(value)[1]
                self._add_edge(value, choice, [[times * self.seconds(value, s, w) for w in wanted] for s in states])
        for value, axes in zip(op.results, factors.results, strict=True):
            if rank_of(value) and uniform_element(value) is None:
                produced: list[_ResultState] = [_produced(f, axes, factors) for f in options]
                states = self._choice(value)[1]
                self._add_edge(value, choice, [[times * self.seconds(value, p, s) for p in produced] for s in states])
            elif not rank_of(value):
                partial: list[_ResultState] = [_produced(f, axes, factors) for f in options]
                self.program.add_costs(choice, [times * self.seconds(value, p, None) for p in partial])
        return choice, options

    def _add_edge(self, value: SSAValue, choice: int, costs: Sequence[Sequence[float]]) -> None:
        """Add costs by the state of a value, and the option of a choice."""
        self.program.add_pair(self._choice(value)[0], choice, np.array(costs))

    def _add_boundary(self, op: ShardMapBoundary) -> None:
        fixed = next((k for k, axes in enumerate(op.mesh_axes) if self.axis in axes), None)
        if isinstance(op, dl.ToShardsOp):
            self._add_requirement(op, op.x, fixed)

    def _add_requirement(self, op: Operation, value: SSAValue, target: _State) -> None:
        """Add the cost of reading a value in the state `target`."""
        if rank_of(value) and uniform_element(value) is None and self.shardings.varying.of(value) is None:
            choice, states = self._choice(value)
            times = self.execution_count(op)
            self.program.add_costs(choice, [times * self.seconds(value, s, target) for s in states])

    def _add_sequence(self, op: Operation, sequence: SSAValue, element: SSAValue) -> None:
        """Add the cost of resharding the sequence of a loop to the sharding of its elements."""
        if rank_of(element) and self.shardings.varying.joined((sequence, element)) is None:
            choice, states = self._choice(element)
            times = self.execution_count(op)
            targets = [None if s is None else s + 1 for s in states]
            costs = [[times * self.seconds(sequence, s, t) for t in targets] for s in self._choice(sequence)[1]]
            self._add_edge(sequence, choice, costs)


def _produced(f: _State, axes: Sequence[int | None], factors: Factors) -> _ResultState:
    """Return the state of a result of an op that is split over a factor."""
    if f is None:
        return None
    if f in factors.reduced:
        return "partial"
    return axes.index(f) if f in axes else None

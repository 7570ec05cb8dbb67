"""Lanes: the indices of an axis along which all values of a loop are independent, such as the batch axis of `vmap`.

Note [Lanes of while loops] A batched while loop runs until no lane runs: its condition is `any(running)`, and a state of a lane
that does not run keeps its value. One lane may therefore end its loop earlier. This is so if the next `running` is the
conjunction of the current one and a condition, and every other state is unchanged or selected by `running`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.logic import AndOp
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.creation import ConstantOp, IotaOp
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise, Reduction
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp
from dlc.dialects.dl.programs.control import IfOp, ScanOp, WhileOp, captured_values
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp
from dlc.ir import AffineDimExpr, Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat
from dlc.passes.loop_kernels.elements import NotLowerableError, is_small_constant, static_shape

# Minimum lanes: fewer are elements of a single kernel.
_MIN_LANES = 16


class Lanes:
    """The lane axis of each value of loops and of the ops between them. Values without one are uniform: equal in all lanes.

    Raises NotLowerableError if the loops have no lanes.
    """

    def __init__(self, block: Block) -> None:
        states = [v for op in block.ops if isinstance(op, ScanOp | WhileOp) for v in _states(op)]
        sizes = {shape[0] for v in states if (shape := static_shape(v)) and shape[0] >= _MIN_LANES}
        if len(sizes) != 1:
            raise NotLowerableError("its states have no common axis of lanes")
        self.count: int = sizes.pop()
        self.axes: dict[SSAValue, int] = {}
        # For each while loop, the state that masks the running lanes.
        self.running: dict[WhileOp, int] = {}
        # Divergent conditions, whose tensors have no lane axis.
        self._conditions: set[SSAValue] = set()
        captured = captured_values(block)
        self._sequences = _sequences_only(block, captured)
        for value in captured:
            if value not in self._sequences:
                self._assume(value)
        for op in block.ops:
            self._visit(op)

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """Return the shape of one lane of a value: the size of its lane axis is 1."""
        axis, shape = self.axes.get(value), static_shape(value)
        return shape if axis is None else (*shape[:axis], 1, *shape[axis + 1 :])

    def _assume(self, value: SSAValue) -> None:
        """Assume that the first axis of a captured value is its lane axis, if it has the number of lanes as its size.

        A constant is computed in the kernel, and must be uniform.
        """
        is_lane_constant = isinstance(value.owner, ConstantOp) and splat(value) is None
        if static_shape(value)[:1] == (self.count,) and not is_lane_constant:
            self.axes[value] = 0

    def _require(self, condition: bool, op: Operation) -> None:
        if not condition:
            raise NotLowerableError(f"{op.name} combines lanes")

    # Loops and branches

    def _loop(self, loop: ScanOp | WhileOp) -> None:
        states = _states(loop)
        count = len(states)
        for argument, value in zip(loop.block.args[:count], states, strict=True):
            if value in self.axes:
                self.axes[argument] = self.axes[value]
        for argument, sequence in zip(loop.block.args[count:], loop.arguments[count:], strict=True):
            if isinstance(sequence.owner, IotaOp):
                continue
            if sequence in self._sequences and sequence not in self.axes:
                if not is_small_constant(sequence):
                    self._assume(argument)
                if argument in self.axes:
                    self.axes[sequence] = self.axes[argument] + 1
            elif sequence in self.axes:
                self._require(self.axes[sequence] > 0, loop)
                self.axes[argument] = self.axes[sequence] - 1
        for op in loop.block.ops:
            self._visit(op)
        yielded = loop.yielded if isinstance(loop, ScanOp) else loop.yielded[1:]
        for k, (value, result) in enumerate(zip(yielded, loop.results, strict=True)):
            axis = self.axes.get(value)
            if k < count:
                self._require(axis == self.axes.get(loop.block.args[k]) and value not in self._conditions, loop)
            if axis is not None:
                self.axes[result] = axis if k < count else axis + 1
        if isinstance(loop, WhileOp):
            self._while(loop)

    def _while(self, loop: WhileOp) -> None:
        """Check Note [Lanes of while loops], unless the trip count is uniform."""
        condition, *states = loop.yielded
        if condition not in self._conditions:
            return
        mask = _any_of(condition)
        self._require(mask in states, loop)
        position = states.index(mask) if mask is not None else 0
        running = loop.block.args[position]
        self._require(_any_of(loop.condition) is loop.arguments[position], loop)
        for argument, state in zip(loop.block.args, states, strict=True):
            owner = state.owner
            if state is mask:
                self._require(isinstance(owner, AndOp) and running in owner.operands, loop)
            elif state is not argument:
                is_guarded = (
                    isinstance(owner, SelectOp) and _unreshaped(owner.operands[0]) is running and owner.operands[2] is argument
                )
                self._require(is_guarded, loop)
        self.running[loop] = position

    def _branch(self, op: IfOp) -> None:
        self._require(op.condition not in self.axes and op.condition not in self._conditions and bool(op.results), op)
        yields: list[Sequence[SSAValue]] = []
        for block in op.blocks:
            yields.append(self._body(block))
        for result, *values in zip(op.results, *yields, strict=True):
            axes = {self.axes.get(v) for v in values}
            self._require(len(axes) == 1 and not self._conditions.intersection(values), op)
            if (axis := axes.pop()) is not None:
                self.axes[result] = axis

    def _body(self, block: Block) -> Sequence[SSAValue]:
        for op in block.ops:
            self._visit(op)
        assert isinstance(block.last_op, YieldOp)
        return block.last_op.values

    # Ops

    def _visit(self, op: Operation) -> None:
        match op:
            case YieldOp():
                return
            case ScanOp() | WhileOp():
                self._loop(op)
                return
            case IfOp():
                self._branch(op)
                return
            case ReshapeOp() if op.x in self._conditions:
                self._conditions.add(op.result)
                return
            case ReduceAnyOp() if self.axes.get(op.operands[0]) in op.reduction_axes:
                self._require(len(op.reduction_axes) == 1 == len(static_shape(op.operands[0])), op)
                self._conditions.add(op.results[0])
                return
            case DlOp():
                self._require(not self._conditions.intersection(op.operands), op)
            case _:
                raise NotLowerableError(f"{op.name} cannot run inside a kernel")
        if not any(v in self.axes for v in op.operands):
            self._splat(op)
            return
        axis = self._result_axis(op)
        self._require(static_shape(op.results[0])[axis] == self.count, op)
        self.axes[op.results[0]] = axis

    def _splat(self, op: DlOp) -> None:
        """Assign a lane axis to a broadcast value or constant."""
        if isinstance(op, ConstantOp):
            self._assume(op.results[0])
        if isinstance(op, DataMovement) and static_shape(op.results[0])[:1] == (self.count,):
            used = {e.position for e in op.source_map().results if isinstance(e, AffineDimExpr)}
            if 0 not in used:
                self.axes[op.results[0]] = 0

    def _result_axis(self, op: DlOp) -> int:
        """Return the lane axis of an op's result; raise NotLowerableError if the op combines lanes."""
        match op:
            case Elementwise():
                rank = len(static_shape(op.results[0]))
                axes = {rank - len(static_shape(v)) + self.axes[v] for v in op.operands if v in self.axes}
                self._require(len(axes) == 1, op)
                axis = axes.pop()
                for v in op.operands:
                    own = axis - (rank - len(static_shape(v)))
                    self._require(v in self.axes or own < 0 or static_shape(v)[own] == 1, op)
                return axis
            case DataMovement():
                results = op.source_map().results
                lane = results[self.axes[op.operands[0]]]
                self._require(isinstance(lane, AffineDimExpr), op)
                assert isinstance(lane, AffineDimExpr)
                self._require(sum(e == lane for e in results) == 1, op)
                return lane.position
            case ReshapeOp():
                self._require(self.axes[op.x] == 0 and static_shape(op.result)[:1] == (self.count,), op)
                return 0
            case ConcatOp():
                axes = {self.axes.get(v) for v in op.operands}
                axis = axes.pop()
                self._require(not axes and axis is not None and axis != op.concat_axis, op)
                return axis if axis is not None else 0
            case PadOp():
                axis = self.axes.get(op.x, -1)
                self._require(op.value not in self.axes and op.padding[axis] == (0, 0), op)
                return axis
            case Reduction():
                axis = self.axes[op.operands[0]]
                self._require(axis not in op.reduction_axes, op)
                return axis if op.keeps_reduced_axes else axis - sum(a < axis for a in op.reduction_axes)
            case Contraction():
                return self._contraction_axis(op)
            case _:
                raise NotLowerableError(f"{op.name} combines lanes")

    def _contraction_axis(self, op: Contraction) -> int:
        structure = op.structure()
        *maps, result = structure.maps
        lanes = {map_.results[self.axes[v]] for v, map_ in zip(op.operands, maps, strict=True) if v in self.axes}
        self._require(len(lanes) == 1, op)
        lane = lanes.pop()
        self._require(isinstance(lane, AffineDimExpr) and lane in result.results, op)
        assert isinstance(lane, AffineDimExpr)
        for v, map_ in zip(op.operands, maps, strict=True):
            self._require(v in self.axes or lane.position not in map_.used_dims(), op)
        return result.results.index(lane)


def _states(loop: ScanOp | WhileOp) -> Sequence[SSAValue]:
    return loop.arguments[: loop.state_count] if isinstance(loop, ScanOp) else loop.arguments


def _sequences_only(block: Block, values: Sequence[SSAValue]) -> set[SSAValue]:
    """Return those of the values that a block reads only as sequences of scans: their lane axis follows from the elements."""
    sequences, others = set[SSAValue](), set[SSAValue]()
    for op in block.walk():
        count = op.state_count if isinstance(op, ScanOp) else len(op.operands)
        sequences.update(op.operands[count:])
        others.update(op.operands[:count])
    return sequences.intersection(values) - others


def _any_of(condition: SSAValue) -> SSAValue | None:
    """Return the mask whose `any` a condition is."""
    value = _unreshaped(condition)
    return value.owner.operands[0] if isinstance(value.owner, ReduceAnyOp) else None


def _unreshaped(value: SSAValue) -> SSAValue:
    return value.owner.x if isinstance(value.owner, ReshapeOp) else value

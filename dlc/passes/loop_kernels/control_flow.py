"""Lowering of loops and branches: states in registers are loop-carried values, arrays are updated in place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.interfaces import DataDependent, LibraryKernel
from dlc.dialects.dl.programs.control import FailOp, IfOp, ScanOp, WhileOp, read_values
from dlc.dialects.dl.programs.program import YieldOp
from dlc.ir import Block, Operation, Region, SSAValue, arith, i64, index, scf
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.loop_kernels.element_body import Range
from dlc.passes.loop_kernels.element_ops import ElementOps
from dlc.passes.loop_kernels.elements import (
    MAX_REGISTER_ELEMENTS,
    ArrayInMemory,
    Elements,
    LoopValue,
    NotLowerableError,
    copy_buffer,
    element_storage,
    load,
    load_all,
    new_elements,
    static_shape,
    store,
    store_all,
)
from dlc.passes.loop_kernels.lanes import Lanes
from dlc.passes.loop_kernels.schedule import overwritten_values, scheduled
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.types import memref_of

# The predicate number of `arith.cmpi ult`.
_ULT = 6
# Maximum bytes of an array that is local to a loop.
_MAX_LOCAL_BYTES = 1 << 14


class Failures:
    """The failing branches of a loop. The kernel records the first one that is taken, and its message values.

    `sites` are the `dl.fail` ops; element 0 of `record` is the number of the failure, counted from 1, or 0, and the values
    follow.
    """

    def __init__(self) -> None:
        self.sites: list[FailOp] = []
        self.record: SSAValue | None = None

    @property
    def record_size(self) -> int:
        """The number of elements of the record."""
        return 1 + max((len(site.message_values) for site in self.sites), default=0)


class LoopLowering:
    """Lowers the ops of a loop into a kernel, or those of one lane into a grid point. `values` are the values that it reads."""

    def __init__(self, builder: KernelBuilder, failures: Failures, lanes: Lanes | None, lane: SSAValue | None) -> None:
        self.builder = builder
        self.values: dict[SSAValue, LoopValue] = {}
        self.failures = failures
        self._lanes, self._lane = lanes, lane
        self.shape = static_shape if lanes is None else lanes.shape
        self._elements = ElementOps(builder, self.values, self.shape)
        # Conditions that are known to hold, since the failing branch of an earlier check was not taken.
        self._checked: set[SSAValue] = set()
        # Arrays that the kernel may overwrite: results and local buffers.
        self.writable: set[SSAValue] = set()
        # The buffers of the kernel's results.
        self.result_buffers: dict[SSAValue, SSAValue] = {}
        # Local buffers with an element per lane, and their lane axes.
        self.lane_buffers: dict[SSAValue, int] = {}

    # Blocks

    def run(self, block: Block) -> Sequence[SSAValue]:
        """Lower the ops of a body; return the values that it yields."""
        for op in scheduled(block, self.shape):
            self.lower(op)
        assert isinstance(block.last_op, YieldOp)
        return block.last_op.values

    def lower(self, op: Operation) -> None:
        """Lower one op."""
        match op:
            case ScanOp():
                self._scan(op)
            case WhileOp():
                self._while(op)
            case IfOp() if any(isinstance(b.last_op, FailOp) for b in op.blocks):
                self._check(op)
            case IfOp():
                self._branch(op)
            case DlOp() if not isinstance(op, DataDependent | LibraryKernel):
                in_place = any(self._may_overwrite(v) for v in overwritten_values(op, self.shape))
                self._elements.lower(op, in_place=in_place)
            case _:
                raise NotLowerableError(f"{op.name} cannot run inside a kernel")

    def _may_overwrite(self, value: SSAValue) -> bool:
        array = self.values[value]
        return isinstance(array, ArrayInMemory) and array.buffer in self.writable

    @contextmanager
    def _inside(self, builder: OpBuilder, states: Sequence[LoopValue] | None = None) -> Generator[None]:
        """Insert at another insertion point inside the `with` block, such as the body of a loop with these states.

        The body of a loop may overwrite its states and its own local arrays only: it runs again, and reads others as they were.
        """
        ranges = self._elements.ranges
        outer = self.builder.op_builder, self._elements.spilled, self._checked, ranges.checked, self.writable
        self.builder.op_builder = builder
        self._elements.spilled, self._checked, ranges.checked = dict(outer[1]), set(outer[2]), dict(outer[3])
        if states is not None:
            self.writable = {state.buffer for state in states if isinstance(state, ArrayInMemory)}
        yield
        self.builder.op_builder, self._elements.spilled, self._checked, ranges.checked, self.writable = outer

    # Loops

    def _scan(self, op: ScanOp) -> None:
        """Lower a scan. Large results are stored in the buffers of the kernel's results, or in local buffers."""
        steps, count = op.steps, op.state_count
        if not isinstance(steps, int):
            raise NotLowerableError("it has a symbolic number of steps")
        stacked = [
            None if r.first_use is None else self.array(r, self.result_buffers.get(r) or self._local(r))
            for r in op.results[count:]
        ]
        initial = [self._initial_state(v, r, op) for v, r in zip(op.arguments[:count], op.results, strict=False)]
        registers = self._flat(initial)
        b = self.builder.op_builder
        loop = b.loop(0, steps, 1, registers, name="step")
        induction, *carried = loop.body.block.args
        with self._inside(b.at_block_end(loop.body.block), initial):
            inner = self.builder.op_builder
            position = inner.value(inner.subtract(steps - 1, induction) if op.is_reverse else induction)
            self._elements.ranges[position] = Range(0, steps - 1, position)
            self._bind(op.block.args[:count], initial, carried)
            for argument, sequence in zip(op.block.args[count:], op.arguments[count:], strict=True):
                if argument.first_use is not None:
                    self.values[argument] = self._element(sequence, position)
            yielded = self.run(op.block)
            for value, array in zip(yielded[count:], stacked, strict=True):
                if array is not None:
                    self._store(self.values[value], array.at(position))
            self.builder.op_builder.yield_(*self._next_states(yielded[:count], initial))
        self._bind(op.results[:count], initial, loop.results)
        self.values.update((r, array) for r, array in zip(op.results[count:], stacked, strict=True) if array is not None)

    def _while(self, op: WhileOp) -> None:
        """Lower a while loop; it ends at a failure, and does not begin after one: its values might let it run forever."""
        initial = [self._initial_state(v, r, op) for v, r in zip(op.arguments, op.results, strict=True)]
        condition = self._scalar(self._initial_condition(op))
        if self.failures.record is not None:
            condition = scalar.bit_and(self._elements.body(), condition, self._has_not_failed())
        registers = [condition, *self._flat(initial)]
        types = [v.type for v in registers]
        before, after = Block(arg_types=types), Block(arg_types=types[1:])
        before.add_op(scf.ConditionOp(before.args[0], *before.args[1:]))
        loop = scf.WhileOp(registers, types[1:], Region(before), Region(after))
        b = self.builder.op_builder
        b.insert(loop)
        num_sites = len(self.failures.sites)
        with self._inside(b.at_block_end(after), initial):
            self._bind(op.block.args, initial, after.args)
            continues, *states = self.run(op.block)
            condition = self._scalar(continues)
            if len(self.failures.sites) > num_sites:
                condition = scalar.bit_and(self._elements.body(), condition, self._has_not_failed())
            self.builder.op_builder.yield_(condition, *self._next_states(states, initial))
        self._bind(op.results, initial, loop.res)

    def _initial_condition(self, op: WhileOp) -> SSAValue:
        """Return the condition of a loop, or of one lane: Note [Lanes of while loops]."""
        running = None if self._lanes is None else self._lanes.running.get(op)
        return op.condition if running is None else op.arguments[running]

    def _initial_state(self, value: SSAValue, result: SSAValue, loop: Operation) -> LoopValue:
        """Return the initial value of a state: in registers if it is small, else in an array that the loop may update."""
        state, buffer = self.values[value], self.result_buffers.get(result)
        if prod(self.shape(value)) <= MAX_REGISTER_ELEMENTS:
            return state if isinstance(state, Elements) else load_all(self.builder, state)
        if not isinstance(state, ArrayInMemory):
            raise NotLowerableError("a large state is computed inside the loop")
        if buffer is None:
            if state.buffer in self.writable and not state.prefix and self._num_reads(loop, state) == 1:
                return state
            buffer = self._local(value)
        if self._lanes is not None:
            raise NotLowerableError("a lane has a large state")
        if state.prefix:
            raise NotLowerableError("a large state is an element of a sequence")
        copy_buffer(self.builder, state.buffer, buffer)
        self.writable.add(buffer)
        return ArrayInMemory(buffer)

    def _num_reads(self, loop: Operation, array: ArrayInMemory) -> int:
        """Return how many operands and captured values of a loop are in the buffer of an array."""
        values = (self.values.get(v) for v in read_values(loop))
        return sum(isinstance(v, ArrayInMemory) and v.buffer is array.buffer for v in values)

    def _next_states(self, values: Sequence[SSAValue], initial: Sequence[LoopValue]) -> list[SSAValue]:
        """Return the registers of the next states; arrays must have been updated in place."""
        states: list[LoopValue] = []
        for value, first in zip(values, initial, strict=True):
            state = self.values[value]
            if isinstance(first, Elements):
                states.append(state if isinstance(state, Elements) else load_all(self.builder, state))
            elif state is not first:
                raise NotLowerableError("a large state is replaced by another array")
        return self._flat(states)

    def _flat(self, values: Sequence[LoopValue]) -> list[SSAValue]:
        """Return the registers of values."""
        return [element for v in values if isinstance(v, Elements) for element in v.array.reshape(-1)]

    def _bind(self, values: Sequence[SSAValue], like: Sequence[LoopValue], registers: Sequence[SSAValue]) -> None:
        """Bind values to registers, with the shapes of other values; arrays stay in memory."""
        start = 0
        for value, first in zip(values, like, strict=True):
            if isinstance(first, ArrayInMemory):
                self.values[value] = first
                continue
            elements = new_elements(first.shape)
            size = elements.size
            elements.reshape(-1)[:] = registers[start : start + size]
            self.values[value] = Elements(elements)
            start += size

    def _element(self, sequence: SSAValue, position: Index) -> LoopValue:
        """Return an element of a sequence; small ones are loaded to registers."""
        shape = self.shape(sequence)[1:]
        source = self.values.get(sequence)
        if isinstance(source, ArrayInMemory):
            element = source.at(position)
            return element if prod(shape) > MAX_REGISTER_ELEMENTS else load_all(self.builder, element)
        elements = new_elements(shape)
        if source is None:
            assert isinstance(sequence.owner, IotaOp)
            index = self.builder.op_builder.value(position)
            return Elements(np.array(sequence.owner.gather(self._elements.body(), [], [index]), object))
        read = self._elements.reader(sequence)
        for k in np.ndindex(*shape):
            elements[k] = read((position, *k))
        return Elements(elements)

    def _store(self, value: LoopValue, array: ArrayInMemory) -> None:
        """Store a value to an element of a result sequence."""
        if isinstance(value, Elements):
            return store_all(self.builder, value, array)
        raise NotLowerableError("an element of a result sequence is large")

    def store_result(self, result: SSAValue, buffer: SSAValue) -> None:
        """Store a result of the kernel to its buffer, unless it was computed in place."""
        value = self.values[result]
        if isinstance(value, Elements):
            store_all(self.builder, value, self.array(result, buffer))
        elif value.buffer is not buffer:
            raise NotLowerableError("a result is another array")

    def array(self, value: SSAValue, buffer: SSAValue) -> ArrayInMemory:
        """Return the array of a value in a buffer of its shape, or that of the current lane."""
        axis = None if self._lanes is None else self._lanes.axes.get(value)
        return ArrayInMemory(buffer) if axis is None else ArrayInMemory(buffer, lane_axis=axis, lane=self._lane)

    def _local(self, value: SSAValue) -> SSAValue:
        """Return a local array for a value."""
        element, shape = element_storage(value), static_shape(value)
        if self._lanes is not None and value in self._lanes.axes:
            buffer = self.builder.op_builder.alloca(element, shape)
            self.lane_buffers[buffer] = self._lanes.axes[value]
            self.writable.add(buffer)
            return buffer
        if prod(shape) * max(1, cast(Any, element).bitwidth // 8) > _MAX_LOCAL_BYTES:
            raise NotLowerableError(f"it needs a local array of shape {shape}")
        buffer = self.builder.op_builder.alloca(element, shape)
        self.writable.add(buffer)
        return buffer

    def _scalar(self, value: SSAValue) -> SSAValue:
        """Return the value of a rank-0 tensor."""
        state = self.values[value]
        if isinstance(state, ArrayInMemory):
            return load(self.builder, state, [0] * len(state.shape))
        return state.array.reshape(-1)[0]

    # Branches

    def _branch(self, op: IfOp) -> None:
        """Lower a branch whose results are in registers, or arrays that it updates in place."""
        condition = self._scalar(op.condition)
        b = self.builder.op_builder
        blocks = [Block(), Block()]
        results: list[list[LoopValue]] = []
        for block, source in zip(blocks, op.blocks, strict=True):
            with self._inside(b.at_block_end(block)):
                values = [self.values[v] for v in self.run(source)]
                values = [
                    load_all(self.builder, v) if isinstance(v, ArrayInMemory) and prod(v.shape) <= MAX_REGISTER_ELEMENTS else v
                    for v in values
                ]
                self.builder.op_builder.yield_(*self._flat(values))
                results.append(values)
        for x, y in zip(*results, strict=True):
            if isinstance(x, ArrayInMemory) and x is not y:
                raise NotLowerableError("the bodies of a branch yield different arrays")
        types = [v.type for v in self._flat(results[0])]
        branch = scf.IfOp(condition, types, Region(blocks[0]), Region(blocks[1]))
        b.insert(branch)
        self._bind(op.results, results[0], branch.output)

    def _check(self, op: IfOp) -> None:
        """Lower a branch with a failing body, and continue with the other body."""
        fails = [isinstance(block.last_op, FailOp) for block in op.blocks]
        if all(fails) or op.results or len(op.blocks[fails.index(False)].ops) > 1:
            raise NotLowerableError("a branch that computes values may fail")
        condition = self._scalar(op.condition)
        if fails[0]:
            condition = scalar.bit_not(self._elements.body(), condition)
        if condition in self._checked or scalar.constant_integer(condition) == 1:
            return
        self._checked.add(condition)
        block = op.blocks[fails.index(True)]
        assert isinstance(block.last_op, FailOp)
        self.failures.sites.append(block.last_op)
        if len(block.last_op.message_values) >= memref_of(cast(SSAValue, self.failures.record)).get_shape()[0]:
            raise NotLowerableError("a failure has many message values")
        index_check = _index_of_check(condition)
        if index_check is None:
            self._record_failure(condition, block, len(self.failures.sites))
            return
        # Indices within the axis pass by one comparison; negative ones, which count from the end, take the other path.
        integer, size = index_check
        b = self.builder.op_builder
        size_constant = scalar.like(self._elements.body(), size, integer)
        is_usual = self._elements.body()(arith.CmpiOp(integer, size_constant, "ult"))
        usual, other = Block(), Block()
        b.at_block_end(usual).yield_(integer)
        with self._inside(b.at_block_end(other)):
            self._record_failure(condition, block, len(self.failures.sites))
            body = self._elements.body()
            from_end = scalar.add(body, integer, size_constant)
            self.builder.op_builder.yield_(scalar.select(body, condition, from_end, scalar.like(body, 0, integer)))
        branch = scf.IfOp(is_usual, [integer.type], Region(usual), Region(other))
        b.insert(branch)
        self._elements.ranges[branch.output[0]] = Range(0, size - 1)
        checked = self._elements.body()(arith.IndexCastOp(branch.output[0], index))
        narrow = integer.owner.input if isinstance(integer.owner, arith.ExtSIOp) else integer
        self._elements.ranges.checked |= {(integer, size): checked, (narrow, size): checked}

    def _record_failure(self, condition: SSAValue, block: Block, number: int) -> None:
        """Record failure `number`, whose body is a block, if a condition does not hold and no failure is recorded so far."""
        record = self.failures.record
        assert record is not None and isinstance(block.last_op, FailOp)
        with (
            self._inside(self.builder.op_builder.branch(scalar.bit_not(self._elements.body(), condition))),
            self._inside(self.builder.op_builder.branch(self._has_not_failed())),
        ):
            for inner in scheduled(block, self.shape):
                self.lower(inner)
            store(self.builder, scalar.constant(self._elements.body(), number, i64), ArrayInMemory(record), (0,))
            for k, value in enumerate(block.last_op.message_values):
                store(self.builder, self._scalar(value), ArrayInMemory(record), (1 + k,))

    def _has_not_failed(self) -> SSAValue:
        """Return whether no failure is recorded so far."""
        assert self.failures.record is not None
        body = self._elements.body()
        number = load(self.builder, ArrayInMemory(self.failures.record), (0,))
        return scalar.compare_with(body, "eq", number, 0, i64)


def _index_of_check(condition: SSAValue) -> tuple[SSAValue, int] | None:
    """Return the integer that `integer + size < 2 · size` (unsigned) checks, and the size; None for other conditions."""
    compare = condition.owner
    if not isinstance(compare, arith.CmpiOp) or compare.predicate.value.data != _ULT:
        return None
    total, limit = compare.lhs.owner, scalar.constant_integer(compare.rhs)
    if not isinstance(total, arith.AddiOp) or limit is None or limit % 2 or scalar.constant_integer(total.rhs) != limit // 2:
        return None
    return total.lhs, limit // 2

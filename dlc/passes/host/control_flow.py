"""Bufferize the blocks of host programs: dispatches become launches; loops and branches pass buffers instead of values."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import cast

from dlc.dialects import host
from dlc.dialects.dl.base import shape_of, tensor_of
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.low_precision.packed_dot import ViewAsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import FailOp, IfOp, LoopLikeOp, PrintOp, ScanOp, WhileOp
from dlc.dialects.dl.programs.identities import AddDependencyOp
from dlc.dialects.dl.programs.program import DispatchOp, YieldOp, output_aliases
from dlc.ir import Attribute, Block, IntegerAttr, MemRefType, Operation, SSAValue, StridedLayoutAttr, f32, i64, memref
from dlc.passes.dl.rewriting import is_unspecified
from dlc.passes.views import concat_operand_offsets, in_place_updates, is_last_state, source_of
from dlc.shapes.dims import Size, is_symbol, product, row_major


def buffer_type(value: SSAValue) -> MemRefType[Attribute]:
    """Return the buffer type of a tensor."""
    t = tensor_of(value)
    return _buffer_type(t.element_type, t.get_shape())


@lru_cache(maxsize=1024)
def _buffer_type(element_type: Attribute, shape: tuple[int, ...]) -> MemRefType[Attribute]:
    return MemRefType(element_type, shape)


@cache
def _static_alloc_properties() -> Mapping[str, Attribute]:
    """Return the properties of an allocation of static shape."""
    return memref.AllocOp([], [], MemRefType(f32, ())).properties


def writes_to_destination(value: SSAValue) -> bool:
    """Return whether the op that defines a value can write it to an existing buffer."""
    return isinstance(value.owner, DispatchOp | IfOp | ScanOp | Collective) and not is_last_state(value)


class Bufferizer:
    """Converts blocks on tensors to `block`, on buffers.

    Attributes:
        buffers: The buffer of each converted value.
        destinations: The existing buffer that the defining op of a value must write to.
        concat_windows: The concatenation that the defining op of a value must write to, and the element offset in it.
        elements: The buffers that are elements of a loop's sequences.
        partially_read: Values of which other ops read slices. Kernels expect these slices at static offsets, so the values must
            not be written to `elements`.
        has_dynamic_shapes: Whether buffers have symbolic sizes.
        sizes: The symbolic sizes of buffers.
    """

    def __init__(self, has_dynamic_shapes: bool, partially_read: Collection[SSAValue]) -> None:
        self.has_dynamic_shapes, self.partially_read = has_dynamic_shapes, partially_read
        self.elements: set[SSAValue] = set()
        # Symbols of the sizes defined so far: those of inputs, then data-dependent ones as ops define them.
        self.defined_sizes: set[str] = set()
        self.sizes: dict[SSAValue, tuple[Size, ...]] = {}
        self.block = Block()
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.destinations: dict[SSAValue, SSAValue] = {}
        self.concat_windows: dict[SSAValue, tuple[ConcatOp, int]] = {}

    def convert(self, source: Block) -> None:
        """Append the converted ops of a block, without its terminator."""
        for op in source.ops:
            if isinstance(op, ConcatOp):
                self.assign_concat_windows(op)
        for op in source.ops:
            match op:
                case WeightOp():
                    weight = host.WeightOp(op.symbol.string_value(), buffer_type(op.result))
                    self.buffers[op.result] = self.append_value(weight, op, op.result)
                case ReshapeOp() | ViewAsOp() | AddDependencyOp() | SliceOp():
                    self.buffers[op.result] = self.buffer_of(op.result, op)
                case ConcatOp():
                    self.concatenate(op)
                case DispatchOp():
                    results = [self.result_buffer(r, op) for r in op.outputs]
                    launch = host.LaunchOp(op.symbol, [*(self.buffers[v] for v in op.arguments), *results], op.sizes)
                    launch.attributes[host.NUM_OUTPUTS] = IntegerAttr(len(results), i64)
                    if host.FLOPS in op.attributes:
                        launch.attributes[host.FLOPS] = op.attributes[host.FLOPS]
                    self.add(launch, op)
                case IfOp():
                    self.branch(op)
                case ScanOp():
                    self.scan(op)
                case WhileOp():
                    self.loop(op)
                case ConstantOp() | BroadcastToOp() if is_unspecified(op.result):
                    self.buffers[op.result] = self.allocate(op.result, op)
                case BindSizeOp():
                    self.add(host.BindSizeOp(self.buffer_of(op.count, op), op.size), op)
                case PrintOp():
                    self.add(host.PrintOp(op.format_parts, [self.buffer_of(v, op) for v in op.arguments]), op)
                case DataDependent():
                    self.compute(op)
                case _:
                    pass

    def assign_concat_windows(self, op: ConcatOp) -> None:
        """Make kernels and scans write their results directly into the concatenation that reads them."""
        for value, offset in concat_operand_offsets(op):
            root, _ = source_of(value)
            can_write_directly = (
                isinstance(root.owner, DispatchOp | ScanOp)
                and not is_last_state(root)
                and root.owner.parent is op.parent
                and element_count(root) == element_count(value)
            )
            if can_write_directly and root not in self.destinations and root not in self.concat_windows:
                self.concat_windows[root] = op, offset

    def concatenate(self, op: ConcatOp) -> None:
        """Copy the operands of a concatenation that are not written directly into it."""
        result_buffer = self.concat_buffer(op, op)
        for value, offset in concat_operand_offsets(op):
            root, _ = source_of(value)
            if self.concat_windows.get(root) != (op, offset):
                self.add(memref.CopyOp(self.buffer_of(value, op), self.view(result_buffer, value, op, offset)), op)

    def concat_buffer(self, concat: ConcatOp, origin: Operation) -> SSAValue:
        """Return the buffer of a concatenation, created before its first operand is written."""
        return self.buffers[concat.result] if concat.result in self.buffers else self.result_buffer(concat.result, origin)

    def compute(self, op: DataDependent) -> None:
        """Convert an op that the host computes in Python, and record the sizes that it defines."""
        results = [self.result_buffer(r, op) for r in op.results]
        new_sizes = [str(size) for size in op.data_dependent_sizes if is_symbol(size) and str(size) not in self.defined_sizes]
        self.defined_sizes.update(new_sizes)
        arguments = [self.buffer_of(v, op) for v in op.operands]
        self.add(host.ComputeOp(op.function_name, json.dumps(op.settings), arguments, results, new_sizes), op)

    def branch(self, op: IfOp) -> None:
        """Convert a branch: both bodies write their results to the same buffers."""
        destinations = [self.result_buffer(r, op) for r in op.results]
        blocks: list[Block] = []
        for source in op.blocks:
            outer, self.block = self.block, Block()
            if isinstance(source.last_op, FailOp):
                self.convert(source)
                values = [self.buffer_of(v, op) for v in source.last_op.message_values]
                self.add(host.FailOp(source.last_op.message.data, values), source.last_op)
            else:
                pairs = zip(yielded_by(source), destinations, strict=True)
                copies = [(v, destination) for v, destination in pairs if not self.assign_destination(v, destination, source)]
                self.convert(source)
                self.copy(copies, op)
                self.add(host.YieldOp([]), op)
            blocks.append(self.block)
            self.block = outer
        self.add(host.IfOp(self.buffers[op.condition], *blocks), op)

    def scan(self, op: ScanOp) -> None:
        """Convert a scan: elements of sequences and outputs are views of their buffers."""
        count = op.state_count
        outputs = [self.result_buffer(r, op) for r in op.results[count:]]
        yielded = yielded_by(op.block)
        initial_buffers = self.initial_buffers(op, op.arguments[:count], yielded[:count])
        block, double_buffers = self.body(op, yielded[:count], op.block.args[count:], yielded[count:], None)
        carried = [*initial_buffers, *double_buffers]
        elements = [*(self.buffers[v] for v in op.arguments[count:]), *outputs]
        self.finish_loop(op, host.LoopOp(op.steps, carried, elements, block, op.is_reverse))

    def loop(self, op: WhileOp) -> None:
        """Convert a while loop."""
        continues, *states = yielded_by(op.block)
        initial_buffers = self.initial_buffers(op, op.arguments, states)
        block, double_buffers = self.body(op, states, (), (), continues)
        self.finish_loop(op, host.WhileOp(self.buffers[op.condition], [*initial_buffers, *double_buffers], block))

    def initial_buffers(self, op: LoopLikeOp, arguments: Sequence[SSAValue], next_values: Sequence[SSAValue]) -> list[SSAValue]:
        """Return the buffers of the initial states; states that are updated in place have copies, unless results alias them."""
        initial_buffers, aliases = list[SSAValue](), output_aliases(op)
        for k, (argument, state, value) in enumerate(zip(arguments, op.block.args, next_values, strict=False)):
            buffer = self.buffers[argument]
            if k not in aliases and in_place_updates(state, value):
                copy = self.allocate(state, op)
                self.copy([(argument, copy)], op)
                buffer = copy
            initial_buffers.append(buffer)
        return initial_buffers

    def finish_loop(self, op: LoopLikeOp, loop: host.LoopOp | host.WhileOp) -> None:
        """Append a loop; its results are the final states of its carried buffers."""
        self.add(loop, op)
        for value, buffer in zip(op.results, loop.results, strict=False):
            self.sizes[buffer] = shape_of(value)
            if value not in self.buffers:
                self.buffers[value] = buffer
                buffer.name_hint = value.name_hint

    def body(
        self,
        op: LoopLikeOp,
        states: Sequence[SSAValue],
        elements: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        continues: SSAValue | None,
    ) -> tuple[Block, list[SSAValue]]:
        """Convert a loop's body; return it, and the initial buffers for double buffering.

        Arguments of the body are the states, two buffers for each double-buffered state, the sequence elements that it reads,
        and the sequence elements that it writes. The next state is written to one of the two buffers while the other holds the
        current state; then they swap. A state is not double-buffered if it is also a sequence element, if no op of the body
        writes it, or if kernels update it in place.
        """
        source = op.block
        state_arguments = source.args[: len(states)]
        block = Block(arg_types=[buffer_type(v) for v in (*state_arguments, *elements, *outputs)])
        self.sizes |= {a: shape_of(v) for v, a in zip((*state_arguments, *elements, *outputs), block.args, strict=True)}
        output_elements = block.args[len(state_arguments) + len(elements) :]
        self.elements.update(output_elements)
        for value, argument in zip((*state_arguments, *elements), block.args, strict=False):
            self.buffers[value] = argument
            argument.name_hint = value.name_hint
        for next_state, state in zip(states, state_arguments, strict=True):
            self.destinations |= dict.fromkeys(in_place_updates(state, next_state), self.buffers[state])
        copies = [
            (v, element)
            for v, element in zip(outputs, output_elements, strict=True)
            if not self.assign_destination(v, element, source)
        ]
        spare_allocations: list[SSAValue] = []
        next_values: list[tuple[SSAValue, SSAValue | None]] = []
        for value, state in zip(states, state_arguments, strict=True):
            if (
                value is state
                or value in elements
                or in_place_updates(state, value)
                or self.is_preserved(value, source, output_elements)
            ):
                next_values.append((value, None))
                continue
            spare, _ = (
                block.insert_arg(buffer_type(state), len(state_arguments) + len(spare_allocations) + k) for k in range(2)
            )
            self.sizes[spare] = shape_of(state)
            spare_allocations += [self.allocate(state, op) for _ in range(2)]
            is_written_directly = self.assign_destination(value, spare, source)
            next_values.append((value, None if is_written_directly else spare))
            copies += [] if is_written_directly else [(value, spare)]
        spares = block.args[len(state_arguments) : len(state_arguments) + len(spare_allocations)]
        outer, self.block = self.block, block
        self.convert(source)
        self.copy(copies, op)
        next_states = [self.buffer_of(value, op) if buffer is None else buffer for value, buffer in next_values]
        swapped = [spares[k ^ 1] for k in range(len(spares))]
        condition = [] if continues is None else [self.buffer_of(continues, op)]
        self.add(host.YieldOp([*condition, *next_states, *swapped]), op)
        self.block = outer
        return block, spare_allocations

    def is_preserved(self, value: SSAValue, body: Block, output_elements: Sequence[SSAValue]) -> bool:
        """Return whether no later iteration overwrites a next state.

        That is so if it is defined outside the body, or is an element of an output.
        """
        root, _ = source_of(value)
        if self.destinations.get(root) in output_elements:
            return True
        defining_block = root.owner if isinstance(root.owner, Block) else root.owner.parent
        return defining_block is not body

    def assign_destination(self, value: SSAValue, destination: SSAValue, body: Block) -> bool:
        """Make the op that defines a value in a body write it to `destination`; return whether that is possible."""
        root, _ = source_of(value)
        is_in_body = isinstance(root.owner, Operation) and root.owner.parent is body
        if (
            not is_in_body
            or not writes_to_destination(root)
            or root in self.destinations
            or element_count(root) != element_count(value)
        ):
            return False
        if root in self.partially_read and destination in self.elements:
            return False
        self.destinations[root] = destination
        return True

    def copy(self, pairs: Sequence[tuple[SSAValue, SSAValue]], origin: Operation) -> None:
        """Copy values to buffers, except unspecified ones."""
        for value, destination in pairs:
            if not is_unspecified(value):
                self.add(memref.CopyOp(self.buffer_of(value, origin), destination), origin)

    def result_buffer(self, result: SSAValue, origin: Operation) -> SSAValue:
        """Return the buffer of a result: its destination, or a new one."""
        if result in self.destinations:
            destination = self.destinations[result]
            self.buffers[result] = self.view(destination, result, origin)
            if destination in self.elements:
                self.elements.add(self.buffers[result])
        elif result in self.concat_windows:
            concat, offset = self.concat_windows[result]
            self.buffers[result] = self.view(self.concat_buffer(concat, origin), result, origin, offset)
        else:
            self.buffers[result] = self.allocate(result, origin)
        return self.buffers[result]

    def allocate(self, like: SSAValue, origin: Operation) -> SSAValue:
        """Allocate a buffer for a value."""
        t = buffer_type(like)
        if self.has_dynamic_shapes:
            return self.append_value(host.BufferOp(shape_of(like), t), origin, like)
        return self.append_value(memref.AllocOp.create(result_types=[t], properties=_static_alloc_properties()), origin, like)

    def buffer_of(self, value: SSAValue, origin: Operation) -> SSAValue:
        """Return the buffer that holds a value; a view if the value is in a larger buffer."""
        root, offset = source_of(value)
        return self.view(self.buffers[root], value, origin, offset)

    def view(self, buffer: SSAValue, like: SSAValue, origin: Operation, offset: int = 0) -> SSAValue:
        """Return a view of `buffer` at an element offset, with the shape and element type of `like`."""
        t = buffer_type(like)
        if buffer.type == t and self.sizes.get(buffer, shape_of(like)) == shape_of(like):
            return buffer
        if self.has_dynamic_shapes or cast("MemRefType[Attribute]", buffer.type).element_type != t.element_type:
            return self.append_value(host.ViewOp(buffer, offset, shape_of(like), t), origin, like)
        if isinstance(buffer.owner, memref.ReinterpretCastOp):
            # Offsets count from the start of the allocation.
            buffer, offset = buffer.owner.source, offset + buffer.owner.static_offsets.get_values()[0]
        strides = cast("tuple[int, ...]", row_major(t.get_shape()))
        if offset:
            t = MemRefType(t.element_type, t.get_shape(), StridedLayoutAttr(strides, offset))
        op = memref.ReinterpretCastOp(buffer, [], [], [], [offset], t.get_shape(), strides, t)
        return self.append_value(op, origin, like)

    def add(self, op: Operation, origin: Operation) -> None:
        """Append `op` with the location of `origin`."""
        op.location = origin.location
        self.block.add_op(op)

    def append_value(self, op: Operation, origin: Operation, like: SSAValue) -> SSAValue:
        """Append `op` and return its result, named like another value."""
        self.add(op, origin)
        self.sizes[op.results[0]] = shape_of(like)
        op.results[0].name_hint = like.name_hint
        return op.results[0]


def yielded_by(block: Block) -> Sequence[SSAValue]:
    """Return the values that a body yields."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    return last.values


def element_count(value: SSAValue) -> Size:
    """Return the number of elements of a value."""
    return product(shape_of(value))

"""Launches of static sizes as recorded commands for an OpenCL device.

Each launch has a kernel object of its own. Its arguments are set once, except the inputs and outputs of a call, and buffers
that differ between loop iterations. A call sets these and enqueues the commands in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.runtime.opencl.array import DeviceArray, allocate_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import opencl, set_i64_argument
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, BufferRef, HostProgram, Launch, Parallel, walk
from dlc.runtime.program.interpreter import BufferOffset, resolve_ref
from dlc.shapes.dims import Size

# Enqueues a command, given the values of the slots.
Command: TypeAlias = Callable[[list[BufferOffset]], None]


@dataclass(frozen=True)
class Call:
    """The outputs of a call, and the values of its slots."""

    outputs: list[DeviceArray]
    slot_values: list[BufferOffset]


@dataclass(frozen=True)
class BuiltGrid:
    """One grid of a built kernel.

    Attributes:
        make: Creates a kernel object.
        groups: The number of work-groups; it may depend on the kernel's size parameters.
        items: The number of work-items per group.
        objects: Caches the kernel objects of a program's launches, by launch index.
    """

    make: Callable[[], Any]
    groups: Size
    items: int
    objects: dict[int, Any] = field(default_factory=dict[int, Any], compare=False)

    def object(self, index: int, launch: Launch) -> Any:
        """Return the kernel object of a launch with its sizes as arguments; it is cached, since creating one is slow."""
        if index not in self.objects:
            self.objects[index] = self.make()
        kernel = self.objects[index]
        for argument, size in enumerate(launch.size_values, 2 * len(launch.arguments)):
            set_i64_argument(kernel, argument, int(size))
        return kernel

    def total(self, launch: Launch) -> int:
        """Return the number of work-items of a launch."""
        groups = self.groups if isinstance(self.groups, int) else launch.evaluate_size(self.groups)
        return groups * self.items


class CommandList:
    """The commands of a host program with static sizes on one device; `weights` and `arena` are buffers."""

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, Sequence[BuiltGrid]],
        weights: Sequence[Any],
        session: Session,
        arena: Any,
    ) -> None:
        self.host, self.session = host, session
        # Buffers by slot; None for the inputs and outputs, which differ in each call.
        num_arguments = len(host.inputs) + len(host.outputs)
        self._buffers: list[Any] = [None, arena, *[None] * num_arguments, *weights]
        # The values of slots before a call.
        slots = [*self._buffers, *[None] * (host.slots - len(self._buffers))]
        self._initial_slots: list[BufferOffset] = [(buffer, 0) for buffer in slots]
        shapes = [(cast("tuple[int, ...]", info.shape), info.dtype) for info in host.outputs]
        self._outputs = [(shape, dtype, prod(shape) * dtype.itemsize) for shape, dtype in shapes]
        self._patches: list[tuple[Any, int, int]] = []
        parallel = [instruction for instruction, _ in walk(host.instructions) if isinstance(instruction, Parallel)]
        self._sections = {id(launch): k for p in parallel for k, section in enumerate(p.sections) for launch in section}
        self._commands = {id(launch): self._commands_of(k, launch, kernels) for k, launch in enumerate(host.launches)}

    def launch(self, launch: Launch, slot_values: list[BufferOffset]) -> None:
        """Enqueue a launch."""
        for command in self._commands[id(launch)]:
            command(slot_values)

    def launch_sections(self, parallel: Parallel, slot_values: list[BufferOffset]) -> None:
        """Enqueue sections, each in its queue, after all previous commands; later commands wait for all of them."""
        cl, main = opencl(), self.session.queue
        start = cl.enqueue_marker(main)
        queues = {
            id(queue): queue for k in range(len(parallel.sections)) if (queue := self.session.section_queue(k)) is not main
        }
        # Commands of other queues may only wait for commands that are submitted to the device.
        main.flush()
        for queue in queues.values():
            cl.enqueue_barrier(queue, wait_for=[start])
        for section in parallel.sections:
            for launch in section:
                self.launch(launch, slot_values)
        ends = [cl.enqueue_marker(queue) for queue in queues.values()]
        for queue in queues.values():
            queue.flush()
        cl.enqueue_barrier(main, wait_for=ends)

    def finish(self) -> None:
        """Wait until all commands have finished."""
        for k in range(max(self._sections.values(), default=0) + 1):
            self.session.section_queue(k).finish()

    def _queue(self, launch: Launch) -> Any:
        return self.session.section_queue(self._sections.get(id(launch), 0))

    def begin(self, inputs: Sequence[DeviceArray]) -> Call:
        """Prepare a call: allocate its outputs and set its kernel arguments."""
        outputs = [self.output(k) for k in range(len(self.host.outputs))]
        slot_values = self._initial_slots.copy()
        for slot, array in enumerate((*inputs, *outputs), FIRST_INPUT_SLOT):
            slot_values[slot] = array.buffer, 0
        call = Call(outputs, slot_values)
        self.patch(call)
        return call

    def output(self, k: int) -> DeviceArray:
        """Allocate an output."""
        shape, dtype, size = self._outputs[k]
        return DeviceArray(self.session, allocate_buffer(self.session, size), shape, dtype)

    def patch(self, call: Call) -> None:
        """Set the inputs and outputs of a call as kernel arguments."""
        for kernel, argument, slot in self._patches:
            kernel.set_arg(2 * argument, call.slot_values[slot][0])

    def read(self, ref: BufferOffset, count: int) -> bytes:
        """Return `count` bytes at a buffer offset, after all previous commands have finished."""
        bytes_, (buffer, offset) = np.zeros(count, np.uint8), ref
        opencl().enqueue_copy(self.session.queue, bytes_, buffer, src_offset=offset, is_blocking=True)
        return bytes_.tobytes()

    def write(self, ref: BufferOffset, content: bytes) -> None:
        """Write bytes at a buffer offset, after all previous commands have finished."""
        buffer, offset = ref
        if content:
            opencl().enqueue_copy(
                self.session.queue, buffer, np.frombuffer(content, np.uint8), dst_offset=offset, is_blocking=True
            )

    def _commands_of(self, index: int, launch: Launch, kernels: Mapping[str, Sequence[BuiltGrid]]) -> list[Command]:
        """Return the commands of the launch with this index."""
        if launch.kernel is None:
            return [self._copy(launch)] if launch.sizes[0] != 0 else []
        totals = ((grid, grid.total(launch)) for grid in kernels[launch.kernel])
        return [self._grid(launch, grid.object(index, launch), total, grid.items) for grid, total in totals if total]

    def _grid(self, launch: Launch, kernel: Any, total: int, items: int) -> Command:
        """Return the command that runs one grid.

        Arguments are set once, except buffers of the call and those that slots point to.
        """
        slot_arguments: list[tuple[int, BufferRef]] = []
        for k, (slot, offset) in enumerate(launch.arguments):
            if slot >= len(self._buffers):
                slot_arguments.append((k, (slot, offset)))
                continue
            set_i64_argument(kernel, 2 * k + 1, offset)
            if self._buffers[slot] is None:
                self._patches.append((kernel, k, slot))
            else:
                kernel.set_arg(2 * k, self._buffers[slot])
        enqueue, queue = opencl().enqueue_nd_range_kernel, self._queue(launch)
        all_items, group_items = (total,), (items,)

        def run(slot_values: list[BufferOffset]) -> None:
            for k, (slot, offset) in slot_arguments:
                buffer, start = slot_values[slot]
                kernel.set_arg(2 * k, buffer)
                set_i64_argument(kernel, 2 * k + 1, start + offset)
            enqueue(queue, kernel, all_items, group_items)

        return run

    def _copy(self, launch: Launch) -> Command:
        (destination, source), size = launch.arguments, launch.static_sizes[0]
        copy, queue = opencl().enqueue_copy, self._queue(launch)

        def run(slot_values: list[BufferOffset]) -> None:
            destination_buffer, destination_offset = resolve_ref(slot_values, destination)
            source_buffer, source_offset = resolve_ref(slot_values, source)
            copy(
                queue,
                destination_buffer,
                source_buffer,
                byte_count=size,
                src_offset=source_offset,
                dst_offset=destination_offset,
            )

        return run

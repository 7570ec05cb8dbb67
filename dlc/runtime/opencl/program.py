"""Programs on an OpenCL device: launches as recorded commands.

Each launch has a kernel object of its own. Its arguments are set once, except the inputs and outputs of a call, and buffers
that differ between loop iterations. A call sets these and enqueues the commands in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import Size
from dlc.errors import DeviceError
from dlc.runtime.opencl.array import DeviceArray, allocate_buffer, create_buffer, upload
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import driver_errors, opencl, set_i64_argument
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, BufferRef, CallPrinter, HostProgram, Launch, weight_array
from dlc.runtime.program.interpreter import BufferOffset, interpret, resolve_ref

# Enqueues a command, given the values of the slots.
Command: TypeAlias = Callable[[list[BufferOffset]], None]


def weights_on(session: Session, infos: Sequence[TensorInfo], weights: Mapping[str, NDArray[Any]]) -> tuple[Any, ...]:
    """Upload weights to a device."""
    return tuple(create_buffer(weight_array(info, weights), session, constant=True) for info in infos)


@dataclass(frozen=True)
class Call:
    """The arrays of a call, and the values of its slots."""

    inputs: Sequence[DeviceArray]
    outputs: list[DeviceArray]
    slot_values: list[BufferOffset]


def reject_set_size(symbol: str, count: int) -> None:
    """The callback for data-dependent sizes in a program without any."""
    raise AssertionError(f"{symbol} is a data-dependent size in a static-shape program")


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
            set_i64_argument(kernel, argument, size)
        return kernel

    def total(self, launch: Launch) -> int:
        """Return the number of work-items of a launch."""
        groups = self.groups if isinstance(self.groups, int) else launch.evaluate_size(self.groups)
        return groups * self.items


class Launcher:
    """Executes a call: enqueues launches, and reads values that control flow depends on."""

    def launch(self, program: OpenCLProgram, launch: Launch, slot_values: list[BufferOffset]) -> None:
        program.launch(launch, slot_values)

    def read(self, program: OpenCLProgram, ref: BufferOffset, count: int) -> bytes:
        return program.read(ref, count)


class Stopwatch(Launcher):
    """Runs launches one at a time and measures each."""

    def __init__(self) -> None:
        self.times: list[tuple[Launch, float]] = []

    def launch(self, program: OpenCLProgram, launch: Launch, slot_values: list[BufferOffset]) -> None:
        program.session.queue.finish()
        start = perf_counter()
        program.launch(launch, slot_values)
        program.session.queue.finish()
        self.times.append((launch, perf_counter() - start))


class OpenCLProgram:
    """A static-shape host program with its built kernels on one device; `weights` and `arena` are buffers.

    Calls return when their commands are in the queue. It may be called from several threads: calls are serialized, and share
    one arena.
    """

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, Sequence[BuiltGrid]],
        weights: Sequence[Any],
        session: Session,
        arena: Any = None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.session = session
        self.host = host
        self._lock = Lock()
        # Buffers by slot; None for the inputs and outputs, which differ in each call.
        num_arguments = len(host.inputs) + len(host.outputs)
        arena = arena if arena is not None else allocate_buffer(session, host.arena_bytes)
        self._buffers: list[Any] = [None, arena, *[None] * num_arguments, *weights]
        # The values of slots before a call.
        slots = [*self._buffers, *[None] * (host.slots - len(self._buffers))]
        self._initial_slots: list[BufferOffset] = [(buffer, 0) for buffer in slots]
        shapes = [(cast("tuple[int, ...]", info.shape), info.dtype) for info in host.outputs]
        self._outputs = [(shape, dtype, prod(shape) * dtype.itemsize) for shape, dtype in shapes]
        self._patches: list[tuple[Any, int, int]] = []
        self._commands = {id(launch): self._commands_of(k, launch, kernels) for k, launch in enumerate(host.launches)}

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """Run the program on validated inputs and return the outputs; device arrays are not copied.

        Raises DeviceError for an input on another device, and DlcError if a run-time assertion (`Fail`) fails.
        """
        return self.run_with(inputs, Launcher())

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[Launch, float]]:
        """Run launch by launch; return each launch with its seconds, in execution order."""
        stopwatch = Stopwatch()
        self.run_with(inputs, stopwatch)
        return stopwatch.times

    def run_with(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher) -> list[DeviceArray]:
        """Run with a launcher that executes, or observes, launches and reads."""
        call = self.begin(inputs)
        launch, read = partial(launcher.launch, self), partial(launcher.read, self)
        with self._lock, driver_errors(self.session.device, ": a call"):
            self.patch(call)
            interpret(
                lambda: self.host.instructions, call.slot_values, launch, read, self.write, reject_set_size, CallPrinter()
            )
            self.session.queue.flush()
        return call.outputs

    def launch(self, launch: Launch, slot_values: list[BufferOffset]) -> None:
        """Enqueue a launch."""
        for command in self._commands[id(launch)]:
            command(slot_values)

    def begin(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> Call:
        """Prepare a call with validated inputs. Raises DeviceError for an input on another device."""
        arrays = [a if isinstance(a, DeviceArray) else upload(a, self.session) for a in inputs]
        for array, info in zip(arrays, self.inputs, strict=True):
            if array.session is not self.session:
                raise DeviceError(
                    f"input {info} is on {array.device}, but the model is on {self.session.device}; copy it with "
                    f".to('opencl:{self.session.device.device_index[0]}:{self.session.device.device_index[1]}')"
                )
        outputs = [self.output(k) for k in range(len(self.outputs))]
        slot_values = self._initial_slots.copy()
        for slot, array in enumerate((*arrays, *outputs), FIRST_INPUT_SLOT):
            slot_values[slot] = array.buffer, 0
        return Call(arrays, outputs, slot_values)

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
            return [self._copy(launch)] if launch.sizes[0] else []
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
        enqueue, queue = opencl().enqueue_nd_range_kernel, self.session.queue
        all_items, group_items = (total,), (items,)

        def run(slot_values: list[BufferOffset]) -> None:
            for k, (slot, offset) in slot_arguments:
                buffer, start = slot_values[slot]
                kernel.set_arg(2 * k, buffer)
                set_i64_argument(kernel, 2 * k + 1, start + offset)
            enqueue(queue, kernel, all_items, group_items)

        return run

    def _copy(self, launch: Launch) -> Command:
        (destination, source), (size,) = launch.arguments, launch.size_values
        copy, queue = opencl().enqueue_copy, self.session.queue

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

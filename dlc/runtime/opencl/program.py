"""Running a program on an OpenCL device: its launches as recorded commands.

Every launch is a kernel object of its own whose arguments are set once, but for those that differ from call to call, the
program's inputs and outputs, and those that differ from one turn of a loop to the next. So a call sets these, and puts the
commands into the device's queue, which keeps their order.
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
from dlc.runtime.opencl.array import DeviceArray, buffer_of, new_buffer, upload
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import opencl, reported, set_number
from dlc.runtime.program.execute import Held, at, execute
from dlc.runtime.program.host_program import FIRST_INPUT, HostProgram, Launch, Place, Printing, weight_array

# Puts something into the queue, given what the slots hold.
Command: TypeAlias = Callable[[list[Held]], None]


def weights_on(session: Session, infos: Sequence[TensorInfo], weights: Mapping[str, NDArray[Any]]) -> tuple[Any, ...]:
    """Buffers of weights on a device."""
    return tuple(buffer_of(weight_array(info, weights), session, constant=True) for info in infos)


@dataclass(frozen=True)
class Call:
    """The arrays of a call, and what the slots hold in it."""

    inputs: Sequence[DeviceArray]
    outputs: list[DeviceArray]
    held: list[Held]


def known(symbol: str, count: int) -> None:
    """What is told of sizes that data decides, where it decides none."""
    raise AssertionError(f"{symbol} is decided in a program of known sizes")


@dataclass(frozen=True)
class GridCode:
    """One grid of a kernel, built: `make` gives a new kernel object; it runs `groups` groups, in the kernel's sizes, of `items`
    items. `objects` are those of a program's launches, by their numbers."""

    make: Callable[[], Any]
    groups: Size
    items: int
    objects: dict[int, Any] = field(default_factory=dict[int, Any], compare=False)

    def object(self, number: int, launch: Launch) -> Any:
        """The kernel object of a launch, with its numbers as arguments; drivers take a while to make one, so it is kept."""
        if number not in self.objects:
            self.objects[number] = self.make()
        kernel = self.objects[number]
        for place, size in enumerate(launch.numbers, 2 * len(launch.arguments)):
            set_number(kernel, place, size)
        return kernel

    def total(self, launch: Launch) -> int:
        """The items of all groups in a launch."""
        groups = self.groups if isinstance(self.groups, int) else launch.number(self.groups)
        return groups * self.items


class Launcher:
    """Who carries out a call: puts launches into the queue, and reads what decides how the call goes on."""

    def launch(self, program: OpenCLProgram, launch: Launch, held: list[Held]) -> None:
        program.launch(launch, held)

    def read(self, program: OpenCLProgram, place: Held, count: int) -> bytes:
        return program.read(place, count)


class Stopwatch(Launcher):
    """Launches one after the other, each with its seconds."""

    def __init__(self) -> None:
        self.times: list[tuple[Launch, float]] = []

    def launch(self, program: OpenCLProgram, launch: Launch, held: list[Held]) -> None:
        program.session.queue.finish()
        start = perf_counter()
        program.launch(launch, held)
        program.session.queue.finish()
        self.times.append((launch, perf_counter() - start))


class OpenCLProgram:
    """A host program with the code of its kernels, on one device, where `weights` and, if it is given, `arena` are buffers.

    Calls return when their commands are in the queue. Calls from several threads at once are safe: they run one after
    another, so that all of them share one arena.
    """

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, Sequence[GridCode]],
        weights: Sequence[Any],
        session: Session,
        arena: Any = None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.session = session
        self.host = host
        self._lock = Lock()
        # Buffers by number; those that each call brings are None here.
        calls = len(host.inputs) + len(host.outputs)
        arena = arena if arena is not None else new_buffer(session, host.arena_bytes)
        self._buffers: list[Any] = [None, arena, *[None] * calls, *weights]
        # What slots hold before a call.
        slots = [*self._buffers, *[None] * (host.slots - len(self._buffers))]
        self._held: list[Held] = [(buffer, 0) for buffer in slots]
        shapes = [(cast("tuple[int, ...]", info.shape), info.dtype) for info in host.outputs]
        self._outputs = [(shape, dtype, prod(shape) * dtype.itemsize) for shape, dtype in shapes]
        self._patches: list[tuple[Any, int, int]] = []
        self._commands = {id(launch): self._commands_of(k, launch, kernels) for k, launch in enumerate(host.launches)}

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """The outputs for inputs of the right number, shapes and dtypes; those that are on the device stay there.

        Raises DeviceError for an input on another device, and DlcError where the program takes a branch that fails.
        """
        return self.run_by(inputs, Launcher())

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[Launch, float]]:
        """Runs launch by launch: each one with its seconds, in the order in which they ran."""
        watch = Stopwatch()
        self.run_by(inputs, watch)
        return watch.times

    def run_by(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher) -> list[DeviceArray]:
        """As `run`, by somebody who sees what is launched and read."""
        call = self.begin(inputs)
        launch, read = partial(launcher.launch, self), partial(launcher.read, self)
        with self._lock, reported(self.session.device, ": a call"):
            self.patch(call)
            execute(lambda: self.host.instructions, call.held, launch, read, self.write, known, Printing())
            self.session.queue.flush()
        return call.outputs

    def launch(self, launch: Launch, held: list[Held]) -> None:
        """Puts a launch into the queue."""
        for command in self._commands[id(launch)]:
            command(held)

    def begin(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> Call:
        """A call with inputs of the right number, shapes and dtypes. Raises DeviceError for one on another device."""
        arrays = [a if isinstance(a, DeviceArray) else upload(a, self.session) for a in inputs]
        for array, info in zip(arrays, self.inputs, strict=True):
            if array.session is not self.session:
                raise DeviceError(
                    f"input {info} is on {array.device}, the model on {self.session.device}; move it there with "
                    f".to('opencl:{self.session.device.place[0]}:{self.session.device.place[1]}')"
                )
        outputs = [self.output(k) for k in range(len(self.outputs))]
        held = self._held.copy()
        for slot, array in enumerate((*arrays, *outputs), FIRST_INPUT):
            held[slot] = array.buffer, 0
        return Call(arrays, outputs, held)

    def output(self, k: int) -> DeviceArray:
        """A new array for an output."""
        shape, dtype, size = self._outputs[k]
        return DeviceArray(self.session, new_buffer(self.session, size), shape, dtype)

    def patch(self, call: Call) -> None:
        """Gives launches the inputs and outputs of a call."""
        for kernel, argument, slot in self._patches:
            kernel.set_arg(2 * argument, call.held[slot][0])

    def read(self, place: Held, count: int) -> bytes:
        """So many bytes at a place, once all that was said before is done."""
        bytes_, (buffer, offset) = np.zeros(count, np.uint8), place
        opencl().enqueue_copy(self.session.queue, bytes_, buffer, src_offset=offset, is_blocking=True)
        return bytes_.tobytes()

    def write(self, place: Held, content: bytes) -> None:
        """Puts bytes at a place, once all that was said before is done."""
        buffer, offset = place
        if content:
            opencl().enqueue_copy(
                self.session.queue, buffer, np.frombuffer(content, np.uint8), dst_offset=offset, is_blocking=True
            )

    def _commands_of(self, number: int, launch: Launch, kernels: Mapping[str, Sequence[GridCode]]) -> list[Command]:
        """The commands of the launch of this number."""
        if launch.kernel is None:
            return [self._copy(launch)] if launch.sizes[0] else []
        totals = ((grid, grid.total(launch)) for grid in kernels[launch.kernel])
        return [self._grid(launch, grid.object(number, launch), total, grid.items) for grid, total in totals if total]

    def _grid(self, launch: Launch, kernel: Any, total: int, items: int) -> Command:
        """A grid of so many items, and in a group, whose arguments are set once, but for the call's own buffers and what slots
        point to."""
        moving: list[tuple[int, Place]] = []
        for k, (number, offset) in enumerate(launch.arguments):
            if number >= len(self._buffers):
                moving.append((k, (number, offset)))
                continue
            set_number(kernel, 2 * k + 1, offset)
            if self._buffers[number] is None:
                self._patches.append((kernel, k, number))
            else:
                kernel.set_arg(2 * k, self._buffers[number])
        enqueue, queue = opencl().enqueue_nd_range_kernel, self.session.queue
        all_items, group_items = (total,), (items,)

        def run(held: list[Held]) -> None:
            for k, (slot, offset) in moving:
                buffer, start = held[slot]
                kernel.set_arg(2 * k, buffer)
                set_number(kernel, 2 * k + 1, start + offset)
            enqueue(queue, kernel, all_items, group_items)

        return run

    def _copy(self, launch: Launch) -> Command:
        (to, source), (size,) = launch.arguments, launch.numbers
        copy, queue = opencl().enqueue_copy, self.session.queue

        def run(held: list[Held]) -> None:
            (into, start), (buffer, offset) = at(held, to), at(held, source)
            copy(queue, into, buffer, byte_count=size, src_offset=offset, dst_offset=start)

        return run

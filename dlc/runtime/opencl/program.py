"""Running a program on an OpenCL device: its launches as a recorded list of commands.

Every launch is a kernel object of its own whose arguments are set once, but for those that differ from call to call, the
program's inputs and outputs. So a call sets these, and puts the commands into the device's queue, which keeps their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CompileError, DeviceError
from dlc.runtime.host_program import ARENA, HostProgram, Launch, weight_array
from dlc.runtime.opencl.array import DeviceArray, buffer_of, new_buffer, upload
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import opencl, reported


@dataclass(frozen=True)
class GridCode:
    """One grid of a kernel, built: `make` gives a new kernel object; it runs `groups` groups of `items` items."""

    make: Callable[[], Any]
    groups: int
    items: int


class OpenCLProgram:
    """A host program with the code of its kernels, on one device.

    Calls return when their commands are in the queue. Calls from several threads at once are safe: they run one after
    another, so that all of them share one arena.
    """

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, Sequence[GridCode]],
        weights: Mapping[str, NDArray[Any]],
        session: Session,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.session = session
        self._host = host
        self._lock = Lock()
        # Buffers by number; those that each call brings are None here.
        calls = len(host.inputs) + len(host.outputs)
        arena = new_buffer(session, host.arena_bytes)
        self._buffers: list[Any] = [None, arena, *[None] * calls]
        self._buffers += [buffer_of(weight_array(info, weights), session, constant=True) for info in host.weights]
        self._parts: dict[tuple[int, int], Any] = {}
        self._patches: list[tuple[Any, int, int]] = []
        self._steps = [self._step(launch, kernels) for launch in host.launches]
        self._commands = [command for step in self._steps for command in step]

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """The outputs for inputs of the right number, shapes and dtypes; those that are on the device stay there.

        Raises DeviceError for an input on another device.
        """
        return self._call(inputs, self._run_all)

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[str, float]]:
        """Runs launch by launch: each one's kernel and seconds, in program order; a copy is called `copy`."""
        times: list[tuple[str, float]] = []

        def run_each(call: list[Any]) -> None:
            for launch, commands in zip(self._host.launches, self._steps, strict=True):
                self.session.queue.finish()
                start = perf_counter()
                for command in commands:
                    command(call)
                self.session.queue.finish()
                times.append((launch.kernel or "copy", perf_counter() - start))

        self._call(inputs, run_each)
        return times

    def _run_all(self, call: list[Any]) -> None:
        with reported(f"{self.session.device}: a call"):
            for command in self._commands:
                command(call)
            self.session.queue.flush()

    def _call(self, inputs: Sequence[NDArray[Any] | DeviceArray], execute: Callable[[list[Any]], None]) -> list[DeviceArray]:
        arrays = [a if isinstance(a, DeviceArray) else upload(a, self.session) for a in inputs]
        for array, info in zip(arrays, self.inputs, strict=True):
            if array.session is not self.session:
                raise DeviceError(
                    f"input {info} is on {array.device}, the model on {self.session.device}; move it there with "
                    f".to('opencl:{self.session.device.place[0]}:{self.session.device.place[1]}')"
                )
        outputs = [_output(self.session, cast("tuple[int, ...]", info.shape), info.dtype) for info in self.outputs]
        call: list[Any] = [None, None, *(a.buffer for a in arrays), *(o.buffer for o in outputs)]
        with self._lock:
            for kernel, place, number in self._patches:
                kernel.set_arg(place, call[number])
            execute(call)
        return outputs

    def _step(self, launch: Launch, kernels: Mapping[str, Sequence[GridCode]]) -> list[Callable[[list[Any]], None]]:
        """The commands of one launch; each gets the buffers of a call by number."""
        if launch.kernel is None:
            return [self._copy(launch)] if launch.sizes[0] else []
        return [self._grid(launch, grid) for grid in kernels[launch.kernel] if grid.groups]

    def _grid(self, launch: Launch, grid: GridCode) -> Callable[[list[Any]], None]:
        kernel = grid.make()
        for place, ((number, offset), size) in enumerate(zip(launch.arguments, launch.sizes, strict=True)):
            if offset and number != ARENA:
                raise CompileError(f"kernel @{launch.kernel}: argument {place} starts within an input, output or weight")
            if self._buffers[number] is None:
                self._patches.append((kernel, place, number))
            else:
                kernel.set_arg(place, self._argument(number, offset, size))
        enqueue, queue = opencl().enqueue_nd_range_kernel, self.session.queue
        total, items = (grid.groups * grid.items,), (grid.items,)
        return lambda call: enqueue(queue, kernel, total, items)

    def _copy(self, launch: Launch) -> Callable[[list[Any]], None]:
        (target, target_offset), (source, source_offset), (_, size) = launch.arguments
        enqueue, queue, buffers = opencl().enqueue_copy, self.session.queue, self._buffers

        def copy(call: list[Any]) -> None:
            enqueue(
                queue,
                buffers[target] or call[target],
                buffers[source] or call[source],
                byte_count=size,
                src_offset=source_offset,
                dst_offset=target_offset,
            )

        return copy

    def _argument(self, number: int, offset: int, size: int) -> Any:
        """A buffer that all calls share, or the part of the arena that an argument is."""
        if number != ARENA or not size:
            return self._buffers[number]
        if (offset, size) not in self._parts:
            flags = opencl().mem_flags.READ_WRITE
            with reported(f"{self.session.device}: {size} bytes at {offset} of the arena"):
                self._parts[offset, size] = self._buffers[ARENA].get_sub_region(offset, size, flags)
        return self._parts[offset, size]


def _output(session: Session, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
    return DeviceArray(session, new_buffer(session, int(np.prod(shape)) * dtype.itemsize), shape, dtype)

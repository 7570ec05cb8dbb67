"""Programs on an OpenCL device: specialized for the sizes of each call, and recorded as commands.

Kernels are built once, and weights are uploaded once. Everything that depends on sizes (arena offsets, numbers of
work-groups, kernel arguments) is computed again if the sizes differ from those of the last call, and within a call after each
data-dependent size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from time import perf_counter
from typing import Any, cast

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import DeviceError
from dlc.runtime.opencl.array import DeviceArray, allocate_buffer, create_buffer, upload
from dlc.runtime.opencl.commands import BuiltGrid, CommandList
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import driver_errors
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, CallPrinter, HostProgram, Launch, Parallel, weight_array
from dlc.runtime.program.interpreter import BufferOffset, interpret
from dlc.runtime.program.size_binding import with_size
from dlc.runtime.program.specialization import ProgramSpecializer


def weights_on(session: Session, infos: Sequence[TensorInfo], weights: Mapping[str, NDArray[Any]]) -> tuple[Any, ...]:
    """Upload weights to a device."""
    return tuple(create_buffer(weight_array(info, weights), session, constant=True) for info in infos)


class Launcher:
    """Executes a call: enqueues launches, and reads values that control flow depends on.

    Subclasses observe launches one at a time.
    """

    def launch(self, commands: CommandList, launch: Launch, slot_values: list[BufferOffset]) -> None:
        commands.launch(launch, slot_values)

    def launch_sections(self, commands: CommandList, parallel: Parallel, slot_values: list[BufferOffset]) -> None:
        for launch in parallel.launches:
            commands.finish()
            self.launch(commands, launch, slot_values)
        commands.finish()

    def read(self, commands: CommandList, ref: BufferOffset, count: int) -> bytes:
        return commands.read(ref, count)


class _ConcurrentLauncher(Launcher):
    def launch_sections(self, commands: CommandList, parallel: Parallel, slot_values: list[BufferOffset]) -> None:
        commands.launch_sections(parallel, slot_values)


class Stopwatch(Launcher):
    """Runs launches one at a time and measures each."""

    def __init__(self) -> None:
        self.times: list[tuple[Launch, float]] = []

    def launch(self, commands: CommandList, launch: Launch, slot_values: list[BufferOffset]) -> None:
        commands.finish()
        start = perf_counter()
        commands.launch(launch, slot_values)
        commands.finish()
        self.times.append((launch, perf_counter() - start))


class OpenCLProgram:
    """A host program with its built kernels on one device; `weights` are buffers.

    Calls return when their commands are in the queue. It may be called from several threads: calls are serialized, and share
    one arena.
    """

    def __init__(
        self,
        specializer: ProgramSpecializer,
        kernels: Mapping[str, Sequence[BuiltGrid]],
        weights: Sequence[Any],
        session: Session,
    ) -> None:
        self.host = specializer.program
        self.inputs, self.outputs = self.host.inputs, self.host.outputs
        self.session = session
        self._specializer, self._kernels, self._weights = specializer, kernels, weights
        self._lock = Lock()
        # The sizes of the last call, and their commands.
        self._bound: tuple[Sequence[tuple[int, ...]], Sequence[int], CommandList] | None = None
        self._arena, self._arena_bytes = allocate_buffer(session, 0), 0
        if not self.host.symbols:
            # All calls have the same commands.
            self._bind([cast("tuple[int, ...]", info.shape) for info in self.inputs], [])

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """Run the program on validated inputs and return the outputs; device arrays are not copied.

        Raises DeviceError for an input on another device, ShapeError for a size outside of its range, and DlcError if a
        run-time assertion (`Fail`) fails.
        """
        return self.run_with(inputs, _ConcurrentLauncher())

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[Launch, float]]:
        """Run launch by launch; return each launch with its seconds, in execution order."""
        if self.host.data_dependent_sizes:
            # After the first run, the arena is large enough: no restart distorts the times.
            self.run(inputs)
        stopwatch = Stopwatch()
        self.run_with(inputs, stopwatch)
        return stopwatch.times

    def run_with(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher) -> list[DeviceArray]:
        """Run with a launcher that executes, or observes, launches and reads.

        A call whose arena is too small is restarted.
        """
        arrays = self._on_device(inputs)
        printer = CallPrinter()
        with self._lock, driver_errors(self.session.device, ": a call"):
            while True:
                with suppress(_ArenaGrownError):
                    printer.restart()
                    return self._run(arrays, launcher, printer)

    def specialize(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> tuple[HostProgram, dict[str, int]]:
        """Return the program with the sizes of a call, and its data-dependent sizes (of the last loop iteration)."""
        symbols = self.host.data_dependent_sizes
        if symbols:
            self.run(inputs)
        with self._lock:
            data_dependent_sizes: Sequence[int] = self._bound[1] if symbols and self._bound is not None else []
            commands = self._bind([a.shape for a in inputs], data_dependent_sizes)
            return commands.host, dict(zip(symbols, data_dependent_sizes, strict=True))

    def _on_device(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """Upload the inputs that are not on the device. Raises DeviceError for an input on another device."""
        arrays = [a if isinstance(a, DeviceArray) else upload(a, self.session) for a in inputs]
        for array, info in zip(arrays, self.inputs, strict=True):
            if array.session is not self.session:
                raise DeviceError(
                    f"input {info} is on {array.device}, but the model is on {self.session.device}; copy it with "
                    f".to('opencl:{self.session.device.device_index[0]}:{self.session.device.device_index[1]}')"
                )
        return arrays

    def _bind(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int]) -> CommandList:
        """Return the commands for these sizes."""
        if self._bound is None or self._bound[:2] != (shapes, data_dependent_sizes):
            host = self._specializer(shapes, data_dependent_sizes)
            if host.arena_bytes > self._arena_bytes:
                # Grow geometrically, so that the arena does not grow in every call.
                self._arena_bytes = max(host.arena_bytes, self._arena_bytes * 3 // 2)
                self._arena = allocate_buffer(self.session, self._arena_bytes)
            commands = CommandList(host, self._kernels, self._weights, self.session, self._arena)
            self._bound = shapes, data_dependent_sizes, commands
        return self._bound[2]

    def _run(self, inputs: Sequence[DeviceArray], launcher: Launcher, printer: CallPrinter) -> list[DeviceArray]:
        """Run a call; after each data-dependent size, continue with the commands for this size.

        Raises _ArenaGrownError if that needs a larger, empty arena: the call has to be restarted.
        """
        shapes, data_dependent_sizes = [a.shape for a in inputs], self.host.initial_sizes
        commands = self._bind(shapes, data_dependent_sizes)
        call = commands.begin(inputs)

        def launch(launch: Launch, slot_values: list[BufferOffset]) -> None:
            launcher.launch(commands, launch, slot_values)

        def launch_sections(parallel: Parallel, slot_values: list[BufferOffset]) -> None:
            launcher.launch_sections(commands, parallel, slot_values)

        def read(source: BufferOffset, count: int) -> bytes:
            return launcher.read(commands, source, count)

        def set_size(symbol: str, count: int) -> None:
            nonlocal commands, data_dependent_sizes
            arena = self._arena
            data_dependent_sizes = with_size(self.host, shapes, data_dependent_sizes, symbol, count)
            commands = self._bind(shapes, data_dependent_sizes)
            if self._arena is not arena:
                raise _ArenaGrownError
            for k, info in enumerate(commands.host.outputs):
                if call.outputs[k].shape != info.shape:
                    call.outputs[k] = commands.output(k)
                    call.slot_values[FIRST_INPUT_SLOT + len(self.inputs) + k] = call.outputs[k].buffer, 0
            commands.patch(call)

        interpret(
            lambda: commands.host.instructions,
            call.slot_values,
            launch,
            launch_sections,
            read,
            commands.write,
            set_size,
            printer,
        )
        self.session.queue.flush()
        return call.outputs


class _ArenaGrownError(Exception):
    """Raised if a data-dependent size needs a larger arena."""

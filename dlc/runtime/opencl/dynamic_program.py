"""Dynamic-shape programs on an OpenCL device: specialized to a static program for the sizes of each call.

Kernels are built once, and weights are uploaded once. Everything that depends on sizes (arena offsets, numbers of
work-groups, kernel arguments) is recomputed if the sizes differ from those of the last call, and within a call after each
data-dependent size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from dlc.runtime.opencl.array import DeviceArray, allocate_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import driver_errors
from dlc.runtime.opencl.program import BuiltGrid, Launcher, OpenCLProgram, Stopwatch
from dlc.runtime.program.dynamic_program import validate_size
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, CallPrinter, HostProgram, Launch
from dlc.runtime.program.interpreter import BufferOffset, interpret
from dlc.runtime.program.specialization import ProgramSpecializer


class DynamicOpenCLProgram:
    """A dynamic-shape program with its built kernels on one device.

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
        self._bound: tuple[Sequence[tuple[int, ...]], Sequence[int], OpenCLProgram] | None = None
        self._arena, self._arena_bytes = allocate_buffer(session, 0), 0

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """Run the program on validated inputs and return the outputs.

        Raises ShapeError for a size outside of its range, and what OpenCLProgram.run raises.
        """
        return self.run_with(inputs, Launcher())

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[Launch, float]]:
        """See OpenCLProgram.profile."""
        self.run(inputs)
        # After the first run, the arena is large enough: no restart distorts the times.
        stopwatch = Stopwatch()
        self.run_with(inputs, stopwatch)
        return stopwatch.times

    def run_with(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher) -> list[DeviceArray]:
        """See OpenCLProgram.run_with; a call whose arena is too small is restarted."""
        printer = CallPrinter()
        with self._lock:
            while True:
                with suppress(_ArenaGrownError):
                    printer.restart()
                    return self._run(inputs, launcher, printer)

    def static_program(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> tuple[HostProgram, dict[str, int]]:
        """Return the static program for inputs of these shapes, and the data-dependent sizes (of the last loop iteration)."""
        if self.host.data_dependent_sizes:
            self.run(inputs)
        with self._lock:
            shapes = [a.shape for a in inputs]
            data_dependent_sizes: Sequence[int] = (
                self._bound[1] if self.host.data_dependent_sizes and self._bound is not None else []
            )
            return self._bind(shapes, data_dependent_sizes).host, dict(
                zip(self.host.data_dependent_sizes, data_dependent_sizes, strict=True)
            )

    def _bind(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int]) -> OpenCLProgram:
        if self._bound is None or self._bound[:2] != (shapes, data_dependent_sizes):
            host = self._specializer(shapes, data_dependent_sizes)
            if host.arena_bytes > self._arena_bytes:
                # Grow geometrically, so that the arena does not grow in every call.
                self._arena_bytes = max(host.arena_bytes, self._arena_bytes * 3 // 2)
                self._arena = allocate_buffer(self.session, self._arena_bytes)
            self._bound = (
                shapes,
                data_dependent_sizes,
                OpenCLProgram(host, self._kernels, self._weights, self.session, self._arena),
            )
        return self._bound[2]

    def _run(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher, printer: CallPrinter) -> list[DeviceArray]:
        """Run a call; after each data-dependent size, continue with the program for this size.

        Raises _ArenaGrownError if that needs a larger, empty arena: the call has to be restarted.
        """
        shapes, symbols = [a.shape for a in inputs], self.host.data_dependent_sizes
        data_dependent_sizes = self.host.initial_sizes
        program = self._bind(shapes, data_dependent_sizes)
        call = program.begin(inputs)

        def launch(launch: Launch, slot_values: list[BufferOffset]) -> None:
            launcher.launch(program, launch, slot_values)

        def read(source: BufferOffset, count: int) -> bytes:
            return launcher.read(program, source, count)

        def set_size(symbol: str, count: int) -> None:
            nonlocal program, data_dependent_sizes
            arena, index = self._arena, symbols.index(symbol)
            earlier_sizes, initial_later_sizes = data_dependent_sizes[:index], self.host.initial_sizes[index + 1 :]
            data_dependent_sizes = [
                *earlier_sizes,
                validate_size(self.host, shapes, earlier_sizes, symbol, count),
                *initial_later_sizes,
            ]
            program = self._bind(shapes, data_dependent_sizes)
            if self._arena is not arena:
                raise _ArenaGrownError
            for k, info in enumerate(program.outputs):
                if call.outputs[k].shape != info.shape:
                    call.outputs[k] = program.output(k)
                    call.slot_values[FIRST_INPUT_SLOT + len(self.inputs) + k] = call.outputs[k].buffer, 0
            program.patch(call)

        with driver_errors(self.session.device, ": a call"):
            program.patch(call)
            interpret(lambda: program.host.instructions, call.slot_values, launch, read, program.write, set_size, printer)
            self.session.queue.flush()
        return call.outputs


class _ArenaGrownError(Exception):
    """Raised if a data-dependent size needs a larger arena."""

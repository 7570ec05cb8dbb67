"""Running a program whose sizes come with a call on an OpenCL device: for the sizes of each call as one of known sizes.

Its kernels are built once, and its weights are on the device once. What sizes decide, where buffers begin in the arena, how
many groups run, the numbers that kernels take, is made when they differ from those of the last call; and within a call where
data decides a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from dlc.runtime.opencl.array import DeviceArray, new_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import reported
from dlc.runtime.opencl.program import GridCode, Launcher, OpenCLProgram, Stopwatch
from dlc.runtime.program.execute import Held, execute
from dlc.runtime.program.host_program import FIRST_INPUT, HostProgram, Launch, Printing
from dlc.runtime.program.known_sizes import KnownSizes
from dlc.runtime.program.open_program import decided_size


class OpenOpenCLProgram:
    """A program, `known` for any sizes, with the code of its kernels, on one device, where `weights` are buffers.

    Calls return when their commands are in the queue. Calls from several threads at once are safe: they run one after another,
    so that all of them share one arena.
    """

    def __init__(
        self,
        known: KnownSizes,
        kernels: Mapping[str, Sequence[GridCode]],
        weights: Sequence[Any],
        session: Session,
    ) -> None:
        self.host = known.program
        self.inputs, self.outputs = self.host.inputs, self.host.outputs
        self.session = session
        self._known, self._kernels, self._weights = known, kernels, weights
        self._lock = Lock()
        self._bound: tuple[Sequence[tuple[int, ...]], Sequence[int], OpenCLProgram] | None = None
        self._arena, self._arena_bytes = new_buffer(session, 0), 0

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """The outputs for inputs of the right number and dtypes, and of shapes that fit one another.

        Raises ShapeError for a size outside of its range, and what OpenCLProgram.run raises.
        """
        return self.run_by(inputs, Launcher())

    def profile(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[tuple[Launch, float]]:
        """As of OpenCLProgram."""
        self.run(inputs)
        # The arena is as large as the call takes by then.
        watch = Stopwatch()
        self.run_by(inputs, watch)
        return watch.times

    def run_by(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher) -> list[DeviceArray]:
        """As of OpenCLProgram; a call that finds its arena too small begins again."""
        printing = Printing()
        with self._lock:
            while True:
                with suppress(_MovedError):
                    printing.begin()
                    return self._run(inputs, launcher, printing)

    def at(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> tuple[HostProgram, dict[str, int]]:
        """The program for inputs of these shapes, and the sizes that their data decides; the last ones of those in a loop."""
        if self.host.decided:
            self.run(inputs)
        with self._lock:
            shapes = [a.shape for a in inputs]
            decided: Sequence[int] = self._bound[1] if self.host.decided and self._bound is not None else []
            return self._at(shapes, decided).host, dict(zip(self.host.decided, decided, strict=True))

    def _at(self, shapes: Sequence[tuple[int, ...]], decided: Sequence[int]) -> OpenCLProgram:
        if self._bound is None or self._bound[:2] != (shapes, decided):
            host = self._known(shapes, decided)
            if host.arena_bytes > self._arena_bytes:
                # One that grows is made larger than that, so that it does not grow in each call.
                self._arena_bytes = max(host.arena_bytes, self._arena_bytes * 3 // 2)
                self._arena = new_buffer(self.session, self._arena_bytes)
            self._bound = shapes, decided, OpenCLProgram(host, self._kernels, self._weights, self.session, self._arena)
        return self._bound[2]

    def _run(self, inputs: Sequence[NDArray[Any] | DeviceArray], launcher: Launcher, printing: Printing) -> list[DeviceArray]:
        """As `run`; where data decides a size, the program is from there on the one for it.

        Raises _MovedError where that takes a larger arena, which is empty: the call has to begin again.
        """
        shapes, symbols = [a.shape for a in inputs], self.host.decided
        decided = self.host.undecided
        program = self._at(shapes, decided)
        call = program.begin(inputs)

        def launch(launch: Launch, held: list[Held]) -> None:
            launcher.launch(program, launch, held)

        def read(place: Held, count: int) -> bytes:
            return launcher.read(program, place, count)

        def decide(symbol: str, count: int) -> None:
            nonlocal program, decided
            arena, place = self._arena, symbols.index(symbol)
            before, later = decided[:place], self.host.undecided[place + 1 :]
            decided = [*before, decided_size(self.host, shapes, before, symbol, count), *later]
            program = self._at(shapes, decided)
            if self._arena is not arena:
                raise _MovedError
            for k, info in enumerate(program.outputs):
                if call.outputs[k].shape != info.shape:
                    call.outputs[k] = program.output(k)
                    call.held[FIRST_INPUT + len(self.inputs) + k] = call.outputs[k].buffer, 0
            program.patch(call)

        with reported(self.session.device, ": a call"):
            program.patch(call)
            execute(lambda: program.host.instructions, call.held, launch, read, program.write, decide, printing)
            self.session.queue.flush()
        return call.outputs


class _MovedError(Exception):
    """Raised where a size takes a larger arena than there is."""

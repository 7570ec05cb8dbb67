"""Running a program whose sizes come with a call on an OpenCL device: for the sizes of each call as one of known sizes.

Its kernels are built once, and its weights are on the device once. What sizes decide, where buffers begin in the arena, how
many groups run, the numbers that kernels take, is made when they differ from those of the last call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from dlc.runtime.known_sizes import KnownSizes
from dlc.runtime.opencl.array import DeviceArray, new_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.program import GridCode, OpenCLProgram


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
        self._bound: tuple[Sequence[tuple[int, ...]], OpenCLProgram] | None = None
        self._arena, self._arena_bytes = new_buffer(session, 0), 0

    def run(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> list[DeviceArray]:
        """The outputs for inputs of the right number and dtypes, and of shapes that fit one another.

        Raises ShapeError for a size outside of its range, and what OpenCLProgram.run raises.
        """
        with self._lock:
            return self._at(inputs).run(inputs)

    def at(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> OpenCLProgram:
        """The program for inputs of these shapes, until there is a call with others."""
        with self._lock:
            return self._at(inputs)

    def _at(self, inputs: Sequence[NDArray[Any] | DeviceArray]) -> OpenCLProgram:
        shapes = [a.shape for a in inputs]
        if self._bound is None or self._bound[0] != shapes:
            host = self._known(shapes)
            if host.arena_bytes > self._arena_bytes:
                # One that grows is made larger than that, so that it does not grow in each call.
                self._arena_bytes = max(host.arena_bytes, self._arena_bytes * 3 // 2)
                self._arena = new_buffer(self.session, self._arena_bytes)
            self._bound = shapes, OpenCLProgram(host, self._kernels, self._weights, self.session, self._arena)
        return self._bound[1]

"""Running a program on the CPU: its instructions as a table that native code executes, on the buffers of one call."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned, aligned_empty
from dlc.cpus import usable_cpus
from dlc.errors import DlcError
from dlc.runtime.cpu.native import Runtime
from dlc.runtime.cpu.table import Grid, assemble
from dlc.runtime.host_program import ARENA, FIRST_INPUT, HostProgram, Launch, weight_array
from dlc.runtime.open_program import OpenKernel, OpenProgram

# After so many launches, at first, native code comes back to Python, which looks whether it was interrupted; after more of
# them where they are over in less than these seconds.
_LAUNCHES_AT_ONCE, _AT_ONCE_SECONDS = 64, 0.01
# Each set of sizes that a program is bound to has a table of launches and an arena.
_MOST_BOUND = 8


@dataclass(frozen=True)
class KernelImage:
    """A kernel's native code: for each of its grids, in order, the address of `void (ptr arguments, i64 task)` and the
    number of tasks, in its sizes. `code` is whatever must stay alive for the addresses to hold."""

    grids: tuple[Grid, ...]
    code: object = None


class _Context:
    """What one call at a time needs for itself: an arena, and the slots."""

    def __init__(self, host: HostProgram, slots: int, weights: Sequence[NDArray[Any]]) -> None:
        self.arena = aligned_empty((host.arena_bytes,), np.uint8)
        self.slots = (ctypes.c_void_p * slots)()
        self.slots[ARENA] = address_of(self.arena)
        for i, weight in enumerate(weights, FIRST_INPUT + len(host.inputs) + len(host.outputs)):
            self.slots[i] = address_of(weight)
        self.location = ctypes.addressof(self.slots)


class NativeProgram:
    """A host program with the native code of its kernels.

    Calls from several threads at once are safe: each has its own arena. Results do not depend on `num_threads`.
    """

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, KernelImage],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.num_threads = num_threads or usable_cpus()
        self.host = host
        self._results = [(cast("tuple[int, ...]", info.shape), info.dtype) for info in host.outputs]
        self._images = tuple(kernels.values())
        self._weights = [weight_array(info, weights) for info in host.weights]
        self._table = assemble(host, {name: image.grids for name, image in kernels.items()}, runtime.copy)
        self._records = np.array(self._table.words, np.int64)
        self._start = address_of(self._records)
        self._runtime = runtime
        self._execute = runtime.execute
        self._free = [self._new_context()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for inputs of the right number, shapes and dtypes.

        Kernels rely on buffers that are C-contiguous and as aligned as their elements; an input that is not is copied.
        Raises DlcError where the program takes a branch that fails.
        """
        return self._call(inputs, self._run_all)

    def profile(self, inputs: Sequence[NDArray[Any]]) -> list[tuple[Launch, float]]:
        """Runs launch by launch: each one with its seconds, in the order in which they ran."""
        times: list[tuple[Launch, float]] = []

        def run_each(location: int, pool: int) -> None:
            record, start = self._start, perf_counter()
            while record > 0:
                record = self._execute(record, 1, location, pool)
                launch = self._table.ends.get((record - self._start) // 8)
                if launch is not None:
                    times.append((launch, perf_counter() - start))
                    start = perf_counter()
            self._require_success(record)

        self._call(inputs, run_each)
        return times

    def _run_all(self, location: int, pool: int) -> None:
        record = self._execute(self._start, _LAUNCHES_AT_ONCE, location, pool)
        count = _LAUNCHES_AT_ONCE
        while record > 0:
            began = perf_counter()
            record = self._execute(record, count, location, pool)
            count = 2 * count if perf_counter() - began < _AT_ONCE_SECONDS else max(1, count // 2)
        self._require_success(record)

    def _require_success(self, code: int) -> None:
        if code:
            raise DlcError(self._table.messages[-code - 1])

    def _call(self, inputs: Sequence[NDArray[Any]], execute: Any) -> list[NDArray[Any]]:
        arrays = [a if a.flags.c_contiguous and a.flags.aligned else aligned(a) for a in inputs]
        outputs = [aligned_empty(shape, dtype) for shape, dtype in self._results]
        pool = self._runtime.pool(self.num_threads)
        try:
            context = self._free.pop()
        except IndexError:
            context = self._new_context()
        try:
            for i, array in enumerate((*arrays, *outputs), FIRST_INPUT):
                context.slots[i] = address_of(array)
            execute(context.location, pool)
        finally:
            self._free.append(context)
        return outputs

    def _new_context(self) -> _Context:
        return _Context(self.host, self._table.slots, self._weights)


class OpenNativeProgram:
    """A program whose sizes come with a call: for each set of them a NativeProgram, with the same kernels and weights."""

    def __init__(
        self,
        host: OpenProgram,
        kernels: Mapping[str, KernelImage],
        shapes: Mapping[str, OpenKernel],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.num_threads = num_threads or usable_cpus()
        self._host = host
        self._images, self._shapes = kernels, shapes
        self._weights = {info.name: weight_array(info, weights) for info in host.weights}
        self._runtime = runtime
        self._bound: dict[tuple[tuple[int, ...], ...], NativeProgram] = {}
        self._lock = Lock()

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for inputs of the right number and dtypes, and of shapes that fit one another.

        Raises ShapeError for a size outside of its range.
        """
        return self.bound(inputs).run(inputs)

    def profile(self, inputs: Sequence[NDArray[Any]]) -> list[tuple[Launch, float]]:
        """As NativeProgram.profile."""
        return self.bound(inputs).profile(inputs)

    def bound(self, inputs: Sequence[NDArray[Any]]) -> NativeProgram:
        """The program for the sizes of these inputs."""
        key = tuple([a.shape for a in inputs])
        program = self._bound.get(key)
        if program is None:
            host = self._host.at(self._host.sizes(inputs), self._shapes)
            program = NativeProgram(host, self._images, self._weights, self._runtime, self.num_threads)
            with self._lock:
                if len(self._bound) >= _MOST_BOUND:
                    del self._bound[next(iter(self._bound))]
                self._bound[key] = program
        return program

"""Running a program on the CPU: its launches as a table that native code executes.

With the addresses of one call's buffers beside the table, nothing is left to decide at run time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned, aligned_empty
from dlc.cpus import usable_cpus
from dlc.errors import CompileError
from dlc.runtime.cpu.native import Runtime
from dlc.runtime.host_program import ARENA, FIRST_INPUT, HostProgram, Launch, weight_array

# A launch on less memory than this is over before another thread has joined in: about half a microsecond of work.
SMALL_BYTES = 32 << 10
# How many bytes one task of a copy moves; `dlc_copy` in runtime.ll counts by it.
COPY_BYTES = 64 << 10


@dataclass(frozen=True)
class KernelImage:
    """A kernel's native code: for each of its grids, in order, the address of `void (ptr arguments, i64 task)` and the
    number of tasks. `code` is whatever must stay alive for the addresses to hold."""

    grids: tuple[tuple[int, int], ...]
    code: object = None


class _Context:
    """What one call at a time needs for itself: an arena, and the addresses of all buffers."""

    def __init__(self, arena_bytes: int, buffers: int, weights: Sequence[NDArray[Any]]) -> None:
        self.arena = aligned_empty((arena_bytes,), np.uint8)
        addresses = (ctypes.c_void_p * (buffers + len(weights)))()
        addresses[ARENA] = address_of(self.arena)
        for i, weight in enumerate(weights, buffers):
            addresses[i] = address_of(weight)
        self.addresses = addresses
        self.location = ctypes.addressof(addresses)


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
        self._host = host
        self._results = [(cast("tuple[int, ...]", info.shape), info.dtype) for info in host.outputs]
        self._images = tuple(kernels.values())
        self._weights = [weight_array(info, weights) for info in host.weights]
        records: list[int] = []
        # Where each launch starts in the table, in words, and how many records it has there.
        self._places: list[tuple[int, int]] = []
        for launch in host.launches:
            grids = kernels[launch.kernel].grids if launch.kernel is not None else _copy_grids(launch, runtime)
            self._places.append((len(records), len(grids)))
            for address, tasks in grids:
                records += _record(launch, address, tasks)
        self._table = np.array(records, np.int64)
        self._table_address = address_of(self._table)
        self._count = sum(count for _, count in self._places)
        self._runtime = runtime
        self._execute = runtime.execute
        self._free = [self._new_context()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for inputs of the right number, shapes and dtypes.

        Kernels rely on buffers that are C-contiguous and as aligned as their elements; an input that is not is copied.
        """
        return self._call(inputs, self._run_all)

    def profile(self, inputs: Sequence[NDArray[Any]]) -> list[tuple[str, float]]:
        """Runs launch by launch: each one's kernel and seconds, in program order; a copy is called `copy`."""
        times: list[tuple[str, float]] = []

        def run_each(location: int, pool: int) -> None:
            for launch, (place, count) in zip(self._host.launches, self._places, strict=True):
                start = perf_counter()
                self._execute(self._table_address + 8 * place, count, location, pool)
                times.append((launch.kernel or "copy", perf_counter() - start))

        self._call(inputs, run_each)
        return times

    def _run_all(self, location: int, pool: int) -> None:
        self._execute(self._table_address, self._count, location, pool)

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
                context.addresses[i] = address_of(array)
            execute(context.location, pool)
        finally:
            self._free.append(context)
        return outputs

    def _new_context(self) -> _Context:
        buffers = FIRST_INPUT + len(self.inputs) + len(self.outputs)
        return _Context(self._host.arena_bytes, buffers, self._weights)


def _copy_grids(launch: Launch, runtime: Runtime) -> tuple[tuple[int, int], ...]:
    _, size = launch.arguments[-1]
    return ((runtime.copy, -(-size // COPY_BYTES)),)


def _record(launch: Launch, address: int, tasks: int) -> list[int]:
    """One launch of the table that `dlc_execute` reads."""
    if tasks >= 1 << 31:
        raise CompileError(f"kernel @{launch.kernel}: a grid of {tasks} tasks; the pool counts to {(1 << 31) - 1}")
    small = int(launch.bytes < SMALL_BYTES)
    return [address, tasks, small, len(launch.arguments), *(word for argument in launch.arguments for word in argument)]

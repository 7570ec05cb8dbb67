"""Native programs: run the host program as bytecode (record_table.py), which native code interprets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_int64, memmove, sizeof
from dataclasses import dataclass
from struct import Struct
from time import perf_counter
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned
from dlc.dims import Size
from dlc.errors import DlcError
from dlc.options import thread_count
from dlc.runtime.cpu.buffer_pool import BufferPool
from dlc.runtime.cpu.code.native import Runtime
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.record_table import Task, assemble_records
from dlc.runtime.program.dynamic_program import DynamicProgram
from dlc.runtime.program.host_program import (
    FIRST_INPUT_SLOT,
    I64_BYTES,
    BufferRef,
    CallPrinter,
    DynamicLaunch,
    Fail,
    HostProgram,
    Instruction,
    Launch,
    PrintArrays,
    PythonCall,
    SetSize,
    weight_array,
)
from dlc.runtime.program.interpreter import decode_i64
from dlc.runtime.program.python_calls import call_python_op
from dlc.runtime.python_ops.control import format_failure

# Native code returns to Python after a slice of this many launches, so that Python can handle signals. The number doubles until
# a slice takes at least this long.
LAUNCHES_PER_SLICE, _MIN_SLICE_SECONDS = 64, 0.01

# Resolves a buffer reference to an address, in one call.
ResolveAddress: TypeAlias = Callable[[BufferRef], int]
# Called after each launch. A dynamic launch is specialized to the sizes of the call first.
OnLaunch: TypeAlias = Callable[[Launch, ResolveAddress], None]
# Called for each data-dependent size.
OnSetSize: TypeAlias = Callable[[SetSize, ResolveAddress], None]


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel's native code.

    Attributes:
        grids: For each grid, the address of its entry point `void (ptr arguments, i64 task)` and the number of tasks, which may
            depend on the kernel's size parameters.
        code: Keeps the memory of the code alive.
    """

    grids: tuple[tuple[int, Size], ...]
    code: object = None


class BytecodeProgram(ABC):
    """The bytecode of a host program, with its kernels and weights.

    It may be called from several threads at once: each call has its own context. Results do not depend on `num_threads`.
    """

    def __init__(
        self,
        host: HostProgram | DynamicProgram,
        instructions: Sequence[Instruction],
        kernels: Mapping[str, LoadedKernel],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.num_threads = thread_count(num_threads)
        self._pack_addresses = Struct(f"={len(host.inputs) + len(host.outputs)}q").pack_into
        self._loaded_kernels = tuple(kernels.values())
        self._weights = [weight_array(info, weights) for info in host.weights]
        tasks = {name: [tasks for _, tasks in kernel.grids] for name, kernel in kernels.items()}
        self._bytecode = assemble_records(instructions, host.slots, tasks)
        self._records = np.empty(len(self._bytecode.words), np.int64)
        self.start = address_of(self._records)

        def address(task: Task) -> int:
            kernel, grid = task
            return kernels[kernel].grids[grid][0] if kernel is not None else runtime.copy

        self._records[:] = self._bytecode.relocate(self.start, address)
        self.runtime = runtime
        self._execute = runtime.execute
        self._free_contexts: list[Context] = []
        self._donated: Mapping[int, int] = {}

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the program on validated inputs and return the outputs.

        Kernels need C-contiguous buffers that are aligned to their elements; other inputs are copied. Raises DlcError if a
        run-time assertion (`Fail`) fails.
        """
        return self._call(inputs, self._run_all)

    def run_traced(
        self, inputs: Sequence[NDArray[Any]], on_launch: OnLaunch, on_set_size: OnSetSize | None = None
    ) -> list[NDArray[Any]]:
        """Run launch by launch: call `on_launch` after each launch, and `on_set_size` for each data-dependent size."""

        def run_each(context: Context, pool: int) -> None:
            record = self.start
            while record := self._execute_in_python(record, context):
                record = self._execute(record, 1, context.slots_address, pool)
                launch = self._bytecode.launch_ends.get((record - self.start) // 8)
                if launch is not None:
                    on_launch(self._specialize_launch(launch, context), context.address)
                instruction = self._bytecode.stops[-record - 1][0] if record < 0 else None
                if on_set_size is not None and isinstance(instruction, SetSize):
                    on_set_size(instruction, context.address)

        return self._call(inputs, run_each)

    def share_memory_with(self, other: BytecodeProgram) -> None:
        """Share the contexts and weights of a program that differs only in its kernels."""
        self._weights, self._free_contexts = other._weights, other._free_contexts

    def _run_all(self, context: Context, pool: int) -> None:
        record = self._execute_from(self.start, LAUNCHES_PER_SLICE, context, pool)
        if record:
            self.resume(record, context, pool)

    def _execute_from(self, record: int, count: int, context: Context, pool: int) -> int:
        """Execute bytecode from `record` on, for at most `count` launches and loop iterations."""
        return self._execute(record, count, context.slots_address, pool)

    def resume(self, record: int, context: Context, pool: int) -> None:
        """Continue a call after native code has returned to Python.

        Raises DlcError if a run-time assertion (`Fail`) fails.
        """
        count = LAUNCHES_PER_SLICE
        while record := self._execute_in_python(record, context):
            start = perf_counter()
            record = self._execute_from(record, count, context, pool)
            count = 2 * count if perf_counter() - start < _MIN_SLICE_SECONDS else max(1, count // 2)

    def _execute_in_python(self, record: int, context: Context) -> int:
        """Return the record at which to continue; a negative `record` is a stop code, whose instruction is executed first.

        Raises DlcError for a run-time assertion (`Fail`).
        """
        if record >= 0:
            return record
        instruction, next_word = self._bytecode.stops[-record - 1]
        match instruction:
            case Fail(message=message, values=values):
                raise DlcError(format_failure(message, [decode_i64(context.read(ref, I64_BYTES)) for ref in values]))
            case SetSize(symbol=symbol, ref=ref):
                if self._set_size(context, symbol, decode_i64(context.read(ref, I64_BYTES))):
                    return self._restart(context)
            case PrintArrays():
                context.printer.print_once(instruction, context.read, self._sizes(context))
            case PythonCall():
                if not self._call_python(context, instruction):
                    return self._restart(context)
        return self.start + 8 * next_word

    def _restart(self, context: Context) -> int:
        """Return the first record, to restart a call after its arena was reallocated."""
        context.printer.restart()
        return self.start

    def _call_python(self, context: Context, call: PythonCall) -> bool:
        """Run an op that is implemented in Python and store its results.

        If its data-dependent sizes reallocate the arena, store nothing and return False.
        """
        results, data_dependent_sizes = call_python_op(call, context.read, self._sizes(context))
        for symbol, size in data_dependent_sizes.items():
            if self._set_size(context, symbol, size):
                return False
        for array, result in zip(call.results, results, strict=True):
            memmove(context.address(array.ref), address_of(result), result.nbytes)
        return True

    def _call(self, inputs: Sequence[NDArray[Any]], execute: Any) -> list[NDArray[Any]]:
        arrays = [a if a.flags.c_contiguous and a.flags.aligned else aligned(a) for a in inputs]
        if self._donated:
            arrays = _prepare_donated(arrays, self._donated.values())
        pool = self.runtime.pool(self.num_threads)
        context = self.acquire_context()
        try:
            self._bind(context, arrays)
            outputs: list[NDArray[Any]] = [result.empty() for result in context.results]
            for k, donor in self._donated.items():
                outputs.insert(k, arrays[donor])
            self._pack_addresses(
                context.slot_bytes, FIRST_INPUT_SLOT * sizeof(c_int64), *map(address_of, arrays), *map(address_of, outputs)
            )
            context.outputs, context.printer = outputs, CallPrinter()
            execute(context, pool)
            return self._finish(context)
        finally:
            context.outputs = []
            self._free_contexts.append(context)

    def _finish(self, context: Context) -> list[NDArray[Any]]:
        """Return the outputs of a finished call."""
        return context.outputs

    def acquire_context(self) -> Context:
        """Return a context for exclusive use."""
        try:
            return self._free_contexts.pop()
        except IndexError:
            return self._new_context()

    def _new_context(self) -> Context:
        context = Context(self._bytecode.slots)
        for i, weight in enumerate(self._weights, FIRST_INPUT_SLOT + len(self.inputs) + len(self.outputs)):
            context.slots[i] = address_of(weight)
        return context

    @abstractmethod
    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        """Bind a context to the shapes of the inputs."""

    @abstractmethod
    def _specialize_launch(self, launch: Launch | DynamicLaunch, context: Context) -> Launch:
        """Return a launch for the sizes of the call."""

    @abstractmethod
    def _sizes(self, context: Context) -> Mapping[str, int]:
        """Return the sizes of the call that have been computed so far, by name."""

    @abstractmethod
    def _set_size(self, context: Context, symbol: str, count: int) -> bool:
        """Bind a data-dependent size in the context; return whether the arena was reallocated."""


def _prepare_donated(arrays: Sequence[NDArray[Any]], donors: Collection[int]) -> list[NDArray[Any]]:
    """Return the inputs, with donated arrays copied where they are read-only or overlap another input."""
    prepared, end = list(arrays), 0
    spans = sorted((address_of(a), a.nbytes, k) for k, a in enumerate(prepared) if a.nbytes)
    shared: set[int] = set()
    for (start, size, k), previous in zip(spans, [None, *spans], strict=False):
        if previous is not None and start < end:
            shared |= {k, previous[2]}
        end = max(end, start + size)
    for k in donors:
        if k in shared or not prepared[k].flags.writeable:
            prepared[k] = prepared[k].copy()
    return prepared


class NativeProgram(BytecodeProgram):
    """A static-shape host program with the native code of its kernels."""

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, LoadedKernel],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        super().__init__(host, host.instructions, kernels, weights, runtime, num_threads)
        self._arena_bytes = host.arena_bytes
        self._donated = dict(sorted(host.donors.items()))
        allocated_outputs = [info for k, info in enumerate(host.outputs) if k not in host.donors]
        self._results = [BufferPool(cast("tuple[int, ...]", info.shape), info.dtype) for info in allocated_outputs]
        self._free_contexts.append(self._new_context())

    @property
    def has_donors(self) -> bool:
        """Return whether results overwrite inputs."""
        return bool(self._donated)

    def _new_context(self) -> Context:
        context = super()._new_context()
        context.require_arena(self._arena_bytes)
        context.results = self._results
        return context

    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        pass

    def _specialize_launch(self, launch: Launch | DynamicLaunch, context: Context) -> Launch:
        return cast("Launch", launch)

    def _sizes(self, context: Context) -> Mapping[str, int]:
        return {}

    def _set_size(self, context: Context, symbol: str, count: int) -> bool:
        raise AssertionError("a static-shape program has no data-dependent sizes")

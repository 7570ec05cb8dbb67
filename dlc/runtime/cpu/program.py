"""Native programs: run the host program as bytecode (record_table.py), which native code interprets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_int64, memmove, sizeof
from dataclasses import dataclass
from struct import Struct
from time import perf_counter
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, address_of, aligned
from dlc.errors import DlcError
from dlc.options import thread_count
from dlc.runtime.collectives.native_calls import native_calls
from dlc.runtime.collectives.transport import CollectiveCall, Transport, find_transport
from dlc.runtime.cpu.buffer_pool import BufferPool
from dlc.runtime.cpu.code.native import Runtime
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.data_dependent_sizes import SizingConstants, SizingState
from dlc.runtime.cpu.record_table import Task, assemble_records
from dlc.runtime.cpu.slot_inits import slot_inits
from dlc.runtime.program.host_program import (
    ARENA_SLOT,
    FIRST_INPUT_SLOT,
    I64_BYTES,
    BufferRef,
    CallPrinter,
    Fail,
    HostProgram,
    Launch,
    PrintArrays,
    PythonCall,
    SetSize,
    weight_array,
)
from dlc.runtime.program.interpreter import decode_i64
from dlc.runtime.program.python_calls import call_python_op
from dlc.runtime.program.size_binding import SizeBinder, with_size
from dlc.runtime.program.size_operations import SizeOperations
from dlc.runtime.python_ops.control import format_failure
from dlc.shapes.dims import Size
from dlc.shapes.size_code import size_function

# Native code returns to Python after a slice of this many launches, so that Python can handle signals. The number doubles until
# a slice takes at least this long.
LAUNCHES_PER_SLICE, _MIN_SLICE_SECONDS = 64, 0.01
# A result is copied to a smaller buffer if its buffer is larger than twice the result plus this many bytes.
_MAX_UNUSED_BYTES = 1 << 16

# Resolves a buffer reference to an address, in one call.
ResolveAddress: TypeAlias = Callable[[BufferRef], int]
# Called after each launch, which is specialized for the sizes of the call.
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


class NativeProgram:
    """The bytecode of a host program, with its kernels and weights.

    Bytecode reads symbolic sizes from slots, so that it is valid for all sizes; a context stays bound to the sizes of its last
    call. The program may be called from several threads at once: each call has its own context. Results do not depend on
    `num_threads`.
    """

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, LoadedKernel],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
        cpus: frozenset[int] | None = None,
    ) -> None:
        self.host, self.inputs, self.outputs = host, host.inputs, host.outputs
        self.num_threads, self.cpus = thread_count(num_threads), cpus
        self._pack_addresses = Struct(f"={len(host.inputs) + len(host.outputs)}q").pack_into
        self._loaded_kernels = tuple(kernels.values())
        self._weights = [weight_array(info, weights) for info in host.weights]
        operations = SizeOperations(host)
        tasks = {name: [tasks for _, tasks in kernel.grids] for name, kernel in kernels.items()}
        self._bytecode = assemble_records(host.instructions, host.slots, tasks)
        self._records = np.empty(len(self._bytecode.words), np.int64)
        self.start = address_of(self._records)

        def address(task: Task) -> int:
            kernel, grid = task
            return kernels[kernel].grids[grid][0] if kernel is not None else runtime.copy

        self._records[:] = self._bytecode.relocate(self.start, address)
        self.runtime = runtime
        self._execute = runtime.execute
        self._free_contexts: list[Context] = []
        self._starts_collectives = any("request" in call.settings for call in self._bytecode.collectives)
        self._unfinished_calls: list[object] = []
        # Tables of native calls, which contexts refer to by their addresses.
        self._native_call_tables: WeakKeyDictionary[Transport, NDArray[np.int64]] = WeakKeyDictionary()
        inits, arena_bytes = slot_inits(operations, self._bytecode)
        self._slots = np.array([slot for slot, _, _ in inits], np.int64)
        self._sizing_constants = (
            SizingConstants(operations, self._bytecode, inits, arena_bytes, self.start) if host.data_dependent_sizes else None
        )
        self._data_dependent_outputs = () if self._sizing_constants is None else tuple(self._sizing_constants.outputs)
        self._bind_sizes = SizeBinder(operations, arena_bytes, [operation for _, operation, _ in inits])
        self._output_shapes = size_function(host.symbols, [info.shape for info in host.outputs])
        # The input shapes of all calls, if there are no symbols.
        self._static_shapes = None if host.symbols else [cast("tuple[int, ...]", info.shape) for info in host.inputs]
        if self._static_shapes is not None:
            self._free_contexts.append(self.acquire_context(self._static_shapes))

    @property
    def has_direct_calls(self) -> bool:
        """Return whether direct calls may run the program.

        The sizes of its inputs must determine the buffers of results: none is donated or data-dependent. No collective may be
        pending after an error, since it accesses the arrays of the call.
        """
        return not self.host.donors and self._sizing_constants is None and not self._starts_collectives

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the program on validated inputs and return the outputs.

        Kernels need C-contiguous buffers that are aligned to their elements; other inputs are copied. Raises ShapeError for a
        size outside of its range, and DlcError if a run-time assertion (`Fail`) fails.
        """
        return self._call(inputs, self._run_all)

    def run_traced(
        self, inputs: Sequence[NDArray[Any]], on_launch: OnLaunch, on_set_size: OnSetSize | None = None
    ) -> list[NDArray[Any]]:
        """Run launch by launch: call `on_launch` after each launch, and `on_set_size` for each data-dependent size."""
        if self._sizing_constants is not None:
            # A run that needs a larger arena is restarted. Run once before tracing, so that each launch is reported once.
            self.run(inputs)

        def run_each(context: Context, pool: int) -> None:
            record = self.start
            while record := self._execute_in_python(record, context):
                record = self._execute(record, 1, context.slots_address, pool)
                launch = self._bytecode.launch_ends.get((record - self.start) // 8)
                if launch is not None:
                    on_launch(launch.specialize(self._sizes(context)), context.address)
                instruction = self._bytecode.stops[-record - 1][0] if record < 0 else None
                if on_set_size is not None and isinstance(instruction, SetSize):
                    on_set_size(instruction, context.address)

        return self._call(inputs, run_each)

    def data_dependent_sizes(self, inputs: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Run the program and return its data-dependent sizes; in loops, those of the last iteration."""
        sizes: dict[str, int] = {}

        def run_all(context: Context, pool: int) -> None:
            self._run_all(context, pool)
            sizes.update(zip(self.host.data_dependent_sizes, _data_dependent_sizes_of(context), strict=True))

        self._call(inputs, run_all)
        return sizes

    def share_memory_with(self, other: NativeProgram) -> None:
        """Share the contexts and weights of a program that differs only in its kernels."""
        self._weights, self._free_contexts = other._weights, other._free_contexts

    def _run_all(self, context: Context, pool: int) -> None:
        record = self._execute_from(self.start, LAUNCHES_PER_SLICE, context, pool)
        if record:
            self.resume(record, context, pool)

    def _execute_from(self, record: int, count: int, context: Context, pool: int) -> int:
        """Execute bytecode from `record` on, for at most `count` launches and loop iterations."""
        if context.data_dependent_sizes is None:
            return self._execute(record, count, context.slots_address, pool)
        return self.runtime.execute_data_dependent(
            context.data_dependent_sizes.address, record, count, context.slots_address, pool
        )

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
        arrays, donors = [a if a.flags.c_contiguous and a.flags.aligned else aligned(a) for a in inputs], self.host.donors
        if donors:
            arrays = _prepare_donated(arrays, donors.values())
        pool = self.runtime.pool(self.num_threads, self.cpus)
        context = self.acquire_context(self._static_shapes or [a.shape for a in arrays])
        has_pending_collectives = self._starts_collectives
        try:
            self.bind_collectives(context)
            outputs: list[NDArray[Any]] = [result.empty() for result in context.results]
            for k, donor in donors.items():
                outputs[k] = arrays[donor]
            self._pack_addresses(
                context.slot_bytes, FIRST_INPUT_SLOT * sizeof(c_int64), *map(address_of, arrays), *map(address_of, outputs)
            )
            context.outputs, context.printer = outputs, CallPrinter()
            execute(context, pool)
            results = self._finish(context)
            has_pending_collectives = False
            return results
        finally:
            if has_pending_collectives:
                # After an error or an interrupt, collectives that have started still access the memory of the call.
                self._unfinished_calls.append((context, arrays, context.outputs))
            else:
                context.outputs = []
                self._free_contexts.append(context)

    def _finish(self, context: Context) -> list[NDArray[Any]]:
        """Return the outputs of a finished call; those of data-dependent sizes are views of their buffers."""
        if context.data_dependent_sizes is None:
            return context.outputs
        outputs, shapes = context.outputs, self._output_shapes(*context.data_dependent_sizes.sizes)
        for k in self._data_dependent_outputs:
            memory, info = outputs[k], self.outputs[k]
            outputs[k] = Array(shapes[k], info.dtype, memory)
            if memory.nbytes > 2 * outputs[k].nbytes + _MAX_UNUSED_BYTES:
                # Do not keep a much larger buffer alive.
                outputs[k] = outputs[k].copy()
        return outputs

    def acquire_context(self, shapes: list[tuple[int, ...]]) -> Context:
        """Return a context that is bound to inputs of these shapes, for exclusive use."""
        try:
            context = self._free_contexts.pop()
        except IndexError:
            context = self._new_context()
        if shapes != context.shapes:
            self._bind(context, shapes, self.host.initial_sizes)
        return context

    def bind_collectives(self, context: Context) -> None:
        """Let a context run its collectives on the transport of the calling rank; without one, Python runs them."""
        slot, transport = self._bytecode.collectives_slot, find_transport()
        if slot is None or transport is None:
            return
        table = self._native_call_tables.get(transport)
        if table is None:
            calls = [_collective_call(call) for call in self._bytecode.collectives]
            table = self._native_call_tables[transport] = native_calls(
                transport, calls, self.runtime.store_index, self.runtime.complete
            )
        context.slots[slot] = address_of(table)

    def _new_context(self) -> Context:
        context = Context(self._bytecode.slots)
        for i, weight in enumerate(self._weights, FIRST_INPUT_SLOT + len(self.inputs) + len(self.outputs)):
            context.slots[i] = address_of(weight)
        if self._sizing_constants is not None:
            context.data_dependent_sizes = SizingState(self._sizing_constants)
        return context

    def _bind(self, context: Context, shapes: list[tuple[int, ...]], data_dependent_sizes: list[int]) -> None:
        """Bind a context to these sizes: set the slots that depend on them, and the buffers of results."""
        bound_sizes = self._bind_sizes(shapes, data_dependent_sizes)
        previous, context.shapes = context.results, None
        context.require_arena(bound_sizes.arena_bytes)
        num_regions = len(self.host.regions)
        arena, values = address_of(context.arena), bound_sizes.values
        context.slots[self._slots] = [*[arena + offset for offset in values[:num_regions]], *values[num_regions:]]
        infos = zip(bound_sizes.outputs, self.outputs, strict=True)
        # A donated output needs no memory of its own.
        output_pools = [BufferPool((0,) if k in self.host.donors else s, i.dtype) for k, (s, i) in enumerate(infos)]
        for k in self._data_dependent_outputs:
            output_pools[k] = _reuse_or_create_pool(output_pools[k], previous[k] if previous else None)
        context.results = output_pools
        if context.data_dependent_sizes is not None:
            context.data_dependent_sizes.sizes = [*self._bind_sizes.inputs.of(shapes), *data_dependent_sizes]
            context.data_dependent_sizes.set_capacities(
                len(context.arena), [output_pools[k].bytes for k in self._data_dependent_outputs]
            )
        context.shapes = shapes

    def _sizes(self, context: Context) -> Mapping[str, int]:
        """Return the sizes of the call that have been computed so far, by name."""
        assert context.shapes is not None
        return self._bind_sizes.sizes(context.shapes, _data_dependent_sizes_of(context))

    def _set_size(self, context: Context, symbol: str, count: int) -> bool:
        """Bind a data-dependent size in the context; return whether the arena was reallocated."""
        shapes, arena, previous = context.shapes, context.slots[ARENA_SLOT], _data_dependent_sizes_of(context)
        assert shapes is not None
        data_dependent_sizes = with_size(self.host, shapes, previous, symbol, count)
        if data_dependent_sizes != previous:
            self._bind(context, shapes, data_dependent_sizes)
        self._grow_outputs(context)
        return bool(context.slots[ARENA_SLOT] != arena)

    def _grow_outputs(self, context: Context) -> None:
        """Reallocate outputs whose computed size exceeds their capacity."""
        for k in self._data_dependent_outputs:
            if context.outputs[k].nbytes < context.results[k].bytes:
                context.outputs[k] = context.results[k].empty()
                context.slots[FIRST_INPUT_SLOT + len(self.inputs) + k] = address_of(context.outputs[k])


def _collective_call(call: PythonCall) -> CollectiveCall:
    """Return the types of a collective's arrays; the sizes of programs on a mesh are static."""
    operand, result_bytes = next(iter(call.arguments), None), sum(int(result.bytes) for result in call.results)
    if operand is None:
        return CollectiveCall(call.op, call.settings, (), np.dtype(np.int64), result_bytes)
    return CollectiveCall(call.op, call.settings, tuple(map(int, operand.shape)), operand.dtype, result_bytes)


def _data_dependent_sizes_of(context: Context) -> list[int]:
    return [] if context.data_dependent_sizes is None else context.data_dependent_sizes.data_dependent_sizes


def _reuse_or_create_pool(required: BufferPool, previous: BufferPool | None) -> BufferPool:
    """Return a buffer pool for a result with data-dependent sizes: the previous one if its buffers are large enough."""
    return (
        previous
        if previous is not None and previous.bytes >= required.bytes
        else BufferPool((required.bytes,), np.dtype(np.uint8))
    )


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

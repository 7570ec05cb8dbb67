"""Dynamic-shape programs on the CPU: the same bytecode for all sizes; each call stores its sizes in slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, address_of
from dlc.runtime.cpu.buffer_pool import BufferPool
from dlc.runtime.cpu.code.native import Runtime
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.data_dependent_sizes import SizingConstants, SizingState
from dlc.runtime.cpu.program import BytecodeProgram, LoadedKernel, OnLaunch, OnSetSize
from dlc.runtime.cpu.record_table import tasks_word
from dlc.runtime.cpu.size_operations import SizeOperations
from dlc.runtime.program.dynamic_program import DynamicProgram, SizeBinder, resolve_launches, validate_size
from dlc.runtime.program.host_program import ARENA_SLOT, FIRST_INPUT_SLOT, DynamicLaunch, KernelSignature, Launch
from dlc.runtime.sizes.size_function import size_function

# A result is copied to a smaller buffer if its buffer is larger than twice the result plus this many bytes.
_MAX_UNUSED_BYTES = 1 << 16


class DynamicNativeProgram(BytecodeProgram):
    """A dynamic-shape program. Bytecode reads sizes from slots, so that it is valid for all sizes.

    A context stays bound to the sizes of its last call.
    """

    def __init__(
        self,
        host: DynamicProgram,
        kernels: Mapping[str, LoadedKernel],
        shapes: Mapping[str, KernelSignature],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        instructions = resolve_launches(host.instructions, shapes)
        super().__init__(host, instructions, kernels, weights, runtime, num_threads)
        self._host = host
        size_slots, task_slots = self._bytecode.sizes, self._bytecode.work
        self._bind_sizes = SizeBinder(
            host, instructions, [*size_slots, *(tasks for tasks, _ in task_slots), *(num_bytes for _, num_bytes in task_slots)]
        )
        self._size_indices = {symbol: k for k, symbol in enumerate(host.data_dependent_sizes)}
        self._sizing_constants: SizingConstants | None = None
        if host.data_dependent_sizes:
            self._sizing_constants = SizingConstants(
                SizeOperations(host, instructions, self._bytecode), host.initial_sizes, self.start
            )
        self._data_dependent_outputs = () if self._sizing_constants is None else tuple(self._sizing_constants.outputs)
        self._output_shapes = size_function(self._bind_sizes.symbols, [info.shape for info in host.outputs])
        region_slots = range(host.first_region, host.first_region + len(host.regions))
        self._slots = np.array([*region_slots, *size_slots.values(), *task_slots.values()], np.int64)

    def _new_context(self) -> Context:
        context = super()._new_context()
        if self._sizing_constants is not None:
            context.data_dependent_sizes = SizingState(self._sizing_constants)
        return context

    def _execute_from(self, record: int, count: int, context: Context, pool: int) -> int:
        if context.data_dependent_sizes is None:
            return super()._execute_from(record, count, context, pool)
        return self.runtime.execute_data_dependent(
            context.data_dependent_sizes.address, record, count, context.slots_address, pool
        )

    @property
    def has_data_dependent_sizes(self) -> bool:
        """Return whether any size is data-dependent."""
        return self._sizing_constants is not None

    def acquire_bound_context(self, inputs: Sequence[NDArray[Any]]) -> Context:
        """Return a context bound to inputs of these shapes, for exclusive use."""
        context = self.acquire_context()
        self._bind(context, inputs)
        return context

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the program on validated inputs and return the outputs.

        Raises ShapeError for a size outside of its range.
        """
        return super().run(inputs)

    def run_traced(
        self, inputs: Sequence[NDArray[Any]], on_launch: OnLaunch, on_set_size: OnSetSize | None = None
    ) -> list[NDArray[Any]]:
        # A run that needs a larger arena is restarted. Run once before tracing, so that each launch is reported once.
        super().run(inputs)
        return super().run_traced(inputs, on_launch, on_set_size)

    def data_dependent_sizes(self, inputs: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Run the program and return its data-dependent sizes; in loops, those of the last iteration."""
        sizes: dict[str, int] = {}

        def run_all(context: Context, pool: int) -> None:
            self._run_all(context, pool)
            sizes.update(zip(self._size_indices, _data_dependent_sizes_of(context), strict=True))

        self._call(inputs, run_all)
        return sizes

    def _specialize_launch(self, launch: Launch | DynamicLaunch, context: Context) -> Launch:
        return cast(DynamicLaunch, launch).specialize(self._sizes(context))

    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        shapes = [a.shape for a in inputs]
        if shapes != context.shapes:
            self._rebind(context, shapes, self._host.initial_sizes)

    def _sizes(self, context: Context) -> Mapping[str, int]:
        assert context.shapes is not None
        return self._bind_sizes.sizes(context.shapes, _data_dependent_sizes_of(context))

    def _set_size(self, context: Context, symbol: str, count: int) -> bool:
        index, shapes, arena = self._size_indices[symbol], context.shapes, context.slots[ARENA_SLOT]
        assert shapes is not None
        previous = _data_dependent_sizes_of(context)
        data_dependent_sizes = [*previous[:index], validate_size(self._host, shapes, previous[:index], symbol, count)]
        if data_dependent_sizes != previous[: index + 1]:
            self._rebind(context, shapes, [*data_dependent_sizes, *self._host.initial_sizes[len(data_dependent_sizes) :]])
        self._grow_outputs(context)
        return bool(context.slots[ARENA_SLOT] != arena)

    def _rebind(self, context: Context, shapes: list[tuple[int, ...]], data_dependent_sizes: list[int]) -> None:
        """Bind a context to these sizes: set the slots that depend on them."""
        bound_sizes = self._bind_sizes(shapes, data_dependent_sizes)
        num_sizes, num_tasks = len(self._bytecode.sizes), len(self._bytecode.work)
        values = bound_sizes.extra_sizes
        task_counts, task_bytes = values[num_sizes : num_sizes + num_tasks], values[num_sizes + num_tasks :]
        slot_values = (*values[:num_sizes], *map(tasks_word, task_counts, task_bytes))
        previous, context.shapes = context.results, None
        context.require_arena(bound_sizes.arena_bytes)
        arena = address_of(context.arena)
        context.slots[self._slots] = [*[arena + start for start in bound_sizes.starts], *slot_values]
        infos = zip(bound_sizes.outputs, self.outputs, strict=True)
        output_pools = [BufferPool(shape, info.dtype) for shape, info in infos]
        for k in self._data_dependent_outputs:
            output_pools[k] = _reuse_or_create_pool(output_pools[k], previous[k] if previous else None)
        context.results = output_pools
        if context.data_dependent_sizes is not None:
            context.data_dependent_sizes.sizes = [*self._bind_sizes.inputs.of(shapes), *data_dependent_sizes]
            context.data_dependent_sizes.set_capacities(
                len(context.arena), [output_pools[k].bytes for k in self._data_dependent_outputs]
            )
        context.shapes = shapes

    def _grow_outputs(self, context: Context) -> None:
        """Reallocate outputs whose computed size exceeds their capacity."""
        for k in self._data_dependent_outputs:
            if context.outputs[k].nbytes < context.results[k].bytes:
                context.outputs[k] = context.results[k].empty()
                context.slots[FIRST_INPUT_SLOT + len(self.inputs) + k] = address_of(context.outputs[k])

    def _finish(self, context: Context) -> list[NDArray[Any]]:
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


def _data_dependent_sizes_of(context: Context) -> list[int]:
    return [] if context.data_dependent_sizes is None else context.data_dependent_sizes.data_dependent_sizes


def _reuse_or_create_pool(required: BufferPool, previous: BufferPool | None) -> BufferPool:
    """Return a buffer pool for a result with data-dependent sizes: the previous one if its buffers are large enough."""
    return (
        previous
        if previous is not None and previous.bytes >= required.bytes
        else BufferPool((required.bytes,), np.dtype(np.uint8))
    )

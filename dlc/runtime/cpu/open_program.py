"""Running a program on the CPU whose sizes come with a call: one table, whose sizes are in the slots of each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, address_of
from dlc.runtime.cpu.code.native import Runtime
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.deciding import DecidedSizes, DecidingTable
from dlc.runtime.cpu.program import Deciding, KernelImage, Noted, TableProgram
from dlc.runtime.cpu.recycled import Recycler
from dlc.runtime.cpu.sizing import Sizing
from dlc.runtime.cpu.table import tasks_word
from dlc.runtime.program.host_program import ARENA, FIRST_INPUT, Launch, OpenKernel, OpenLaunch
from dlc.runtime.program.open_program import Binder, OpenProgram, decided_size, resolved
from dlc.runtime.sizes.size_function import size_function

# What a result may have of memory that is not its own, besides as much as it has.
_SPARE_BYTES = 1 << 16


class OpenNativeProgram(TableProgram):
    """A program whose sizes come with a call: in slots, so that one table serves all of them.

    A context is bound to the sizes that it was used for last.
    """

    def __init__(
        self,
        host: OpenProgram,
        kernels: Mapping[str, KernelImage],
        shapes: Mapping[str, OpenKernel],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        instructions = resolved(host.instructions, shapes)
        super().__init__(host, instructions, kernels, weights, runtime, num_threads)
        self._host = host
        sizes, work = self._table.sizes, self._table.work
        self._bind_sizes = Binder(host, instructions, [*sizes, *(tasks for tasks, _ in work), *(bytes for _, bytes in work)])
        self._places = {symbol: k for k, symbol in enumerate(host.decided)}
        self._deciding: DecidingTable | None = None
        if host.decided:
            self._deciding = DecidingTable(Sizing(host, instructions, self._table), host.undecided, self.start)
        self._by_data = () if self._deciding is None else tuple(self._deciding.outputs)
        self._output_shapes = size_function(self._bind_sizes.symbols, [info.shape for info in host.outputs])
        regions = range(host.first_region, host.first_region + len(host.regions))
        self._slots = np.array([*regions, *sizes.values(), *work.values()], np.int64)

    def _new_context(self) -> Context:
        context = super()._new_context()
        if self._deciding is not None:
            context.decided = DecidedSizes(self._deciding)
        return context

    def _go(self, record: int, count: int, context: Context, pool: int) -> int:
        if context.decided is None:
            return super()._go(record, count, context, pool)
        return self.runtime.execute_deciding(context.decided.location, record, count, context.location, pool)

    @property
    def decides(self) -> bool:
        """Whether data decides sizes."""
        return self._deciding is not None

    def bound_context(self, inputs: Sequence[NDArray[Any]]) -> Context:
        """A context for inputs of these shapes, which nobody else uses from now on."""
        context = self.taken_context()
        self._bind(context, inputs)
        return context

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for inputs of the right number and dtypes, and of shapes that fit one another.

        Raises ShapeError for a size outside of its range.
        """
        return super().run(inputs)

    def run_noting(self, inputs: Sequence[NDArray[Any]], noted: Noted, deciding: Deciding | None = None) -> list[NDArray[Any]]:
        # Where data decides that a run takes more memory, it begins again: the one after it need not.
        super().run(inputs)
        return super().run_noting(inputs, noted, deciding)

    def decided(self, inputs: Sequence[NDArray[Any]]) -> dict[str, int]:
        """The sizes that data decides in a call; the last ones of those in a loop."""
        found: dict[str, int] = {}

        def run_all(context: Context, pool: int) -> None:
            self._run_all(context, pool)
            found.update(zip(self._places, _decided(context), strict=True))

        self._call(inputs, run_all)
        return found

    def _known(self, launch: Launch | OpenLaunch, context: Context) -> Launch:
        return cast(OpenLaunch, launch).at(self._sizes(context))

    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        shapes = [a.shape for a in inputs]
        if shapes != context.shapes:
            self._rebind(context, shapes, self._host.undecided)

    def _sizes(self, context: Context) -> Mapping[str, int]:
        assert context.shapes is not None
        return self._bind_sizes.sizes(context.shapes, _decided(context))

    def _decide(self, context: Context, symbol: str, count: int) -> bool:
        place, shapes, arena = self._places[symbol], context.shapes, context.slots[ARENA]
        assert shapes is not None
        before = _decided(context)
        decided = [*before[:place], decided_size(self._host, shapes, before[:place], symbol, count)]
        if decided != before[: place + 1]:
            self._rebind(context, shapes, [*decided, *self._host.undecided[len(decided) :]])
        self._make_room(context)
        return bool(context.slots[ARENA] != arena)

    def _rebind(self, context: Context, shapes: list[tuple[int, ...]], decided: list[int]) -> None:
        """Gives the slots what these sizes make of them."""
        bound = self._bind_sizes(shapes, decided)
        sizes, work = len(self._table.sizes), len(self._table.work)
        tasks, bytes = bound.numbers[sizes : sizes + work], bound.numbers[sizes + work :]
        words = (*bound.numbers[:sizes], *map(tasks_word, tasks, bytes))
        before, context.shapes = context.results, None
        context.require_arena(bound.arena_bytes)
        arena = address_of(context.arena)
        context.slots[self._slots] = [*[arena + start for start in bound.starts], *words]
        infos = zip(bound.outputs, self.outputs, strict=True)
        results = [Recycler(shape, info.dtype) for shape, info in infos]
        for k in self._by_data:
            results[k] = _as_bytes(results[k], before[k] if before else None)
        context.results = results
        if context.decided is not None:
            context.decided.sizes = [*self._bind_sizes.inputs.of(shapes), *decided]
            context.decided.give_room(len(context.arena), [results[k].bytes for k in self._by_data])
        context.shapes = shapes

    def _make_room(self, context: Context) -> None:
        """Makes outputs whose size is known only now, and larger than any before."""
        for k in self._by_data:
            if context.outputs[k].nbytes < context.results[k].bytes:
                context.outputs[k] = context.results[k].empty()
                context.slots[FIRST_INPUT + len(self.inputs) + k] = address_of(context.outputs[k])

    def _finished(self, context: Context) -> list[NDArray[Any]]:
        if context.decided is None:
            return context.outputs
        outputs, shapes = context.outputs, self._output_shapes(*context.decided.sizes)
        for k in self._by_data:
            memory, info = outputs[k], self.outputs[k]
            outputs[k] = Array(shapes[k], info.dtype, memory)
            if memory.nbytes > 2 * outputs[k].nbytes + _SPARE_BYTES:
                # Nobody is to keep so much memory alive that nothing is in.
                outputs[k] = outputs[k].copy()
        return outputs


def _decided(context: Context) -> list[int]:
    return [] if context.decided is None else context.decided.decided


def _as_bytes(result: Recycler, before: Recycler | None) -> Recycler:
    """What makes memory for a result whose size data decides: what there was `before`, if that is enough."""
    return before if before is not None and before.bytes >= result.bytes else Recycler((result.bytes,), np.dtype(np.uint8))

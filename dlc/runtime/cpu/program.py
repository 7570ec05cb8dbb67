"""Running a program on the CPU: its instructions as a table that native code executes, on the buffers of one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_int64, sizeof, string_at
from dataclasses import dataclass
from struct import Struct
from time import perf_counter
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, address_of, aligned, aligned_empty
from dlc.dims import Size
from dlc.errors import DlcError
from dlc.machine.cpus import usable_cpus
from dlc.runtime.control import failure
from dlc.runtime.cpu.deciding import DecidedSizes, DecidingTable
from dlc.runtime.cpu.native import Runtime
from dlc.runtime.cpu.recycled import Recycler
from dlc.runtime.cpu.sizing import Sizing
from dlc.runtime.cpu.table import Task, assemble, tasks_word
from dlc.runtime.execute import number
from dlc.runtime.host_program import (
    ARENA,
    FIRST_INPUT,
    NUMBER_BYTES,
    Decide,
    Fail,
    HostProgram,
    Instruction,
    Launch,
    OpenKernel,
    OpenLaunch,
    Place,
    Print,
    weight_array,
)
from dlc.runtime.open_program import Binder, OpenProgram, decided_size, resolved
from dlc.runtime.size_function import size_function

# After so many launches, at first, native code comes back to Python, which looks whether it was interrupted; after more of
# them where they are over in less than these seconds.
LAUNCHES_AT_ONCE, _AT_ONCE_SECONDS = 64, 0.01

# What a result may have of memory that is not its own, besides as much as it has.
_SPARE_BYTES = 1 << 16

# Gives the address that a place has in a call.
Address: TypeAlias = Callable[[Place], int]
# Told of a launch that has run, for the sizes of the call.
Noted: TypeAlias = Callable[[Launch, Address], None]
# Told of a size that data decides.
Deciding: TypeAlias = Callable[[Decide, Address], None]


@dataclass(frozen=True)
class KernelImage:
    """A kernel's native code: for each of its grids, in order, the address of `void (ptr arguments, i64 task)` and the
    number of tasks, in its sizes. `code` is whatever must stay alive for the addresses to hold."""

    grids: tuple[tuple[int, Size], ...]
    code: object = None


class Context:
    """What one call at a time needs for itself: an arena, and the slots; and which shapes of inputs they are for, and which
    sizes, where data decides some."""

    def __init__(self, slots: int) -> None:
        self.shapes: list[tuple[int, ...]] | None = None
        self.decided: DecidedSizes | None = None
        self.outputs: list[NDArray[Any]] = []
        self.results: Sequence[Recycler] = ()
        self.arena = aligned_empty((0,), np.uint8)
        self.slots = np.zeros(slots, np.int64)
        self.location = address_of(self.slots)
        self.written = self.slots.data

    def require_arena(self, bytes: int) -> None:
        """Makes the arena as large; one that grows is made larger than that, so that it does not grow in each call."""
        if bytes > len(self.arena):
            self.arena = aligned_empty((max(bytes, len(self.arena) * 3 // 2),), np.uint8)
        self.slots[ARENA] = address_of(self.arena)


class _Program(ABC):
    """A table of records that native code executes, with the kernels and weights that it is of.

    Calls from several threads at once are safe: each has its own context. Results do not depend on `num_threads`.
    """

    def __init__(
        self,
        host: HostProgram | OpenProgram,
        instructions: Sequence[Instruction],
        kernels: Mapping[str, KernelImage],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None,
    ) -> None:
        self.inputs, self.outputs = host.inputs, host.outputs
        self.num_threads = num_threads or usable_cpus()
        self._write = Struct(f"={len(host.inputs) + len(host.outputs)}q").pack_into
        self._images = tuple(kernels.values())
        self._weights = [weight_array(info, weights) for info in host.weights]
        tasks = {name: [tasks for _, tasks in image.grids] for name, image in kernels.items()}
        self._table = assemble(instructions, host.slots, tasks)
        self._records = np.empty(len(self._table.words), np.int64)
        self.start = address_of(self._records)

        def address(task: Task) -> int:
            kernel, grid = task
            return kernels[kernel].grids[grid][0] if kernel is not None else runtime.copy

        self._records[:] = self._table.placed(self.start, address)
        self.runtime = runtime
        self._execute = runtime.execute
        self._free: list[Context] = []
        self._donors: Mapping[int, int] = {}

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs for inputs of the right number, shapes and dtypes.

        Kernels rely on buffers that are C-contiguous and as aligned as their elements; an input that is not is copied.
        Raises DlcError where the program takes a branch that fails.
        """
        return self._call(inputs, self._run_all)

    def run_noting(self, inputs: Sequence[NDArray[Any]], noted: Noted, deciding: Deciding | None = None) -> list[NDArray[Any]]:
        """As `run`, launch by launch: `noted` is told of each when it has run, `deciding` of each size that data decides."""

        def run_each(context: Context, pool: int) -> None:
            def address(place: Place) -> int:
                return _address(context, place)

            record = self.start
            while record := self._at(record, context):
                record = self._execute(record, 1, context.location, pool)
                launch = self._table.ends.get((record - self.start) // 8)
                if launch is not None:
                    noted(self._known(launch, context), address)
                stop = self._table.stops[-record - 1][0] if record < 0 else None
                if deciding is not None and isinstance(stop, Decide):
                    deciding(stop, address)

        return self._call(inputs, run_each)

    def _run_all(self, context: Context, pool: int) -> None:
        record = self._go(self.start, LAUNCHES_AT_ONCE, context, pool)
        if record:
            self.run_rest(record, context, pool)

    def _go(self, record: int, count: int, context: Context, pool: int) -> int:
        """Runs native code from a record on."""
        return self._execute(record, count, context.location, pool)

    def run_rest(self, record: int, context: Context, pool: int) -> None:
        """Goes on where native code has come back to Python.

        Raises DlcError where the program takes a branch that fails.
        """
        count = LAUNCHES_AT_ONCE
        while record := self._at(record, context):
            began = perf_counter()
            record = self._go(record, count, context, pool)
            count = 2 * count if perf_counter() - began < _AT_ONCE_SECONDS else max(1, count // 2)

    def _at(self, record: int, context: Context) -> int:
        """Where the records go on: what is below 0 says what has to be done first.

        Raises DlcError where the program has taken a branch that fails.
        """
        if record >= 0:
            return record
        stop, following = self._table.stops[-record - 1]
        match stop:
            case Fail(message=message, numbers=numbers):
                raise DlcError(failure(message, [number(_read(context, place, NUMBER_BYTES)) for place in numbers]))
            case Decide():
                moved = self._decide(context, stop, number(_read(context, stop.place, NUMBER_BYTES)))
                following = 0 if moved else following
            case Print():
                stop.run(lambda place, count: _read(context, place, count))
        return self.start + 8 * following

    def _call(self, inputs: Sequence[NDArray[Any]], execute: Any) -> list[NDArray[Any]]:
        arrays = [a if a.flags.c_contiguous and a.flags.aligned else aligned(a) for a in inputs]
        if self._donors:
            arrays = _given_away(arrays, self._donors.values())
        pool = self.runtime.pool(self.num_threads)
        context = self.taken_context()
        try:
            self._bind(context, arrays)
            outputs: list[NDArray[Any]] = [result.empty() for result in context.results]
            for k, donor in self._donors.items():
                outputs.insert(k, arrays[donor])
            self._write(context.written, FIRST_INPUT * sizeof(c_int64), *map(address_of, arrays), *map(address_of, outputs))
            context.outputs = outputs
            execute(context, pool)
            return self._finished(context)
        finally:
            context.outputs = []
            self._free.append(context)

    def _finished(self, context: Context) -> list[NDArray[Any]]:
        """The outputs of a call that has run."""
        return context.outputs

    def taken_context(self) -> Context:
        """A context that nobody else uses from now on."""
        try:
            return self._free.pop()
        except IndexError:
            return self._new_context()

    def _new_context(self) -> Context:
        context = Context(self._table.slots)
        for i, weight in enumerate(self._weights, FIRST_INPUT + len(self.inputs) + len(self.outputs)):
            context.slots[i] = address_of(weight)
        return context

    @abstractmethod
    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        """Makes a context ready for a call with inputs of these shapes."""

    @abstractmethod
    def _known(self, launch: Launch | OpenLaunch, context: Context) -> Launch:
        """A launch for the sizes of a call."""

    @abstractmethod
    def _decide(self, context: Context, decide: Decide, count: int) -> bool:
        """Makes a context ready for what follows, whose size is known now; whether its arena is elsewhere, and empty."""


def _given_away(arrays: Sequence[NDArray[Any]], donors: Collection[int]) -> list[NDArray[Any]]:
    """The arrays, copies in place of donors that are read-only or share memory with another array of them."""
    given, end = list(arrays), 0
    spans = sorted((address_of(a), a.nbytes, k) for k, a in enumerate(given) if a.nbytes)
    shared: set[int] = set()
    for (start, size, k), before in zip(spans, [None, *spans], strict=False):
        if before is not None and start < end:
            shared |= {k, before[2]}
        end = max(end, start + size)
    for k in donors:
        if k in shared or not given[k].flags.writeable:
            given[k] = given[k].copy()
    return given


def _read(context: Context, place: Place, count: int) -> bytes:
    """So many bytes at a place, by the slots of a context."""
    return string_at(_address(context, place), count)


def _address(context: Context, place: Place) -> int:
    slot, offset = place
    return c_int64.from_address(context.location + slot * sizeof(c_int64)).value + offset


class NativeProgram(_Program):
    """A host program with the native code of its kernels."""

    def __init__(
        self,
        host: HostProgram,
        kernels: Mapping[str, KernelImage],
        weights: Mapping[str, NDArray[Any]],
        runtime: Runtime,
        num_threads: int | None = None,
    ) -> None:
        super().__init__(host, host.instructions, kernels, weights, runtime, num_threads)
        self._arena_bytes = host.arena_bytes
        self._donors = dict(sorted(host.donors.items()))
        made = [info for k, info in enumerate(host.outputs) if k not in host.donors]
        self._results = [Recycler(cast("tuple[int, ...]", info.shape), info.dtype) for info in made]
        self._free.append(self._new_context())

    @property
    def has_donors(self) -> bool:
        """Whether results are written over inputs."""
        return bool(self._donors)

    def _new_context(self) -> Context:
        context = super()._new_context()
        context.require_arena(self._arena_bytes)
        context.results = self._results
        return context

    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        pass

    def _known(self, launch: Launch | OpenLaunch, context: Context) -> Launch:
        return cast("Launch", launch)

    def _decide(self, context: Context, decide: Decide, count: int) -> bool:
        raise AssertionError("sizes are known")


class OpenNativeProgram(_Program):
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
        assert context.shapes is not None
        return cast(OpenLaunch, launch).at(self._bind_sizes.sizes(context.shapes, _decided(context)))

    def _bind(self, context: Context, inputs: Sequence[NDArray[Any]]) -> None:
        shapes = [a.shape for a in inputs]
        if shapes != context.shapes:
            self._rebind(context, shapes, self._host.undecided)

    def _decide(self, context: Context, decide: Decide, count: int) -> bool:
        place, shapes, arena = self._places[decide.symbol], context.shapes, context.slots[ARENA]
        assert shapes is not None
        before = _decided(context)
        decided = [*before[:place], decided_size(self._host, shapes, before[:place], decide.symbol, count)]
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

"""Running a program on the CPU: its instructions as a table that native code executes, on the buffers of one call."""

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
from dlc.runtime.cpu.code.native import Runtime
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.recycled import Recycler
from dlc.runtime.cpu.table import Task, assemble
from dlc.runtime.program.computing import computed
from dlc.runtime.program.execute import number
from dlc.runtime.program.host_program import (
    FIRST_INPUT,
    NUMBER_BYTES,
    Compute,
    Decide,
    Fail,
    HostProgram,
    Instruction,
    Launch,
    OpenLaunch,
    Place,
    Print,
    Printing,
    weight_array,
)
from dlc.runtime.program.open_program import OpenProgram
from dlc.runtime.python_ops.control import failure

# After so many launches, at first, native code comes back to Python, which looks whether it was interrupted; after more of
# them where they are over in less than these seconds.
LAUNCHES_AT_ONCE, _AT_ONCE_SECONDS = 64, 0.01

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


class TableProgram(ABC):
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
        self.num_threads = thread_count(num_threads)
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
            record = self.start
            while record := self._at(record, context):
                record = self._execute(record, 1, context.location, pool)
                launch = self._table.ends.get((record - self.start) // 8)
                if launch is not None:
                    noted(self._known(launch, context), context.address)
                stop = self._table.stops[-record - 1][0] if record < 0 else None
                if deciding is not None and isinstance(stop, Decide):
                    deciding(stop, context.address)

        return self._call(inputs, run_each)

    def run_where(self, other: TableProgram) -> None:
        """Runs from now on in the memory of a program of the same instructions and weights, which has other kernels."""
        self._weights, self._free = other._weights, other._free

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
                raise DlcError(failure(message, [number(context.read(place, NUMBER_BYTES)) for place in numbers]))
            case Decide(symbol=symbol, place=place):
                if self._decide(context, symbol, number(context.read(place, NUMBER_BYTES))):
                    return self._again(context)
            case Print():
                context.printing.show(stop, context.read, self._sizes(context))
            case Compute():
                if not self._compute(context, stop):
                    return self._again(context)
        return self.start + 8 * following

    def _again(self, context: Context) -> int:
        """The first record, from which a call goes on whose arena is elsewhere, and empty."""
        context.printing.begin()
        return self.start

    def _compute(self, context: Context, compute: Compute) -> bool:
        """Runs what only Python computes; whether the arena, which the results may be in, is where it was."""
        results, decided = computed(compute, context.read, self._sizes(context))
        for symbol, size in decided.items():
            if self._decide(context, symbol, size):
                return False
        for array, result in zip(compute.results, results, strict=True):
            memmove(context.address(array.place), address_of(result), result.nbytes)
        return True

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
            context.outputs, context.printing = outputs, Printing()
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
    def _sizes(self, context: Context) -> Mapping[str, int]:
        """The sizes of a call by name, as far as they are known."""

    @abstractmethod
    def _decide(self, context: Context, symbol: str, count: int) -> bool:
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


class NativeProgram(TableProgram):
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

    def _sizes(self, context: Context) -> Mapping[str, int]:
        return {}

    def _decide(self, context: Context, symbol: str, count: int) -> bool:
        raise AssertionError("sizes are known")

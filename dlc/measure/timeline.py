"""Record a run of a compiled model as a timeline: the thread, start and duration of all launches.

The model runs as usual, but kernels and memory copies are called through code that records the thread and the clock before and
after each task, in about 50 ns. Waiting and the host program appear as gaps.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of
from dlc.backends.cpu.llvm import compile_text
from dlc.errors import UnsupportedError
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.code.loader import CODE_ALIGNMENT, LoadedCode, MachineCode, link_object
from dlc.runtime.cpu.kernel_object import KernelObject, load_kernels
from dlc.runtime.cpu.program import LoadedKernel
from dlc.runtime.cpu.record_table import COPY_TASK_BYTES
from dlc.runtime.program.host_program import (
    Branch,
    Fail,
    Instruction,
    Launch,
    Loop,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
)
from dlc.target import Target

# The record of a task: grid, task index, thread, start and end in nanoseconds.
_WORDS_PER_TASK = 5
# Maximum tasks of a recorded run, limited by memory.
_MAX_RECORDED_TASKS = 50_000_000
# Placeholders, which each copy of the code replaces: the address to call, the index of the grid, the address of the state.
_TARGET_PLACEHOLDER = b"dlc.measure placeholder."


@dataclass(frozen=True)
class TaskSpan:
    """The execution of one launch by one thread, with times in seconds.

    `launch` is the index of the launch in the program's text; -1 for a copy. Thread 0 is that of the caller.
    """

    launch: int
    kernel: str
    start: float
    seconds: float
    thread: int = 0
    tasks: int = 1


def thread_names(spans: Sequence[TaskSpan]) -> tuple[str, ...]:
    """Return the names of the threads of a timeline."""
    return tuple(f"thread {k}" if k else "the caller" for k in range(1 + max((s.thread for s in spans), default=0)))


@dataclass(frozen=True)
class TimedRun:
    """A recorded run: its launches, and its tasks by start time. The tasks of launch `k` begin at index `first_tasks[k]`."""

    launches: Sequence[Launch]
    tasks: NDArray[np.int64]
    first_tasks: Sequence[int]

    @property
    def seconds(self) -> float:
        """The time from the start of the first task to the end of the last."""
        return float(self.tasks[:, 4].max() - self.tasks[0, 3]) / 1e9 if len(self.tasks) else 0.0

    @cached_property
    def launch_seconds(self) -> list[float]:
        """The duration of each launch in seconds."""
        first = np.array(self.first_tasks)
        ran = first[:-1] < first[1:]
        begin, seconds = first[:-1][ran], np.zeros(len(self.launches))
        seconds[ran] = (np.maximum.reduceat(self.tasks[: first[-1], 4], begin) - self.tasks[begin, 3]) / 1e9
        return seconds.tolist()

    @cached_property
    def task_seconds(self) -> list[NDArray[np.float64]]:
        """The durations of the tasks of each launch, by start time, in seconds; gaps between tasks are excluded.

        The time to read the clock, estimated by the smallest gap between two tasks of a thread, is subtracted.
        """
        _, _, thread, begin, end = self.tasks[np.argsort(self.tasks[:, 2], kind="stable")].T
        gaps = (begin[1:] - end[:-1])[thread[1:] == thread[:-1]]
        clock = gaps.min() if len(gaps) else 0
        return [
            np.maximum(launch_tasks[:, 4] - launch_tasks[:, 3] - clock, 0) / 1e9 for launch_tasks in self._tasks_by_launch()
        ]

    def spans(self, launch_indices: Sequence[int]) -> Iterator[TaskSpan]:
        """Yield the execution of each launch by each thread; `launch_indices` are their indices in the program's text."""
        threads = {_this_thread(): 0}
        for thread in self.tasks[:, 2].tolist():
            threads.setdefault(thread, len(threads))
        begin = self.tasks[0, 3] if len(self.tasks) else 0
        for launch, launch_index, launch_tasks in zip(self.launches, launch_indices, self._tasks_by_launch(), strict=True):
            for thread, row in threads.items():
                thread_tasks = launch_tasks[launch_tasks[:, 2] == thread]
                if len(thread_tasks):
                    start, end = thread_tasks[0, 3], thread_tasks[:, 4].max()
                    name = launch.kernel or "copy"
                    yield TaskSpan(
                        launch_index, name, float(start - begin) / 1e9, float(end - start) / 1e9, row, len(thread_tasks)
                    )

    def _tasks_by_launch(self) -> Iterator[NDArray[np.int64]]:
        """Yield the tasks of each launch."""
        return (self.tasks[a:b] for a, b in pairwise(self.first_tasks))


class TimelineRecorder:
    """Record runs of a compiled model. If its launches depend on data, a first run determines them.

    `memory_of` is a recorder of the same model with other kernels, whose memory is reused: buffer addresses, which determine
    cache set conflicts, may affect the time more than the code.
    """

    def __init__(
        self, artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, memory_of: TimelineRecorder | None = None
    ) -> None:
        self._inputs = inputs
        # The number of recorded tasks, the capacity, and the address of the records.
        self._state, self._records = np.zeros(3, np.int64), np.zeros((0, _WORDS_PER_TASK), np.int64)
        images, native = load_kernels(artifact.kernels), artifact.native()
        grids = [(name, address) for name, image in images.items() for address, _ in image.grids]
        self._kernels: list[str | None] = [None, *(name for name, _ in grids)]
        addresses = [native.copy, *(address for _, address in grids)]
        self._code = _traced_task_code(addresses, address_of(self._state), artifact.target)
        wrappers = iter([self._code.address(f"traced_task.{k}") for k in range(len(self._kernels))])
        native = replace(native, copy=next(wrappers))
        wrapped_images = {
            name: LoadedKernel(tuple((next(wrappers), tasks) for _, tasks in image.grids), image.code)
            for name, image in images.items()
        }
        self._program = artifact.program(threads, images=wrapped_images, native=native, is_sequential=True)
        if memory_of is not None:
            self._program.share_memory_with(memory_of._program)
        host, kernels = artifact.host, {kernel.name: kernel for kernel in artifact.kernels}
        static_launches = None if host.symbols else _static_launches(host.instructions)
        self.launches = static_launches or []
        if static_launches is None:
            self._program.run_traced(inputs, lambda launch, _: self.launches.append(launch))
        count = sum(_task_count(launch, kernels) for launch in self.launches)
        if count > _MAX_RECORDED_TASKS:
            raise UnsupportedError(f"{artifact.name}: a run has {count} tasks, too many to record; measure a part of the model")
        self._records = np.zeros((count, _WORDS_PER_TASK), np.int64)
        self._state[1:] = count, address_of(self._records)

    def run(self) -> TimedRun:
        """Run the model as users do and return the recorded run."""
        self._state[0] = 0
        self._program.run(self._inputs)
        tasks = self._records[np.argsort(self._records[:, 3], kind="stable")]
        return TimedRun(self.launches, tasks, list(self._first_tasks(tasks)))

    def _first_tasks(self, tasks: NDArray[np.int64]) -> Iterator[int]:
        """Yield the index of the first task of each launch, and the end; launches do not overlap or repeat tasks."""
        grids, task_numbers, position = tasks[:, 0].tolist(), tasks[:, 1].tolist(), 0
        for launch in self.launches:
            yield position
            started_tasks: set[tuple[int, int]] = set()
            while (
                position < len(grids)
                and self._kernels[grids[position]] == launch.kernel
                and (grids[position], task_numbers[position]) not in started_tasks
            ):
                started_tasks.add((grids[position], task_numbers[position]))
                position += 1
        yield position


def _static_launches(instructions: Sequence[Instruction]) -> list[Launch] | None:
    """Return the launches of every successful run; None if they depend on data."""
    launches: list[Launch] = []
    for instruction in instructions:
        match instruction:
            case Launch():
                launches.append(instruction)
            case Branch(then=then, otherwise=otherwise):
                if any(body and not isinstance(body[-1], Fail) for body in (then, otherwise)):
                    return None
            case Parallel():
                launches += instruction.launches
            case Loop() | While() | SetSize():
                return None
            case Fail() | PrintArrays() | PythonCall():
                pass
    return launches


def _task_count(launch: Launch, kernels: Mapping[str, KernelObject]) -> int:
    """Return the number of tasks of a launch."""
    if launch.kernel is None:
        return -(-launch.static_sizes[0] // COPY_TASK_BYTES)
    return sum(launch.evaluate_size(tasks) for tasks in kernels[launch.kernel].tasks)


def _this_thread() -> int:
    return int(ctypes.PYFUNCTYPE(ctypes.c_int64)(("pthread_self", ctypes.CDLL(None)))())


def _traced_task_code(addresses: Sequence[int], state: int, target: Target) -> LoadedCode:
    """Return code with a wrapper for each address: `traced_task.0`, `traced_task.1`, …

    Wrappers are patched copies of one function; compiling each of them would take a hundred times as long.
    """
    code, wrappers = _tracer_object(target), bytearray()
    entries: dict[str, int] = {}
    for k, address in enumerate(addresses):
        entries[f"traced_task.{k}"] = len(wrappers) + code.entries["traced_task"]
        wrappers += code.bytes.replace(_TARGET_PLACEHOLDER, struct.pack("<3Q", address, k, state))
        wrappers += bytes(-len(wrappers) % CODE_ALIGNMENT)
    return LoadedCode(bytes(wrappers), entries)


@cache
def _tracer_object(target: Target) -> MachineCode:
    """Return the code of `traced_task` with placeholders for the address that it calls."""
    libc = ctypes.CDLL(None)
    clock, thread = (ctypes.cast(libc[name], ctypes.c_void_p).value for name in ("clock_gettime", "pthread_self"))
    placeholder = ", ".join(f"i64 {word}" for word in struct.unpack("<3Q", _TARGET_PLACEHOLDER))
    text = f"""
@placeholder = private constant [3 x i64] [{placeholder}]

define private i64 @now() noinline {{
  %time = alloca [2 x i64]
  %status = call i32 inttoptr (i64 {clock} to ptr)(i32 1, ptr %time) ; CLOCK_MONOTONIC
  %nanoseconds.at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %nanoseconds
  ret i64 %now
}}

define void @traced_task(ptr %arguments, i64 %task) {{
  ; Volatile, so that LLVM does not fold the placeholder.
  %target = load volatile ptr, ptr @placeholder
  %placeholder.grid = getelementptr i64, ptr @placeholder, i64 1
  %grid = load volatile i64, ptr %placeholder.grid
  %placeholder.state = getelementptr i64, ptr @placeholder, i64 2
  %state = load volatile ptr, ptr %placeholder.state
  %start = call i64 @now()
  call void %target(ptr %arguments, i64 %task)
  %end = call i64 @now()
  %k = atomicrmw add ptr %state, i64 1 monotonic
  %capacity.at = getelementptr i64, ptr %state, i64 1
  %capacity = load i64, ptr %capacity.at
  %fits = icmp slt i64 %k, %capacity
  br i1 %fits, label %record, label %done

record:
  %thread = call i64 inttoptr (i64 {thread} to ptr)()
  %records.at = getelementptr i64, ptr %state, i64 2
  %records = load ptr, ptr %records.at
  %first = mul i64 %k, {_WORDS_PER_TASK}
  %grid.at = getelementptr i64, ptr %records, i64 %first
  %task.at = getelementptr i64, ptr %grid.at, i64 1
  %thread.at = getelementptr i64, ptr %grid.at, i64 2
  %start.at = getelementptr i64, ptr %grid.at, i64 3
  %end.at = getelementptr i64, ptr %grid.at, i64 4
  store i64 %grid, ptr %grid.at
  store i64 %task, ptr %task.at
  store i64 %thread, ptr %thread.at
  store i64 %start, ptr %start.at
  store i64 %end, ptr %end.at
  br label %done

done:
  ret void
}}
"""
    return link_object(compile_text(text, target))

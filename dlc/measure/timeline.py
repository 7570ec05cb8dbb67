"""A run of a compiled model as a timeline: which thread was at work on which run of a kernel, and from when to when.

The model runs as ever, but each grid of a kernel, and the copying of memory, is called through code that notes the thread and
the clock before and after a task. That takes some 50 ns a task; what is between tasks, waiting and the host program's own
work, shows as gaps.
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
from dlc.runtime.cpu.code.loader import CODE_ALIGNMENT, Code, LoadedCode, linked
from dlc.runtime.cpu.kernel_object import KernelObject, images_of
from dlc.runtime.cpu.program import KernelImage
from dlc.runtime.cpu.table import COPY_BYTES
from dlc.runtime.program.host_program import Branch, Compute, Decide, Fail, Instruction, Launch, Loop, OpenLaunch, Print, While
from dlc.target import Target

# What is noted of a task: grid, number, thread, nanoseconds at its begin and end.
_WORDS = 5
# Of more tasks than these there is no room for notes.
_MOST = 50_000_000
# What stands in the code for what is said to each copy of it: the address that it calls, its number, and where notes are.
_UNSAID = b"what it watches, unsaid."


@dataclass(frozen=True)
class Span:
    """What one thread did of one launch of a kernel: seconds from the beginning of the program's run, and how many tasks.

    `launch` is its number in the program's text (-1: a copy); thread 0 is the caller's.
    """

    launch: int
    kernel: str
    start: float
    seconds: float
    thread: int = 0
    tasks: int = 1


def thread_names(spans: Sequence[Span]) -> tuple[str, ...]:
    """What the threads of a timeline are called."""
    return tuple(f"thread {k}" if k else "the caller" for k in range(1 + max((s.thread for s in spans), default=0)))


@dataclass(frozen=True)
class Timed:
    """A run of a program that made these launches: its tasks in the order in which they began, those of launch `k` from number
    `first[k]` on."""

    launches: Sequence[Launch]
    tasks: NDArray[np.int64]
    first: Sequence[int]

    @property
    def seconds(self) -> float:
        """From the first task's begin to the last one's end."""
        return float(self.tasks[:, 4].max() - self.tasks[0, 3]) / 1e9 if len(self.tasks) else 0.0

    @cached_property
    def of_launches(self) -> list[float]:
        """The seconds of each launch."""
        first = np.array(self.first)
        ran = first[:-1] < first[1:]
        begin, seconds = first[:-1][ran], np.zeros(len(self.launches))
        seconds[ran] = (np.maximum.reduceat(self.tasks[: first[-1], 4], begin) - self.tasks[begin, 3]) / 1e9
        return seconds.tolist()

    @cached_property
    def of_tasks(self) -> list[NDArray[np.float64]]:
        """The seconds of the tasks of each launch, in the order in which they began: what is between them is left out.

        So is reading the clock, of which as much counts in a task as between two of a thread: the least that is there.
        """
        _, _, thread, begin, end = self.tasks[np.argsort(self.tasks[:, 2], kind="stable")].T
        between = (begin[1:] - end[:-1])[thread[1:] == thread[:-1]]
        clock = between.min() if len(between) else 0
        return [np.maximum(part[:, 4] - part[:, 3] - clock, 0) / 1e9 for part in self._parts()]

    def spans(self, numbers: Sequence[int]) -> Iterator[Span]:
        """What each thread did of each launch; `numbers` are those of launches in the program's text."""
        threads = {_this_thread(): 0}
        for thread in self.tasks[:, 2].tolist():
            threads.setdefault(thread, len(threads))
        begin = self.tasks[0, 3] if len(self.tasks) else 0
        for launch, number, part in zip(self.launches, numbers, self._parts(), strict=True):
            for thread, row in threads.items():
                own = part[part[:, 2] == thread]
                if len(own):
                    start, end = own[0, 3], own[:, 4].max()
                    name = launch.kernel or "copy"
                    yield Span(number, name, float(start - begin) / 1e9, float(end - start) / 1e9, row, len(own))

    def _parts(self) -> Iterator[NDArray[np.int64]]:
        return (self.tasks[a:b] for a, b in pairwise(self.first))


class Watch:
    """A compiled model whose tasks are noted; one whose calls decide what it launches is run once to see it.

    It runs in the memory of `beside`, if that is given: the same model with other kernels. Which sets of a cache two buffers
    share hangs on where the system put them, and may make more of a difference than the code.
    """

    def __init__(self, artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, beside: Watch | None = None) -> None:
        self._inputs = inputs
        # How many tasks were noted, for how many there is room, and where.
        self._state, self._room = np.zeros(3, np.int64), np.zeros((0, _WORDS), np.int64)
        images, native = images_of(artifact.kernels), artifact.native()
        grids = [(name, address) for name, image in images.items() for address, _ in image.grids]
        self._kernels: list[str | None] = [None, *(name for name, _ in grids)]
        addresses = [native.copy, *(address for _, address in grids)]
        self._code = _watched(addresses, address_of(self._state), artifact.target)
        watched = iter([self._code.address(f"watched.{k}") for k in range(len(self._kernels))])
        native = replace(native, copy=next(watched))
        watching = {
            name: KernelImage(tuple((next(watched), tasks) for _, tasks in image.grids), image.code)
            for name, image in images.items()
        }
        self._program = artifact.program(threads, images=watching, native=native)
        if beside is not None:
            self._program.run_where(beside._program)
        host, kernels = artifact.host, {kernel.name: kernel for kernel in artifact.kernels}
        known = _launches_of_all(host.instructions)
        self.launches = known or []
        if known is None:
            self._program.run_noting(inputs, lambda launch, _: self.launches.append(launch))
        count = sum(_tasks_of(launch, kernels) for launch in self.launches)
        if count > _MOST:
            raise UnsupportedError(f"{artifact.name}: a run has {count} tasks, too many to note each; measure a part of it")
        self._room = np.zeros((count, _WORDS), np.int64)
        self._state[1:] = count, address_of(self._room)

    def run(self) -> Timed:
        """A run as users have it, and what was noted of it."""
        self._state[0] = 0
        self._program.run(self._inputs)
        tasks = self._room[np.argsort(self._room[:, 3], kind="stable")]
        return Timed(self.launches, tasks, list(self._first(tasks)))

    def _first(self, tasks: NDArray[np.int64]) -> Iterator[int]:
        """Where in order of time the tasks of each launch begin: it is over before the next one, and runs no task twice."""
        grids, numbers, at = tasks[:, 0].tolist(), tasks[:, 1].tolist(), 0
        for launch in self.launches:
            yield at
            seen: set[tuple[int, int]] = set()
            while at < len(grids) and self._kernels[grids[at]] == launch.kernel and (grids[at], numbers[at]) not in seen:
                seen.add((grids[at], numbers[at]))
                at += 1
        yield at


def _launches_of_all(instructions: Sequence[Instruction]) -> list[Launch] | None:
    """The launches of every run that ends well; None where they hang on the call."""
    launches: list[Launch] = []
    for instruction in instructions:
        match instruction:
            case Launch():
                launches.append(instruction)
            case Branch(then=then, otherwise=otherwise):
                if any(body and not isinstance(body[-1], Fail) for body in (then, otherwise)):
                    return None
            case Loop() | While() | OpenLaunch() | Decide():
                return None
            case Fail() | Print() | Compute():
                pass
    return launches


def _tasks_of(launch: Launch, kernels: Mapping[str, KernelObject]) -> int:
    if launch.kernel is None:
        return -(-launch.numbers[0] // COPY_BYTES)
    return sum(launch.number(tasks) for tasks in kernels[launch.kernel].tasks)


def _this_thread() -> int:
    return int(ctypes.PYFUNCTYPE(ctypes.c_int64)(("pthread_self", ctypes.CDLL(None)))())


def _watched(addresses: Sequence[int], state: int, target: Target) -> LoadedCode:
    """What is called in the place of each address: `watched.0`, `watched.1`, …

    LLVM takes a hundred times as long as to say of a copy of the same code what it watches.
    """
    code, watched = _watching(target), bytearray()
    entries: dict[str, int] = {}
    for k, address in enumerate(addresses):
        entries[f"watched.{k}"] = len(watched) + code.entries["watched"]
        watched += code.bytes.replace(_UNSAID, struct.pack("<3Q", address, k, state))
        watched += bytes(-len(watched) % CODE_ALIGNMENT)
    return LoadedCode(bytes(watched), entries)


@cache
def _watching(target: Target) -> Code:
    """The code of `watched`, in which it is not said what it watches."""
    libc = ctypes.CDLL(None)
    clock, thread = (ctypes.cast(libc[name], ctypes.c_void_p).value for name in ("clock_gettime", "pthread_self"))
    unsaid = ", ".join(f"i64 {word}" for word in struct.unpack("<3Q", _UNSAID))
    text = f"""
@said = private constant [3 x i64] [{unsaid}]

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

define void @watched(ptr %arguments, i64 %task) {{
  ; Volatile, or LLVM would reckon with what is not said yet.
  %real = load volatile ptr, ptr @said
  %said.grid = getelementptr i64, ptr @said, i64 1
  %grid = load volatile i64, ptr %said.grid
  %said.state = getelementptr i64, ptr @said, i64 2
  %state = load volatile ptr, ptr %said.state
  %start = call i64 @now()
  call void %real(ptr %arguments, i64 %task)
  %end = call i64 @now()
  %k = atomicrmw add ptr %state, i64 1 monotonic
  %room.at = getelementptr i64, ptr %state, i64 1
  %room = load i64, ptr %room.at
  %fits = icmp slt i64 %k, %room
  br i1 %fits, label %note, label %done

note:
  %thread = call i64 inttoptr (i64 {thread} to ptr)()
  %notes.at = getelementptr i64, ptr %state, i64 2
  %notes = load ptr, ptr %notes.at
  %first = mul i64 %k, {_WORDS}
  %grid.at = getelementptr i64, ptr %notes, i64 %first
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
    return linked(compile_text(text, target))

"""Run work in forked children under a watchdog, which reports crashes, hangs and excessive memory.

A child processes several items and reports after each. The item at which a child dies or times out has failed; a new child
continues with the next.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_LENGTH = struct.Struct("<Q")
# A process that waits takes no processor time: it times out when wall-clock time exceeds the limit by this factor. Time for
# which it is ready to run while other processes have the processors does not count.
_WALL_CLOCK_FACTOR = 10


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of the function for an item, or the reason why its process ended."""

    item: T
    result: object = None
    death: str | None = None


@dataclass
class Child(Generic[T]):
    process: int
    pipe: int
    items: list[T]
    began: float  # wall-clock time at the start of the current item
    spent: float = 0.0  # processor time before the current item, in seconds
    queued: float = 0.0  # time ready to run without a processor before the current item, in seconds
    data: bytes = b""

    def is_late(self, seconds: float) -> bool:
        """Return whether the current item exceeds its limit of processor time, which excludes other load."""
        elapsed = time.monotonic() - self.began
        if elapsed <= seconds:
            return False
        waited = elapsed - (_queue_time(self.process) - self.queued)
        return waited > _WALL_CLOCK_FACTOR * seconds or _processor_time(self.process) - self.spent > seconds

    def next_item(self) -> T:
        """Return the current item, and begin with the next."""
        self.began = time.monotonic()
        self.spent, self.queued = _processor_time(self.process), _queue_time(self.process)
        return self.items.pop(0)


def run_supervised(
    function: Callable[[T], object],
    items: Sequence[T],
    *,
    jobs: int = 1,
    seconds: float = 60,
    memory: int | None = None,
    items_per_child: int = 50,
) -> Iterator[Outcome[T]]:
    """Apply `function` to each item in `jobs` processes, and yield the outcomes in order of completion.

    An item may take `seconds` of processor time, and its process `memory` bytes of address space in addition to this one's.
    Results are pickled; an exception of `function` is the item's death, with its traceback.
    """
    waiting = list(items)
    children: list[Child[T]] = []
    try:
        while waiting or children:
            while waiting and len(children) < jobs:
                chunk, waiting = waiting[:items_per_child], waiting[items_per_child:]
                children.append(_start(function, chunk, memory))
            ready, _, _ = select.select([c.pipe for c in children], [], [], 0.2)
            for child in list(children):
                ended = False
                if child.pipe in ready:
                    chunk = os.read(child.pipe, 1 << 16)
                    child.data += chunk
                    ended = not chunk
                    for result, death in _messages(child):
                        yield Outcome(child.next_item(), result, death)
                late = not ended and bool(child.items) and child.is_late(seconds)
                if not ended and not late:
                    continue
                children.remove(child)
                ending = _end(child, late, seconds)
                if child.items:
                    yield Outcome(child.items.pop(0), death=ending)
                    waiting = child.items + waiting
    finally:
        for child in children:
            _end(child, True, seconds)


def _start(function: Callable[[T], object], items: list[T], memory: int | None) -> Child[T]:
    source, sink = os.pipe()
    process = os.fork()
    if process:
        os.close(sink)
        return Child(process, source, list(items), time.monotonic())
    try:
        os.close(source)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory is not None:
            hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
            limit = _address_space() + memory
            limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for item in items:
            try:
                answer = pickle.dumps((function(item), None))
            except BaseException:
                answer = pickle.dumps((None, traceback.format_exc()))
            message = _LENGTH.pack(len(answer)) + answer
            while message:
                message = message[os.write(sink, message) :]
    finally:
        os._exit(0)


def _messages(child: Child[T]) -> Iterator[tuple[object, str | None]]:
    """Yield the complete messages that a child has sent."""
    while len(child.data) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(child.data)
        end = _LENGTH.size + length
        if len(child.data) < end:
            return
        answer, child.data = child.data[_LENGTH.size : end], child.data[end:]
        yield pickle.loads(answer)


def _end(child: Child[T], kill: bool, seconds: float) -> str:
    """Wait for a child, or kill it; return how it ended."""
    if kill:
        os.kill(child.process, signal.SIGKILL)
    os.close(child.pipe)
    _, status = os.waitpid(child.process, 0)
    if kill:
        return f"no end after {seconds:g} s"
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with status {os.waitstatus_to_exitcode(status)}"


def _processor_time(process: int) -> float:
    """Return the processor time of a process and its finished children in seconds; 0 if it no longer exists."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _queue_time(process: int) -> float:
    """Return the seconds for which a process was ready to run without a processor; 0 if the system does not record them."""
    try:
        with open(f"/proc/{process}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

"""Work in forked children under a watchdog: what crashes, hangs or takes too much memory is found out and reported.

A child takes a run of items and says after each how it went. The item at which one dies, or falls silent, has failed; a new
child goes on with the next.
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
# What waits for something that never comes takes no processor time: it is late after so many times what it may take.
_WAITING = 10


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of an item: what the function returned, or how its process ended."""

    item: T
    result: object = None
    death: str | None = None


@dataclass
class _Child(Generic[T]):
    process: int
    pipe: int
    items: list[T]
    began: float  # by the clock, its present item
    spent: float = 0.0  # processor time before that item, in seconds
    data: bytes = b""

    def is_late(self, seconds: float) -> bool:
        """Whether its item takes too long: in processor time, which other processes do not lengthen."""
        waited = time.monotonic() - self.began
        return waited > seconds and (waited > _WAITING * seconds or _processor_time(self.process) - self.spent > seconds)


def supervised(
    function: Callable[[T], object],
    items: Sequence[T],
    *,
    jobs: int = 1,
    seconds: float = 60,
    memory: int | None = None,
    run: int = 50,
) -> Iterator[Outcome[T]]:
    """`function(item)` for each item, in `jobs` processes at once, in the order in which they end.

    An item may take `seconds` of a processor, its process `memory` bytes more of address space than this one has. Results are pickled;
    exceptions of `function` end the item as a death, with their traceback.
    """
    waiting = list(items)
    children: list[_Child[T]] = []
    try:
        while waiting or children:
            while waiting and len(children) < jobs:
                part, waiting = waiting[:run], waiting[run:]
                children.append(_start(function, part, memory))
            ready, _, _ = select.select([c.pipe for c in children], [], [], 0.2)
            for child in list(children):
                ended = False
                if child.pipe in ready:
                    part = os.read(child.pipe, 1 << 16)
                    child.data += part
                    ended = not part
                    for result, death in _messages(child):
                        child.began, child.spent = time.monotonic(), _processor_time(child.process)
                        yield Outcome(child.items.pop(0), result, death)
                late = not ended and bool(child.items) and child.is_late(seconds)
                if not ended and not late:
                    continue
                children.remove(child)
                how = _end(child, late, seconds)
                if child.items:
                    yield Outcome(child.items.pop(0), death=how)
                    waiting = child.items + waiting
    finally:
        for child in children:
            _end(child, True, seconds)


def _start(function: Callable[[T], object], items: list[T], memory: int | None) -> _Child[T]:
    source, sink = os.pipe()
    process = os.fork()
    if process:
        os.close(sink)
        return _Child(process, source, list(items), time.monotonic())
    try:
        os.close(source)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory is not None:
            most = resource.getrlimit(resource.RLIMIT_AS)[1]
            limit = _address_space() + memory
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
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


def _messages(child: _Child[T]) -> Iterator[tuple[object, str | None]]:
    """The whole messages that a child has sent."""
    while len(child.data) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(child.data)
        end = _LENGTH.size + length
        if len(child.data) < end:
            return
        answer, child.data = child.data[_LENGTH.size : end], child.data[end:]
        yield pickle.loads(answer)


def _end(child: _Child[T], kill: bool, seconds: float) -> str:
    """Takes leave of a child; how it ended."""
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
    """What a process and the children that it has waited for have taken, in seconds; 0 of one that is gone."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

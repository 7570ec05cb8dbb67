"""Deadlines: a thread that ends requests which have not started by then."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from numbers import Real
from operator import index
from typing import Generic, TypeVar
from weakref import ReferenceType

from dlc.errors import ArgumentError, DeviceError
from dlc.runtime.requests.threading_primitives import IDLE_SECONDS, Gate, Lock, Threading

Item = TypeVar("Item")

# Ended items are removed from the heap when it has more than this number of entries plus twice the live ones.
_MIN_HEAP_ENTRIES = 64


def checked_schedule(name: str, priority: int, deadline: float | None) -> tuple[int, float | None]:
    """Return a priority as an int and a deadline as a float: sums with small NumPy types would overflow or be rounded.

    Raises ArgumentError unless the priority is an integer, and the deadline a number of seconds or None.
    """
    try:
        priority = index(priority)
    except TypeError:
        raise ArgumentError(f"{name}: priority = {priority!r}; expected an integer") from None
    if deadline is None:
        return priority, None
    try:
        seconds = float(deadline) if isinstance(deadline, Real) else math.nan
    except OverflowError:
        seconds = math.nan
    if math.isnan(seconds):
        raise ArgumentError(f"{name}: deadline = {deadline!r:.60}; expected a number of seconds, or None")
    return priority, seconds


class Deadlines(Generic[Item]):
    """A heap of deadlines, and the thread that waits for the first one; it starts on demand.

    `lock` guards all fields and is held by the callers of `add`, who also decrement `num_live` when an item ends.
    `expire(item)` ends an item under the lock; it returns a function that reports the expiry without the lock, or None if the
    item has ended. The heap does not keep items alive: an ended request holds its result.
    """

    def __init__(self, lock: Lock, threading: Threading, expire: Callable[[Item], Callable[[], None] | None]) -> None:
        self._lock, self._threading, self._expire = lock, threading, expire
        self.num_live = 0
        self._heap: list[tuple[float, int, ReferenceType[Item]]] = []
        self._numbers = count()
        # The event on which the thread waits, or None without a thread; the flag is set while it waits.
        self._gate: Gate | None = None
        self._is_waiting = False

    def add(self, deadline: float, item: Item, is_live: Callable[[Item], bool]) -> None:
        """Add an item; `is_live` returns whether an item has not ended.

        Raises DeviceError, before the item is added, if the system cannot start a thread.
        """
        if self._gate is None:
            self._start()
        elif self._is_waiting and (not self._heap or deadline < self._heap[0][0]):
            self._is_waiting = False
            self._gate.open()
        self.num_live += 1
        if len(self._heap) > _MIN_HEAP_ENTRIES + 2 * self.num_live:
            self._heap = [entry for entry in self._heap if (live := entry[2]()) is not None and is_live(live)]
            heapify(self._heap)
        heappush(self._heap, (deadline, next(self._numbers), ReferenceType(item)))

    def _start(self) -> None:
        """Start the thread, which waits for the lock first."""
        gate = self._threading.make_gate()
        try:
            self._threading.start_thread(lambda: self._watch(gate), "dlc-deadlines")
        except RuntimeError as error:
            raise DeviceError("the system cannot start a thread that watches deadlines; use fewer streams") from error
        self._gate = gate

    def _watch(self, gate: Gate) -> None:
        """End items whose deadline has passed; exit after `IDLE_SECONDS` without deadlines."""
        while True:
            seconds = self._end_expired()
            if seconds is None or gate.wait(seconds):
                continue
            with self._lock:
                if not self._is_waiting:
                    # The event was set after the timeout: consume it.
                    gate.wait()
                elif seconds == IDLE_SECONDS and not self._heap:
                    self._gate, self._is_waiting = None, False
                    return
                self._is_waiting = False

    def _end_expired(self) -> float | None:
        """End items whose deadline has passed, and return None; without any, return the seconds until the next deadline."""
        with self._lock:
            reports, now = list[Callable[[], None]](), self._threading.clock()
            while self._heap and self._heap[0][0] <= now:
                item = heappop(self._heap)[2]()
                report = None if item is None else self._expire(item)
                if report is not None:
                    reports.append(report)
            self._is_waiting = not reports
            seconds = self._heap[0][0] - now if self._heap else IDLE_SECONDS
        for report in reports:
            report()
        return None if reports else seconds

"""Work shared out to forked processes: what one interpreter does one after the other, several do at once.

A child has the parent's memory as it was, so items are not sent to it; only results travel, pickled, through a pipe.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dlc.errors import DeviceError

T = TypeVar("T")
R = TypeVar("R")

# From Linux's <sys/prctl.h>: the signal that a process gets when the thread that made it ends.
_PR_SET_PDEATHSIG = 1
_TICKET = struct.Struct("<i")
# A pipe holds four times as many at least: 64 KB.
_MOST_TICKETS = 4096
_FEWER = "set DLC_WORKERS to fewer, 1 for none"


def forked_map(
    function: Callable[[T], R],
    items: Sequence[T],
    processes: int,
    begins: Callable[[int], None] = lambda number: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[R]:
    """`[function(i) for i in items]` in up to `processes` processes, this one included; items are taken in order.

    `begins` is told the number of each item that this process takes, before which all others are taken; first of all it does
    what there is to be done `meanwhile`. Results must be picklable. What `function` raises in any process is raised here; a
    child that dies, or that the system refuses, raises DeviceError.
    """
    processes = min(processes, len(items))
    if processes <= 1:
        meanwhile()
        made: list[R] = []
        for k, item in enumerate(items):
            begins(k)
            made.append(function(item))
        return made
    # Whoever is free takes the next ticket out of one pipe; four bytes are read whole or not at all.
    tickets, counter = os.pipe()
    of_each = -(-len(items) // _MOST_TICKETS)
    for k in range(0, len(items), of_each):
        os.write(counter, _TICKET.pack(k))
    os.close(counter)
    children: list[tuple[int, int]] = []
    try:
        while len(children) < processes - 1:
            children.append(_fork(function, items, tickets, of_each))
        meanwhile()
        done = dict(_take(function, items, tickets, of_each, begins))
        for _, results in children:
            done |= _collect(results)
    except BaseException:
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(tickets)
        for child, results in children:
            os.close(results)
            os.waitpid(child, 0)
    return [done[k] for k in range(len(items))]


def die_with_parent() -> None:
    """Makes the system kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take(
    function: Callable[[T], R],
    items: Sequence[T],
    tickets: int,
    of_each: int,
    begins: Callable[[int], None] = lambda number: None,
) -> list[tuple[int, R]]:
    """The results of the items that this process takes, so many by each ticket."""
    done: list[tuple[int, R]] = []
    while ticket := os.read(tickets, _TICKET.size):
        first = int(_TICKET.unpack(ticket)[0])
        for k in range(first, min(first + of_each, len(items))):
            begins(k)
            done.append((k, function(items[k])))
    return done


def _fork(function: Callable[[T], R], items: Sequence[T], tickets: int, of_each: int) -> tuple[int, int]:
    """Starts a child; returns its process id and the end of the pipe where its results come out.

    Raises DeviceError where the system refuses it.
    """
    results, sink = os.pipe()
    with warnings.catch_warnings():
        # From 3.12 on Python warns of locks that other threads hold, and so does JAX; a child takes none but those of its own
        # work.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        try:
            child = os.fork()
        except OSError as error:
            os.close(results)
            os.close(sink)
            raise DeviceError(f"a worker process did not start: {error.strerror}; {_FEWER}") from error
    if child:
        os.close(sink)
        return child, results
    # A child must never return into its parent's program, whatever happens, nor go on without it: it has the parent's locks.
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # What is garbage there stays: its finalisers may wait for locks that other threads of the parent held.
        gc.freeze()
        try:
            answer = pickle.dumps((True, _take(function, items, tickets, of_each)))
        except BaseException as error:
            answer = pickle.dumps((False, error))
        with os.fdopen(sink, "wb") as stream:
            stream.write(answer)
    finally:
        os._exit(0)


def _collect(results: int) -> dict[int, Any]:
    parts: list[bytes] = []
    while part := os.read(results, 1 << 20):
        parts.append(part)
    if not parts:
        raise DeviceError(f"a worker process ended before its work was done; the system may be short of memory: {_FEWER}")
    succeeded, answer = pickle.loads(b"".join(parts))
    if not succeeded:
        raise answer
    return dict(answer)

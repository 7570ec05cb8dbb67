"""Distribute work over forked processes, which run in parallel despite the global interpreter lock.

A child process inherits the parent's memory, so only results are sent, pickled, through a pipe.
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

# From Linux's <sys/prctl.h>: set the signal that a process receives when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
_TICKET_FORMAT = struct.Struct("<i")
# A quarter of the capacity of a pipe, 64 KB, in tickets of four bytes.
_MAX_TICKETS = 4096
_FEWER_WORKERS_HINT = "set DLC_WORKERS to a smaller number, 1 to use no worker processes"


def forked_map(
    function: Callable[[T], R],
    items: Sequence[T],
    processes: int,
    on_start: Callable[[int], None] = lambda number: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> list[R]:
    """Return `[function(i) for i in items]`, computed in up to `processes` processes, including this one.

    Items are started in order. `on_start(index)` is called for each item that this process starts, after all previous items
    have been started. `while_waiting` is called after the other processes have been started. Results must be picklable.
    Exceptions of `function` in any process are raised here. Raises DeviceError if a child dies or cannot be started.
    """
    processes = min(processes, len(items))
    if processes <= 1:
        while_waiting()
        mapped: list[R] = []
        for k, item in enumerate(items):
            on_start(k)
            mapped.append(function(item))
        return mapped
    # Each free process reads the next ticket from a shared pipe; reads of four bytes are atomic.
    tickets, counter = os.pipe()
    items_per_ticket = -(-len(items) // _MAX_TICKETS)
    for k in range(0, len(items), items_per_ticket):
        os.write(counter, _TICKET_FORMAT.pack(k))
    os.close(counter)
    children: list[tuple[int, int]] = []
    try:
        while len(children) < processes - 1:
            children.append(_fork(function, items, tickets, items_per_ticket))
        while_waiting()
        result_by_index = dict(_run_tickets(function, items, tickets, items_per_ticket, on_start))
        for _, results in children:
            result_by_index |= _collect(results)
    except BaseException:
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(tickets)
        for child, results in children:
            os.close(results)
            os.waitpid(child, 0)
    return [result_by_index[k] for k in range(len(items))]


def die_with_parent() -> None:
    """Ask the system to kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _run_tickets(
    function: Callable[[T], R],
    items: Sequence[T],
    tickets: int,
    items_per_ticket: int,
    on_start: Callable[[int], None] = lambda number: None,
) -> list[tuple[int, R]]:
    """Compute the items of the tickets that this process reads; return (index, result) pairs."""
    indexed_results: list[tuple[int, R]] = []
    while ticket := os.read(tickets, _TICKET_FORMAT.size):
        first = int(_TICKET_FORMAT.unpack(ticket)[0])
        for k in range(first, min(first + items_per_ticket, len(items))):
            on_start(k)
            indexed_results.append((k, function(items[k])))
    return indexed_results


def _fork(function: Callable[[T], R], items: Sequence[T], tickets: int, items_per_ticket: int) -> tuple[int, int]:
    """Fork a worker; return its process id and the read end of its result pipe.

    Raises DeviceError if the system cannot start a process.
    """
    results, sink = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 and JAX warn about forking in multi-threaded processes: other threads may hold locks. A worker takes only
        # locks of its own work.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        try:
            child = os.fork()
        except OSError as error:
            os.close(results)
            os.close(sink)
            raise DeviceError(f"a worker process did not start: {error.strerror}; {_FEWER_WORKERS_HINT}") from error
    if child:
        os.close(sink)
        return child, results
    # A worker must neither continue the parent's program nor outlive it, since it has copies of the parent's locks.
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Never collect inherited garbage: its finalizers may wait for locks that other threads of the parent held.
        gc.freeze()
        try:
            answer = pickle.dumps((True, _run_tickets(function, items, tickets, items_per_ticket)))
        except BaseException as error:
            answer = pickle.dumps((False, error))
        with os.fdopen(sink, "wb") as stream:
            stream.write(answer)
    finally:
        os._exit(0)


def _collect(results: int) -> dict[int, Any]:
    """Read and unpickle the results of a worker; raises its exception if it failed."""
    chunks: list[bytes] = []
    while chunk := os.read(results, 1 << 20):
        chunks.append(chunk)
    if not chunks:
        raise DeviceError(
            f"a worker process ended before its work was done; the system may be short of memory: {_FEWER_WORKERS_HINT}"
        )
    succeeded, answer = pickle.loads(b"".join(chunks))
    if not succeeded:
        raise answer
    return dict(answer)

"""The native runtime of this process: the functions of `runtime.ll` (see runtime_code.py), and its thread pools.

Nothing here is ever freed: pool threads run the code and read the pool's memory until the process exits, even while the
interpreter shuts down.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from dlc.errors import DeviceError
from dlc.machine.cpus import running_on
from dlc.machine.quota_monitor import QuotaMonitor
from dlc.runtime.cpu.code.loader import load_object

STACK_BYTES = 8 << 20  # Kernels allocate their tiles on the stack.
# Signals that pool threads must not block: a blocked fault kills the process before a signal handler can report it.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


@dataclass(frozen=True)
class Runtime:
    """The functions of `runtime.ll`; addresses are plain integers.

    Attributes:
        execute: `execute(records, limit, slots, pool)` interprets bytecode (record_table.py) without the GIL. It returns the
            stop code at which it ended (0: the program ended; negative: Python continues), or, after `limit` launches and loop
            iterations, the address of the next record.
        execute_data_dependent: `execute_data_dependent(sizing, records, limit, slots, pool)`: the same with data-dependent
            sizes.
        copy: Address of the memory-copy task.
        store_index: Address of the function that computes `dl.axis_index` (runtime/collectives/native_calls.py).
        complete: Address of the function that completes a nonblocking collective.
        call_from_python: Address of the entry point of direct calls (cpu/direct_calls.py).
        pool_bytes: Returns the size of a pool.
        pool_init: `pool_init(pool, num_threads, syscall, sched_getcpu)` initializes a pool in zeroed memory.
        pool_link: `pool_link(last, pool)` appends a pool to a chain: calls that find `last` in use try `pool`.
        pool_end: Ends the threads of an unused pool.
        pool_limit: `pool_limit(pool, num_threads)` sets the maximum number of threads that run tasks.
        pool_worker: Address of the main function of pool threads.
        checksum: `checksum(address, bytes, crc)` extends a CRC-32C.
    """

    execute: Callable[[int, int, int, int], int]
    execute_data_dependent: Callable[[int, int, int, int, int], int]
    copy: int
    store_index: int
    complete: int
    call_from_python: int
    pool_bytes: Callable[[], int]
    pool_init: Callable[[int, int, int, int], None]
    pool_link: Callable[[int, int], None]
    pool_end: Callable[[int], None]
    pool_limit: Callable[[int, int], None]
    pool_worker: int
    checksum: Callable[[int, int, int], int]

    def pool(self, num_threads: int, cpus: frozenset[int] | None = None) -> int:
        """Return the address of this process's pool of `num_threads` threads, one of which is the caller; 0 for one thread.

        The other threads run on the processors `cpus`, by default those of the process. It is the first of a chain of pools,
        of the length that `reserve_pools` requested: calls use the first pool that is free.

        Raises DeviceError if the system cannot start the threads.
        """
        if num_threads <= 1:
            return 0
        cell = self.pool_cell(num_threads, cpus)
        if cell.value == _NO_POOL:
            with _lock:
                if cell.value == _NO_POOL:
                    _quota_monitor.start()
                    cell.value = _start_chain(self, num_threads, cpus, _num_pools.get((num_threads, cpus), 1))
        return cell.value

    def pool_cell(self, num_threads: int, cpus: frozenset[int] | None = None) -> ctypes.c_int64:
        """Return the cell that holds the address of the pool of `num_threads` threads on `cpus`; -1 until it is started."""
        return _pools.setdefault((self.pool_worker, num_threads, cpus), ctypes.c_int64(_NO_POOL if num_threads > 1 else 0))


@lru_cache
def runtime(object_code: bytes) -> Runtime:
    """Load the runtime from object code, once per process."""
    code = load_object(object_code)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # Never unmap it.
    pointer, i64 = ctypes.c_void_p, ctypes.c_int64
    return Runtime(
        execute=ctypes.CFUNCTYPE(i64, pointer, i64, pointer, pointer)(code.address("dlc_execute")),
        execute_data_dependent=ctypes.CFUNCTYPE(i64, pointer, pointer, i64, pointer, pointer)(
            code.address("dlc_execute_data_dependent")
        ),
        copy=code.address("dlc_copy"),
        store_index=code.address("dlc_store_index"),
        complete=code.address("dlc_complete"),
        call_from_python=code.address("dlc_call_from_python"),
        pool_bytes=ctypes.CFUNCTYPE(i64)(code.address("dlc_pool_bytes")),
        pool_init=ctypes.CFUNCTYPE(None, pointer, i64, pointer, pointer)(code.address("dlc_pool_init")),
        pool_link=ctypes.CFUNCTYPE(None, pointer, pointer)(code.address("dlc_pool_link")),
        pool_end=ctypes.CFUNCTYPE(None, pointer)(code.address("dlc_pool_end")),
        pool_limit=ctypes.CFUNCTYPE(None, pointer, i64)(code.address("dlc_pool_limit")),
        pool_worker=code.address("dlc_pool_worker"),
        checksum=ctypes.CFUNCTYPE(ctypes.c_uint32, pointer, i64, ctypes.c_uint32)(code.address("dlc_crc32c")),
    )


# Pools by the address of the worker function, the number of threads and their processors. Machine code reads the cells: they
# must not move.
_pools: dict[tuple[int, int, frozenset[int] | None], ctypes.c_int64] = {}
_NO_POOL = -1
# The requested number of pools by the number of threads and their processors; pools that are started already are extended.
_num_pools: dict[tuple[int, frozenset[int] | None], int] = {}
# The pools of each chain, by the address of the first one.
_chains: dict[int, tuple[Runtime, list[int]]] = {}
_lock = Lock()


def reserve_pools(num_threads: int, count: int, cpus: frozenset[int] | None = None) -> None:
    """Let calls with `num_threads` threads on `cpus` use up to `count` pools, so that `count` calls run in parallel.

    Raises DeviceError if the system cannot start the threads.
    """
    if num_threads <= 1 or count <= _num_pools.get((num_threads, cpus), 1):
        return
    with _lock:
        _num_pools[num_threads, cpus] = count
        for native, pools in [*_chains.values()]:
            cell = _pools.get((native.pool_worker, num_threads, cpus))
            if cell is not None and cell.value == pools[0]:
                _extend_chain(native, pools, num_threads, cpus, count)


def _start_chain(native: Runtime, num_threads: int, cpus: frozenset[int] | None, count: int) -> int:
    pools = [_start_pool(native, num_threads, cpus)]
    _chains[pools[0]] = native, pools
    _extend_chain(native, pools, num_threads, cpus, count)
    return pools[0]


def _extend_chain(native: Runtime, pools: list[int], num_threads: int, cpus: frozenset[int] | None, count: int) -> None:
    while len(pools) < count:
        pool = _start_pool(native, num_threads, cpus)
        native.pool_link(pools[-1], pool)
        pools.append(pool)


def _limit_pools(num_threads: int) -> None:
    """Let each pool use at most `num_threads` threads."""
    with _lock:
        for native, pools in _chains.values():
            for pool in pools:
                native.pool_limit(pool, num_threads)


_quota_monitor = QuotaMonitor(_limit_pools)


def _forget_pools() -> None:
    """Mark all pools as not started: a forked child has the memory of its parent's pools, but not their threads."""
    global _lock
    _lock = Lock()
    _chains.clear()
    _quota_monitor.reset()
    for (_, num_threads, _), cell in _pools.items():
        cell.value = _NO_POOL if num_threads > 1 else 0


os.register_at_fork(after_in_child=_forget_pools)


def _start_pool(native: Runtime, num_threads: int, cpus: frozenset[int] | None) -> int:
    # The pool and its threads inherit the processors of this thread.
    with running_on(cpus):
        return _start_threads(native, num_threads)


def _start_threads(native: Runtime, num_threads: int) -> int:
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    size = -(-native.pool_bytes() // 128) * 128
    pool = libc.aligned_alloc(ctypes.c_size_t(128), ctypes.c_size_t(size))
    if not pool:
        raise DeviceError(f"no memory for a pool of {num_threads} threads")
    ctypes.memset(pool, 0, size)
    native.pool_init(pool, num_threads, _address(libc.syscall), _address(libc.sched_getcpu))
    native.pool_limit(pool, _quota_monitor.limit)
    attributes, thread = ctypes.create_string_buffer(128), ctypes.c_void_p()
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setdetachstate(attributes, 1)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
    # Threads inherit the signal mask: signals such as Ctrl-C must be delivered to Python's threads.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        for k in range(1, num_threads):
            status = libc.pthread_create(
                ctypes.byref(thread), attributes, ctypes.c_void_p(native.pool_worker), ctypes.c_void_p(pool)
            )
            if status != 0:
                native.pool_end(pool)
                raise DeviceError(f"thread {k} of {num_threads} did not start: {os.strerror(status)}; reduce num_threads")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        libc.pthread_attr_destroy(attributes)
    return pool


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0

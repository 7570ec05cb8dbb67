"""Forked workers: results, errors, and processes that die."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dlc.errors import DeviceError, UnsupportedError
from dlc.machine.workers import forked_map


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_results_are_in_order(processes: int) -> None:
    assert forked_map(lambda i: i * i, range(20), processes) == [i * i for i in range(20)]


def test_more_items_than_fit_into_a_pipe() -> None:
    count = 40_000
    assert forked_map(lambda i: i, range(count), 2) == list(range(count))


@pytest.mark.parametrize("processes", [1, 2])
def test_concurrent_work_of_this_process_runs_first(processes: int) -> None:
    done: list[str] = []
    forked_map(str, range(4), processes, lambda k: done.append("item"), lambda: done.append("meanwhile"))
    assert done[0] == "meanwhile" and done.count("meanwhile") == 1


def test_calls_from_any_thread() -> None:
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(forked_map, lambda i: -i, range(5), 2) for _ in range(2)]
    assert [f.result() for f in futures] == [[0, -1, -2, -3, -4]] * 2


def test_large_results_pass() -> None:
    assert forked_map(lambda i: b"x" * (i << 20), [1, 2, 3], 2) == [b"x" * (i << 20) for i in (1, 2, 3)]


def test_errors_keep_their_type() -> None:
    def refuse(item: int) -> int:
        raise UnsupportedError(f"item {item}")

    with pytest.raises(UnsupportedError, match="item"):
        forked_map(refuse, range(4), 3)


def test_a_killed_worker_is_detected() -> None:
    parent = os.getpid()

    def die(item: int) -> int:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # leaves the work to the other process
        return item

    with pytest.raises(DeviceError, match="worker process ended"):
        forked_map(die, range(2), 2)


def test_a_failed_fork_ends_the_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started, fork = list[int](), os.fork

    def refuse() -> int:
        if started:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if child := fork():
            started.append(child)
        return child

    descriptors = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(DeviceError, match=r"did not start: Resource temporarily unavailable; set DLC_WORKERS"):
        forked_map(lambda i: time.sleep(60), range(4), 3)
    assert set(os.listdir("/proc/self/fd")) == descriptors
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_workers_end_with_their_parent() -> None:
    script = (
        "import os, sys, time; from dlc.machine.workers import forked_map\n"
        "parent = os.getpid()\n"
        "def work(item):\n"
        "    if os.getpid() != parent: print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "forked_map(work, range(2), 2)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = parent.stdout.readline().strip()
    parent.kill()
    # The worker has the other end of the pipe: it reads to the end when it is gone as well.
    assert worker and parent.communicate(timeout=30)[0] == ""


def test_fork_warnings_are_suppressed() -> None:
    # As JAX does, before each fork.
    program = (
        "import os, warnings\nfrom dlc.machine.workers import forked_map\n"
        "os.register_at_fork(before=lambda: warnings.warn('os.fork() was called. JAX is multithreaded', RuntimeWarning))\n"
        "forked_map(lambda i: i, range(4), 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not done.stderr


def test_a_failed_thread_is_a_device_error() -> None:
    script = (
        "import resource\n"
        "from dlc.errors import DeviceError\n"
        "from dlc.machine.threads import ThreadPool\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20),) * 2)\n"
        "with ThreadPool(2) as threads:\n"
        "    try: threads.map(str, range(4))\n"
        "    except DeviceError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "can't start new thread: use fewer processors (taskset) for fewer threads\n"

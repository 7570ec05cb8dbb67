"""The thread pool and the record executor, with hand-written kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.cpu.llvm import compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.machine.cpus import usable_cpus
from dlc.machine.quota_monitor import UNLIMITED_THREADS, QuotaMonitor
from dlc.runtime.cpu.code import native
from dlc.runtime.cpu.code.loader import load_object, undefined_symbols
from dlc.runtime.cpu.code.native import runtime
from dlc.target import CPU_LEVELS

NATIVE = runtime(runtime_object())

# add_one: x[task] += 1. spin: the same after a while that differs from task to task.
KERNELS = """
define void @add_one(ptr %arguments, i64 %task) {
  %x = load ptr, ptr %arguments
  %at = getelementptr i64, ptr %x, i64 %task
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}

define void @spin(ptr %arguments, i64 %task) {
entry:
  %rest = and i64 %task, 7
  %turns = mul i64 %rest, 3000
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %next = add i64 %i, 1
  call void @llvm.x86.sse2.pause()
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %end
end:
  call void @add_one(ptr %arguments, i64 %task)
  ret void
}

declare void @llvm.x86.sse2.pause()
"""


@pytest.fixture(scope="module")
def kernels():
    return load_object(compile_text(KERNELS, CPU_LEVELS["cpu:generic"]))


def relocate(records: list[list[int]]) -> np.ndarray:
    """Return records in memory; the first word of each launch becomes the relative address of its task."""
    table = np.array(records, np.int64)
    table[:, 0] -= table.ctypes.data + np.arange(len(records)) * table.strides[0]
    return table


class Table:
    """Launches of one kernel on one array of counters."""

    def __init__(self, task: int, tasks: int, launches: int, small: bool = False) -> None:
        self.counters = np.zeros(max(tasks, 1), np.int64)
        self.records = relocate([[task, 0, -tasks if small else tasks, 1, 1, 0]] * launches)
        self.bases = np.array([0, self.counters.ctypes.data], np.int64)
        self.launches = launches

    def run(self, pool: int) -> None:
        NATIVE.execute(self.records.ctypes.data, self.launches, self.bases.ctypes.data, pool)


def test_the_object_is_freestanding():
    assert undefined_symbols(runtime_object()) == []


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64, 1000])
def test_every_task_of_every_launch_runs_once(kernels, threads, tasks):
    table = Table(kernels.address("add_one"), tasks, launches=300)
    for _ in range(5):
        table.run(NATIVE.pool(threads))
    assert (table.counters[:tasks] == 5 * 300).all() and (table.counters[tasks:] == 0).all()


def test_launches_see_what_earlier_launches_wrote(kernels):
    # Each launch adds 1 to the same counters without atomics: a launch that started early would lose increments.
    table = Table(kernels.address("spin"), 16, launches=40)
    table.run(NATIVE.pool(3))
    assert (table.counters == 40).all()


def test_a_sleeping_pool_wakes_up(kernels):
    table = Table(kernels.address("add_one"), 50, launches=2)
    for i in range(1, 30):
        table.run(NATIVE.pool(2))
        assert (table.counters == 2 * i).all()
        threading.Event().wait(0.002)  # longer than the pool spins


def test_arguments_are_a_base_and_an_offset(kernels):
    data = np.zeros(10, np.int64)
    bases = np.array([0, data.ctypes.data], np.int64)
    records = relocate([[kernels.address("add_one"), 0, -3, 1, 1, 8 * 4]])
    NATIVE.execute(records.ctypes.data, 1, bases.ctypes.data, 0)
    assert data.tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 65535, 65536, 65537, 300_001])
def test_copy(size):
    source = np.random.default_rng(size).integers(0, 255, size + 3, np.uint8)[1:]
    target = np.zeros(size + 2, np.uint8)
    tasks = -(-size // 65536)
    bases = np.array([0, target.ctypes.data, source.ctypes.data], np.int64)
    records = relocate([[NATIVE.copy, 0, tasks, 3, 1, 0, 2, 0, 0, size]])
    NATIVE.execute(records.ctypes.data, 1, bases.ctypes.data, NATIVE.pool(2))
    np.testing.assert_array_equal(target[:size], source[:size])
    assert not target[size:].any()


def test_concurrent_callers_share_a_pool(kernels):
    pool = NATIVE.pool(2)
    tables = [Table(kernels.address("add_one"), 37, launches=500) for _ in range(6)]
    start = threading.Barrier(len(tables))

    def call(table: Table) -> None:
        start.wait()
        for _ in range(10):
            table.run(pool)

    threads = [threading.Thread(target=call, args=(t,)) for t in tables]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((t.counters == 5000).all() for t in tables)


def test_a_pool_is_created_once_by_concurrent_callers():
    found: list[int] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(NATIVE.pool(6))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 1 and found[0] % 128 == 0


def test_a_pool_that_the_system_refuses_leaves_no_threads():
    script = (
        "import os, resource, time\n"
        "from dlc.errors import DeviceError\n"
        "from dlc.runtime.cpu.code.native import STACK_BYTES, runtime\n"
        "from dlc.backends.cpu.runtime_code import runtime_object\n"
        "native, threads = runtime(runtime_object()), lambda: len(os.listdir('/proc/self/task'))\n"
        "native.pool(2)\n"
        "before = threads()\n"
        "pages = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages + 10 * STACK_BYTES,) * 2)\n"
        "for _ in range(3):\n"
        "    try: native.pool(64)\n"
        "    except DeviceError as error: print(error)\n"
        "    end = time.monotonic() + 20\n"
        "    while threads() > before and time.monotonic() < end: time.sleep(0.01)\n"
        "    print(threads() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["0"] * 3
    assert all("of 64 did not start" in line and "reduce num_threads" in line for line in lines[::2])


def test_a_forked_child_gets_threads_of_its_own(kernels):
    table = Table(kernels.address("spin"), 64, launches=20)
    table.run(NATIVE.pool(2))
    parents = NATIVE.pool(2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            table.run(NATIVE.pool(2))
            # With the thread that reads the quota.
            tasks = len(os.listdir("/proc/self/task"))
            status = 0 if (table.counters == 40).all() and tasks == 3 and NATIVE.pool(2) != parents else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    table.run(NATIVE.pool(2))
    assert NATIVE.pool(2) == parents and (table.counters == 40).all()


def test_workers_leave_signals_to_python(kernels):
    Table(kernels.address("add_one"), 4, launches=1).run(NATIVE.pool(3))
    blocked = {}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status") as status:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
        blocked[int(thread)] = int(lines["SigBlk"], 16)
    interrupt = 1 << (signal.SIGINT - 1)
    assert not blocked[os.getpid()] & interrupt
    assert sum(bool(mask & interrupt) for mask in blocked.values()) >= 2


def crc32c(data: bytes) -> int:
    """Compute the checksum bit by bit, from the definition of the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1001])
def test_checksums(size):
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    address = data.ctypes.data
    assert NATIVE.checksum(address, size, 0) == crc32c(data.tobytes())
    part = size // 3
    assert NATIVE.checksum(address + part, size - part, NATIVE.checksum(address, part, 0)) == crc32c(data.tobytes())
    assert crc32c(b"123456789") == 0xE3069283


def test_an_interrupted_process_ends(tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(
        "import numpy as np\n"
        "from dlc.runtime.cpu.code.native import runtime\n"
        "from dlc.backends.cpu.runtime_code import runtime_object\n"
        "native = runtime(runtime_object())\n"
        "data, pool = np.zeros(1 << 22, np.uint8), native.pool(2)\n"
        "bases = np.array([0, data.ctypes.data, data.ctypes.data + data.size // 2], np.int64)\n"
        "records = np.array([native.copy, 0, 32, 3, 1, 0, 2, 0, 0, 1 << 21], np.int64)\n"
        "records[0] -= records.ctypes.data\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    native.execute(records.ctypes.data, 1, bases.ctypes.data, pool)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors and process.returncode in (1, -signal.SIGINT)


def test_the_interpreter_ends_while_threads_spin():
    code = (
        "from dlc.runtime.cpu.code.native import runtime; from dlc.backends.cpu.runtime_code import runtime_object; "
        "runtime(runtime_object()).pool(4)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_worker_leaves_the_callers_processor(kernels):
    """A pool that is moved to the caller's processor leaves it again after a few launches."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    pool = NATIVE.pool(2)
    table = Table(kernels.address("spin"), 64, launches=5)
    table.run(pool)
    others = [int(t) for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id()]
    here = min(allowed)
    try:
        os.sched_setaffinity(0, {here})
        for thread in others:
            os.sched_setaffinity(thread, {here})
        for _ in range(200):
            table.run(pool)
            if any(here not in os.sched_getaffinity(thread) for thread in others):
                break
        assert any(here not in os.sched_getaffinity(thread) for thread in others)
        assert os.sched_getaffinity(0) == {here}, "the caller is never pinned"
    finally:
        os.sched_setaffinity(0, allowed)
        for thread in others:
            os.sched_setaffinity(thread, allowed)


def test_usable_cpus_are_within_the_quota(tmp_path):
    mount = tmp_path / "cgroup"
    group = mount / "slice" / "job"
    group.mkdir(parents=True)
    proc = tmp_path / "proc"
    everything = len(os.sched_getaffinity(0))
    proc.write_text("0::/slice/job\n")
    assert usable_cpus(proc, mount) == everything
    (group / "cpu.max").write_text("max 100000\n")
    assert usable_cpus(proc, mount) == everything
    (mount / "slice" / "cpu.max").write_text("150000 100000\n")
    assert usable_cpus(proc, mount) == 1
    (mount / "slice" / "cpu.max").write_text("50000 100000\n")
    assert usable_cpus(proc, mount) == 1
    # Version 1, seen from inside a container: the listed path does not exist there.
    (mount / "cpu").mkdir()
    (mount / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (mount / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    proc.write_text("4:cpu,cpuacct:/docker/abc\n")
    assert usable_cpus(proc, mount) == everything
    (mount / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    assert usable_cpus(proc, mount) == 1
    assert usable_cpus(tmp_path / "absent", mount) == everything


def test_pools_follow_a_quota_that_shrinks(kernels, monkeypatch):
    """A smaller quota limits pools that are running and those that start later; a larger one restores them."""
    quota, limits = [4], list[tuple[int, int]]()
    monitor = QuotaMonitor(native._limit_pools, lambda: quota[0])
    monitor.start()
    monkeypatch.setattr(native, "_quota_monitor", monitor)
    recorded = replace(NATIVE, pool_limit=lambda pool, count: (limits.append((pool, count)), NATIVE.pool_limit(pool, count)))
    monkeypatch.setattr(native, "_chains", {})
    monkeypatch.setattr(native, "_pools", {})
    first = recorded.pool(3)
    for count, limit in ((2, 2), (1, 1), (1, 1), (5, UNLIMITED_THREADS), (3, 3)):
        quota[0] = count
        monitor.update()
        assert limits[-1] == (first, limit)
        table = Table(kernels.address("add_one"), 100, launches=20)
        table.run(first)
        assert (table.counters == 20).all()
    assert len(limits) == 5
    second = recorded.pool(2)
    assert limits[-1] == (second, 3) and second != first

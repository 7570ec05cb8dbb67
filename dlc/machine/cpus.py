"""The number of processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path


class _SharedCpus:
    process_count = 1


_shared_cpus = _SharedCpus()


def share_cpus(process_count: int) -> None:
    """Divide the processors that `usable_cpus` returns by a number of processes that use them: the ranks of a job."""
    _shared_cpus.process_count = process_count


def cpu_affinity() -> frozenset[int]:
    """Return the processors in this thread's affinity mask."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


@contextmanager
def running_on(cpus: frozenset[int] | None) -> Generator[None]:
    """Run this thread, and the threads that it starts, on these processors; None: on the current ones."""
    if cpus is None:
        yield
        return
    previous = cpu_affinity()
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


def usable_cpus(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of processors in this thread's affinity mask, limited by its cgroup quota (version 1 or 2).

    The result is this process's share of them (`share_cpus`), at least 1. The file `proc` lists the cgroups of the process,
    which are mounted at `mount`.
    """
    return max(1, min(len(cpu_affinity()) // _shared_cpus.process_count, cpu_quota(proc, mount)))


def cpu_quota(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """Return this process's share of the processors that exist and of its cgroup quota, at least 1 (see `usable_cpus`)."""
    # Round down: if spinning threads exceed the quota, all threads are throttled for the rest of the period.
    return max(1, min(int(quota) for quota in _quotas(proc, mount)) // _shared_cpus.process_count)


def _quotas(proc: Path, mount: Path) -> Iterator[float]:
    """Yield every CPU limit, in processors, that the process's cgroups and their ancestors set."""
    yield float(os.cpu_count() or 1)
    try:
        groups = [line.split(":", 2) for line in proc.read_text("utf-8", "surrogateescape").splitlines()]
    except OSError:
        return
    for _, controllers, path in groups:
        if not controllers:
            roots = (mount, mount / "unified")
        elif "cpu" in controllers.split(","):
            roots = (mount / "cpu", mount / controllers)
        else:
            continue
        # In a container, the path is often that on the host, but the group is mounted at the root: check every ancestor.
        group = Path(path.lstrip("/"))
        for root in roots:
            for folder in (group, *group.parents):
                yield from _quota(root / folder)


def _quota(folder: Path) -> Iterator[float]:
    """Yield the CPU limit that a cgroup's folder sets, in processors, if any."""
    for read in (_version_2, _version_1):
        try:
            quota, period = read(folder)
            if quota > 0 and period > 0:
                yield quota / period
        except (OSError, ValueError):
            continue  # The file does not exist, or contains "max".


def _version_2(folder: Path) -> tuple[int, int]:
    quota, period = (folder / "cpu.max").read_text().split()
    return int(quota), int(period)


def _version_1(folder: Path) -> tuple[int, int]:
    return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())

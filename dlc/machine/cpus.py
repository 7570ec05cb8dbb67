"""The number of processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def usable_cpus(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of processors in this thread's affinity mask, limited by its cgroup quota (version 1 or 2).

    The result is at least 1. The file `proc` lists the cgroups of the process; they are mounted at `mount`.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Round down: if spinning threads exceed the quota, all threads are throttled for the rest of the period.
    return max(1, min(cpus, *(int(quota) for quota in _quotas(proc, mount))))


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

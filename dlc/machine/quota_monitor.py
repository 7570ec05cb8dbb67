"""Follow the cgroup quota of the process while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import sleep

from dlc.errors import DeviceError
from dlc.machine.cpus import cpu_quota

# A thread reads the quota at this interval; that takes 50 microseconds.
_INTERVAL_SECONDS = 1.0
# The limit of threads without a smaller quota.
UNLIMITED_THREADS = (1 << 32) - 1


class QuotaMonitor:
    """A thread that calls `apply` when `limit` changes.

    Attributes:
        limit: The quota in processors, if it is smaller than at the start of the thread; else `UNLIMITED_THREADS`, so that the
            number of threads that a user sets applies.
    """

    def __init__(self, apply: Callable[[int], None], read_quota: Callable[[], int] = cpu_quota) -> None:
        self._apply, self._read_quota = apply, read_quota
        self.reset()

    def reset(self) -> None:
        """Return to the state before `start`, in a forked child: it does not have the thread."""
        self._initial_quota: int | None = None
        self.limit = UNLIMITED_THREADS

    def start(self) -> None:
        """Start the thread unless it has started. Raises DeviceError if the system cannot start it."""
        if self._initial_quota is not None:
            return
        try:
            threading.Thread(target=self._watch, name="dlc-quota", daemon=True).start()
        except RuntimeError as error:
            raise DeviceError("the system cannot start a thread that reads the cgroup quota; use fewer threads") from error
        self._initial_quota = self._read_quota()

    def _watch(self) -> None:
        while True:
            sleep(_INTERVAL_SECONDS)
            self.update()

    def update(self) -> None:
        """Read the quota, and apply the limit if it has changed."""
        quota = self._read_quota()
        limit = quota if self._initial_quota is not None and quota < self._initial_quota else UNLIMITED_THREADS
        if limit != self.limit:
            self.limit = limit
            self._apply(limit)

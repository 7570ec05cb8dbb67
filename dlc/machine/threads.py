"""Thread pool for work that releases the global interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from dlc.errors import DeviceError

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(ThreadPoolExecutor):
    """A pool of threads that start on demand; raises DeviceError if the system cannot start a thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise DeviceError(f"{error}: use fewer processors (taskset) for fewer threads") from error

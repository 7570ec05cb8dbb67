"""Threads of this process, for work that lets go of the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from dlc.errors import DeviceError

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """So many threads at most, which start when there is work; where the system refuses one DeviceError says so."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise DeviceError(f"{error}: the system refuses it; on fewer processors (taskset) it takes fewer") from error

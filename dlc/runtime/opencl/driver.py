"""PyOpenCL, loaded when a device is asked for: it opens every vendor's library, which models for the CPU do without."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from tempfile import TemporaryFile
from typing import Any

from dlc.errors import DeviceError
from dlc.options import pocl_folder

_I64 = struct.Struct("q")
_POCL = "Portable Computing Language"
# What a kernel takes in its folder, with what it leaves there while it is compiled.
_ROOM = 1 << 20
# Drivers have threads, and a child process has none of its parent's: it would wait for them for ever.
_lost_by_fork = False


def opencl() -> Any:
    """The module `pyopencl`.

    Raises DeviceError in a process forked from one that it was loaded in.
    """
    if _lost_by_fork:
        raise DeviceError(
            "OpenCL was opened before this process was forked, and its drivers do not survive that: use it in one of them "
            "alone, or have multiprocessing start processes by 'spawn'"
        )
    return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    cl: Any = import_module("pyopencl")
    # Of every kernel it keeps Python code in the user's home, and ends in an error where that is read-only or full. The
    # variable PYOPENCL_NO_CACHE is this switch.
    cl._PYOPENCL_NO_CACHE = True
    return cl


def set_number(kernel: Any, place: int, number: int) -> None:
    """Makes a number, an i64, an argument of a kernel object."""
    # `set_arg` tries whatever else an argument may be first, which takes it nine microseconds.
    set_bytes = getattr(kernel, "_set_arg_buf", None) or kernel.set_arg
    set_bytes(place, _I64.pack(number))


def _lose_drivers() -> None:
    global _lost_by_fork
    _lost_by_fork = _lost_by_fork or _loaded.cache_info().currsize > 0


os.register_at_fork(after_in_child=_lose_drivers)


class reported:
    """Raises DeviceError for what a driver refuses in the block; it starts with `what`, put together only then.

    Where the driver of a `platform` could not write what it compiles, that is said too.
    """

    def __init__(self, *what: object, platform: str = "") -> None:
        self._what, self._platform = what, platform

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is not None and isinstance(error, opencl().Error):
            said = f"{''.join(map(str, self._what))}: {str(error).strip()}"
            raise DeviceError(said + _lack_of_room(self._platform)) from error


def _lack_of_room(platform: str) -> str:
    """That a driver has no room for what it compiles, where that is so: PoCL says of it no more than that it failed."""
    if platform != _POCL:
        return ""
    folder = pocl_folder()
    try:
        # As the driver makes it.
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        repair = "make room there, or name another folder in the variable POCL_CACHE_DIR"
        return f"; {folder}, where its driver keeps what it compiles, cannot be written: {error.strerror}; {repair}"
    return ""


@contextmanager
def compiling(*what: object, platform: str) -> Generator[None]:
    """As `reported`, around a compiler: those that say anything at all make a warning."""
    with reported(*what, platform=platform), warnings.catch_warnings():
        warnings.simplefilter("ignore", opencl().CompilerWarning)
        yield

"""Access to PyOpenCL. It is imported on first use, since it loads the libraries of all vendors."""

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
# Disk space that the driver needs to compile a kernel.
_KERNEL_CACHE_BYTES = 1 << 20
# Drivers have threads, which do not exist in a forked child: it would wait for them forever.
_forked_after_load = False


def opencl() -> Any:
    """Return the module `pyopencl`.

    Raises DeviceError in a process that was forked after it was loaded.
    """
    if _forked_after_load:
        raise DeviceError(
            "OpenCL was used before this process was forked, which its drivers do not support: use it in one of the "
            "processes only, or set multiprocessing's start method to 'spawn'"
        )
    return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    cl: Any = import_module("pyopencl")
    # PyOpenCL would cache generated Python code in the home directory, and fail if that is read-only or full. This is what
    # the variable PYOPENCL_NO_CACHE sets.
    cl._PYOPENCL_NO_CACHE = True
    return cl


def set_i64_argument(kernel: Any, index: int, value: int) -> None:
    """Set an argument of a kernel object to an i64."""
    # `set_arg` tries other types of arguments first, which takes nine microseconds.
    set_bytes = getattr(kernel, "_set_arg_buf", None) or kernel.set_arg
    set_bytes(index, _I64.pack(value))


def _disable_after_fork() -> None:
    global _forked_after_load
    _forked_after_load = _forked_after_load or _loaded.cache_info().currsize > 0


os.register_at_fork(after_in_child=_disable_after_fork)


class driver_errors:
    """Convert driver errors in the block to DeviceError; the message starts with `context`, which is formatted only then.

    With a `platform`, the message also says if the driver's cache folder is not writable.
    """

    def __init__(self, *context: object, platform: str = "") -> None:
        self._context, self._platform = context, platform

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is not None and isinstance(error, opencl().Error):
            message = f"{''.join(map(str, self._context))}: {str(error).strip()}"
            raise DeviceError(message + _cache_folder_problem(self._platform)) from error


def _cache_folder_problem(platform: str) -> str:
    """Return a message if PoCL's cache folder cannot be written; PoCL itself only reports that the build failed."""
    if platform != _POCL:
        return ""
    folder = pocl_folder()
    try:
        # As the driver creates it.
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_KERNEL_CACHE_BYTES))
    except OSError as error:
        repair = "free disk space, or set POCL_CACHE_DIR to another folder"
        return f"; the driver's cache folder {folder} cannot be written: {error.strerror}; {repair}"
    return ""


@contextmanager
def compiler_errors(*context: object, platform: str) -> Generator[None]:
    """As `driver_errors`, for builds: suppresses PyOpenCL's warning about any compiler output."""
    with driver_errors(*context, platform=platform), warnings.catch_warnings():
        warnings.simplefilter("ignore", opencl().CompilerWarning)
        yield

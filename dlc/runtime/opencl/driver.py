"""PyOpenCL, loaded when a device is asked for: it opens every vendor's library, which models for the CPU do without."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

from dlc.errors import DeviceError


@lru_cache(maxsize=1)
def opencl() -> Any:
    """The module `pyopencl`."""
    return import_module("pyopencl")


@contextmanager
def reported(what: str) -> Generator[None]:
    """Raises DeviceError, which starts with `what`, for what a driver refuses in the block."""
    cl = opencl()
    try:
        with warnings.catch_warnings():
            # Compilers that say anything at all make a warning.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            yield
    except cl.Error as error:
        raise DeviceError(f"{what}: {str(error).strip()}") from error

"""The backend that a target's name means."""

from __future__ import annotations

from functools import lru_cache

from dlc.backends.base import Backend
from dlc.backends.cpu.backend import Cpu
from dlc.backends.opencl.backend import OpenCL
from dlc.backends.reference.backend import Reference
from dlc.errors import DeviceError, DlcError
from dlc.files.python_files import executed
from dlc.target import REFERENCE, is_opencl, place_of, resolve


def backend_of(target: str | Backend, device: str | None = None) -> Backend:
    """The backend called `target`, or itself; `device` is where the target `opencl` is.

    Raises DeviceError for a name that means none.
    """
    if isinstance(target, Backend):
        return target
    if (place := place_of(target)) is not None:
        return _in_file(*place)
    if is_opencl(target):
        return OpenCL(target, device)
    record = resolve(target)
    return Reference() if record is REFERENCE else Cpu(record)


@lru_cache
def _in_file(path: str, name: str) -> Backend:
    """The backend that a Python file calls `name`."""
    try:
        module = executed(path)
    except DlcError as error:
        raise DeviceError(f"target {path}:{name}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Backend):
        kinds = [key for key, value in vars(module).items() if isinstance(value, Backend)]
        raise DeviceError(f"target {path}:{name}: no backend of this name there; there are {', '.join(kinds) or 'none'}")
    return found

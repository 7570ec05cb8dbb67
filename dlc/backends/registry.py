"""The backend that a target's name means."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location

from dlc.backends.base import Backend
from dlc.backends.cpu.backend import Cpu
from dlc.backends.opencl.backend import OpenCL
from dlc.backends.reference.backend import Reference
from dlc.errors import DeviceError
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
    spec = spec_from_file_location(f"target {path}", path)
    if spec is None or spec.loader is None:
        raise DeviceError(f"target {path}:{name}: {path} is no Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        raise DeviceError(f"target {path}:{name}: {path} cannot be read: {error.strerror}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Backend):
        kinds = [key for key, value in vars(module).items() if isinstance(value, Backend)]
        raise DeviceError(f"target {path}:{name}: no backend of this name there; there are {', '.join(kinds) or 'none'}")
    return found

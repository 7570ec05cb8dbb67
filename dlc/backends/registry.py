"""Look up a backend by target name."""

from __future__ import annotations

from functools import lru_cache

from dlc.backends.base import Backend
from dlc.backends.cpu.backend import Cpu
from dlc.backends.opencl.backend import OpenCL
from dlc.backends.reference.backend import Reference
from dlc.errors import DeviceError, DlcError
from dlc.files.python_files import run_python_file
from dlc.target import PLUGIN_BACKENDS, REFERENCE, custom_target_location, is_opencl, resolve


def backend_of(target: str | Backend, device: str | None = None) -> Backend:
    """Return the backend for a target name, or `target` itself; `device` selects the device of the target `opencl`.

    Raises DeviceError for an unknown name.
    """
    if isinstance(target, Backend):
        return target
    if (location := custom_target_location(target)) is not None:
        return _load_backend_file(*location)
    if is_opencl(target):
        return OpenCL(target, device)
    known_target = resolve(target)
    if (backend := PLUGIN_BACKENDS.get(target)) is not None and backend.target is known_target:
        return backend
    return Reference() if known_target is REFERENCE else Cpu(known_target)


@lru_cache
def _load_backend_file(path: str, name: str) -> Backend:
    """Load the backend called `name` from a Python file."""
    try:
        module = run_python_file(path)
    except DlcError as error:
        raise DeviceError(f"target {path}:{name}: {error}") from error
    member = getattr(module, name, None)
    if not isinstance(member, Backend):
        backends = [key for key, value in vars(module).items() if isinstance(value, Backend)]
        raise DeviceError(f"target {path}:{name}: the file defines no such backend; it defines {', '.join(backends) or 'none'}")
    return member

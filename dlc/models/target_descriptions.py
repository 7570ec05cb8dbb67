"""Descriptions of targets by name; neither the compiler nor OpenCL is imported for processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc.target import Target, custom_target_location, is_opencl, resolve

if TYPE_CHECKING:
    from dlc.backends.base import Backend


def target_description(target: str | Backend, device: str | None) -> Target:
    """Return the description of a target; `device` selects the device of the target `opencl`.

    Raises DeviceError for an unknown name, and for a device that is missing.
    """
    if not isinstance(target, str) or custom_target_location(target) is not None:
        # Imported here because only custom targets need the compiler.
        from dlc.backends.registry import backend_of

        return backend_of(target, device).target
    if is_opencl(target):
        # Imported here because only these targets need OpenCL.
        from dlc.runtime.opencl.devices import target_of

        return target_of(target, device)
    return resolve(target)

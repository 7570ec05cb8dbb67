"""OpenCL devices: discovery, their descriptions as targets, and selection by target name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dlc.errors import DeviceError
from dlc.runtime.opencl.driver import compiler_errors, driver_errors, opencl
from dlc.target import OPENCL_PROFILES, OpenCLName, Target, is_opencl, resolve, with_matrix_units, without_float_types

INSTALL_HINT = (
    "Debian's and Ubuntu's `apt install pocl-opencl-icd` installs one that runs on the processor, and so does "
    "`pip install 'dlc[opencl-intel]'`; a GPU's comes with its vendor's driver"
)
# Maximum number of cooperating work-items: with more, each has too few registers.
_MAX_COOPERATING_ITEMS = 512
# More queues than a device executes concurrently cost memory only.
_MAX_CONCURRENT_SECTIONS = 4
# A minimal kernel, to test whether a driver works at all.
_PROBE = """
__kernel void probe(__global int *restrict out) {
    const int i = get_global_id(0);
    out[i] = 3 * i + 1;
}
"""


@dataclass(frozen=True)
class Device:
    """A device of a platform.

    Attributes:
        device_index: The indices of the platform and of the device.
        group_items: The maximum work-group size.
        local_bytes: The local memory per work-group.
        buffer_bytes: The maximum buffer size.
        target: The target to compile for.
        handle: PyOpenCL's device.
    """

    device_index: tuple[int, int]
    name: str
    platform: str
    driver: str
    kind: str
    group_items: int
    local_bytes: int
    buffer_bytes: int
    target: Target
    handle: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"opencl:{self.device_index[0]}:{self.device_index[1]} ({self.name}, {self.platform})"


class Session:
    """An open device: its context and its in-order queues.

    Commands of `queue` execute in order, so that calls need no further synchronization. `uploads` is a queue for filling new
    buffers, which does not wait for other commands. Concurrent sections of a call have a queue each; the first one is `queue`.
    """

    def __init__(self, device: Device) -> None:
        cl = opencl()
        self.device = device
        with driver_errors(device, ": cannot be used"):
            self.context: Any = cl.Context([device.handle])
            self.queue: Any = cl.CommandQueue(self.context)
            self.uploads: Any = cl.CommandQueue(self.context)
        self._section_queues = [self.queue]

    def section_queue(self, section: int) -> Any:
        """Return the queue of a section; queues serve several sections if there are many."""
        while len(self._section_queues) <= min(section, _MAX_CONCURRENT_SECTIONS - 1):
            with driver_errors(self.device, ": cannot create a queue"):
                self._section_queues.append(opencl().CommandQueue(self.context))
        return self._section_queues[section % _MAX_CONCURRENT_SECTIONS]


@lru_cache
def open_device(device: Device) -> Session:
    """Open a device; the session is shared by the whole process."""
    return Session(device)


def all_devices() -> tuple[Device, ...]:
    """Return the devices of all platforms, in the order of the platforms."""
    return _discover()[0]


def installation_hint() -> str:
    """Return instructions to install an OpenCL device, for a machine without one."""
    if not (platforms_without_devices := _discover()[1]):
        return INSTALL_HINT
    return (
        f"the driver of {' and of '.join(platforms_without_devices)} is installed, but has no devices. PoCL (Portable "
        "Computing Language) needs a writable folder: set POCL_CACHE_DIR"
    )


@lru_cache(maxsize=1)
def _discover() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return the devices of all platforms, and the names of platforms without devices."""
    cl = opencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return (), ()  # The loader raises an error if there are no platforms.
    devices: list[Device] = []
    platforms_without_devices: list[str] = []
    for p, platform in enumerate(platforms):
        handles: list[Any] = []  # Some platforms raise an error if they have no devices.
        with suppress(cl.Error):
            handles = platform.get_devices()
        if not handles:
            platforms_without_devices.append(platform.name.strip())
        devices += [_describe(handle, (p, d)) for d, handle in enumerate(handles)]
    return tuple(devices), tuple(platforms_without_devices)


def _describe(handle: Any, device_index: tuple[int, int]) -> Device:
    types = opencl().device_type
    kinds = {types.CPU: "cpu", types.GPU: "gpu"}
    kind = next((name for bit, name in kinds.items() if handle.type & bit), "accelerator")
    extensions = handle.extensions.split()
    if kind == "cpu":
        bits = min(512, max(128, 32 * handle.native_vector_width_float))
        profile = OPENCL_PROFILES[f"opencl:cpu{bits}"]
    else:
        profiles = (OPENCL_PROFILES["opencl:gpu"], OPENCL_PROFILES["opencl:small"])
        profile = next(
            (t for t in profiles if not _missing_resources(t, handle.max_work_group_size, handle.local_mem_size)), profiles[-1]
        )
        profile = _with_cooperative_groups(_with_units(profile, handle.max_compute_units), handle.max_work_group_size)
    target = without_float_types(profile, has_f16="cl_khr_fp16" in extensions, has_f64="cl_khr_fp64" in extensions)
    return Device(
        device_index=device_index,
        name=handle.name.strip(),
        platform=handle.platform.name.strip(),
        driver=f"{handle.version.strip()}, {handle.driver_version.strip()}",
        kind=kind,
        group_items=handle.max_work_group_size,
        local_bytes=handle.local_mem_size,
        buffer_bytes=handle.max_mem_alloc_size,
        target=with_matrix_units(target) if profile.groups is not None and _multiplies_matrices(handle) else target,
        handle=handle,
    )


def _with_units(target: Target, units: int) -> Target:
    return target if target.groups is None else replace(target, groups=replace(target.groups, units=units))


def _with_cooperative_groups(target: Target, items: int) -> Target:
    """Return a profile with the maximum number of cooperating work-items, rounded down to a power of two."""
    assert target.groups is not None
    max_items = 1 << (min(items, _MAX_COOPERATING_ITEMS).bit_length() - 1)
    return replace(
        target, groups=replace(target.groups, max_cooperating_items=max(max_items, target.groups.max_cooperating_items))
    )


def _multiplies_matrices(handle: Any) -> bool:
    """Return whether it is an NVIDIA GPU with `mma.sync` for bf16."""
    return "cl_nv_device_attribute_query" in handle.extensions.split() and handle.compute_capability_major_nv >= 8


def _missing_resources(target: Target, items: int, local_bytes: int) -> str:
    """Return the resources that `target` requires and a device lacks; empty if none."""
    groups = target.groups
    if groups is None:
        return ""
    if items < groups.items:
        return f"groups of {groups.items} items, it has {items}"
    return f"{groups.local_bytes} bytes of local memory, it has {local_bytes}" if local_bytes < groups.local_bytes else ""


def fit_target(target: Target, device: Device) -> Target:
    """Return `target` restricted to the features of the device, with its number of compute units and its driver version.

    Raises DeviceError if the device lacks required resources.
    """
    if missing_features := _missing_resources(target, device.group_items, device.local_bytes):
        raise DeviceError(f"{device}: {target.name} needs {missing_features}; compile for opencl:small")
    if device.target.groups is not None:
        target = _with_units(target, device.target.groups.units)
    # The code depends on the driver that compiles it.
    target = replace(target, version=f"{device.name}, {device.platform}, {device.driver}")
    if target.dot_products and not device.target.dot_products:
        target = replace(target, name=target.name.removesuffix(":mma"), dot_products=())
    return without_float_types(target, has_f16=device.target.has_f16, has_f64=device.target.has_f64)


def select_device(name: str, preferred: str | None = None) -> tuple[Device, Target]:
    """Return the device that a target name selects, and the target to compile for.

    `opencl` is the device `preferred` ("0:1"), or else the first that passes a smoke test; `opencl:0:1` is device 1 of platform
    0. A profile at the end, as in `opencl:small` or `opencl:0:1:small`, is compiled for instead of the device's own. Raises
    DeviceError if there is no such device.
    """
    parsed = OpenCLName.parse(name)
    device_index = parsed.device_index
    if device_index is None and preferred:
        try:
            device_index = OpenCLName.parse(f"opencl:{preferred}").device_index
        except DeviceError:
            device_index = None
        if device_index is None:
            raise DeviceError(f"DLC_DEVICE={preferred!r}: expected the indices of a platform and a device, such as 0:1")
    device = _device_at(device_index) if device_index is not None else _first_working_device()
    return device, fit_target(resolve(parsed.target) if parsed.target is not None else device.target, device)


def target_of(name: str, preferred: str | None = None) -> Target:
    """Return the target called `name`; a device is opened only if the name does not fully determine it."""
    if not is_opencl(name):
        return resolve(name)
    parsed = OpenCLName.parse(name)
    return resolve(parsed.target) if parsed.device_index is None and parsed.target else select_device(name, preferred)[1]


def _device_at(device_index: tuple[int, int]) -> Device:
    devices = all_devices()
    for device in devices:
        if device.device_index == device_index:
            return device
    hint = f"; the devices are {', '.join(map(str, devices))}" if devices else f", nor any other; {installation_hint()}"
    raise DeviceError(f"no OpenCL device opencl:{device_index[0]}:{device_index[1]}{hint}")


@lru_cache(maxsize=1)
def _first_working_device() -> Device:
    problems: list[str] = []
    for device in all_devices():
        if not (problem := probe_device(device)):
            return device
        problems.append(problem)
    if problems:
        raise DeviceError("no OpenCL device works:\n  " + "\n  ".join(problems))
    raise DeviceError(f"no OpenCL device: {installation_hint()}; see `dlc doctor`")


@lru_cache
def probe_device(device: Device) -> str:
    """Build and run a small kernel on the device; return the error message, or an empty string if it works."""
    cl = opencl()
    result = np.zeros(4, np.int32)
    try:
        session = open_device(device)
        with compiler_errors(device, ": a small kernel fails", platform=device.platform):
            program = cl.Program(session.context, _PROBE).build(cache_dir=False)
            out = cl.Buffer(session.context, cl.mem_flags.WRITE_ONLY, result.nbytes)
            cl.Kernel(program, "probe")(session.queue, (4,), None, out)
            cl.enqueue_copy(session.queue, result, out)
    except DeviceError as error:
        return str(error)
    return "" if result.tolist() == [1, 4, 7, 10] else f"{device}: a small kernel computes {result.tolist()}, not [1, 4, 7, 10]"

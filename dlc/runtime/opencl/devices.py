"""OpenCL devices: what there is, what each is compiled for, and which one a target's name means."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dlc.errors import DeviceError
from dlc.runtime.opencl.driver import compiling, opencl, reported
from dlc.target import OPENCL_PROFILES, OpenCLName, Target, is_opencl, resolve, with_matrices, without

INSTALL = (
    "Debian's and Ubuntu's `apt install pocl-opencl-icd` installs one that runs on the processor, and so does "
    "`pip install 'dlc[opencl-intel]'`; a GPU's comes with its vendor's driver"
)
# Items of a group that share rows: of more of them each has too few registers.
_MOST_ITEMS = 512
# Runs on any device; a driver that cannot do it is of no use.
_PROBE = """
__kernel void probe(__global int *restrict out) {
    const int i = get_global_id(0);
    out[i] = 3 * i + 1;
}
"""


@dataclass(frozen=True)
class Device:
    """A device of a platform, and the target that code for it is compiled for; `handle` is PyOpenCL's.

    `group_items`, `local_bytes` and `buffer_bytes` are the most that a group and one buffer may have.
    """

    place: tuple[int, int]
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
        return f"opencl:{self.place[0]}:{self.place[1]} ({self.name}, {self.platform})"


class Session:
    """A device in use: its context, and one queue that does everything in order.

    Since the queue keeps the order, what one call writes another may read without a word between them. New buffers are filled
    by way of `uploads`, which waits for nothing.
    """

    def __init__(self, device: Device) -> None:
        cl = opencl()
        self.device = device
        with reported(device, ": cannot be used"):
            self.context: Any = cl.Context([device.handle])
            self.queue: Any = cl.CommandQueue(self.context)
            self.uploads: Any = cl.CommandQueue(self.context)


@lru_cache
def open_device(device: Device) -> Session:
    """The device in use; the same for everybody in this process."""
    return Session(device)


def all_devices() -> tuple[Device, ...]:
    """The devices of all platforms, in the order of the platforms."""
    return _found()[0]


def what_to_do() -> str:
    """What makes there be a device, on a machine without one."""
    if not (silent := _found()[1]):
        return INSTALL
    return (
        f"the driver of {' and of '.join(silent)} is installed, and gives none. Where it is PoCL (Portable Computing "
        "Language), it lacks a folder to write to: name one in the variable POCL_CACHE_DIR"
    )


@lru_cache(maxsize=1)
def _found() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices of all platforms, and the names of platforms that have none."""
    cl = opencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return (), ()  # the loader calls it an error that there is none
    found: list[Device] = []
    silent: list[str] = []
    for p, platform in enumerate(platforms):
        handles: list[Any] = []  # some say by an error that they have none
        with suppress(cl.Error):
            handles = platform.get_devices()
        if not handles:
            silent.append(platform.name.strip())
        found += [_describe(handle, (p, d)) for d, handle in enumerate(handles)]
    return tuple(found), tuple(silent)


def _describe(handle: Any, place: tuple[int, int]) -> Device:
    types = opencl().device_type
    kinds = {types.CPU: "cpu", types.GPU: "gpu"}
    kind = next((name for bit, name in kinds.items() if handle.type & bit), "accelerator")
    extensions = handle.extensions.split()
    if kind == "cpu":
        bits = min(512, max(128, 32 * handle.native_vector_width_float))
        profile = OPENCL_PROFILES[f"opencl:cpu{bits}"]
    else:
        profiles = (OPENCL_PROFILES["opencl:gpu"], OPENCL_PROFILES["opencl:small"])
        profile = next((t for t in profiles if not _lacks(t, handle.max_work_group_size, handle.local_mem_size)), profiles[-1])
        profile = _with_teams(_with_units(profile, handle.max_compute_units), handle.max_work_group_size)
    target = without(profile, halves="cl_khr_fp16" in extensions, doubles="cl_khr_fp64" in extensions)
    return Device(
        place=place,
        name=handle.name.strip(),
        platform=handle.platform.name.strip(),
        driver=f"{handle.version.strip()}, {handle.driver_version.strip()}",
        kind=kind,
        group_items=handle.max_work_group_size,
        local_bytes=handle.local_mem_size,
        buffer_bytes=handle.max_mem_alloc_size,
        target=with_matrices(target) if profile.groups is not None and _multiplies_matrices(handle) else target,
        handle=handle,
    )


def _with_units(target: Target, units: int) -> Target:
    return target if target.groups is None else replace(target, groups=replace(target.groups, units=units))


def _with_teams(target: Target, items: int) -> Target:
    """A profile with as many items that share rows as a group of a device may have: a power of two, as teams are."""
    assert target.groups is not None
    most = 1 << (min(items, _MOST_ITEMS).bit_length() - 1)
    return replace(target, groups=replace(target.groups, team_items=max(most, target.groups.team_items)))


def _multiplies_matrices(handle: Any) -> bool:
    """Whether it is a GPU of NVIDIA's that has `mma.sync` for bf16."""
    return "cl_nv_device_attribute_query" in handle.extensions.split() and handle.compute_capability_major_nv >= 8


def _lacks(target: Target, items: int, local_bytes: int) -> str:
    """What `target` takes for granted that a device does not have; empty if nothing."""
    groups = target.groups
    if groups is None:
        return ""
    if items < groups.items:
        return f"groups of {groups.items} items, it has {items}"
    return f"{groups.local_bytes} bytes of local memory, it has {local_bytes}" if local_bytes < groups.local_bytes else ""


def fitted(target: Target, device: Device) -> Target:
    """`target` without what the device does not have and with as many units, as a version of this device's own.

    Raises DeviceError for one that is too large for it.
    """
    if lacking := _lacks(target, device.group_items, device.local_bytes):
        raise DeviceError(f"{device}: {target.name} needs {lacking}; compile for opencl:small")
    if device.target.groups is not None:
        target = _with_units(target, device.target.groups.units)
    # What becomes of text is its driver's affair.
    target = replace(target, version=f"{device.name}, {device.platform}, {device.driver}")
    if target.dots and not device.target.dots:
        target = replace(target, name=target.name.removesuffix(":mma"), dots=())
    return without(target, halves=device.target.halves, doubles=device.target.doubles)


def choose(name: str, wanted: str | None = None) -> tuple[Device, Target]:
    """The device that a target's name means, and what to compile for.

    `opencl` is the device at `wanted` ("0:1"), or else the first one that builds and runs a small kernel; `opencl:0:1` is
    device 1 of platform 0; a profile at the end, `opencl:small` or `opencl:0:1:small`, is compiled for as if the device were
    like that. Raises DeviceError when there is no such device.
    """
    parsed = OpenCLName.parse(name)
    place = parsed.place
    if place is None and wanted:
        try:
            place = OpenCLName.parse(f"opencl:{wanted}").place
        except DeviceError:
            place = None
        if place is None:
            raise DeviceError(f"DLC_DEVICE={wanted!r}: write the numbers of a platform and a device, such as 0:1")
    device = _at(place) if place is not None else _first()
    return device, fitted(resolve(parsed.target) if parsed.target is not None else device.target, device)


def target_of(name: str, wanted: str | None = None) -> Target:
    """What to compile for when the target is called `name`; a device is asked only if the name does not say it all."""
    if not is_opencl(name):
        return resolve(name)
    parsed = OpenCLName.parse(name)
    return resolve(parsed.target) if parsed.place is None and parsed.target else choose(name, wanted)[1]


def _at(place: tuple[int, int]) -> Device:
    found = all_devices()
    for device in found:
        if device.place == place:
            return device
    here = f"; there are {', '.join(map(str, found))}" if found else f", or any other; {what_to_do()}"
    raise DeviceError(f"no OpenCL device opencl:{place[0]}:{place[1]}{here}")


@lru_cache(maxsize=1)
def _first() -> Device:
    problems: list[str] = []
    for device in all_devices():
        if not (problem := problem_of(device)):
            return device
        problems.append(problem)
    if problems:
        raise DeviceError("no OpenCL device works:\n  " + "\n  ".join(problems))
    raise DeviceError(f"no OpenCL device: {what_to_do()}; `dlc doctor` says what is found")


@lru_cache
def problem_of(device: Device) -> str:
    """Why a small kernel does not build or run on the device; empty if it does."""
    cl = opencl()
    got = np.zeros(4, np.int32)
    try:
        session = open_device(device)
        with compiling(device, ": a small kernel fails", platform=device.platform):
            program = cl.Program(session.context, _PROBE).build(cache_dir=False)
            out = cl.Buffer(session.context, cl.mem_flags.WRITE_ONLY, got.nbytes)
            cl.Kernel(program, "probe")(session.queue, (4,), None, out)
            cl.enqueue_copy(session.queue, got, out)
    except DeviceError as error:
        return str(error)
    return "" if got.tolist() == [1, 4, 7, 10] else f"{device}: a small kernel computes {got.tolist()}, not [1, 4, 7, 10]"

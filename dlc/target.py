"""Targets: what the compiler must know of a device, as data."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dlc.errors import DeviceError


@dataclass(frozen=True)
class Groups:
    """Items of a group run at once and share local memory: at most `items` of them, and `local_bytes` of it."""

    items: int
    local_bytes: int


@dataclass(frozen=True)
class Target:
    """A device to generate code for.

    `cpu` and `features` are LLVM's names; sizes are bytes; `vector_registers` counts registers of `vector_bytes` each, those
    of one item where there are `groups`. Without groups a point of a grid is one task, computed by one thread. `halves` and
    `doubles`: the device computes in f16 and f64.
    """

    name: str
    cpu: str
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    has_fma: bool
    groups: Groups | None = None
    halves: bool = True
    doubles: bool = True

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

CPU_LEVELS = {
    "cpu:generic": Target("cpu:generic", "x86-64-v2", _V2, 16, 16, has_fma=False),
    "cpu:avx2": Target("cpu:avx2", "x86-64-v3", _V3, 32, 16, has_fma=True),
    "cpu:avx512": Target("cpu:avx512", "x86-64-v4", _V4, 64, 32, has_fma=True),
}
# OpenCL devices by kind: a processor takes a grid's points as tasks, a GPU as groups of items; `small` is the least of GPUs.
OPENCL_PROFILES = {
    "opencl:cpu128": Target("opencl:cpu128", "", (), 16, 16, has_fma=False),
    "opencl:cpu256": Target("opencl:cpu256", "", (), 32, 16, has_fma=True),
    "opencl:cpu512": Target("opencl:cpu512", "", (), 64, 32, has_fma=True),
    "opencl:gpu": Target("opencl:gpu", "", (), 16, 64, has_fma=True, groups=Groups(256, 32 << 10)),
    "opencl:small": Target(
        "opencl:small", "", (), 16, 64, has_fma=True, groups=Groups(64, 16 << 10), halves=False, doubles=False
    ),
}
REFERENCE = Target("reference", "", (), 64, 32, has_fma=True)
# How /proc/cpuinfo spells the features whose LLVM names differ.
_CPUINFO = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm"}


@lru_cache(maxsize=1)
def host_flags() -> frozenset[str]:
    """The feature flags of this machine's processor."""
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        raise DeviceError(
            f"target cpu: dlc generates code for Linux on x86-64, this is {platform.system()} on {platform.machine()}; "
            "use target='reference'"
        )
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    raise DeviceError("target cpu: /proc/cpuinfo lists no processor flags")


def host_supports(target: Target) -> bool:
    """Whether this machine can run code for a CPU target."""
    return all(_CPUINFO.get(f, f) in host_flags() for f in target.features)


@lru_cache
def resolve(name: str) -> Target:
    """The target called `name`; `cpu` is the best level that this machine has.

    Raises DeviceError for an unknown name.
    """
    if name == "reference":
        return REFERENCE
    if name == "cpu":
        return next((t for t in reversed(CPU_LEVELS.values()) if host_supports(t)), CPU_LEVELS["cpu:generic"])
    for known in (CPU_LEVELS, OPENCL_PROFILES):
        if name in known:
            return known[name]
    raise DeviceError(f"unknown target {name!r}; this build of dlc has cpu, {', '.join(CPU_LEVELS)} and reference")

"""Targets: what the compiler must know of a device, as data."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from dlc.costs import Machine, Winograd
from dlc.errors import DeviceError
from dlc.machine.architectures import ARCHITECTURES, HOST, Architecture
from dlc.options import Environment


@dataclass(frozen=True)
class Groups:
    """Items of a group run at once and share local memory: at most `items` of them, and `local_bytes` of it.

    A device has so many `units`, each of which runs a few groups at once. Where there are fewer groups than that, those whose
    items share rows of what they read may have up to `team_items`, so that more loads are under way.
    """

    items: int
    local_bytes: int
    units: int = 128
    team_items: int = 256


@dataclass(frozen=True)
class Target:
    """A device to generate code for.

    `cpu` and `features` are LLVM's names, of a processor of an `architecture`; sizes are bytes; `vector_registers` counts
    registers of `vector_bytes` each, those of one item where there are `groups`. Without groups a point of a grid is one task,
    computed by one thread. `halves` and `doubles`: the device computes in f16 and f64; `converts_halves`: a processor that
    computes halves in f32 has instructions for the way there and back. `dots`: the products of words that it has instructions
    for, the quickest first, by their names in `dl` (`DOTS`); where there are `groups`, for matrices of them, by 32 items at
    once (NVIDIA's `mma.sync`). Buffers start at multiples of `alignment`. `version` is of what
    makes its code, where dlc's own sources do not say it all (their digest, a compiler's version); None: what is compiled for
    it is not kept in the cache. `machine` is what things cost on it.
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
    dots: tuple[str, ...] = ()
    alignment: int = 64
    version: str | None = None
    machine: Machine = field(default_factory=Machine)
    architecture: str = HOST
    converts_halves: bool = False

    @property
    def of_code(self) -> Target:
        """What compiled code knows of its target: all but what things cost on it."""
        return replace(self, machine=Machine())

    @property
    def long_rows(self) -> int:
        """The vectors of a row of a register tile of four rows or six, which leave registers for operands."""
        return max(1, self.vector_registers // 8)

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_ARM = ("neon", "crc")
_RISC_V = ("m", "a", "f", "d", "c", "v")

# vpmaddwd is as old as vectors of integers; vpdpbusd came later, first for vectors of 64 bytes, and usdot with dotprod's.
_PAIRS, _FOURS = ("i16",), ("u8i8", "i16")
# vdpbf16ps came with processors that have both.
_HALVES = (*_FOURS, "bf16")
_MATRICES = ("bf16", "f16")
# Vectors of 32 bytes and fewer. Of AArch64 large cores have 64 KiB of first-level cache in four ways, and smaller ones lose
# little by it; it takes four instructions for pairs that x86-64 has two for.
_SHORT = Machine(winograd=Winograd(input=30, weight=8))
_OF_ARM = replace(_SHORT, way_bytes=1 << 14, cache_ways=4, pair_rows=4)


def _x86(name: str, cpu: str, features: tuple[str, ...], bytes: int, registers: int, dots: tuple[str, ...]) -> Target:
    fma, halves = "fma" in features, "f16c" in features
    target = Target(name, cpu, features, bytes, registers, has_fma=fma, dots=dots, version="", converts_halves=halves)
    return replace(target, machine=_SHORT) if bytes <= 32 else target


def _arm(name: str, features: tuple[str, ...], dots: tuple[str, ...]) -> Target:
    target = Target(name, "generic", features, 16, 32, has_fma=True, dots=dots, version="", converts_halves=True)
    return replace(target, architecture="aarch64", machine=_OF_ARM)


def _risc_v(name: str, features: tuple[str, ...]) -> Target:
    """Registers have as many bytes as the vectors of all of them have at least."""
    target = Target(name, "generic-rv64", features, 16, 32, has_fma=True, version="", architecture="riscv64")
    return replace(target, machine=_SHORT)


# Of each architecture the one first that all its processors have that dlc generates code for.
CPU_LEVELS = {
    t.name: t
    for t in (
        _x86("cpu:generic", "x86-64-v2", _V2, 16, 16, _PAIRS),
        _x86("cpu:avx2", "x86-64-v3", _V3, 32, 16, _PAIRS),
        _x86("cpu:avx2_vnni", "x86-64-v3", (*_V3, "avxvnni"), 32, 16, _FOURS),
        _x86("cpu:avx512", "x86-64-v4", _V4, 64, 32, _PAIRS),
        _x86("cpu:avx512_vnni", "x86-64-v4", (*_V4, "avx512vnni"), 64, 32, _FOURS),
        _x86("cpu:avx512_bf16", "x86-64-v4", (*_V4, "avx512vnni", "avx512bf16"), 64, 32, _HALVES),
        _arm("cpu:aarch64", _ARM, _PAIRS),
        _arm("cpu:aarch64_i8mm", (*_ARM, "dotprod", "i8mm"), _FOURS),
        _risc_v("cpu:riscv64", _RISC_V),
    )
}
# Items meet at barriers; no processor of theirs prefetches by hand. What it costs to go by tiles was measured on processors.
# A launch takes about 4 µs, whatever it does, and a kernel of few products leaves most of the device idle.
_OF_GROUPS = Machine(winograd=None, prefetch=None, row_tiles=0, kernel_work=1 << 26)
# What waits in a thread's memory would take more of it than drivers give.
_OF_DRIVERS = Machine(row_tiles=0, winograd=Winograd(input=30))
# OpenCL devices by kind: a processor takes a grid's points as tasks, a GPU as groups of items; `small` is the least of GPUs.
OPENCL_PROFILES = {
    "opencl:cpu128": Target("opencl:cpu128", "", (), 16, 16, has_fma=False, machine=_OF_DRIVERS),
    "opencl:cpu256": Target("opencl:cpu256", "", (), 32, 16, has_fma=True, machine=_OF_DRIVERS),
    "opencl:cpu512": Target("opencl:cpu512", "", (), 64, 32, has_fma=True, machine=_OF_DRIVERS),
    "opencl:gpu": Target(
        "opencl:gpu", "", (), 16, 64, has_fma=True, groups=Groups(256, 32 << 10), alignment=128, machine=_OF_GROUPS
    ),
    "opencl:small": Target(
        "opencl:small",
        "",
        (),
        16,
        64,
        has_fma=True,
        groups=Groups(64, 16 << 10, team_items=64),
        halves=False,
        doubles=False,
        alignment=128,
        machine=_OF_GROUPS,
    ),
}
_OPENCL_FORMS = (
    "opencl, opencl:PLATFORM:DEVICE (numbers; `dlc doctor` lists them), and either followed by a profile to compile as if for: "
    + ", ".join(f":{name.partition(':')[2]}" for name in OPENCL_PROFILES)
)
REFERENCE = Target("reference", "", (), 64, 32, has_fma=True)


def architecture_of(target: Target) -> Architecture:
    """The architecture of a CPU target."""
    return ARCHITECTURES[target.architecture]


@lru_cache(maxsize=1)
def host_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The feature flags of this machine's processor, or those of them that the level has which `DLC_CPU` names.

    `cpuinfo` lists them. Raises DeviceError on a machine where dlc runs no code, and for a level that there is not.
    """
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        raise DeviceError(
            f"target cpu: dlc runs code on Linux on x86-64, this is {platform.system()} on {platform.machine()}; "
            "use target='reference'"
        )
    try:
        text = cpuinfo.read_text("utf-8", "replace")
    except OSError as error:
        raise DeviceError(
            f"target cpu: what this processor has is in {cpuinfo}: {error.strerror}; mount /proc, or use target='reference'"
        ) from error
    for line in text.splitlines():
        if line.startswith("flags"):
            return _usable(frozenset(line.partition(":")[2].split()), Environment.read().cpu)
    raise DeviceError(f"target cpu: {cpuinfo} lists no processor flags")


def _usable(flags: frozenset[str], level: str | None) -> frozenset[str]:
    """Those of a processor's flags that a level has; None: all."""
    if level is None:
        return flags
    if (target := CPU_LEVELS.get(f"cpu:{level}")) is None or target.architecture != HOST:
        levels = [name.removeprefix("cpu:") for name, t in CPU_LEVELS.items() if t.architecture == HOST]
        raise DeviceError(f"DLC_CPU={level}: it takes {', '.join(levels)}")
    return flags & frozenset(flags_of(target))


def flags_of(target: Target) -> list[str]:
    """The features of a CPU target as Linux spells them."""
    spellings = architecture_of(target).spellings
    return [spellings.get(feature, feature) for feature in target.features]


def host_lacks(target: Target) -> list[str]:
    """The features of a CPU target that this machine's processor does not have; all of another architecture's."""
    if target.architecture != HOST:
        return list(target.features)
    flags = host_flags()
    return [feature for feature, flag in zip(target.features, flags_of(target), strict=True) if flag not in flags]


def host_supports(target: Target) -> bool:
    """Whether this machine can run code for a CPU target."""
    return not host_lacks(target)


def require_host(target: Target, what: str) -> None:
    """Raises DeviceError where `what`, which is of code for a CPU target, cannot run on this machine."""
    host_flags()  # or what it raises on a machine where dlc runs no code
    if target.architecture != HOST:
        raise DeviceError(
            f"{what}: this processor is of {HOST}, which does not run code for {target.name}: run it there from C "
            "(`dlc header`), or compile it for target cpu to run it here"
        )
    if lacking := host_lacks(target):
        raise DeviceError(
            f"{what}: this processor lacks {', '.join(lacking)}, which code for {target.name} needs: run it on one that has "
            "it, or compile it for target cpu:generic, which runs on both"
        )


@dataclass(frozen=True)
class OpenCLName:
    """What `opencl:0:1:small` says: platform 0, its device 1, and the target to compile for; None where it says nothing."""

    place: tuple[int, int] | None
    target: str | None

    @staticmethod
    def parse(name: str) -> OpenCLName:
        """Takes a name apart.

        Raises DeviceError for one that is not `opencl[:PLATFORM[:DEVICE]][:PROFILE]`.
        """
        match = re.fullmatch(r"opencl(?::(\d+)(?::(\d+))?)?((?::[a-z]\w*)*)", name)
        if match is None:
            raise DeviceError(f"unknown target {name!r}; write {_OPENCL_FORMS}")
        platform, device, profile = match.groups()
        if profile:
            resolve(f"opencl{profile}")
        place = None if platform is None else (int(platform), int(device or 0))
        return OpenCLName(place, f"opencl{profile}" if profile else None)


def place_of(name: str) -> tuple[str, str] | None:
    """The file and the name in it where a target of one's own is found, `FILE.py:NAME`; None for other names."""
    match = re.fullmatch(r"(.+\.py):(\w+)", name)
    return (match[1], match[2]) if match is not None else None


def is_opencl(name: str) -> bool:
    """Whether a target's name is one of an OpenCL device."""
    return name.partition(":")[0] == "opencl"


def without(target: Target, *, halves: bool, doubles: bool) -> Target:
    """`target` as it is on a device that computes in f16 or in f64 only if it is told so here.

    The name says so too: `opencl:gpu:nofp16`.
    """
    name = target.name
    if target.halves and not halves:
        name += ":nofp16"
    if target.doubles and not doubles:
        name += ":nofp64"
    return replace(target, name=name, halves=target.halves and halves, doubles=target.doubles and doubles)


def with_matrices(target: Target) -> Target:
    """`target` as it is on a device whose items multiply matrices of 16-bit floats together: `opencl:gpu:mma`."""
    return replace(target, name=f"{target.name}:mma", dots=_MATRICES)


@lru_cache
def resolve(name: str) -> Target:
    """The target called `name`; `cpu` is the best level that this machine has.

    Raises DeviceError for an unknown name, and for one of an OpenCL device: what that is only the device itself says.
    """
    if name == "reference":
        return REFERENCE
    if name == "cpu":
        return next((t for t in reversed(CPU_LEVELS.values()) if host_supports(t)), CPU_LEVELS["cpu:generic"])
    if name in CPU_LEVELS:
        return CPU_LEVELS[name]
    match = re.fullmatch(r"(opencl:\w+)(:nofp16)?(:nofp64)?(:mma)?", name)
    if match is not None and match[1] in OPENCL_PROFILES:
        target = without(OPENCL_PROFILES[match[1]], halves=match[2] is None, doubles=match[3] is None)
        if match[4] is None or target.groups is not None:
            return target if match[4] is None else with_matrices(target)
    raise DeviceError(
        f"unknown target {name!r}; there are cpu, {', '.join(CPU_LEVELS)}, reference, FILE.py:NAME (one of your own), and "
        f"{_OPENCL_FORMS}"
    )

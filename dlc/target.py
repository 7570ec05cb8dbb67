"""Targets: the properties of a device that the compiler uses, as data."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dlc.cost_model import UNLIMITED_ROWS, CostModel, PrefetchCosts, SectionCosts, UnrollingCosts, WinogradCosts
from dlc.errors import DeviceError, UnsupportedError
from dlc.machine.architectures import ARCHITECTURES, HOST, Architecture
from dlc.options import Environment
from dlc.plugins.tables import ExtensionTable


@dataclass(frozen=True)
class WorkGroups:
    """Work-groups of a device.

    Attributes:
        items: The maximum number of work-items per group.
        local_bytes: The local memory that a group shares.
        units: The number of compute units. Each runs a few groups concurrently.
        max_cooperating_items: The maximum group size if work-items cooperate and there are too few groups to occupy all
            compute units: more work-items have more loads in flight.
    """

    items: int
    local_bytes: int
    units: int = 128
    max_cooperating_items: int = 256


@dataclass(frozen=True)
class Target:
    """A device to generate code for. Sizes are in bytes.

    Attributes:
        name: The name of the target, such as `cpu:avx2`.
        cpu: LLVM's name of the processor.
        features: LLVM's names of its features.
        vector_bytes: The size of a vector register.
        vector_registers: The number of vector registers, per work-item if the device has work-groups.
        has_fma: Whether it has FMA instructions.
        groups: The work-groups; None if a grid point is a task of one thread.
        has_f16: Whether it computes in f16.
        has_f64: Whether it computes in f64.
        dot_products: The packed dot products that have an instruction, by their names in `PACKED_DOTS`, the fastest first.
            With `groups`, these are matrix products of a warp of 32 work-items (NVIDIA's `mma.sync`).
        alignment: The alignment of buffers.
        version: The version of the code generator outside of dlc (a digest, a compiler version). If it is None, programs
            are not cached.
        costs: The cost model.
        architecture: The architecture of the processor.
        has_f16_conversion: Whether a processor that computes f16 in f32 has conversion instructions.
    """

    name: str
    cpu: str
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    has_fma: bool
    groups: WorkGroups | None = None
    has_f16: bool = True
    has_f64: bool = True
    dot_products: tuple[str, ...] = ()
    alignment: int = 64
    version: str | None = None
    costs: CostModel = field(default_factory=CostModel)
    architecture: str = HOST
    has_f16_conversion: bool = False

    @property
    def can_compress(self) -> bool:
        """True if the target compresses vectors by masks in a few instructions (`vector.compress`)."""
        return "avx2" in self.features

    @property
    def has_ldexp(self) -> bool:
        """True if the target multiplies floats by powers of two in one instruction (`math.ldexp`)."""
        return "avx512vl" in self.features

    @property
    def without_costs(self) -> Target:
        """The target with the default cost model, as compiled code records it."""
        return replace(self, costs=CostModel())

    @property
    def vectors_per_tile_row(self) -> int:
        """The vectors per row of a register tile of four to six rows, which leave registers for operands."""
        return max(1, self.vector_registers // 8)

    @property
    def element_alignment(self) -> int:
        """The alignment of the elements of a loop's sequences: 1 byte on a CPU, whose kernels access any address."""
        return 1 if self.groups is None else self.alignment

    def lanes(self, element_bytes: int) -> int:
        """Return the number of elements in a vector register."""
        return max(1, self.vector_bytes // element_bytes)


_X86_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_X86_V3 = (*_X86_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_X86_V4 = (*_X86_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86_BF16 = (*_X86_V4, "avx512vnni", "avx512bf16")
_ARM = ("neon", "crc")
_RISC_V = ("m", "a", "f", "d", "c", "v")

# vpmaddwd is available with all integer vectors; vpdpbusd was added later, first for 64-byte vectors, and usdot after dotprod.
# Without it, vpmaddubsw multiplies weights of 7 bits.
_I16_DOTS, _I7_DOTS, _I8_DOTS = ("i16",), ("u8i7", "i16"), ("u8i8", "i16")
# All processors with vdpbf16ps have the integer dot products too.
_BF16_DOTS = (*_I8_DOTS, "bf16")
_MATRIX_UNIT_DTYPES = ("bf16", "f16")
# For vectors of at most 32 bytes. Large AArch64 cores have a 4-way L1 cache of 64 KiB; smaller cores lose little with this
# setting. AArch64 needs four instructions for packed pairs where x86-64 needs two.
_SHORT_VECTOR_COSTS = CostModel(winograd=WinogradCosts(input=30, weight=8))
# Short vectors need more instructions for the same work, so the front end limits contractions. Intel's servers have a slow L3
# cache, and two hardware threads share the front end of a core (docs/performance.md).
_AVX2_COSTS = replace(
    _SHORT_VECTOR_COSTS,
    panel_vectors=3,
    prefetch=PrefetchCosts(next_panel_rows=UNLIMITED_ROWS),
    unrolling=UnrollingCosts(),
    max_unpacked_panel_bytes=1 << 18,
)
# Transformed weights of 7×7 and 14×14 images come from the L3 cache fast enough. The next rows of a panel arrive in time except
# in products of a few rows, which read all weights from memory (docs/performance.experiments.md).
_AMD_AVX512_COSTS = CostModel(
    winograd=WinogradCosts(weight=8),
    prefetch=PrefetchCosts(next_panel_rows=32),
    sections=SectionCosts(flops_per_second=2e11, bytes_per_second=8e10),
)
_INTEL_AVX512_COSTS = CostModel(prefetch=PrefetchCosts(next_panel_rows=UNLIMITED_ROWS), unrolling=UnrollingCosts())
# Sapphire Rapids and later: an L1 cache of 48 KiB.
_SAPPHIRE_RAPIDS_COSTS = replace(_INTEL_AVX512_COSTS, cache_ways=12)
_ARM_COSTS = replace(_SHORT_VECTOR_COSTS, way_bytes=1 << 14, cache_ways=4, max_packed_pair_rows=4)


def _x86(
    name: str, cpu: str, features: tuple[str, ...], bytes: int, registers: int, dot_products: tuple[str, ...], costs: CostModel
) -> Target:
    fma, has_f16 = "fma" in features, "f16c" in features
    target = Target(
        name, cpu, features, bytes, registers, has_fma=fma, dot_products=dot_products, version="", has_f16_conversion=has_f16
    )
    return replace(target, costs=costs)


def _arm(name: str, features: tuple[str, ...], dot_products: tuple[str, ...]) -> Target:
    target = Target(
        name, "generic", features, 16, 32, has_fma=True, dot_products=dot_products, version="", has_f16_conversion=True
    )
    return replace(target, architecture="aarch64", costs=_ARM_COSTS)


def _risc_v(name: str, features: tuple[str, ...]) -> Target:
    """Return a RISC-V target; `vector_bytes` is the minimum that all supported processors have."""
    target = Target(name, "generic-rv64", features, 16, 32, has_fma=True, version="", architecture="riscv64")
    return replace(target, costs=_SHORT_VECTOR_COSTS)


# The first target of each architecture runs on all processors that dlc supports.
CPU_LEVELS = {
    t.name: t
    for t in (
        _x86("cpu:generic", "x86-64-v2", _X86_V2, 16, 16, _I7_DOTS, _SHORT_VECTOR_COSTS),
        _x86("cpu:avx2", "x86-64-v3", _X86_V3, 32, 16, _I7_DOTS, _AVX2_COSTS),
        _x86("cpu:avx2_vnni", "x86-64-v3", (*_X86_V3, "avxvnni"), 32, 16, _I8_DOTS, _AVX2_COSTS),
        # Skylake-SP, then Ice Lake: AMD's processors with AVX-512 have the next level.
        _x86("cpu:avx512", "x86-64-v4", _X86_V4, 64, 32, _I7_DOTS, _INTEL_AVX512_COSTS),
        _x86("cpu:avx512_vnni", "x86-64-v4", (*_X86_V4, "avx512vnni"), 64, 32, _I8_DOTS, _INTEL_AVX512_COSTS),
        # Zen 4 and 5.
        _x86("cpu:avx512_bf16", "x86-64-v4", _X86_BF16, 64, 32, _BF16_DOTS, _AMD_AVX512_COSTS),
        # Sapphire Rapids and later processors.
        _x86("cpu:avx512_fp16", "x86-64-v4", (*_X86_BF16, "avx512fp16"), 64, 32, _BF16_DOTS, _SAPPHIRE_RAPIDS_COSTS),
        _arm("cpu:aarch64", _ARM, _I16_DOTS),
        _arm("cpu:aarch64_i8mm", (*_ARM, "dotprod", "i8mm"), _I8_DOTS),
        _risc_v("cpu:riscv64", _RISC_V),
    )
}
# GPUs synchronize work-items at barriers and have no software prefetching; Winograd costs were measured on CPUs only.
# A launch takes at least about 4 µs, and a kernel with little work leaves most of the device idle.
_GPU_COSTS = CostModel(winograd=None, prefetch=None, row_tiles=0, kernel_work=1 << 26)
# Fused row tiles would need more stack than OpenCL drivers provide.
_OPENCL_CPU_COSTS = CostModel(row_tiles=0, winograd=WinogradCosts(input=30))
# OpenCL devices by kind: a CPU runs a grid point as a task, a GPU as a work-group; `small` is a minimal GPU.
OPENCL_PROFILES = {
    "opencl:cpu128": Target("opencl:cpu128", "", (), 16, 16, has_fma=False, costs=_OPENCL_CPU_COSTS),
    "opencl:cpu256": Target("opencl:cpu256", "", (), 32, 16, has_fma=True, costs=_OPENCL_CPU_COSTS),
    "opencl:cpu512": Target("opencl:cpu512", "", (), 64, 32, has_fma=True, costs=_OPENCL_CPU_COSTS),
    "opencl:gpu": Target(
        "opencl:gpu", "", (), 16, 64, has_fma=True, groups=WorkGroups(256, 32 << 10), alignment=128, costs=_GPU_COSTS
    ),
    "opencl:small": Target(
        "opencl:small",
        "",
        (),
        16,
        64,
        has_fma=True,
        groups=WorkGroups(64, 16 << 10, max_cooperating_items=64),
        has_f16=False,
        has_f64=False,
        alignment=128,
        costs=_GPU_COSTS,
    ),
}
_OPENCL_NAME_SYNTAX = (
    "opencl, opencl:PLATFORM:DEVICE (indices; `dlc doctor` lists them), each optionally followed by a profile to compile for: "
    + ", ".join(f":{name.partition(':')[2]}" for name in OPENCL_PROFILES)
)
REFERENCE = Target("reference", "", (), 64, 32, has_fma=True)


def _backends(backends: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return backends by target name. Raises UnsupportedError for objects without a target description."""
    for name, backend in backends.items():
        if not isinstance(getattr(backend, "target", None), Target):
            raise UnsupportedError(f"targets: {name!r} is {backend!r:.60}; expected a Backend of dlc.extend.targets")
    return backends


# The backends of plug-ins, by target name.
PLUGIN_BACKENDS: ExtensionTable[str, Any] = ExtensionTable("targets", {}, _backends)


def architecture_of(target: Target) -> Architecture:
    """Return the architecture of a CPU target."""
    return ARCHITECTURES[target.architecture]


@lru_cache(maxsize=1)
def host_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the feature flags of this machine's processor, restricted to the level that `DLC_CPU` names.

    `cpuinfo` lists them. Raises DeviceError on a machine where dlc cannot run code, and for an unknown level.
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
            f"target cpu: cannot read {cpuinfo}, which lists the processor's features: {error.strerror}; mount /proc, or use "
            "target='reference'"
        ) from error
    for line in text.splitlines():
        if line.startswith("flags"):
            return _restrict_to_level(frozenset(line.partition(":")[2].split()), Environment.read().cpu)
    raise DeviceError(f"target cpu: {cpuinfo} lists no processor flags")


def _restrict_to_level(flags: frozenset[str], level: str | None) -> frozenset[str]:
    """Return the flags that are features of a level; all flags if it is None."""
    if level is None:
        return flags
    if (target := CPU_LEVELS.get(f"cpu:{level}")) is None or target.architecture != HOST:
        levels = [name.removeprefix("cpu:") for name, t in CPU_LEVELS.items() if t.architecture == HOST]
        raise DeviceError(f"DLC_CPU={level}: unknown level; expected one of {', '.join(levels)}")
    return flags & frozenset(flags_of(target))


def flags_of(target: Target) -> list[str]:
    """Return the features of a CPU target in Linux spelling."""
    spellings = architecture_of(target).spellings
    return [spellings.get(feature, feature) for feature in target.features]


def host_lacks(target: Target) -> list[str]:
    """Return the features of a CPU target that this machine lacks; all features for another architecture."""
    if target.architecture != HOST:
        return list(target.features)
    flags = host_flags()
    return [feature for feature, flag in zip(target.features, flags_of(target), strict=True) if flag not in flags]


def host_supports(target: Target) -> bool:
    """Return whether this machine can run code for a CPU target."""
    return not host_lacks(target)


def require_host(target: Target, name: str) -> None:
    """Raise DeviceError if code for a CPU target cannot run on this machine; `name` is the name of the code in the message."""
    host_flags()  # Raises DeviceError on a machine where dlc cannot run code.
    if target.architecture != HOST:
        raise DeviceError(
            f"{name}: this machine is {HOST} and cannot run code for {target.name}: run it on that machine from C "
            "(`dlc header`), or compile it for target cpu to run it here"
        )
    if missing := host_lacks(target):
        raise DeviceError(
            f"{name}: this processor lacks {', '.join(missing)}, which code for {target.name} needs: run it on a processor "
            "that has it, or compile it for target cpu:generic, which runs on both"
        )


@dataclass(frozen=True)
class OpenCLName:
    """A parsed name: `opencl:0:1:small` is platform 0, device 1 and target `opencl:small`; missing parts are None."""

    device_index: tuple[int, int] | None
    target: str | None

    @staticmethod
    def parse(name: str) -> OpenCLName:
        """Parse a target name.

        Raises DeviceError if it does not match `opencl[:PLATFORM[:DEVICE]][:PROFILE]`.
        """
        match = re.fullmatch(r"opencl(?::(\d+)(?::(\d+))?)?((?::[a-z]\w*)*)", name)
        if match is None:
            raise DeviceError(f"unknown target {name!r}; write {_OPENCL_NAME_SYNTAX}")
        platform, device, profile = match.groups()
        if profile:
            resolve(f"opencl{profile}")
        device_index = None if platform is None else (int(platform), int(device or 0))
        return OpenCLName(device_index, f"opencl{profile}" if profile else None)


def custom_target_location(name: str) -> tuple[str, str] | None:
    """Return the file and variable of a custom target `FILE.py:NAME`, or None for other names."""
    match = re.fullmatch(r"(.+\.py):(\w+)", name)
    return (match[1], match[2]) if match is not None else None


def is_opencl(name: str) -> bool:
    """Return whether a target name refers to an OpenCL device."""
    return name.partition(":")[0] == "opencl"


def without_float_types(target: Target, *, has_f16: bool, has_f64: bool) -> Target:
    """Return `target` without f16 or f64 if the device lacks them.

    The name of the result says so: `opencl:gpu:nofp16`.
    """
    name = target.name
    if target.has_f16 and not has_f16:
        name += ":nofp16"
    if target.has_f64 and not has_f64:
        name += ":nofp64"
    return replace(target, name=name, has_f16=target.has_f16 and has_f16, has_f64=target.has_f64 and has_f64)


def with_matrix_units(target: Target) -> Target:
    """Return `target` with matrix units for 16-bit floats: `opencl:gpu:mma`."""
    return replace(target, name=f"{target.name}:mma", dot_products=_MATRIX_UNIT_DTYPES)


def resolve(name: str) -> Target:
    """Return the target called `name`; `cpu` is the best level that this machine supports.

    Raises DeviceError for an unknown name, and for the name of an OpenCL device, whose properties must be queried.
    """
    if (target := _builtin_target(name)) is not None:
        return target
    if name in PLUGIN_BACKENDS:
        return PLUGIN_BACKENDS[name].target
    names = ", ".join(("cpu", *CPU_LEVELS, "reference", *PLUGIN_BACKENDS))
    raise DeviceError(f"unknown target {name!r}; expected {names}, FILE.py:NAME (a custom backend), or {_OPENCL_NAME_SYNTAX}")


@lru_cache
def _builtin_target(name: str) -> Target | None:
    """Return the built-in target called `name`, or None."""
    if name == "reference":
        return REFERENCE
    if name == "cpu":
        return next((t for t in reversed(CPU_LEVELS.values()) if host_supports(t)), CPU_LEVELS["cpu:generic"])
    if name in CPU_LEVELS:
        return CPU_LEVELS[name]
    match = re.fullmatch(r"(opencl:\w+)(:nofp16)?(:nofp64)?(:mma)?", name)
    if match is None or match[1] not in OPENCL_PROFILES:
        return None
    target = without_float_types(OPENCL_PROFILES[match[1]], has_f16=match[2] is None, has_f64=match[3] is None)
    if match[4] is None:
        return target
    return with_matrix_units(target) if target.groups is not None else None

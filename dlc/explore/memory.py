"""The memory of a program: arena buffers by launch, and weights."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo
from dlc.dialects.dl.programs.size_ranges import representative
from dlc.dialects.entry import entry_of, sizes_of
from dlc.dialects.host import ArenaOp, BufferOp, LaunchOp, WeightOp
from dlc.explore.data import ArenaBuffer, MemoryUsage, WeightUsage
from dlc.explore.types import format_type
from dlc.instrument.provenance import origins
from dlc.ir import ModuleOp
from dlc.passes.host.lifetimes import OpOrder
from dlc.runtime.program.host_program import HostProgram
from dlc.shapes.dims import product
from dlc.shapes.ranges import SizeRange


def memory_usage(module: ModuleOp, host: HostProgram, sizes: Mapping[str, int]) -> MemoryUsage:
    """Return the memory of a program whose module has passed the last stage; `sizes` are the input sizes of the call."""
    order, ranges = OpOrder(entry_of(module).body.block), {name: SizeRange(size, size) for name, size in sizes.items()}
    region_offsets = _region_offsets(host, ranges)
    launches = [op for op in order.span if isinstance(op, LaunchOp)]
    launch_positions = [order.span[op][0] for op in launches]
    buffers: list[ArenaBuffer] = []
    for op in order.span:
        if isinstance(op, ArenaOp | BufferOp):
            lifetime = order.lifetime(op, op.result, ranges)
            first, last = bisect_left(launch_positions, lifetime.first), bisect_right(launch_positions, lifetime.last) - 1
            name = op.result.name_hint or next(iter(origins(op.location)), "")
            offset = op.offset.value.data if isinstance(op, ArenaOp) else region_offsets[op.region.value.data]
            buffers.append(
                ArenaBuffer(
                    name,
                    format_type(op.result.type, sizes_of(op.result)),
                    origins(op.location),
                    offset,
                    lifetime.bytes,
                    first,
                    last,
                )
            )
    kernels_by_weight: dict[str, dict[str, None]] = {}
    for op in order.span:
        if isinstance(op, WeightOp):
            users = (use.operation for use in op.result.uses)
            kernel_names = (user.symbol for user in users if isinstance(user, LaunchOp))
            kernels_by_weight.setdefault(op.symbol.string_value(), {}).update(dict.fromkeys(kernel_names))
    weights = [
        WeightUsage(i.name, info_text(i), _bytes([i], ranges), tuple(kernels_by_weight.get(i.name, ()))) for i in host.weights
    ]
    return MemoryUsage(
        region_offsets[-1],
        tuple(op.symbol for op in launches),
        tuple(buffers),
        tuple(sorted(weights, key=lambda w: -w.bytes)),
        _bytes(host.inputs, ranges),
        _bytes(host.outputs, ranges),
    )


def info_text(info: TensorInfo) -> str:
    """Return the type of a weight as text."""
    return f"{info.dtype}[{', '.join(map(str, info.shape))}]"


def _region_offsets(host: HostProgram, ranges: Mapping[str, SizeRange]) -> list[int]:
    """Return the offsets of the arena's regions, followed by the end of the last one."""
    sizes = (max(representative(size, ranges) for size in region) for region in host.regions)
    return list(accumulate((_align_up(size) for size in sizes), initial=_align_up(host.arena_bytes)))


def _align_up(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _bytes(infos: Iterable[TensorInfo], ranges: Mapping[str, SizeRange]) -> int:
    return sum(representative(product(info.shape), ranges) * info.dtype.itemsize for info in infos)

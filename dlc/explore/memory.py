"""What lies in memory while a program runs: the arena's buffers from launch to launch, and weights."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.dialects.dl.programs.ranges import representative
from dlc.dialects.entry import entry_of, sizes_of
from dlc.dialects.host import ArenaOp, BufferOp, LaunchOp, WeightOp
from dlc.dims import Range, product
from dlc.explore.data import Buffer, Memory, Weight
from dlc.explore.types import type_text
from dlc.instrument.provenance import origins
from dlc.ir import ModuleOp
from dlc.passes.host.lifetimes import Steps
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.program.open_program import OpenProgram


def memory_of(module: ModuleOp, host: HostProgram | OpenProgram, sizes: Mapping[str, int]) -> Memory:
    """The memory of a program whose module is past its last stage; `sizes` are those that come with a call."""
    steps, ranges = Steps(entry_of(module).body.block), {name: Range(size, size) for name, size in sizes.items()}
    starts = _starts(host, ranges) if isinstance(host, OpenProgram) else []
    launches = [op for op in steps.span if isinstance(op, LaunchOp)]
    places = [steps.span[op][0] for op in launches]
    buffers: list[Buffer] = []
    for op in steps.span:
        if isinstance(op, ArenaOp | BufferOp):
            alive = steps.lifetime(op, op.result, ranges)
            first, last = bisect_left(places, alive.first), bisect_right(places, alive.last) - 1
            name = op.result.name_hint or next(iter(origins(op.location)), "")
            offset = op.offset.value.data if isinstance(op, ArenaOp) else starts[op.region.value.data]
            buffers.append(
                Buffer(
                    name, type_text(op.result.type, sizes_of(op.result)), origins(op.location), offset, alive.bytes, first, last
                )
            )
    readers: dict[str, dict[str, None]] = {}
    for op in steps.span:
        if isinstance(op, WeightOp):
            users = (use.operation for use in op.result.uses)
            found = (user.symbol for user in users if isinstance(user, LaunchOp))
            readers.setdefault(op.symbol.string_value(), {}).update(dict.fromkeys(found))
    weights = [Weight(i.name, info_text(i), _bytes([i], ranges), tuple(readers.get(i.name, ()))) for i in host.weights]
    return Memory(
        host.arena_bytes if isinstance(host, HostProgram) else starts[-1],
        tuple(op.symbol for op in launches),
        tuple(buffers),
        tuple(sorted(weights, key=lambda w: -w.bytes)),
        _bytes(host.inputs, ranges),
        _bytes(host.outputs, ranges),
    )


def info_text(info: TensorInfo) -> str:
    """The type of an array of the store."""
    return f"{info.dtype}[{', '.join(map(str, info.shape))}]"


def _starts(host: OpenProgram, ranges: Mapping[str, Range]) -> list[int]:
    """Where the regions of an arena begin, and the last one ends."""
    sizes = (max(representative(size, ranges) for size in region) for region in host.regions)
    return list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))


def _bytes(infos: Iterable[TensorInfo], ranges: Mapping[str, Range]) -> int:
    return sum(representative(product(info.shape), ranges) * info.dtype.itemsize for info in infos)

"""What lies in memory while a program runs: the arena's buffers from launch to launch, and weights."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import prod

from dlc.arrays import TensorInfo
from dlc.dialects.dl.ranges import ranges_of
from dlc.dialects.host import ArenaOp, LaunchOp, WeightOp, entry_of
from dlc.explore.data import Buffer, Memory, Weight
from dlc.explore.types import type_text
from dlc.instrument.provenance import origins
from dlc.ir import ModuleOp
from dlc.passes.host.lifetimes import Steps
from dlc.runtime.host_program import HostProgram


def memory_of(module: ModuleOp, host: HostProgram) -> Memory:
    """The memory of a program of known sizes, whose module is past its last stage."""
    steps, ranges = Steps(entry_of(module).body.block), ranges_of(module)
    launches = [op for op in steps.span if isinstance(op, LaunchOp)]
    places = [steps.span[op][0] for op in launches]
    buffers: list[Buffer] = []
    for op in steps.span:
        if isinstance(op, ArenaOp):
            alive = steps.lifetime(op, op.result, ranges)
            first, last = bisect_left(places, alive.first), bisect_right(places, alive.last) - 1
            name = op.result.name_hint or next(iter(origins(op.location)), "")
            buffers.append(
                Buffer(name, type_text(op.result.type), origins(op.location), op.offset.value.data, alive.bytes, first, last)
            )
    readers: dict[str, dict[str, None]] = {}
    for op in steps.span:
        if isinstance(op, WeightOp):
            users = (use.operation for use in op.result.uses)
            found = (user.symbol for user in users if isinstance(user, LaunchOp))
            readers.setdefault(op.symbol.string_value(), {}).update(dict.fromkeys(found))
    weights = [Weight(i.name, info_text(i), _bytes([i]), tuple(readers.get(i.name, ()))) for i in host.weights]
    return Memory(
        host.arena_bytes,
        tuple(op.symbol for op in launches),
        tuple(buffers),
        tuple(sorted(weights, key=lambda w: -w.bytes)),
        _bytes(host.inputs),
        _bytes(host.outputs),
    )


def info_text(info: TensorInfo) -> str:
    """The type of an array of the store."""
    return f"{info.dtype}[{', '.join(map(str, info.shape))}]"


def _bytes(infos: Iterable[TensorInfo]) -> int:
    return sum(prod(int(size) for size in info.shape) * info.dtype.itemsize for info in infos)

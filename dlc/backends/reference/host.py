"""The host program: launches, loops and branches on buffers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import numpy as np

from dlc.backends.reference.machine import Frame, Machine, rule
from dlc.backends.reference.program import DecidedError, callee_of, same_bits, weight_array
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    Value,
    View,
    contiguous_strides,
    describe,
    dtype_of,
    shape_of,
)
from dlc.dialects import host
from dlc.dialects.dl.base import flag
from dlc.dialects.entry import sizes_of
from dlc.dims import Dim, bind_sizes
from dlc.errors import DlcError, UnsupportedError
from dlc.ir import Attribute, Operation, func
from dlc.runtime.python_ops.control import failure, shown
from dlc.runtime.python_ops.selection import select


@rule(host.DecideOp)
def host_decide(op: host.DecideOp, frame: Frame) -> Sequence[Value]:
    (size,), number = op.size.sizes, int(frame.view(op.count).read(op))
    if isinstance(size, Dim):
        raise DecidedError({op.symbol: number})
    if size != number:
        raise UnsupportedError(f"{describe(op)}: data decides it again, as {size} and then as {number}; compile it to run it")
    return ()


@rule(host.WeightOp)
def host_weight(op: host.WeightOp, frame: Frame) -> Sequence[Value]:
    array = same_bits(lambda: f"weight {op.symbol}", weight_array(op, op.symbol, frame), op.result.type)
    view = View.of(np.require(array, requirements="C"))
    view.base.flags.writeable = False
    return (view,)


@rule(host.ArenaOp)
def host_arena(op: host.ArenaOp, frame: Frame) -> Sequence[Value]:
    start, size = _bytes_of(op)
    bytes_ = _arena(frame.machine, op)[start : start + size]
    return (View.of(bytes_.view(dtype_of(op.result.type)).reshape(shape_of(op.result))),)


def _bytes_of(op: host.ArenaOp) -> tuple[int, int]:
    return int(op.offset.value.data), int(np.prod(shape_of(op.result))) * dtype_of(op.result.type).itemsize


def _arena(machine: Machine, op: host.ArenaOp) -> Array:
    """The memory of all arena buffers of a function; filled with ones, which are NaN in every float type."""
    parent = op
    while not isinstance(parent, func.FuncOp):
        parent = cast(Operation, parent.parent_op())
    if parent not in machine.arenas:
        size = max(sum(_bytes_of(o)) for o in parent.walk() if isinstance(o, host.ArenaOp))
        machine.arenas[parent] = np.full(size, 255, np.uint8)
    return machine.arenas[parent]


@rule(host.BufferOp)
def host_buffer(op: host.BufferOp, frame: Frame) -> Sequence[Value]:
    # Not in the memory of its slot: that is larger than the buffer, and who reads beyond is not to be seen.
    # What the op behind it decides is not known yet.
    shape = tuple(size if isinstance(size, int) else 0 for size in op.sizes.sizes)
    return (View.allocate(op.result.type, shape, None),)


@rule(host.ViewOp)
def host_view(op: host.ViewOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.view(op.source), tuple(map(int, op.sizes.sizes))
    part = source.part(source.offset + int(op.offset.value.data), shape, contiguous_strides(shape))
    return (part.of_type(dtype_of(op.result.type)),)


@rule(host.LoopOp)
def host_loop(op: host.LoopOp, frame: Frame) -> Sequence[Value]:
    count, carried = int(op.turns), int(op.carried.value.data)
    buffers: Sequence[Value] = [frame.view(v).alone() for v in op.arguments[:carried]]
    for step in range(count)[:: -1 if flag(op.reverse) else 1]:
        elements = [frame.view(v).element(step) for v in op.arguments[carried:]]
        buffers = [cast(View, b).alone() for b in frame.run(op.body.block, [*buffers, *elements])]
    return buffers


@rule(host.WhileOp)
def host_while(op: host.WhileOp, frame: Frame) -> Sequence[Value]:
    going: Value = frame[op.condition]
    buffers: Sequence[Value] = [frame.view(v).alone() for v in op.arguments]
    while cast(View, going).read(op):
        going, *following = frame.run(op.body.block, buffers)
        buffers = [cast(View, b).alone() for b in following]
    return buffers


@rule(host.IfOp)
def host_if(op: host.IfOp, frame: Frame) -> Sequence[Value]:
    block = op.blocks[0 if frame.view(op.condition).read(op) else 1]
    left = frame.run(block)
    if isinstance(block.last_op, host.FailOp):
        raise DlcError(failure(block.last_op.message.data, [int(cast(View, v).read(op)) for v in left]))
    return ()


@rule(host.ComputeOp)
def host_compute(op: host.ComputeOp, frame: Frame) -> Sequence[Value]:
    operands = [frame.view(v).read(op) for v in op.arguments]
    results = select(op.function.data, operands, json.loads(op.settings.data))
    decided: dict[str, int] = {}
    for buffer, result in zip(op.made, results, strict=True):
        bind_sizes(sizes_of(buffer), result.shape, decided)
    if decided:
        raise DecidedError(decided)
    for buffer, result in zip(op.made, results, strict=True):
        frame.view(buffer).write(op, result)
    return ()


@rule(host.PrintOp)
def host_print(op: host.PrintOp, frame: Frame) -> Sequence[Value]:
    print(shown(op.texts, [frame.view(v).read(op) for v in op.buffers]))
    return ()


@rule(host.LaunchOp)
def launch(op: host.LaunchOp, frame: Frame) -> Sequence[Value]:
    callee = callee_of(op, frame)
    assert isinstance(callee, func.FuncOp)
    block = callee.body.block
    numbers = [np.int64(int(s)) for s in op.numbers]
    views = [_whole(op, frame.view(v), a.type) for v, a in zip(op.arguments, block.args, strict=not numbers)]
    Frame(frame.machine).run(block, [*views, *map(np.asarray, numbers)])
    return ()


def _whole(op: Operation, view: View, t: Attribute) -> View:
    """A buffer as a kernel's argument: the start of its own allocation, in the kernel's shape."""
    array = view.read(op)
    if not array.flags.c_contiguous:
        raise EvaluationError(f"{describe(op)}: argument of strides {view.strides} and shape {view.shape} is not contiguous")
    flat = view.base[int(view.offset) : int(view.offset) + array.size]
    return View.of(same_bits(lambda: f"argument of {describe(op)}", flat.reshape(view.shape), t))

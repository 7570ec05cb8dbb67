"""The host program: launches, loops and branches on buffers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import numpy as np

from dlc.backends.reference.evaluation_context import EvaluationContext, Frame, rule
from dlc.backends.reference.program import DataDependentSizeError, find_callee, reinterpret_dtype, weight_array
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    MemrefView,
    Value,
    contiguous_strides,
    describe,
    dtype_of,
    shape_of,
)
from dlc.dialects import host
from dlc.dialects.dl.base import flag
from dlc.dialects.entry import sizes_of
from dlc.errors import DlcError, UnsupportedError
from dlc.ir import Attribute, Operation, func
from dlc.runtime.python_ops.control import format_failure, format_print
from dlc.runtime.python_ops.registry import run_python_op
from dlc.shapes.dims import Dim
from dlc.shapes.input_sizes import bind_sizes


@rule(host.BindSizeOp)
def host_bind_size(op: host.BindSizeOp, frame: Frame) -> Sequence[Value]:
    (size,), value = op.size.sizes, int(frame.view(op.count).read(op))
    if isinstance(size, Dim):
        raise DataDependentSizeError({op.symbol: value})
    if size != value:
        raise UnsupportedError(
            f"{describe(op)}: the data-dependent size was {size} before and is {value} now; compile the program to run it"
        )
    return ()


@rule(host.WeightOp)
def host_weight(op: host.WeightOp, frame: Frame) -> Sequence[Value]:
    array = reinterpret_dtype(lambda: f"weight {op.symbol}", weight_array(op, op.symbol, frame), op.result.type)
    view = MemrefView.of(np.require(array, requirements="C"))
    view.base.flags.writeable = False
    return (view,)


@rule(host.ArenaOp)
def host_arena(op: host.ArenaOp, frame: Frame) -> Sequence[Value]:
    start, size = _bytes_of(op)
    bytes_ = _arena(frame.context, op)[start : start + size]
    return (MemrefView.of(bytes_.view(dtype_of(op.result.type)).reshape(shape_of(op.result))),)


def _bytes_of(op: host.ArenaOp) -> tuple[int, int]:
    return int(op.offset.value.data), int(np.prod(shape_of(op.result))) * dtype_of(op.result.type).itemsize


def _arena(context: EvaluationContext, op: host.ArenaOp) -> Array:
    """Return the memory of all arena buffers of a function; initialized with ones, which are NaN in every float type."""
    parent = op
    while not isinstance(parent, func.FuncOp):
        parent = cast(Operation, parent.parent_op())
    if parent not in context.arenas:
        size = max(sum(_bytes_of(o)) for o in parent.walk() if isinstance(o, host.ArenaOp))
        context.arenas[parent] = np.full(size, 255, np.uint8)
    return context.arenas[parent]


@rule(host.BufferOp)
def host_buffer(op: host.BufferOp, frame: Frame) -> Sequence[Value]:
    # Allocate exactly the buffer, not its larger slot, so that out-of-bounds reads are detected. A data-dependent size is 0
    # until the op that computes it has run.
    shape = tuple(size if isinstance(size, int) else 0 for size in op.sizes.sizes)
    return (MemrefView.allocate(op.result.type, shape, None),)


@rule(host.ViewOp)
def host_view(op: host.ViewOp, frame: Frame) -> Sequence[Value]:
    source, shape = frame.view(op.source), tuple(map(int, op.sizes.sizes))
    view = source.subview(source.offset + int(op.offset.value.data), shape, contiguous_strides(shape))
    return (view.of_type(dtype_of(op.result.type)),)


@rule(host.LoopOp)
def host_loop(op: host.LoopOp, frame: Frame) -> Sequence[Value]:
    count, carried = int(op.trip_count), int(op.carried.value.data)
    buffers: Sequence[Value] = [frame.view(v).as_allocation() for v in op.arguments[:carried]]
    for step in range(count)[:: -1 if flag(op.reverse) else 1]:
        elements = [frame.view(v).element(step) for v in op.arguments[carried:]]
        buffers = [cast(MemrefView, b).as_allocation() for b in frame.run(op.body.block, [*buffers, *elements])]
    return buffers


@rule(host.WhileOp)
def host_while(op: host.WhileOp, frame: Frame) -> Sequence[Value]:
    condition: Value = frame[op.condition]
    buffers: Sequence[Value] = [frame.view(v).as_allocation() for v in op.arguments]
    while cast(MemrefView, condition).read(op):
        condition, *next_values = frame.run(op.body.block, buffers)
        buffers = [cast(MemrefView, b).as_allocation() for b in next_values]
    return buffers


@rule(host.IfOp)
def host_if(op: host.IfOp, frame: Frame) -> Sequence[Value]:
    block = op.blocks[0 if frame.view(op.condition).read(op) else 1]
    results = frame.run(block)
    if isinstance(block.last_op, host.FailOp):
        raise DlcError(format_failure(block.last_op.message.data, [int(cast(MemrefView, v).read(op)) for v in results]))
    return ()


@rule(host.ParallelOp)
def host_parallel(op: host.ParallelOp, frame: Frame) -> Sequence[Value]:
    # Sections are independent, so that their order does not matter.
    frame.run(op.body.block)
    return ()


@rule(host.ComputeOp)
def host_compute(op: host.ComputeOp, frame: Frame) -> Sequence[Value]:
    operands = [frame.view(v).read(op) for v in op.arguments]
    results = run_python_op(op.function.data, operands, json.loads(op.settings.data))
    sizes: dict[str, int] = {}
    for buffer, result in zip(op.result_buffers, results, strict=True):
        bind_sizes(sizes_of(buffer), result.shape, sizes)
    if sizes:
        raise DataDependentSizeError(sizes)
    for buffer, result in zip(op.result_buffers, results, strict=True):
        frame.view(buffer).write(op, result)
    return ()


@rule(host.PrintOp)
def host_print(op: host.PrintOp, frame: Frame) -> Sequence[Value]:
    print(format_print(op.texts, [frame.view(v).read(op) for v in op.buffers]))
    return ()


@rule(host.LaunchOp)
def launch(op: host.LaunchOp, frame: Frame) -> Sequence[Value]:
    callee = find_callee(op, frame)
    assert isinstance(callee, func.FuncOp)
    block = callee.body.block
    size_values = [np.int64(int(s)) for s in op.kernel_sizes]
    views = [_kernel_argument(op, frame.view(v), a.type) for v, a in zip(op.arguments, block.args, strict=not size_values)]
    Frame(frame.context).run(block, [*views, *map(np.asarray, size_values)])
    return ()


def _kernel_argument(op: Operation, view: MemrefView, type: Attribute) -> MemrefView:
    """Return a buffer as a kernel argument: at the start of its own allocation, in the kernel's shape."""
    array = view.read(op)
    if not array.flags.c_contiguous:
        raise EvaluationError(f"{describe(op)}: argument of strides {view.strides} and shape {view.shape} is not contiguous")
    flat = view.base[int(view.offset) : int(view.offset) + array.size]
    return MemrefView.of(reinterpret_dtype(lambda: f"argument of {describe(op)}", flat.reshape(view.shape), type))

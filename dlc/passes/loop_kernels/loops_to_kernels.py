"""Replace loops with small states by single kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp, IotaOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite, storage_type
from dlc.dialects.dl.library_kernels.loops import LoopBodyAttr, LoopsOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import FailOp, IfOp, ScanOp, WhileOp, captured_values
from dlc.dialects.dl.programs.program import YieldOp
from dlc.ir import (
    ArrayAttr,
    Block,
    Context,
    FunctionType,
    MemRefType,
    ModuleOp,
    Region,
    SSAValue,
    StringAttr,
    func,
    i64,
    scf,
)
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import nested_blocks, program_blocks, rewrite_forward
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.loop_kernels.control_flow import Failures, LoopLowering
from dlc.passes.loop_kernels.cost import require_gain, require_gain_of_lanes
from dlc.passes.loop_kernels.element_ops import MAX_REGISTER_ELEMENTS
from dlc.passes.loop_kernels.elements import (
    ArrayInMemory,
    NotLowerableError,
    load_all,
    static_shape,
    store,
)
from dlc.passes.loop_kernels.lane_vectorization import vectorize_lanes
from dlc.passes.loop_kernels.lanes import Lanes
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.target import Target

# Registers for the states of the lanes of a grid point. More hide the latency of longer chains of instructions, but temporaries
# are then spilled (measured with 2 to 24 states on Zen 4, AVX2 and AVX-512).
_STATE_REGISTERS = 10
# Maximum registers of a value of a grid point.
_MAX_REGISTERS_PER_VALUE = 4
# The attribute of a loop that stays in the host program: the reason.
SEPARATE_KERNELS = "separate_kernels"
# Maximum message values that a failure of a kernel records.
_MAX_MESSAGE_VALUES = 3


@dataclass(frozen=True)
class LoopsToKernelsPass(TargetPass):
    """`loops-to-kernels`: replaces each loop with small states by one kernel that contains the loop.

        %last = dl.scan %first, %xs { ^bb0(%s, %x): %n = dl.add %s, %x;  dl.yield %n }
    →   %last = dl.loops %first, %xs {body = func.func @scan(%first: memref<f32>, %xs: memref<9xf32>, %last: memref<f32>) {
            %s = memref.load %first[]
            %r = scf.for %step = 0 to 9 iter_args(%c = %s) { %x = memref.load %xs[%step];  scf.yield (arith.addf %c, %x) }
            memref.store %r, %last[] }}

    Small states are loop-carried scalars; large arrays in which a step writes some rows are updated in place after one copy.
    Nested loops and branches become loops and branches of the kernel. A batch of loops, by `vmap`, becomes a grid over its
    lanes: on a CPU, each point computes a vector of lanes, on an OpenCL device one lane. The kernel records a failing branch
    and ends its while loops; the program fails after the kernel. Other loops stay: those with states of symbolic size, ops
    without scalar code (sorting, strings), or bodies with so much work that separate kernels are faster (`cost.py`).
    """

    name = "loops-to-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for loop in list(block.ops):
                if isinstance(loop, ScanOp | WhileOp):
                    try:
                        _replace(loop, self.target)
                    except NotLowerableError as reason:
                        loop.attributes[SEPARATE_KERNELS] = StringAttr(str(reason))


def _replace(loop: ScanOp | WhileOp, target: Target) -> None:
    """Replace a loop by a kernel; raise NotLowerableError, without a change, if that is impossible."""
    if any(0 in static_shape(v) for v in (*loop.operands, *loop.results)) or not loop.results:
        raise NotLowerableError("it has empty or no results")
    copy = loop.clone()
    block = loop.parent
    assert block is not None
    block.insert_op_before(copy, loop)
    try:
        for body in nested_blocks([copy.block]):
            rewrite_forward(body, lambda op: op.decompose(*op.operands), Composite)
        results = _lower_lanes(copy, target)
        if results is None:
            require_gain(copy)
            results = _lower(copy, None, target)
    finally:
        copy.detach()
        copy.erase(safe_erase=False)
    for old, new in zip(loop.results, results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    loop.detach()
    loop.erase()


def _lower_lanes(loop: ScanOp | WhileOp, target: Target) -> Sequence[SSAValue] | None:
    """Insert a kernel with a grid over the lanes of a loop, and return its results; None if the loop has no lanes."""
    try:
        lanes = Lanes(loop)
        require_gain_of_lanes(loop, lanes)
        return _lower(loop, lanes, target)
    except NotLowerableError:
        return None


def _operands(loop: ScanOp | WhileOp, lanes: Lanes | None) -> list[SSAValue]:
    """Return the values that the kernel reads from memory; small constants and index sequences are computed in it."""
    captured = captured_values(loop.block)
    values = dict.fromkeys((*loop.operands, *captured))
    if isinstance(loop, WhileOp) and lanes is not None and loop in lanes.running and loop.condition not in captured:
        del values[loop.condition]
    if isinstance(loop, ScanOp):
        states, sequences = set(loop.arguments[: loop.state_count]), set(loop.arguments[loop.state_count :])
        indices = {v for v in sequences if isinstance(v.owner, IotaOp) and v not in states and v not in captured}
    else:
        indices = set[SSAValue]()
    return [v for v in values if v not in indices and not _is_small_constant(v)]


def _is_small_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp) and prod(static_shape(value)) <= MAX_REGISTER_ELEMENTS


def _lower(loop: ScanOp | WhileOp, lanes: Lanes | None, target: Target) -> Sequence[SSAValue]:
    """Insert a kernel before the loop, and return its results."""
    build, operands = DlBuilder(loop), _operands(loop, lanes)
    if not operands:
        operands = [build.scalar(0, like=loop.results[0])]
    may_fail = any(isinstance(op, FailOp) for op in loop.walk())
    record_type = tensor_type((1 + _MAX_MESSAGE_VALUES,), i64)
    types = [*(r.type for r in loop.results), *([record_type] if may_fail else [])]
    buffers = [MemRefType(storage_type(element_type_of(v)), static_shape(v)) for v in (*operands, *types)]
    body, failures = Block(arg_types=buffers), Failures()
    function = func.FuncOp(loop.name.removeprefix("dl."), FunctionType.from_lists(buffers, []), Region(body))
    builder = KernelBuilder(OpBuilder(ConstantPool(function), body, None))
    outer = builder.op_builder
    grid = outer.parallel("grid", [(1 if lanes is None else lanes.count, 1)], ["lane"])
    builder.op_builder = outer.at_block_end(grid.body.block)
    if may_fail:
        failures.record = body.args[-1]
        for k in range(1 + _MAX_MESSAGE_VALUES):
            store(builder, builder.constant(0, i64).ssa, ArrayInMemory(failures.record), (k,))
    lowering = LoopLowering(builder, failures, lanes, grid.body.block.args[0])
    _lower_loop(lowering, loop, dict(zip(operands, body.args, strict=False)), body.args[len(operands) :])
    builder.op_builder.insert(scf.ReduceOp())
    if lanes is not None and target.groups is None:
        vectorize_lanes(grid, outer, _vector_width(loop, lanes, target))
    outer.insert(func.ReturnOp())
    op = LoopsOp.make(*operands, body=LoopBodyAttr.of(function), elements=ArrayAttr(list(map(element_type_of, types))))
    build.insert(op)
    if may_fail:
        _insert_failures(build, op.results[-1], failures.sites)
    return op.results[: len(loop.results)]


def _lower_loop(
    lowering: LoopLowering, loop: ScanOp | WhileOp, arguments: Mapping[SSAValue, SSAValue], results: Sequence[SSAValue]
) -> None:
    """Lower the loop with the buffers of its operands and results."""
    lowering.writable.update(results)
    captured = captured_values(loop.block)
    for value in (*loop.operands, *captured):
        if _is_small_constant(value):
            lowering.lower(cast(ConstantOp, value.owner))
        elif value in arguments:
            lowering.values[value] = lowering.array(value, arguments[value])
    for value in captured:
        array = lowering.values[value]
        if isinstance(array, ArrayInMemory) and prod(array.shape) <= MAX_REGISTER_ELEMENTS:
            lowering.values[value] = load_all(lowering.builder, array)
    match loop:
        case ScanOp():
            lowering.scan(loop, results)
        case WhileOp():
            lowering.while_(loop, results)
    for result, buffer in zip(loop.results, results, strict=False):
        lowering.store_result(result, buffer)


def _vector_width(loop: ScanOp | WhileOp, lanes: Lanes, target: Target) -> int:
    """Return the number of lanes per grid point: several registers if the states are few, to hide latency."""
    states = sum(prod(lanes.shape(a)) for a in loop.block.args)
    element_bytes = max(numpy_dtype(element_type_of(a)).itemsize for a in loop.block.args)
    return target.lanes(element_bytes) * max(1, min(_MAX_REGISTERS_PER_VALUE, _STATE_REGISTERS // max(1, states)))


def _insert_failures(build: DlBuilder, record: SSAValue, sites: Sequence[FailOp]) -> None:
    """Fail if the kernel recorded a failure, with the message of its site."""

    def element(at: DlBuilder, k: int) -> SSAValue:
        row = at(SliceOp, record, starts=(k,), limits=(k + 1,), strides=(1,))
        return at(ReshapeOp, row, shape=())

    number = element(build, 0)
    for k, site in enumerate(sites):
        failed, passed = Block(), Block([YieldOp([])])
        inside = DlBuilder(failed, site.location)
        values = [element(inside, 1 + j) for j, _ in enumerate(site.message_values)]
        inside.insert(FailOp(site.message.data, values))
        condition = build(EqualOp, number, build.scalar(k + 1, like=number))
        build.insert(IfOp.of(condition, failed, passed, []))

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
    Operation,
    Region,
    SSAValue,
    StringAttr,
    erase_op,
    func,
    i64,
    scf,
)
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import erase_dead_ops, nested_blocks, program_blocks, rewrite_forward
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.loop_kernels.control_flow import Failures, LoopLowering
from dlc.passes.loop_kernels.cost import require_gain, require_gain_of_lanes
from dlc.passes.loop_kernels.elements import (
    MAX_REGISTER_ELEMENTS,
    ArrayInMemory,
    NotLowerableError,
    is_small_constant,
    load_all,
    static_shape,
    store,
)
from dlc.passes.loop_kernels.lane_vectorization import vectorize_lanes
from dlc.passes.loop_kernels.lanes import Lanes
from dlc.passes.loop_kernels.reverse_loops import KernelOps, with_reverse
from dlc.passes.loop_kernels.sequence_producers import fuse_sequence_producers
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.types import memref_of
from dlc.target import Target

# Maximum ops of a block of a lane for which the processor overlaps groups of lanes, one after the other in the code; it looks
# ahead about 300 instructions (Zen 4). A function takes about as many instructions as 50 ops.
_MAX_OVERLAPPED_OPS, _OPS_PER_FUNCTION = 128, 50
# Registers for the states of the lanes of a grid point, and maximum registers of a value. More hide the latency of longer
# chains of instructions, but states are then spilled (measured with 1 to 24 states on Zen 4, AVX2 and AVX-512).
_STATE_REGISTERS, _MAX_REGISTERS_PER_VALUE = 16, 6
# The same for vectors of several registers, whose temporaries are spilled as well.
_WIDE_STATE_REGISTERS, _MAX_REGISTERS_PER_WIDE_VALUE = 10, 4
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
    lanes: on a CPU, each point computes a vector of lanes, on an OpenCL device one lane. On a CPU, such a scan and its reverse
    are one kernel, whose tasks store the residuals of one vector of lanes at a time. The kernel records a failing branch and
    ends its while loops; the program fails after the kernel. Other loops stay: those with states of symbolic size, ops
    without scalar code (sorting, strings), or bodies with so much work that separate kernels are faster (`cost.py`).
    """

    name = "loops-to-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            # Values that only dead ops read are no results of kernels.
            erase_dead_ops(block)
            for loop in list(block.ops):
                if isinstance(loop, ScanOp | WhileOp) and loop.parent is block and not _replace_with_reverse(loop, self.target):
                    try:
                        _replace(KernelOps([loop], [loop]), self.target)
                    except NotLowerableError as reason:
                        loop.attributes[SEPARATE_KERNELS] = StringAttr(str(reason))


def _replace_with_reverse(loop: ScanOp | WhileOp, target: Target) -> bool:
    """Replace a scan and its reverse by one kernel if that is possible: Note [Loops and their reverse in one kernel]."""
    kernel = with_reverse(loop) if isinstance(loop, ScanOp) and target.groups is None else None
    if kernel is None:
        return False
    try:
        _replace(kernel, target)
    except NotLowerableError:
        return False
    return True


def _replace(kernel: KernelOps, target: Target) -> None:
    """Replace ops by a kernel; raise NotLowerableError, without a change, if that is impossible."""
    ops, last = kernel.ops, kernel.ops[-1]
    results = [r for op in kernel.replaced for r in op.results if any(u.operation not in kernel.replaced for u in r.uses)]
    if isinstance(last, ScanOp | WhileOp) and len(ops) == 1:
        # Large states are updated in the buffers of results.
        large = [r for r, _ in zip(last.results, _states(last), strict=False) if prod(static_shape(r)) > MAX_REGISTER_ELEMENTS]
        results = [r for r in last.results if r in results or r in large]
    if not results or any(0 in static_shape(v) for op in ops for v in (*op.operands, *op.results)):
        raise NotLowerableError("it has empty or no results")
    copies = dict[SSAValue, SSAValue]()
    body = Block([op.clone(copies) for op in ops])
    body.add_op(YieldOp([copies[r] for r in results]))
    try:
        if len(ops) > 1:
            fuse_sequence_producers(body, DlBuilder(last))
        for inner in nested_blocks([op.block for op in body.ops if isinstance(op, ScanOp | WhileOp)]):
            rewrite_forward(inner, lambda op: op.decompose(*op.operands), Composite)
        new_results = _lower_lanes(body, last, target)
        if new_results is None:
            if len(ops) > 1:
                raise NotLowerableError("the loops have no lanes")
            require_gain(cast("ScanOp | WhileOp", body.first_op))
            new_results = _lower(body, None, last, target)
    finally:
        body.erase(safe_erase=False)
    for old, new in zip(results, new_results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    block = last.parent
    assert block is not None
    for op in reversed(kernel.moved):
        op.detach()
        block.insert_op_after(op, last)
    for op in reversed(kernel.replaced):
        erase_op(op)


def _lower_lanes(block: Block, anchor: Operation, target: Target) -> Sequence[SSAValue] | None:
    """Insert a kernel with a grid over the lanes of loops, and return its results; None if the loops have no lanes."""
    try:
        lanes = Lanes(block)
        require_gain_of_lanes(block, lanes)
        return _lower(block, lanes, anchor, target)
    except NotLowerableError:
        return None


def _operands(block: Block, lanes: Lanes | None) -> list[SSAValue]:
    """Return the values that the kernel reads from memory; small constants and index sequences are computed in it."""
    values, loops = dict.fromkeys(captured_values(block)), [op for op in block.ops if isinstance(op, ScanOp | WhileOp)]
    other_reads = {v for loop in loops for v in (*_states(loop), *captured_values(loop.block))}
    for loop in loops:
        if isinstance(loop, WhileOp) and lanes is not None and loop in lanes.running and loop.condition not in other_reads:
            values.pop(loop.condition, None)
    return [v for v in values if not (isinstance(v.owner, IotaOp) and v not in other_reads) and not is_small_constant(v)]


def _states(loop: ScanOp | WhileOp) -> Sequence[SSAValue]:
    return loop.arguments[: loop.state_count] if isinstance(loop, ScanOp) else loop.arguments


def _lower(block: Block, lanes: Lanes | None, anchor: Operation, target: Target) -> Sequence[SSAValue]:
    """Insert a kernel with the ops of a block before an op, and return the values that the block yields."""
    build, operands = DlBuilder(anchor), _operands(block, lanes)
    assert isinstance(block.last_op, YieldOp)
    results, name = block.last_op.values, "_".join(op.name.removeprefix("dl.") for op in block.ops if op.regions)
    if not operands:
        operands = [build.scalar(0, like=results[0])]
    may_fail = any(isinstance(op, FailOp) for op in block.walk())
    record_type = tensor_type((1 + _MAX_MESSAGE_VALUES,), i64)
    types = [*(r.type for r in results), *([record_type] if may_fail else [])]
    buffers = [MemRefType(storage_type(element_type_of(v)), static_shape(v)) for v in (*operands, *types)]
    body, failures = Block(arg_types=buffers), Failures()
    function = func.FuncOp(name, FunctionType.from_lists(buffers, []), Region(body))
    builder = KernelBuilder(OpBuilder(ConstantPool(function), body, None))
    outer = builder.op_builder
    grid = outer.parallel("grid", [(1 if lanes is None else lanes.count, 1)], ["lane"])
    builder.op_builder = outer.at_block_end(grid.body.block)
    if may_fail:
        failures.record = body.args[-1]
        for k in range(1 + _MAX_MESSAGE_VALUES):
            store(builder, builder.constant(0, i64).ssa, ArrayInMemory(failures.record), (k,))
    lowering = LoopLowering(builder, failures, lanes, grid.body.block.args[0])
    _lower_block(lowering, block, dict(zip(operands, body.args, strict=False)), body.args[len(operands) :])
    builder.op_builder.insert(scf.ReduceOp())
    if lanes is not None and target.groups is None:
        vectorize_lanes(grid, outer, *_vector_shape(grid, block, lanes, target), lowering.lane_buffers)
    elif lowering.lane_buffers:
        raise NotLowerableError("a work-item needs a local array")
    outer.insert(func.ReturnOp())
    function.update_function_type()
    scratch = [memref_of(v).element_type for v in body.args[len(buffers) :]]
    elements = ArrayAttr([*map(element_type_of, types), *scratch])
    op = LoopsOp.make(*operands, body=LoopBodyAttr.of(function), elements=elements)
    build.insert(op)
    if may_fail:
        _insert_failures(build, op.results[len(results)], failures.sites)
    return op.results[: len(results)]


def _lower_block(
    lowering: LoopLowering, block: Block, arguments: Mapping[SSAValue, SSAValue], results: Sequence[SSAValue]
) -> None:
    """Lower the ops of a block with the buffers of the values that it reads and yields."""
    assert isinstance(block.last_op, YieldOp)
    lowering.writable.update(results)
    lowering.result_buffers.update(zip(block.last_op.values, results, strict=False))
    captured = captured_values(block)
    for value in captured:
        if is_small_constant(value):
            lowering.lower(cast(ConstantOp, value.owner))
        elif value in arguments:
            lowering.values[value] = lowering.array(value, arguments[value])
    for value in {v: None for op in block.ops for region in op.regions for v in captured_values(region.block)}:
        array = lowering.values.get(value)
        if isinstance(array, ArrayInMemory) and prod(array.shape) <= MAX_REGISTER_ELEMENTS:
            lowering.values[value] = load_all(lowering.builder, array)
    for value, buffer in zip(lowering.run(block), results, strict=False):
        lowering.store_result(value, buffer)


def _vector_shape(grid: scf.ParallelOp, block: Block, lanes: Lanes, target: Target) -> tuple[int, int]:
    """Return the number of lanes of a vector, and of vectors per grid point; several registers of few states hide latency.

    Long blocks compute vectors of several registers: the processor does not look ahead to the next group of lanes.
    """
    loops = [op for op in block.ops if isinstance(op, ScanOp | WhileOp)]
    values = [a for loop in loops for a in loop.block.args if a in lanes.axes]
    width = target.lanes(max((numpy_dtype(element_type_of(v)).itemsize for v in values), default=1))

    def num_registers(values: Sequence[SSAValue], available: int, maximum: int) -> int:
        per_loop = max(1, sum(prod(lanes.shape(v)) for v in values)) / len(loops)
        return max(1, min(maximum, int(available / per_loop)))

    if max(map(_num_ops, grid.walk_blocks())) <= _MAX_OVERLAPPED_OPS:
        states = [a for loop in loops for a in loop.block.args[: len(_states(loop))] if a in lanes.axes]
        return width, num_registers(states, _STATE_REGISTERS, _MAX_REGISTERS_PER_VALUE)
    return width * num_registers(values, _WIDE_STATE_REGISTERS, _MAX_REGISTERS_PER_WIDE_VALUE), 1


def _num_ops(block: Block) -> int:
    return sum(_OPS_PER_FUNCTION if op.name.startswith("math.") else 1 for op in block.ops)


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

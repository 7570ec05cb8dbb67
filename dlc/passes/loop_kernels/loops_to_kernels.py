"""Replace loops with small states by single kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp, IotaOp
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
from dlc.passes.library_kernels.builder import KernelBuilder
from dlc.passes.loop_kernels.control_flow import Failures, LoopLowering
from dlc.passes.loop_kernels.cost import require_gain
from dlc.passes.loop_kernels.element_ops import MAX_REGISTER_ELEMENTS
from dlc.passes.loop_kernels.elements import (
    ArrayInMemory,
    NotLowerableError,
    load_all,
    static_shape,
    store,
)
from dlc.passes.structured import ConstantPool, OpBuilder

# The attribute of a loop that stays in the host program: the reason.
SEPARATE_KERNELS = "separate_kernels"
# Message values that a failure of a kernel records.
_MAX_MESSAGE_VALUES = 3


@dataclass(frozen=True)
class LoopsToKernelsPass(TargetPass):
    """`loops-to-kernels`: replaces each loop with small states by one kernel that contains the loop.

        %last = dl.scan %first, %xs { ^bb0(%s, %x): %n = dl.add %s, %x;  dl.yield %n }
    →   %last = dl.loops %first, %xs {body = func.func @scan(%first: memref<f32>, %xs: memref<9xf32>, %last: memref<f32>) {
            %s = memref.load %first[]
            %r = scf.for %step = 0 to 9 iter_args(%c = %s) { %x = memref.load %xs[%step];  scf.yield (arith.addf %c, %x) }
            memref.store %r, %last[] }}

    Small states are loop-carried scalars; large arrays of which a step writes some rows are updated in place, after one copy.
    Nested loops and branches become loops and branches of the kernel. A failing branch is recorded by the kernel, which ends
    its while loops; the program fails after it. Other loops stay: those with states of symbolic size, ops without scalar code
    (sorting, strings), or bodies with so much work that separate kernels are faster (`cost.py`).
    """

    name = "loops-to-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for loop in list(block.ops):
                if isinstance(loop, ScanOp | WhileOp):
                    try:
                        _replace(loop)
                    except NotLowerableError as reason:
                        loop.attributes[SEPARATE_KERNELS] = StringAttr(str(reason))


def _replace(loop: ScanOp | WhileOp) -> None:
    """Replace a loop by a kernel; raise NotLowerableError, without a change, if that is impossible."""
    require_gain(loop)
    if any(0 in static_shape(v) for v in (*loop.operands, *loop.results)) or not loop.results:
        raise NotLowerableError("it has empty or no results")
    copy = loop.clone()
    block = loop.parent
    assert block is not None
    block.insert_op_before(copy, loop)
    try:
        for body in nested_blocks([copy.block]):
            rewrite_forward(body, lambda op: op.decompose(*op.operands), Composite)
        results = _lower(copy)
    finally:
        copy.detach()
        copy.erase(safe_erase=False)
    for old, new in zip(loop.results, results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    loop.detach()
    loop.erase()


def _operands(loop: ScanOp | WhileOp) -> list[SSAValue]:
    """Return the values that the kernel reads from memory; small constants and index sequences are computed in it."""
    captured = captured_values(loop.block)
    values = dict.fromkeys((*loop.operands, *captured))
    if isinstance(loop, ScanOp):
        states, sequences = set(loop.arguments[: loop.state_count]), set(loop.arguments[loop.state_count :])
        indices = {v for v in sequences if isinstance(v.owner, IotaOp) and v not in states and v not in captured}
    else:
        indices = set[SSAValue]()
    return [v for v in values if v not in indices and not _is_small_constant(v)]


def _is_small_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp) and prod(static_shape(value)) <= MAX_REGISTER_ELEMENTS


def _lower(loop: ScanOp | WhileOp) -> Sequence[SSAValue]:
    """Insert a kernel before the loop, and return its results."""
    operands = _operands(loop)
    build = DlBuilder(loop)
    if not operands:
        operands = [build.scalar(0, like=loop.results[0])]
    may_fail = any(isinstance(op, FailOp) for op in loop.walk())
    record_type = tensor_type((1 + _MAX_MESSAGE_VALUES,), i64)
    types = [*(r.type for r in loop.results), *([record_type] if may_fail else [])]
    buffers = [MemRefType(storage_type(element_type_of(v)), static_shape(v)) for v in (*operands, *types)]
    body = Block(arg_types=buffers)
    name = loop.name.removeprefix("dl.")
    function = func.FuncOp(name, FunctionType.from_lists(buffers, []), Region(body))
    failures = Failures()
    builder = KernelBuilder(OpBuilder(ConstantPool(function), body, None), storage_type(element_type_of(loop.results[0])))
    outer = builder.op_builder
    grid = outer.parallel("grid", [(1, 1)], ["i"])
    builder.op_builder = outer.at_block_end(grid.body.block)
    arguments = dict(zip(operands, body.args, strict=False))
    results = body.args[len(operands) : len(operands) + len(loop.results)]
    if may_fail:
        failures.record = body.args[-1]
        for k in range(1 + _MAX_MESSAGE_VALUES):
            store(builder, builder.number(0, i64).ssa, ArrayInMemory(failures.record), (k,))
    lowering = LoopLowering(builder, {}, failures)
    lowering.writable.update(results)
    for value in (*loop.operands, *captured_values(loop.block)):
        if _is_small_constant(value):
            lowering.lower(cast(ConstantOp, value.owner))
        elif value in arguments:
            lowering.values[value] = ArrayInMemory(arguments[value])
    for value in captured_values(loop.block):
        array = lowering.values[value]
        if isinstance(array, ArrayInMemory) and prod(array.shape) <= MAX_REGISTER_ELEMENTS:
            lowering.values[value] = load_all(builder, array)
    match loop:
        case ScanOp():
            lowering.scan(loop, results)
        case WhileOp():
            lowering.while_(loop, results)
    for result, buffer in zip(loop.results, results, strict=True):
        lowering.store_result(lowering.values[result], buffer)
    builder.op_builder.insert(scf.ReduceOp())
    builder.op_builder = outer
    outer.insert(func.ReturnOp())
    op = LoopsOp.make(*operands, body=LoopBodyAttr.of(function), types=ArrayAttr(types))
    build.insert(op)
    if may_fail:
        _insert_failures(build, op.results[-1], failures.sites)
    return op.results[: len(loop.results)]


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

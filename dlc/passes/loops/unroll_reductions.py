"""`unroll-reductions`: unroll the innermost loops of contractions, so that a multiply-add takes fewer instructions."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.ir import Context, IntegerType, Operation, SSAValue, VectorType, func, scf
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.loops.static_loops import accumulator_bytes, constant_range, num_accumulator_rows, split_loop
from dlc.passes.structured import ConstantPool, OpBuilder

# Registers that accumulators must leave free. In an unrolled loop LLVM adds to the register of an operand, so that accumulators
# move from register to register; with fewer free registers it spills them.
_SPARE_REGISTERS = 4


@dataclass(frozen=True)
class UnrollReductionsPass(TargetPass, KernelPass):
    """Unroll innermost loops that accumulate vectors, by a factor of the target's cost model; the rest is a second loop.

        %sum = scf.for %k = 0 to 770 step 1 iter_args(%acc = %zero) { %new = f(%k, %acc) }
      →
        %main = scf.for %k = 0 to 768 step 4 iter_args(%acc = %zero) { f(%k + 3, f(%k + 2, f(%k + 1, f(%k, %acc)))) }
        %sum = scf.for %k = 768 to 770 step 1 iter_args(%acc = %main) { %new = f(%k, %acc) }

    A loop whose accumulators leave few registers free, or whose iterations have many ops, is not unrolled. The order of
    additions does not change. A processor whose front end is shared by two hardware threads decodes half as many instructions
    per cycle, and short vectors need more instructions for the same work.
    """

    name = "unroll-reductions"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        settings = self.target.costs.unrolling
        if settings is None:
            return
        constants = ConstantPool(kernel)
        max_bytes = (self.target.vector_registers - _SPARE_REGISTERS) * self.target.vector_bytes
        for op in list(kernel.walk()):
            if (
                isinstance(op, scf.ForOp)
                and _is_innermost(op)
                and len(op.body.block.ops) <= settings.max_iteration_ops
                and num_accumulator_rows(op) >= settings.min_rows
                and accumulator_bytes(op) <= max_bytes
            ):
                factor = settings.integer_factor if _accumulates_integers(op) else settings.factor
                _unroll(op, factor, settings.min_steps, constants)


def _is_innermost(loop: scf.ForOp) -> bool:
    return not any(op.regions for op in loop.body.block.ops)


def _accumulates_integers(loop: scf.ForOp) -> bool:
    return any(isinstance(t := v.type, VectorType) and isinstance(t.element_type, IntegerType) for v in loop.iter_args)


def _unroll(loop: scf.ForOp, factor: int, min_steps: int, constants: ConstantPool) -> None:
    steps = constant_range(loop)
    if steps is None or len(steps) < max(min_steps, 2 * factor):
        return
    if remainder := len(steps) % factor:
        loop = split_loop(loop, steps[-remainder], constants)
    loop.operands[2] = constants.index(steps.step * factor)
    _repeat_body(loop, factor, steps.step, constants)


def _repeat_body(loop: scf.ForOp, factor: int, step: int, constants: ConstantPool) -> None:
    """Append `factor` - 1 copies of the body, each for the next index."""
    block = loop.body.block
    *body, terminator = block.ops
    carried = list(terminator.operands)
    for n in range(1, factor):
        builder = OpBuilder(constants, block, loop.location, anchor=terminator)
        values: dict[SSAValue, SSAValue] = {block.args[0]: builder.value(builder.add(block.args[0], n * step))}
        values.update(zip(block.args[1:], carried, strict=True))
        for op in body:
            copy: Operation = op.clone(values)
            block.insert_op_before(copy, terminator)
        carried = [values.get(v, v) for v in terminator.operands]
    terminator.operands = carried

"""`name-values`: give values descriptive names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlc.ir import (
    Block,
    Context,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    Operation,
    SSAValue,
    arith,
    func,
    memref,
    scf,
    vector,
)
from dlc.passes.base import KernelPass

_ROLE = re.compile(r"_(tile|vec)$")


@dataclass(frozen=True)
class NameValuesPass(KernelPass):
    """Name every unnamed value after the buffer it comes from or the op that defines it.

        %8 = memref.subview %x[…]; %13 = vector.transfer_read %8[…]; %15 = vector.fma %13, …
      →
        %x_tile = memref.subview %x[…]; %x_vec = vector.transfer_read %x_tile[…]; %fma = vector.fma %x_vec, …

    Names have no effect on code generation; they make the emitted source readable.
    """

    name = "name-values"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        for k, argument in enumerate(kernel.args):
            _name(argument, f"in{k}")
        _name_block(kernel.body.block)


def _name_block(block: Block) -> None:
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                for argument in inner.args:
                    # Induction variables have names; iter_args are mostly accumulators.
                    _name(argument, "acc")
                _name_block(inner)
        for k, result in enumerate(op.results):
            _name(result, _describe(op, k))


def _name(value: SSAValue, name: str) -> None:
    if value.name_hint is None:
        value.name_hint = name


def _describe(op: Operation, k: int) -> str:
    match op:
        case arith.ConstantOp():
            return "zero" if _is_zero(op) else "const"
        case memref.SubviewOp() | memref.ReinterpretCastOp():
            return f"{_stem(op.source)}_tile"
        case vector.TransferReadOp():
            return f"{_stem(op.source)}_vec"
        case memref.LoadOp():
            return _stem(op.memref)
        case memref.AllocaOp():
            return "local"
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            last = op.regions[0].block.last_op
            return last.operands[k].name_hint or "result" if last is not None else "result"
        case _:
            return op.name.rpartition(".")[2]


def _stem(buffer: SSAValue) -> str:
    """Return the name of the buffer that a view or vector was read from."""
    return _ROLE.sub("", buffer.name_hint or "buffer")


def _is_zero(op: arith.ConstantOp) -> bool:
    value = op.value
    if isinstance(value, DenseIntOrFPElementsAttr):
        return value.is_splat() and not any(value.get_values())
    return isinstance(value, FloatAttr) and value.value.data == 0

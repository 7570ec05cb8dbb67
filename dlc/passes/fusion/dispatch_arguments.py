"""Rewrite the operands of dispatches: bypass the kernels that compute them, or insert kernels before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects.dl.arithmetic.elementwise import MulOp
from dlc.dialects.dl.base import rank_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.movement.shaping import TransposeOp
from dlc.dialects.dl.programs.program import DispatchOp, YieldOp
from dlc.ir import BlockArgument, SSAValue, erase_op
from dlc.passes.dl.rewriting import splat
from dlc.passes.fusion.kernel_table import KernelTable, replace_argument


class DispatchArguments:
    """The arguments of a kernel with a single dispatch.

    Kernels that compute the operands may have several dispatches.
    """

    def __init__(self, kernels: KernelTable, dispatch: DispatchOp) -> None:
        self.kernels = kernels
        self.dispatch = dispatch
        self.kernel = kernels[dispatch.symbol]

    def operand_of(self, argument: BlockArgument) -> SSAValue:
        """Return the dispatch's operand for an argument of the kernel."""
        return self.dispatch.arguments[argument.index]

    def strip_transpose(self, argument: BlockArgument) -> tuple[SSAValue, tuple[int, ...]]:
        """Return the value that a kernel transposes to compute the operand, and the permutation.

        Without such a kernel this is the operand itself, with the identity.
        """
        value = self.operand_of(argument)
        producer = value.owner
        if isinstance(producer, DispatchOp):
            transpose, *following_ops = self.kernels[producer.symbol].body.block.ops
            if isinstance(transpose, TransposeOp) and len(following_ops) == 1:
                return producer.arguments[0], transpose.axes
        return value, tuple(range(rank_of(value)))

    def strip_scale(self, argument: BlockArgument) -> tuple[SSAValue, float]:
        """Return the value that a kernel scales by a constant to compute the operand, and the constant.

        Without such a kernel, or if the operand has another user, this is the operand itself, with 1.
        """
        value = self.operand_of(argument)
        producer = value.owner
        if isinstance(producer, DispatchOp) and value.has_one_use() and len(producer.arguments) == len(producer.outputs) == 1:
            match list(self.kernels[producer.symbol].body.block.ops):
                case [ConstantOp() as constant, MulOp() as product, YieldOp()] if constant.result in product.operands:
                    factor = splat(constant.result)
                    return (value, 1.0) if factor is None else (producer.arguments[0], float(factor))
                case _:
                    pass
        return value, 1.0

    def replace(self, argument: BlockArgument, value: SSAValue, read: Callable[[SSAValue], SSAValue]) -> SSAValue:
        """Pass `value` as an argument; return the value that the kernel reads instead of the old argument.

        `read` builds it from the new argument.
        """
        old_producer = self.operand_of(argument).owner
        self.dispatch.operands[argument.index] = value
        if isinstance(old_producer, DispatchOp) and not any(r.first_use for r in old_producer.results):
            symbol = old_producer.symbol
            erase_op(old_producer)
            self.kernels.erase_if_unused(symbol)
        return replace_argument(self.kernel, argument, value.type, read)

    def insert_kernel(self, stem: str, source: SSAValue, body: Callable[[DlBuilder, SSAValue], SSAValue]) -> SSAValue:
        """Insert a kernel with this body, and its dispatch on `source` before this dispatch; return the result."""
        return self.kernels.insert(stem, source, body, self.dispatch)


def transposed(build: DlBuilder, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Return a value with its axes permuted."""
    return value if tuple(order) == tuple(range(len(order))) else build(TransposeOp, value, permutation=tuple(order))

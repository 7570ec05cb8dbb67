"""What dispatches give to kernels: what they made of it before, and other arguments in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects.dl.arithmetic.elementwise import MulOp
from dlc.dialects.dl.base import rank_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.movement.shaping import TransposeOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.ir import BlockArgument, FunctionType, ModuleOp, NameLoc, NoneAttr, Operation, SSAValue, StringAttr
from dlc.passes.dl.rewriting import splat


class Arguments:
    """The arguments of one dispatch of a kernel, which no other dispatch has, in a module with these kernels.

    Those that make them may have others.
    """

    def __init__(self, module: ModuleOp, kernels: dict[str, KernelOp], dispatch: DispatchOp) -> None:
        self.module = module
        self.kernels = kernels
        self.dispatch = dispatch
        self.kernel = kernels[dispatch.symbol]

    def given(self, argument: BlockArgument) -> SSAValue:
        """What the dispatch gives as an argument of the kernel."""
        return self.dispatch.arguments[argument.index]

    def untransposed(self, argument: BlockArgument) -> tuple[SSAValue, tuple[int, ...]]:
        """What a kernel has transposed to make what is given, and how; that itself if none has."""
        value = self.given(argument)
        made = value.owner
        if isinstance(made, DispatchOp):
            move, *rest = self.kernels[made.symbol].body.block.ops
            if isinstance(move, TransposeOp) and len(rest) == 1:
                return made.arguments[0], move.axes
        return value, tuple(range(rank_of(value)))

    def unscaled(self, argument: BlockArgument) -> tuple[SSAValue, float]:
        """What a kernel has multiplied by a number to make what is given, if nothing else reads that, and the number."""
        value = self.given(argument)
        made = value.owner
        if isinstance(made, DispatchOp) and value.has_one_use() and len(made.arguments) == len(made.outputs) == 1:
            match list(self.kernels[made.symbol].body.block.ops):
                case [ConstantOp() as constant, MulOp() as product, YieldOp()] if constant.result in product.operands:
                    factor = splat(constant.result)
                    return (value, 1.0) if factor is None else (made.arguments[0], float(factor))
                case _:
                    pass
        return value, 1.0

    def replace(self, argument: BlockArgument, value: SSAValue, read: Callable[[SSAValue], SSAValue]) -> SSAValue:
        """Gives `value` instead, of which the kernel reads what `read` makes of its argument; returns that."""
        k, unused, block = argument.index, self.given(argument).owner, self.kernel.body.block
        self.dispatch.operands[k] = value
        if isinstance(unused, DispatchOp) and not any(r.first_use for r in unused.results):
            name = unused.symbol
            _erase(unused)
            if not any(isinstance(op, DispatchOp) and op.symbol == name for op in self.module.walk()):
                _erase(self.kernels.pop(name))
        inner = block.insert_arg(value.type, k)
        inner.name_hint = argument.name_hint
        made = read(inner)
        argument.replace_all_uses_with(made)
        block.erase_arg(argument)
        self.kernel.function_type = FunctionType.from_lists(block.arg_types, self.kernel.function_type.outputs.data)
        return made

    def made(self, stem: str, source: SSAValue, body: Callable[[Build, SSAValue], SSAValue]) -> SSAValue:
        """What a kernel of its own makes of a value, before the dispatch."""
        symbols = {k.symbol for k in self.module.ops if isinstance(k, KernelOp)}
        name = next(n for n in (f"{stem}_{k}" for k in range(len(symbols) + 1)) if n not in symbols)
        kernel = empty_kernel(name, [source.type], [])
        result = body(Build(kernel.body.block, NameLoc(StringAttr("#0"), NoneAttr())), kernel.body.block.args[0])
        kernel.body.block.add_op(YieldOp([result]))
        kernel.function_type = FunctionType.from_lists([source.type], [result.type])
        self.module.body.block.add_op(kernel)
        self.kernels[name] = kernel
        made = DispatchOp(name, [source], [result.type])
        Build(self.dispatch).insert(made)
        return made.outputs[0]


def transposed(b: Build, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """A value with its axes in this order."""
    return value if tuple(order) == tuple(range(len(order))) else b(TransposeOp, value, permutation=tuple(order))


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()

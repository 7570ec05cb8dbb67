"""The kernels of a module by name: insert kernels with their dispatches, clone kernels, and replace arguments."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.ir import (
    Attribute,
    BlockArgument,
    FunctionType,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    Operation,
    SSAValue,
    StringAttr,
    erase_op,
    walk_ops,
)


class KernelTable:
    """The kernels of a module by name."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._kernels = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}

    def __getitem__(self, name: str) -> KernelOp:
        return self._kernels[name]

    def insert(
        self,
        stem: str,
        source: SSAValue,
        body: Callable[[DlBuilder, SSAValue], SSAValue],
        anchor: Operation,
        location: LocationAttr | None = None,
    ) -> SSAValue:
        """Insert a kernel with this body, and its dispatch on `source` before `anchor`; return the result.

        The default location of the dispatch is that of `anchor`.
        """
        kernel = empty_kernel(self._unused_name(stem), [source.type], [])
        result = body(DlBuilder(kernel.body.block, NameLoc(StringAttr("#0"), NoneAttr())), kernel.body.block.args[0])
        kernel.body.block.add_op(YieldOp([result]))
        kernel.function_type = FunctionType.from_lists([source.type], [result.type])
        self._module.body.block.add_op(kernel)
        self._kernels[kernel.symbol] = kernel
        dispatch = DispatchOp(kernel.symbol, [source], [result.type])
        DlBuilder(anchor, location).insert(dispatch)
        return dispatch.outputs[0]

    def clone(self, symbol: str) -> KernelOp:
        """Insert a clone of a kernel after it, and return the clone."""
        original = self._kernels[symbol]
        clone = original.clone()
        clone.sym_name = StringAttr(self._unused_name(symbol))
        self._kernels[clone.symbol] = clone
        self._module.body.block.insert_op_after(clone, original)
        return clone

    def has_other_dispatches(self, symbol: str, dispatch: DispatchOp | None = None) -> bool:
        """Return whether a kernel has a dispatch other than this one."""
        return any(op is not dispatch and op.symbol == symbol for op in walk_ops(self._module, DispatchOp))

    def erase_if_unused(self, symbol: str) -> None:
        """Erase a kernel without dispatches."""
        if not self.has_other_dispatches(symbol):
            erase_op(self._kernels.pop(symbol))

    def _unused_name(self, stem: str) -> str:
        names = (f"{stem}_{k}" if k else stem for k in range(len(self._kernels) + 1))
        return next(name for name in names if name not in self._kernels)


def replace_argument(
    kernel: KernelOp, argument: BlockArgument, new_type: Attribute, read: Callable[[SSAValue], SSAValue]
) -> SSAValue:
    """Change the type of a kernel's argument; return the value that replaces it, which `read` computes from the new one."""
    block = kernel.body.block
    new_argument = block.insert_arg(new_type, argument.index)
    new_argument.name_hint = argument.name_hint
    result = read(new_argument)
    argument.replace_all_uses_with(result)
    block.erase_arg(argument)
    kernel.function_type = FunctionType.from_lists(block.arg_types, kernel.function_type.outputs.data)
    return result

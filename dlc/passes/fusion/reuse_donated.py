"""Write results into the buffers of donated arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from dlc.dialects.dl.base import attribute, ints, shape_of
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.interfaces import Elementwise, ScatterLike
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.control import ScanOp, WhileOp
from dlc.dialects.dl.programs.program import DONOR, OUTPUT_ALIASES, DispatchOp, KernelOp
from dlc.errors import UnsupportedError
from dlc.ir import (
    Block,
    BlockArgument,
    Context,
    IntegerAttr,
    ModuleOp,
    ModulePass,
    Operation,
    SSAValue,
    SymbolRefAttr,
    func,
)
from dlc.passes.dl.rewriting import defines_sizes, users
from dlc.passes.fusion.kernel_table import KernelTable
from dlc.passes.views import ALIASING_OPS, result_index, source_of

_COPY_KERNEL_NAME = "keep"


@dataclass(frozen=True)
class ReuseDonatedPass(ModulePass):
    """`reuse-donated`: compute a result in the buffer of a donated argument, after the last reader of the argument.

        func.func @main(%p) -> (… {dl.donor = 0}) {             func.func @main(%p) -> (… {dl.donor = 0}) {
          %q = dl.dispatch @update(%p, %g)                  →     %d = dl.dispatch @matmul(%y, %p)
          %d = dl.dispatch @matmul(%y, %p)                        %q = dl.dispatch @update(%p, %g)
          func.return %q, %d }                                    func.return %q, %d }

    The kernel that computes the result may read the argument itself if each element of the result depends only on the
    element at the same index. A kernel that replaces rows of the argument (`dl.scatter_rows`) writes only these rows:
    `output_aliases` of the dispatch and the kernel gives, for each result, the argument whose buffer it reuses, or -1.
    Otherwise, or if the order is impossible, the result is computed in another buffer and copied at the end. An op that
    computes a data-dependent size counts as a reader of all arguments, since the call may begin again with a larger arena.
    Run it before `dedupe-kernels`, which merges the copies of kernels that some dispatches share. Raises UnsupportedError if
    a donated argument is returned unchanged as another result, also as a state that a loop carries unchanged.
    """

    name = "reuse-donated"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for main in [f for f in op.ops if isinstance(f, func.FuncOp) and f.res_attrs is not None]:
            assert main.res_attrs is not None
            donor_attributes = [cast("IntegerAttr | None", named.data.get(DONOR)) for named in main.res_attrs]
            donated_by_result = {
                k: main.args[donor.value.data] for k, donor in enumerate(donor_attributes) if donor is not None
            }
            if donated_by_result:
                _DonationRewriter(op, main, donated_by_result).run()


class _DonationRewriter:
    """Writes results of a function to the buffers of donated arguments, `donated_by_result` (by result index)."""

    def __init__(self, module: ModuleOp, main: func.FuncOp, donated_by_result: dict[int, BlockArgument]) -> None:
        self.kernels = KernelTable(module)
        self.block = main.body.block
        self.returned = cast(func.ReturnOp, main.body.block.last_op)
        self.donated_by_result = donated_by_result
        # The ops after which a call with a larger arena begins again, and reads the arguments again.
        self.restarts = [op for op in self.block.ops if any(map(_computes_size, op.walk()))]
        # The position of each op; empty after ops have been moved.
        self.position: dict[Operation, int] = {}

    def run(self) -> None:
        """Write each result to its donated buffer, or copy it there at the end."""
        donated = set(self.donated_by_result.values())
        for k, value in enumerate(self.returned.operands):
            root = _unchanged_source(value)
            if root in donated and self.donated_by_result.get(k) is not root:
                name = root.name_hint
                raise UnsupportedError(f"result {k} is the donated argument {name!r} itself; do not donate it")
        for k, argument in self.donated_by_result.items():
            self.move_writer_after_readers(k, argument)
        for k, argument in self.donated_by_result.items():
            if source_of(self.returned.operands[k])[0] is not argument and not self.can_write_in_place(k, argument):
                self.returned.operands[k] = self.copy_result(self.returned.operands[k])

    def move_writer_after_readers(self, k: int, argument: BlockArgument) -> None:
        """Move the op that computes a result, and the ops that depend on it, after the last reader of the argument."""
        writer, argument_readers = self.writer(k), self.readers(argument)
        if writer is None:
            return
        position = self.positions()
        last = max((r for r in argument_readers if r is not writer), key=lambda r: position[r], default=writer)
        if position[last] <= position[writer]:
            return
        moved: dict[Operation, None] = {writer: None}
        for op in list(self.block.ops)[position[writer] + 1 : position[last] + 1]:
            if any(inner_operand.owner in moved for inner in op.walk() for inner_operand in inner.operands):
                moved[op] = None
        # Ops may use a data-dependent size without reading the result of the op that computes it.
        if last in moved or not moved.keys().isdisjoint(self.restarts):
            return
        anchor = last
        for op in moved:
            op.detach()
            self.block.insert_op_after(op, anchor)
            anchor = op
        self.position.clear()

    def positions(self) -> dict[Operation, int]:
        if not self.position:
            self.position |= {op: number for number, op in enumerate(self.block.ops)}
        return self.position

    def can_write_in_place(self, k: int, argument: BlockArgument) -> bool:
        """Return whether the kernel that computes a result may write it over the argument."""
        writer, argument_readers = self.writer(k), self.readers(argument)
        if writer is None:
            return False
        position = self.positions()
        if any(position[r] > position[writer] for r in argument_readers):
            return False
        kernel, result = self.kernels[writer.symbol], writer.outputs.index(source_of(self.returned.operands[k])[0])
        operand_indices = [i for i, v in enumerate(writer.arguments) if source_of(v)[0] is argument]
        if len(operand_indices) == 1 and replaces_rows(kernel, operand_indices[0], result):
            set_output_alias(self.kernels, writer, result, operand_indices[0])
            return True
        return all(_is_elementwise_in_place(kernel, i, result) for i in operand_indices)

    def writer(self, k: int) -> DispatchOp | None:
        """Return the dispatch that computes a result, if it computes all of it."""
        value = self.returned.operands[k]
        while isinstance(value.owner, ALIASING_OPS):
            value = value.owner.x
        return value.owner if isinstance(value.owner, DispatchOp) and value.owner.parent is self.block else None

    def readers(self, argument: BlockArgument) -> list[Operation]:
        """Return the ops that read an argument before the function returns, and those that may restart the call."""
        return [op for op in (*readers(argument), *self.restarts) if op is not self.returned]

    def copy_result(self, value: SSAValue) -> SSAValue:
        """Insert a copy of a value at the end of the function."""
        self.position.clear()
        return self.kernels.insert(_COPY_KERNEL_NAME, value, lambda build, x: x, self.returned)


def _unchanged_source(value: SSAValue) -> SSAValue:
    """Return the value that `value` is a view of, where a state that a loop carries unchanged is its initial value."""
    root, _ = source_of(value)
    while isinstance(root.owner, ScanOp | WhileOp):
        loop, index = root.owner, result_index(root)
        states = loop.arguments[: loop.state_count] if isinstance(loop, ScanOp) else loop.arguments
        next_states = loop.yielded if isinstance(loop, ScanOp) else loop.yielded[1:]
        if index >= len(states) or source_of(next_states[index])[0] is not loop.block.args[index]:
            break
        root, _ = source_of(states[index])
    return root


def _computes_size(op: Operation) -> bool:
    """Return whether an op computes a data-dependent size."""
    return isinstance(op, BindSizeOp) or defines_sizes(op)


def readers(value: SSAValue) -> list[Operation]:
    """Return the ops of a value's block that read it or a view of it, themselves or in their bodies."""
    reading_ops: list[Operation] = []
    pending = [value]
    while pending:
        for user in users(pending.pop()):
            if isinstance(user, (*ALIASING_OPS, SliceOp)):
                pending.append(user.result)
            else:
                reading_ops.append(user)
    return reading_ops


def replaces_rows(kernel: KernelOp, argument: int, result: int) -> bool:
    """Return whether a kernel's result is an argument with some rows replaced, without other uses of both in the kernel."""
    source, output = kernel.body.block.args[argument], kernel.yielded[result]
    op = output.owner
    return isinstance(op, ScatterLike) and op.operands[0] is source and source.has_one_use() and output.has_one_use()


def set_output_alias(kernels: KernelTable, dispatch: DispatchOp, result: int, argument: int) -> None:
    """Make a result of a dispatch reuse the buffer of an argument; other dispatches of its kernel keep the kernel as it is."""
    kernel = kernels[dispatch.symbol]
    if kernels.has_other_dispatches(kernel.symbol, dispatch):
        kernel = kernels.clone(kernel.symbol)
        dispatch.callee = SymbolRefAttr(kernel.symbol)
    aliases = list(ints(dispatch.attributes.get(OUTPUT_ALIASES))) or [-1] * len(dispatch.outputs)
    aliases[result] = argument
    dispatch.attributes[OUTPUT_ALIASES] = kernel.attributes[OUTPUT_ALIASES] = attribute(aliases)


def _is_elementwise_in_place(kernel: KernelOp, argument: int, result: int) -> bool:
    """Return whether a kernel's argument affects only one result, and each element only that at the same index."""
    body: Block = kernel.body.block
    source, output = body.args[argument], kernel.yielded[result]
    visited: set[SSAValue] = {source}
    pending: list[SSAValue] = [source]
    while pending:
        for use in pending.pop().uses:
            op = use.operation
            if not isinstance(op, Elementwise) or any(shape_of(r) != shape_of(source) for r in op.results):
                return False
            inner = [r for r in op.results if r is not output and r not in visited]
            visited |= set(inner)
            pending += inner
    return not visited.intersection(kernel.yielded)

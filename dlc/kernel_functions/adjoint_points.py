"""The adjoint of one point of a grid."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from dlc.dialects.dl.dtypes import is_float
from dlc.errors import UnsupportedError
from dlc.ir import AffineDimExpr, Attribute, Block, BlockArgument, Operation, SSAValue, arith, func, memref, scf, vector
from dlc.kernel_functions.adjoint_rules import RULES, cotangent_element
from dlc.kernel_functions.parallel_dims import Load, Store, loaded_buffer, stored_buffer
from dlc.kernels.kernel_trace import KernelTrace
from dlc.kernels.values import Value
from dlc.passes.kernel_builder import Buffer, Cell
from dlc.passes.kernel_values import KernelValue, element_of, shape_of_vector, with_element
from dlc.passes.types import memref_of

_PURE_OPS = (
    "arith.",
    "math.",
    "vector.broadcast",
    "vector.fma",
    "vector.reduction",
    "vector.extract",
)


class AdjointPoint:
    """The copies of the original values, and the cotangents of values and buffers, during the reverse traversal of the ops.

    Attributes:
        copies: The copy of each original value.
        placeholders: Copies of values that cannot be recomputed; they must not be used.
    """

    def __init__(
        self,
        trace: KernelTrace,
        buffers: Mapping[BlockArgument, Buffer],
        cotangents: Mapping[BlockArgument, Buffer],
        final_cotangents: Mapping[BlockArgument, Buffer],
        placeholders: list[SSAValue],
    ) -> None:
        self._trace = trace
        self._builder = trace.builder
        self.copies: dict[SSAValue, SSAValue] = {a: b.memref for a, b in buffers.items()}
        self.placeholders = placeholders
        self._buffer_cotangents: dict[SSAValue, Buffer] = {**cotangents, **final_cotangents}
        # Results whose cotangents do not change: those before a store are those after it.
        self._final = set[SSAValue](final_cotangents)
        self._cotangents: dict[SSAValue, Value] = {}
        # Local buffers that loops or branches modify: their elements cannot be recomputed when a loop runs in reverse.
        self._unknown: set[SSAValue] = set()
        # The cotangents of values that are defined outside of the current loop or branch.
        self._cells: dict[SSAValue, Cell] = {}

    def run(self, block: Block) -> None:
        """Recompute the values of a block, then pull cotangents back through its ops."""
        for op in block.ops:
            self._copy(op)
        self._pull_block(block)

    # The values of the original point

    def _copy(self, op: Operation) -> None:
        """Copy an op that computes values."""
        match op:
            case memref.StoreOp() | vector.TransferWriteOp():
                if not isinstance(stored_buffer(op), BlockArgument) and stored_buffer(op) not in self._unknown:
                    self._insert_copy(op)
            case scf.ForOp():
                if any(loaded_buffer(inner) in self._unknown for inner in op.walk()):
                    self._insert_placeholders(op)
                elif op.results:
                    self._insert_copy(op)
            case scf.IfOp() | scf.ReduceOp() | scf.YieldOp():
                pass
            case memref.AllocaOp():
                if any(use.operation.parent is not op.parent for use in op.memref.uses):
                    self._unknown.add(op.memref)
                self._insert_copy(op)
                if is_float(memref_of(op.memref).element_type):
                    self._add_local_cotangents(op.memref)
            case memref.LoadOp() | vector.TransferReadOp():
                buffer = loaded_buffer(op)
                # The elements of results change as well.
                if buffer in self._unknown or self._is_result(buffer):
                    self._insert_placeholders(op)
                else:
                    self._insert_copy(op)
            case memref.ReinterpretCastOp():
                if op.source in self._unknown:
                    self._unknown.add(op.result)
                self._insert_copy(op)
            case _:
                if not op.name.startswith(_PURE_OPS):
                    raise UnsupportedError(f"{op.name} has no adjoint")
                self._insert_copy(op)

    def _insert_copy(self, op: Operation) -> None:
        copy = op.clone(self.copies)
        for original, inner in zip(op.walk(), list(copy.walk()), strict=True):
            if self._is_result(loaded := loaded_buffer(original)):
                inner.results[0].replace_all_uses_with(self._placeholder(inner.results[0].type))
            if self._is_result(loaded) or isinstance(stored_buffer(original), BlockArgument):
                inner.detach()
                inner.erase()
        self._builder.op_builder.insert(copy)
        self.copies.update(zip(op.results, copy.results, strict=True))

    def _is_result(self, buffer: SSAValue | None) -> bool:
        return (
            isinstance(buffer, BlockArgument)
            and isinstance(buffer.owner.parent_op(), func.FuncOp)
            and (buffer not in self.copies)
        )

    def _insert_placeholders(self, op: Operation) -> None:
        for result in op.results:
            self.copies[result] = self._placeholder(result.type)

    def _add_local_cotangents(self, buffer: SSAValue) -> None:
        """Allocate the cotangents of a local buffer, all 0, and the same views."""
        t = memref_of(buffer)
        element = cotangent_element(t.element_type)
        cotangents = self._builder.scratch(*t.get_shape(), element=element)
        views = {
            use.operation.result: use.operation for use in buffer.uses if isinstance(use.operation, memref.ReinterpretCastOp)
        }
        self._buffer_cotangents[buffer] = cotangents
        for view in views:
            self._buffer_cotangents[view] = cotangents.with_shape(memref_of(view).get_shape())
        zero = self._builder.constant(0, element)
        with ExitStack() as stack:
            cotangents[tuple(stack.enter_context(self._builder.loop(0, n)) for n in t.get_shape())] = zero

    # Cotangents

    def _value(self, kernel_value: KernelValue) -> Value:
        return Value(self._trace, kernel_value, element_of(kernel_value.type), self._trace.scope)

    def _original(self, value: SSAValue) -> Value:
        """Return the copy of an original value."""
        return self._value(KernelValue(self._builder, self.copies[value]))

    def _zeros(self, type: Attribute) -> KernelValue:
        return self._builder.constant(0, with_element(type, cotangent_element(element_of(type))))

    def _add(self, value: SSAValue, cotangent: Value) -> None:
        """Add to the cotangent of a value."""
        if isinstance(value.owner, arith.ConstantOp) or not is_float(element_of(value.type)):
            return
        if (cell := self._cells.get(value)) is not None:
            cell.value = cell.value + cotangent.kernel_value
            return
        previous = self._cotangents.get(value)
        self._cotangents[value] = cotangent if previous is None else previous + cotangent

    def _pull_block(self, block: Block) -> None:
        for op in reversed(list(block.ops)):
            match op:
                case memref.StoreOp() | vector.TransferWriteOp():
                    self._pull_store(op)
                case memref.LoadOp() | vector.TransferReadOp():
                    self._pull_load(op)
                case scf.ForOp():
                    self._pull_loop(op)
                case scf.IfOp():
                    self._pull_branch(op)
                case _:
                    for result in op.results:
                        cotangent = self._cotangents.pop(result, None)
                        if cotangent is not None:
                            self._pull_op(op, cotangent)

    def _pull_op(self, op: Operation, cotangent: Value) -> None:
        rule = RULES.get(type(op))
        if rule is None:
            raise UnsupportedError(f"{op.name} has no adjoint")
        operands = [self._original(v) for v in op.operands]
        for operand, term in zip(op.operands, rule(op, cotangent, self._original(op.results[0]), operands), strict=False):
            if term is not None:
                self._add(operand, term)

    def _pull_store(self, op: Store) -> None:
        """Move the cotangents of the stored elements to the stored value, and reset them."""
        cotangents = self._buffer_cotangents.get(cast(SSAValue, stored_buffer(op)))
        if cotangents is None:
            return
        zero = self._builder.constant(0, memref_of(cotangents.memref).element_type)
        if isinstance(op, memref.StoreOp):
            indices = self._indices(op)
            self._add(op.value, self._value(cotangents[indices]))
            if op.memref not in self._final:
                cotangents[indices] = zero
            return
        indices, axes, masked_dims = self._block(op)
        shape = shape_of_vector(op.vector.type)
        self._add(op.vector, self._value(cotangents.block(indices, shape, axes, zero, masked_dims)))
        if op.source not in self._final:
            cotangents.set_block(indices, axes, zero.splat(shape), masked_dims)

    def _pull_load(self, op: Load) -> None:
        """Add the cotangent of a loaded value to those of the elements."""
        cotangent = self._cotangents.pop(op.results[0], None)
        cotangents = self._buffer_cotangents.get(cast(SSAValue, loaded_buffer(op)))
        if cotangent is None or cotangents is None or loaded_buffer(op) in self._final:
            return
        if isinstance(op, memref.LoadOp):
            indices = self._indices(op)
            cotangents[indices] = cotangents[indices] + cotangent.kernel_value
            return
        indices, axes, masked_dims = self._block(op)
        zero = self._builder.constant(0, memref_of(cotangents.memref).element_type)
        total = cotangents.block(indices, cotangent.shape, axes, zero, masked_dims) + cotangent.kernel_value
        cotangents.set_block(indices, axes, total, masked_dims)

    def _indices(self, op: Any) -> tuple[KernelValue, ...]:
        return tuple(KernelValue(self._builder, self.copies[i]) for i in op.indices)

    def _block(
        self, op: vector.TransferReadOp | vector.TransferWriteOp
    ) -> tuple[tuple[KernelValue, ...], tuple[int, ...], list[int]]:
        """Return the indices of a transfer, its axes, and its masked dimensions."""
        axes = tuple(cast(AffineDimExpr, e).position for e in op.permutation_map.data.results)
        masked_dims = [d for d, is_inside in enumerate(cast(Any, op.in_bounds)) if not is_inside.value.data]
        return self._indices(op), axes, masked_dims

    # Loops and branches

    def _has_cotangents(self, op: Operation) -> bool:
        """Return whether an op may have cotangents: of its results, or of elements that it stores."""
        is_stored = any(stored_buffer(inner) in self._buffer_cotangents for inner in op.walk())
        return is_stored or any(r in self._cotangents for r in op.results)

    @contextmanager
    def _outer_cells(self, op: Operation) -> Generator[None]:
        """Accumulate in variables the cotangents of values that are defined outside of an op."""
        inner_values = {
            v for inner in op.walk() for v in (*inner.results, *(a for r in inner.regions for b in r.blocks for a in b.args))
        }
        used = [v for inner in op.walk() if inner is not op for v in inner.operands]
        outer = [
            v
            for v in dict.fromkeys(used)
            if v not in inner_values
            and v not in self._cells
            and is_float(element_of(v.type))
            and not isinstance(v.owner, arith.ConstantOp)
        ]
        cells = {v: self._builder.cell(self._zeros(v.type)) for v in outer}
        self._cells |= cells
        copies = dict(self.copies)
        yield
        self.copies = copies
        for v, cell in cells.items():
            del self._cells[v]
            self._add(v, self._value(cell.value))

    def _pull_loop(self, op: scf.ForOp) -> None:
        """Run the iterations of a loop in reverse."""
        if not self._has_cotangents(op):
            return
        builder, body = self._builder, op.body.block
        induction, *carried = body.args
        cells: dict[SSAValue, Cell] = {}
        for argument, result in zip(carried, op.results, strict=True):
            cotangent = self._cotangents.pop(result, None)
            if is_float(element_of(argument.type)):
                cells[argument] = builder.cell(self._zeros(argument.type) if cotangent is None else cotangent.kernel_value)
        low, high, step = (KernelValue(builder, self.copies[v]) for v in (op.lb, op.ub, op.step))
        with self._outer_cells(op), builder.loop(low, high, step) as index:
            last = low + (high - 1 - low) // step * step
            self.copies[induction] = (low + last - index).ssa
            for argument in carried:
                self.copies[argument] = self._placeholder(argument.type)
            for inner in body.ops:
                self._copy(inner)
            for argument, yielded in zip(carried, cast(Operation, body.last_op).operands, strict=True):
                if argument in cells:
                    self._add(yielded, self._value(cells[argument].value))
            self._pull_block(body)
            for argument, cell in cells.items():
                remaining = self._cotangents.pop(argument, None)
                cell.value = self._zeros(argument.type) if remaining is None else remaining.kernel_value
        for argument, initial in zip(carried, op.iter_args, strict=True):
            if argument in cells:
                self._add(initial, self._value(cells[argument].value))

    def _placeholder(self, type: Attribute) -> SSAValue:
        """Return a placeholder of a type, which must not be used."""
        self.placeholders.append(self._builder.uninitialized_cell(type).value.ssa)
        return self.placeholders[-1]

    def _pull_branch(self, op: scf.IfOp) -> None:
        """Pull cotangents back through a branch without results, under the same condition."""
        if not self._has_cotangents(op):
            return
        if op.results or (op.false_region.blocks and len(list(op.false_region.block.ops)) > 1):
            raise UnsupportedError("scf.if with results has no adjoint")
        condition = KernelValue(self._builder, self.copies[op.cond])
        with self._outer_cells(op), self._builder.when(condition):
            self.run(op.true_region.block)

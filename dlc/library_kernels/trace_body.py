"""Trace the loops of library ops, which are written in the language of `dlc.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NoReturn

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.errors import CompileError
from dlc.ir import Block, FunctionType, Region, func
from dlc.kernels.kernel_trace import KernelTrace, tracing_kernel
from dlc.kernels.references import ArrayReference
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.linalg.library_kernels import BodyTracer
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.shapes.dims import Dim, Relation, Size, is_nonnegative, product, substitute
from dlc.shapes.traced_dims import TracedDim, traced_sizes

# A proof adds up at most this many conditions on sizes.
_MAX_CONDITION_TERMS = 2


@dataclass(frozen=True)
class _Sizes:
    """The scope of the sizes of one op: it proves comparisons from the constraints of the op and the open scopes' conditions.

    Neither branches nor guards are added: kernels are lowered after the guards of a program are known.
    """

    trace: KernelTrace
    constraints: Sequence[Size]

    def decide_size(self, size: Dim, relation: Relation) -> bool | None:
        """Return whether a size has a relation to 0; None if that is not proved."""
        if self._is_nonnegative(-size - 1) or (relation == "==" and self._is_nonnegative(size - 1)):
            return False
        is_proved = self._is_nonnegative(size) and (relation == ">=" or self._is_nonnegative(-size))
        return True if is_proved else None

    def _is_nonnegative(self, size: Size) -> bool:
        conditions = [*self.constraints, *self.trace.size_conditions()]
        sums = (sum(c) for n in range(_MAX_CONDITION_TERMS + 1) for c in combinations(conditions, n))
        return any(is_nonnegative(size - total) for total in sums)

    def size_as_array(self, size: Dim) -> NoReturn:
        raise CompileError(f"the size {size} is used as an array")

    def require_active(self, size: Dim) -> None:
        """Accept the size: it is used while its op is traced only."""

    def reject_size(self, size: TracedDim) -> NoReturn:
        raise CompileError(f"the size {size} belongs to another op")


def traced(rule: Callable[..., None], *, is_batched: bool = False) -> BodyTracer:
    """Return a function that traces the loops `rule(op, *references)` of an op, for references to operands and results.

    With `is_batched`, the references have one axis for the batch axes of the op.
    """

    def trace(op: LibraryKernel) -> tuple[func.FuncOp, Sequence[Size]]:
        function = func.FuncOp(op.name.replace(".", "_"), FunctionType.from_lists([], []), Region(Block()))
        builder = KernelBuilder(OpBuilder(ConstantPool(function), function.body.block, op.location))
        trace, leading = KernelTrace(function, builder, is_trusted=True), op.num_batch_axes
        sizes = _Sizes(trace, op.size_constraints)
        references: list[ArrayReference] = []
        # The symbols of the body that replace sizes that are not provably nonnegative.
        symbols: dict[Size, Dim] = {}

        def local(size: Size) -> Size:
            return size if is_nonnegative(size) else symbols.setdefault(size, Dim.symbol(f"axis{len(symbols)}"))

        for name, value in _names(op):
            shape, element = shape_of(value), element_type_of(value)
            if is_batched:
                shape = (product(shape[:leading]), *(shape[leading:] or (1,)))
            kind = "operand" if value in op.operands else "result"
            references.append(ArrayReference.of_argument(trace, name, kind, traced_sizes(map(local, shape), sizes), element))
        with tracing_kernel(trace):
            rule(op, *references)
        values = {str(symbol): size for size, symbol in symbols.items()}
        return function, [substitute(size, values) for size in trace.finish()]

    return trace


def _names(op: LibraryKernel) -> list[tuple[str, Any]]:
    """Return the operands and results with their names."""
    return [
        *((f"x{k}", v) for k, v in enumerate(op.operands)),
        *((f"y{k}", v) for k, v in enumerate(op.results)),
    ]

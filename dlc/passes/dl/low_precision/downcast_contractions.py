"""Compute f32 contractions with weights in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import ProductSum
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.movement.shaping import ConcatOp, SliceOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.ir import Attribute, Context, ModuleOp, ModulePass, Operation, SSAValue, f32
from dlc.passes.dl.low_precision.hoisted_conversions import HoistedConversions, is_data_movement
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward, users
from dlc.shapes.dims import is_static

# Element types by precision.
_ELEMENT_TYPE_OF_PRECISION = {"bf16": ELEMENT_TYPES["bfloat16"], "f16": ELEMENT_TYPES["float16"]}


@dataclass(frozen=True)
class DowncastContractionsPass(ModulePass):
    """`downcast-contractions{precision="bf16"}`: contract(x, w)  ≈  contract(cast x, cast w), casts to bf16 or f16, f32 sums.

        %r = dl.relu %a;  %p = dl.pad %r;  %y = dl.conv %p, %w
    →   %r = dl.relu %a;  %x = dl.cast %r;  %p = dl.pad %x;  %y = dl.conv %p, (dl.cast %w) {result = f32}

    Applies to f32 contractions of data with a weight expression; others stay. Data-movement ops, concatenations and max pooling
    in between operate on half-precision values, which is exact because rounding is monotonic. Requires folded scales and
    `block-reductions`, since weights are rounded only once.
    """

    name = "downcast-contractions"
    precision: str = "bf16"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rounded = _DowncastValues(_ELEMENT_TYPE_OF_PRECISION[self.precision])
        for block in program_blocks(op):
            rewrite_forward(block, rounded.rewrite, ProductSum)


class _DowncastValues(HoistedConversions):
    """Converts the operands of contractions to half precision."""

    def __init__(self, to: Attribute) -> None:
        super().__init__(to)
        self.constant = WeightExpressions()
        # Values that only downcast contractions use.
        self.feeding_only_downcasts: set[SSAValue] = set()

    def rewrite(self, op: ProductSum) -> Sequence[SSAValue] | None:
        if not self.is_downcast(op):
            return None
        return [DlBuilder(op)(type(op), *map(self.convert, op.operands), **{**op.properties, "result": f32})]

    def is_downcast(self, op: Operation) -> bool:
        """Return whether an op is an f32 contraction of data with weights."""
        return (
            isinstance(op, ProductSum)
            and op.dot is None
            and all(element_type_of(v) == f32 for v in op.operands)
            and sum(v in self.constant for v in op.operands) == 1
        )

    def commutes(self, op: DlOp) -> bool:
        """Return whether to move the cast above an op: data movement, or a monotonic op that only downcast contractions use.

        A slice moves only if its operand is converted already.
        """
        if op.results[0] in self.constant:
            return False
        if isinstance(op, SliceOp):
            return op.x in self.converted_values
        return is_data_movement(op) or (_is_monotonic(op) and self.feeds_only_downcasts(op.results[0]))

    def feeds_only_downcasts(self, value: SSAValue) -> bool:
        """Return whether all users of a value are downcast contractions, possibly through data-movement ops."""
        visited, pending = set[SSAValue](), [value]
        while pending:
            if (read_value := pending.pop()) in self.feeding_only_downcasts:
                continue
            visited.add(read_value)
            for user in users(read_value):
                if self.is_downcast(user):
                    continue
                if not is_data_movement(user) and not _is_monotonic(user):
                    return False
                pending.append(user.results[0])
        self.feeding_only_downcasts |= visited
        return True


def _is_monotonic(op: Operation) -> bool:
    """Return whether an op selects elements of its operands, and the result is no smaller than a gathered table."""
    if isinstance(op, GatherOp):
        table_shape, result_shape = map(shape_of, (op.x, op.result))
        return is_static((*table_shape, *result_shape)) and prod(table_shape) <= prod(result_shape)
    return isinstance(op, MaxPoolOp | ConcatOp)

"""Fold transposes of operands into the dimension numbers of contractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import ints, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Attribute, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward


@dataclass(frozen=True)
class FoldTransposesIntoContractionsPass(ModulePass):
    """`fold-transposes-into-contractions`: folds the transpose of an operand into the dimension numbers.

        %t = dl.transpose %q {permutation = [0, 2, 1, 3]};  %s = dl.matmul %t, %k
    →   %s = dl.dot_general %q, %k {lhs_batch = [0, 2], rhs_batch = [0, 1], lhs_contract = [3], rhs_contract = [2]}

    Kernels read scalars of the left operand, in any axis order, and vectors of the right operand along the result's last axis,
    which must stay the operand's innermost axis. Transposed weights stay weight expressions, evaluated once. The product of a
    vector, or of a single row, with a transposed matrix swaps the operands instead, in a batch too:

        dl.matmul %At, %v   →   dl.matmul %v, %A        dl.matmul %v, %At   →   dl.matmul %A, %v
    """

    name = "fold-transposes-into-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, lambda inner: _fold(inner, constant), MatmulOp, DotGeneralOp)


@dataclass(frozen=True)
class ContractionOperand:
    """An operand of a contraction with its batch and contracted axes, in pairing order."""

    value: SSAValue
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @property
    def free(self) -> list[int]:
        return [a for a in range(rank_of(self.value)) if a not in self.batch + self.contracted]


def _operands(op: MatmulOp | DotGeneralOp) -> tuple[ContractionOperand, ContractionOperand] | None:
    if isinstance(op, DotGeneralOp):
        return (
            ContractionOperand(op.lhs, ints(op.lhs_batch), ints(op.lhs_contract)),
            ContractionOperand(op.rhs, ints(op.rhs_batch), ints(op.rhs_contract)),
        )
    a, b = shape_of(op.lhs), shape_of(op.rhs)
    if len(a) < 2 or len(b) < 2 or (len(b) > 2 and a[:-2] != b[:-2]):
        return None
    batch = tuple(range(len(b) - 2))
    return ContractionOperand(op.lhs, batch, (len(a) - 1,)), ContractionOperand(op.rhs, batch, (len(b) - 2,))


def _fold(op: MatmulOp | DotGeneralOp, constant: WeightExpressions) -> Sequence[SSAValue] | None:
    if isinstance(op, MatmulOp) and (swapped := _swap_operands(op, constant)) is not None:
        return swapped
    if (sides := _operands(op)) is None:
        return None
    lhs, rhs = _without_transpose(sides[0], constant), _without_transpose(sides[1], constant)
    if rhs is not None and rhs.free[-1:] != [rank_of(rhs.value) - 1]:
        rhs = None
    if lhs is None and rhs is None:
        return None
    lhs, rhs = lhs or sides[0], rhs or sides[1]
    return [
        DlBuilder(op)(
            DotGeneralOp,
            lhs.value,
            rhs.value,
            lhs_batch=lhs.batch,
            rhs_batch=rhs.batch,
            lhs_contract=lhs.contracted,
            rhs_contract=rhs.contracted,
            **_result_properties(op),
        )
    ]


def _result_properties(op: MatmulOp | DotGeneralOp) -> dict[str, Attribute]:
    return {name: value for name, value in op.properties.items() if name in ("result", "dot")}


def _swap_operands(op: MatmulOp, constant: WeightExpressions) -> Sequence[SSAValue] | None:
    """Rewrite the product of a vector, or of a single row, with a transposed matrix by swapping the operands."""
    rows, matrix = shape_of(op.lhs), shape_of(op.rhs)
    is_single_row = len(rows) == len(matrix) > 1 and rows[-2] == 1 and rows[:-2] == matrix[:-2]
    is_matrix_vector = len(matrix) == 1
    if op.dot is not None or not (is_single_row or is_matrix_vector or len(rows) == 1):
        return None
    vector, transposed = (op.rhs, op.lhs) if is_matrix_vector else (op.lhs, op.rhs)
    transpose = defining_op(transposed, TransposeOp)
    if transpose is None or transposed in constant:
        return None
    *leading, i, k = range(rank_of(transposed))
    if tuple(transpose.axes) != (*leading, k, i):
        return None
    build = DlBuilder(op)
    if is_single_row:
        vector = build(ReshapeOp, vector, shape=rows[1:] if not leading else (*rows[:-2], rows[-1], 1))
    result = build(MatmulOp, *((vector, transpose.x) if is_matrix_vector else (transpose.x, vector)), **_result_properties(op))
    return [build(ReshapeOp, result, shape=shape_of(op.result)) if is_single_row else result]


def _without_transpose(side: ContractionOperand, constant: WeightExpressions) -> ContractionOperand | None:
    """Return the operand without its transpose; None if it has none, or the result's axes would change order."""
    transpose = defining_op(side.value, TransposeOp)
    if transpose is None or side.value in constant:
        return None
    axes = transpose.axes
    free_axes = [axes[a] for a in side.free]
    if free_axes != sorted(free_axes):
        return None
    return ContractionOperand(transpose.x, tuple(axes[a] for a in side.batch), tuple(axes[a] for a in side.contracted))

"""`gpu.subgroup_matmul`: a matrix product by the matrix units of a GPU, whose operands are distributed over 32 work-items."""

from __future__ import annotations

from dlc.ir import (
    IRDLOperation,
    SSAValue,
    StringAttr,
    VectorType,
    VerifyException,
    f32,
    i32,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)

# Work-items of a product, rows of its first operand, columns of the second, and words of the contracted dimension.
SUBGROUP_ITEMS, TILE_ROWS, TILE_COLUMNS, TILE_WORDS = 32, 16, 32, 16
# Per work-item: rows of the first operand, columns of the second, elements of a result row, words.
ROWS_PER_ITEM, COLUMNS_PER_ITEM, SUMS_PER_ITEM, WORDS_PER_ITEM = 2, 4, 8, 4
_SUMS = VectorType(f32, [SUMS_PER_ITEM])


@irdl_op_definition
class SubgroupMatmulOp(IRDLOperation):
    """`C + A · B` by 32 work-items whose ids differ in the last five bits only, for A [16, 16] and B [16, 32] of words.

    Work-item 4g + t of the 32 (g < 8, t < 4) holds three operands. `rows` has words 4t … 4t + 3 of rows g and g + 8 of A,
    interleaved word by word. `words` has the same words in columns 4g … 4g + 3 of B, one row per column. `upper_sums` and
    `lower_sums` have columns 8t … 8t + 7 of rows g and g + 8 of C, of f32. The results are these elements of `C + A · B`.

    `dot` names the product of two words (`PACKED_DOTS` of `dl`), each of two 16-bit floats. The order and the rounding of
    partial sums are unspecified. All work-items of a group execute the op in convergence.
    """

    name = "gpu.subgroup_matmul"
    rows = operand_def(VectorType)
    words = operand_def(VectorType)
    upper_sums = operand_def(VectorType)
    lower_sums = operand_def(VectorType)
    dot = prop_def(StringAttr)
    upper_result = result_def(VectorType)
    lower_result = result_def(VectorType)

    @staticmethod
    def of(rows: SSAValue, words: SSAValue, sums: tuple[SSAValue, SSAValue], dot: str) -> SubgroupMatmulOp:
        properties = {"dot": StringAttr(dot)}
        return SubgroupMatmulOp.create(operands=[rows, words, *sums], properties=properties, result_types=[_SUMS, _SUMS])

    def verify_(self) -> None:
        rows, words = (VectorType(i32, [n, WORDS_PER_ITEM]) for n in (ROWS_PER_ITEM, COLUMNS_PER_ITEM))
        if [v.type for v in (*self.operands, *self.results)] != [rows, words, *[_SUMS] * 4]:
            raise VerifyException(f"{self.name}: expected operands of types {rows}, {words}, {_SUMS} and {_SUMS}")

"""`gpu.multiply_words`: items of a group multiply matrices together, each with its part of them in registers."""

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

# What so many items multiply at once: rows of the first operand, columns of the second, and words of both.
ITEMS, ROWS, COLUMNS, WORDS = 32, 16, 32, 16
# What one of them has: rows, columns of the second operand and of the result, words.
OWN_ROWS, OWN_COLUMNS, OWN_SUMS, OWN_WORDS = 2, 4, 8, 4
_SUMS = VectorType(f32, [OWN_SUMS])


@irdl_op_definition
class MultiplyWordsOp(IRDLOperation):
    """`C + A · B` of the 32 items whose numbers differ in the last five bits, A [16, 16] and B [16, 32] of words.

    Item 4g + t of the 32 (g < 8, t < 4) has words 4t … 4t + 3 of rows g and g + 8 of A, which take turns word by word in
    `rows`; the same words in columns 4g … 4g + 3 of B, one row of `words` for each column; and columns 8t … 8t + 7 of rows g
    and g + 8 of C, of f32, in `upper_sums` and `lower_sums`. Its results are these places of `C + A · B`.

    A product of words is that which `dot` names (`DOTS` of `dl`), of two floats of 16 bits each. The order of a sum is left
    open, and how it is rounded on the way. All items of a group come to the op together.
    """

    name = "gpu.multiply_words"
    rows = operand_def(VectorType)
    words = operand_def(VectorType)
    upper_sums = operand_def(VectorType)
    lower_sums = operand_def(VectorType)
    dot = prop_def(StringAttr)
    upper_result = result_def(VectorType)
    lower_result = result_def(VectorType)

    @staticmethod
    def of(rows: SSAValue, words: SSAValue, sums: tuple[SSAValue, SSAValue], dot: str) -> MultiplyWordsOp:
        properties = {"dot": StringAttr(dot)}
        return MultiplyWordsOp.create(operands=[rows, words, *sums], properties=properties, result_types=[_SUMS, _SUMS])

    def verify_(self) -> None:
        rows, words = (VectorType(i32, [n, OWN_WORDS]) for n in (OWN_ROWS, OWN_COLUMNS))
        if [v.type for v in (*self.operands, *self.results)] != [rows, words, *[_SUMS] * 4]:
            raise VerifyException(f"{self.name}: expected operands of {rows}, {words}, and {_SUMS} twice")

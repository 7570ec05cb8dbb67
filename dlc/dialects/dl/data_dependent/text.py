"""Text: tensors of i64 whose elements are numbers of texts, in a list that the model has and a call makes longer.

Two of them are equal where the texts are, so that text is moved, compared and looked up by the ops for numbers. What makes
other text of it, or reads it, Python computes by its strings (`dlc/runtime/python_ops/text_functions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects.dl.base import (
    DimsAttr,
    Tensor,
    broadcast_shapes,
    element_type_of,
    flag,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dims import product
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    TensorType,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.runtime.python_ops.selection import Setting


class OnText(DataDependent):
    """An op with text among its operands or results."""

    def require_text(self, *operands: SSAValue) -> None:
        """Raises DTypeError for operands that cannot be text."""
        if any(element_type_of(v) != i64 for v in operands):
            raise DTypeError(f"{self.name}: element types {[str(element_type_of(v)) for v in operands]}; text is i64")


@irdl_op_definition
class TextConcatOp(OnText):
    """Texts put behind one another, element by element: `result = x + y` as Python has it.

    (C1) `x` and `y` are text; (C2) they broadcast to the shape of the result.
    """

    name = "dl.text_concat"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(self.x, self.y)
        return [tensor_type(broadcast_shapes(self.name, shape_of(self.x), shape_of(self.y)), i64)]


@irdl_op_definition
class TextSplitOp(OnText):
    """The parts of each text of `x` between delimiters, and how many there are: Python's `str.split`.

    An empty `delimiter` stands for any run of white space, and none is at the ends then. With `most` there are at most so many
    cuts, from the left. Where a text has fewer parts than another one, empty ones follow.
    (C1) both operands are text, `delimiter` of rank 0; (C2) `parts` has the shape of `x` and the axis `size` behind it; (C3)
    `counts` is i64 of the shape of `x`. Of an empty `x` the size is 0.
    """

    name = "dl.text_split"
    x = operand_def(TensorType)
    delimiter = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    most = opt_prop_def(IntegerAttr)
    parts = result_def(TensorType)
    counts = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(*self.operands)
        if rank_of(self.delimiter):
            raise ShapeError(f"{self.name}: a delimiter of shape {shape_of(self.delimiter)}; expected rank 0 (C1)")
        shape = shape_of(self.x)
        return [tensor_type((*shape, *sizes(self.size)), i64), tensor_type(shape, i64)]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"most": None if self.most is None else number(self.most)}


@irdl_op_definition
class TextNormalizeOp(OnText):
    """The texts of `x` that are none of `stopwords`, in small letters if `lower`, in capital ones if `upper`.

    Stopwords are compared as they are if `match_case`, else without regard to case. What is left has one empty text at least.
    (C1) operands are text; (C2) `x` is [n] or [1, n], and the result has `size` in the place of n; (C3) `stopwords` has rank 1.
    """

    name = "dl.text_normalize"
    x = operand_def(TensorType)
    stopwords = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    match_case = opt_prop_def(BoolAttr)
    lower = opt_prop_def(BoolAttr)
    upper = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(*self.operands)
        shape = shape_of(self.x)
        if shape[:-1] not in ((), (1,)) or not shape or rank_of(self.stopwords) != 1:
            raise ShapeError(f"{self.name}: texts {shape} and stopwords {shape_of(self.stopwords)}; see (C2), (C3)")
        return [tensor_type((*shape[:-1], *sizes(self.size)), i64)]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"match_case": flag(self.match_case), "lower": flag(self.lower), "upper": flag(self.upper)}


@irdl_op_definition
class TextMatchOp(OnText):
    """Whether each text of `x` is, from its first letter to its last, what the regular expression `pattern` describes.

    Expressions are those of Python's `re`. (C1) both operands are text, `pattern` of rank 0; (C2) the result is bool of the
    shape of `x`.
    """

    name = "dl.text_match"
    x = operand_def(TensorType)
    pattern = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(*self.operands)
        if rank_of(self.pattern):
            raise ShapeError(f"{self.name}: a pattern of shape {shape_of(self.pattern)}; expected rank 0 (C1)")
        return [tensor_type(shape_of(self.x), i1)]


@irdl_op_definition
class TextUniqueOp(OnText):
    """The distinct texts of `x`, and how they come about: as `dl.unique` without an axis, in the order of their letters' codes.

    (C1) `x` is text; (C2) the four results are `dl.unique`'s.
    """

    name = "dl.text_unique"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    keep_order = opt_prop_def(BoolAttr)
    y = result_def(TensorType)
    first = result_def(TensorType)
    inverse = result_def(TensorType)
    counts = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(self.x)
        of_each = tensor_type(sizes(self.size), i64)
        return [of_each, of_each, tensor_type((product(shape_of(self.x)),), i64), of_each]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"keep_order": flag(self.keep_order)}


@irdl_op_definition
class NumberToTextOp(OnText):
    """Each number as text: integers and truth values by their digits, floats by up to eight, NaN, INF and -INF by name.

    `1 → "1"`, `1.0 → "1"`, `1e-7 → "1e-07"`. (C1) the result has the shape of `x`.
    """

    name = "dl.number_to_text"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x), i64)]


@irdl_op_definition
class TextToNumberOp(OnText):
    """The number that each text of `x` writes, plain or scientific, or INF or NaN in letters of any case; white space around it
    is dropped, and so are the digits behind the point of an integer.

    A text that is none, or that `to` has no number for, is an error. (C1) `x` is text; (C2) the result has its shape.
    """

    name = "dl.text_to_number"
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_text(self.x)
        return [tensor_type(shape_of(self.x), self.to)]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"to": numpy_dtype(self.to).name}
